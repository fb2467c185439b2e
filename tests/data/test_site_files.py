"""A site's own file gives the same table whatever its kind, and says in one sentence what is wrong with it."""

import csv
import sys
import zipfile
from dataclasses import replace
from datetime import date

import numpy as np
import openpyxl
import pyarrow as pa
import pytest
from pyarrow import parquet
from refusals import refusing
from scipy import sparse
from typer.testing import CliRunner

from fedkernel.data import ParquetTable, SiteFile, read_raw
from fedkernel.experiments.cli import app
from fedkernel.experiments.config.sections import Shards
from fedkernel.ground import InputError

N = 9
X = np.random.default_rng(0).standard_normal((N, 3))
X[:, 1] = np.arange(N) % 2  # true and false
X[:, 2] = np.arange(N) - 4  # whole numbers
NAMES = ("pressure", "smokes", "score")
IDS = tuple(f"00{row}" for row in range(N))
CITY = ["Bergen"] * N
NUMBER = "8675309"


def csv_text(columns):
    """Numbers with all their digits, true and false as words."""
    rows = zip(*columns.values(), strict=True)
    words = {True: "true", False: "false"}
    lines = [",".join(words[cell] if isinstance(cell, bool) else str(cell) for cell in row) for row in rows]
    return "\n".join([",".join(columns), *lines]) + "\n"


def columns_of():
    return {
        "patient": list(IDS),
        "pressure": X[:, 0].tolist(),
        "city": CITY,
        "smokes": [bool(cell) for cell in X[:, 1]],
        "score": [int(cell) for cell in X[:, 2]],
    }


def written(folder, text, encoding="utf-8"):
    path = folder / "a.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    return path


def write_csv(folder):
    return written(folder, csv_text(columns_of()))


def write_csv_of_numbers(folder):
    return written(folder, csv_text(dict(zip(NAMES, X.T.tolist(), strict=True))))


def write_parquet(folder, columns=None):
    path = folder / "a.parquet"
    parquet.write_table(pa.table(columns or columns_of()), path, row_group_size=4)
    return path


def write_npz(folder, **arrays):
    path = folder / "a.npz"
    np.savez(path, **({"X": X, "columns": np.array(NAMES), "ids": np.array(IDS)} | arrays))
    return path


def write_npy(folder, X=X):
    path = folder / "a.npy"
    np.save(path, X)
    return path


NAMED = {
    "csv": lambda folder, **more: SiteFile(write_csv(folder), label="city", id="patient", **more),
    "parquet": lambda folder, **more: SiteFile(write_parquet(folder), label="city", id="patient", **more),
    "npz": lambda folder, **more: SiteFile(write_npz(folder), **more),
}


@pytest.mark.parametrize("kind", NAMED)
def test_a_table_is_the_same_in_every_kind_of_file(kind, tmp_path):
    data = NAMED[kind](tmp_path).read()
    assert np.asarray(data.X).tobytes() == X.tobytes()
    assert (data.columns, data.ids) == (NAMES, IDS)
    chosen = NAMED[kind](tmp_path, columns=["score", "pressure"]).read()
    np.testing.assert_array_equal(chosen.X, X[:, [2, 0]])
    assert (chosen.columns, chosen.ids) == (("score", "pressure"), IDS)


@pytest.mark.parametrize("write", [write_npy, write_csv_of_numbers])
def test_a_table_without_ids(write, tmp_path):
    data = SiteFile(str(write(tmp_path))).read()
    assert np.asarray(data.X).tobytes() == X.tobytes()
    assert data.ids is None


def test_columns_without_names_are_chosen_by_number(tmp_path):
    path = write_npy(tmp_path)
    data = SiteFile(path, columns=["2", "0"]).read()
    np.testing.assert_array_equal(data.X, X[:, [2, 0]])
    assert data.columns == ()
    np.testing.assert_array_equal(SiteFile(path, label="1").read().X, X[:, [0, 2]])
    nameless = tmp_path / "b.npz"
    np.savez(nameless, X=X)
    np.testing.assert_array_equal(SiteFile(nameless, columns=["1"]).read().X, X[:, [1]])
    sparse_file = tmp_path / "s.npz"
    sparse.save_npz(sparse_file, sparse.csr_array(X))
    np.testing.assert_array_equal(SiteFile(sparse_file, label="0").read().X.block(0, N).toarray(), X[:, 1:])


def test_a_parquet_file_is_read_group_by_group_and_ids_are_texts_as_they_stand(tmp_path):
    assert isinstance(NAMED["parquet"](tmp_path).read().X, ParquetTable)
    numbers = SiteFile(write_parquet(tmp_path, {"a": [1.5, 2.5], "b": [1, 2]})).read()
    assert isinstance(numbers.X, ParquetTable)
    assert numbers.columns == ("a", "b")
    path = written(tmp_path, 'id,x\n"007",1\n7,2\n"å, é",3\nNA,4\n')
    assert SiteFile(path, id="id").read().ids == ("007", "7", "å, é", "NA")
    whole = SiteFile(write_parquet(tmp_path, {"id": [7, 8], "x": [1.0, 2.0]}), id="id")
    assert whole.read().ids == ("7", "8")
    words = pa.array(["b", "a"]).dictionary_encode()
    assert SiteFile(write_parquet(tmp_path, {"id": words, "x": [1, 2]}), id="id").read().ids == ("b", "a")
    assert SiteFile(write_npz(tmp_path, ids=np.arange(N))).read().ids == tuple("012345678")
    raw = read_raw(SiteFile(written(tmp_path, "id,x,t\nNA,NA,NA\nb,1,u\n"), id="id"))
    assert raw.ids == ("NA", "b")
    assert np.isnan(raw.columns["x"][0])
    assert raw.columns["t"].tolist() == [None, "u"]


def test_a_csv_file_with_a_mark_and_other_line_ends_or_in_latin_1_where_that_is_named(tmp_path):
    data = SiteFile(written(tmp_path, b'\xef\xbb\xbfa,"b, c"\r\n1,True\r\n2e3,false\r\n\r\n')).read()
    np.testing.assert_array_equal(data.X, [[1, 1], [2000, 0]])
    assert data.columns == ("a", "b, c")
    file = SiteFile(written(tmp_path, "gr\xf6\xdfe,wer\n1,\xfc\n", "latin-1"), id="wer", encoding="latin-1")
    assert (file.read().columns, file.read().ids) == (("gr\xf6\xdfe",), ("\xfc",))


@pytest.mark.parametrize(
    ("text", "encoding", "guessed"),
    [
        ("i;x; y \na;1,5;2\nb;-3;1e2\n", "utf-8", ("delimiter = ';'", "decimal = ','")),
        ("i;x;y\na;15e-1;2\nb;-3,0;1e2\n", "utf-8", ("delimiter = ';'", "decimal = ','")),  # by its last line alone
        ("i\tx\ty\r\na\t1.5\t2\r\nb\t-3\t100\r\n", "utf-16", ("encoding = 'utf-16'", "delimiter = '\\t'")),
        ("i|x|y\na|1.5|2\nb|-3|100\n", "utf-8-sig", ("delimiter = '|'",)),
        ("i,x,y\na,1.5,2\nb,-3,100\n", "utf-8", ()),
    ],
)
def test_how_a_file_is_written_is_guessed_where_that_is_safe_and_said(tmp_path, text, encoding, guessed):
    file = SiteFile(written(tmp_path, text, encoding), id="i")
    data, raw = file.read(), read_raw(file)
    assert file.csv_format.guessed == guessed
    assert (data.columns, data.ids) == (("x", "y"), ("a", "b"))
    np.testing.assert_array_equal(data.X, [[1.5, 2], [-3, 100]])
    np.testing.assert_array_equal(np.column_stack(list(raw.columns.values())), data.X)
    form = file.csv_format
    spelt = {"delimiter": form.delimiter.replace("\t", "tab"), "decimal": form.decimal, "encoding": form.encoding}
    spelt = SiteFile(file.path, id=" i", **spelt)
    np.testing.assert_array_equal(spelt.read().X, data.X)
    assert hash(spelt)
    assert spelt.csv_format.guessed == ()


@pytest.mark.parametrize(
    ("text", "options", "sentence"),
    [
        ("a,b\n1,5,2\n3,5,4\n", {}, "row 2 (row 1 has the names) has 3 values; allowed: one for each of the 2 columns"),
        ("a;b,c\n1;2,3\n", {}, "fits several delimiters: ',', ';'; give one (--delimiter)"),
        # 1.234 or 1234
        ("a;b\n1,234;2\n", {}, "string in row 2 (row 1 has the names), where a decimal comma may stand (--decimal)"),
        ("a;b\n1,2;2.5\n", {}, "column 'a' holds string in row 2"),  # two decimal marks
        ("a\n\xe4\n", {"encoding": "ascii"}, "cannot be read (UnicodeDecodeError)"),
    ],
)
def test_what_could_be_read_in_two_ways_is_not_guessed(tmp_path, text, options, sentence):
    with refusing(sentence):
        SiteFile(written(tmp_path, text), **options).read()


def titled(folder, suffix):
    """A file whose third row has the names: above a title in two lines and an empty row, below 30 rows of a site."""
    rows = [["Ward; 2024,\nsouth", None, None], [None, None, None], ["i", "x", "y"]]
    rows += [[f"p{row}", row + 0.5, 2 * row] for row in range(30)]
    path = folder / f"titled{suffix}"
    if suffix == ".xlsx":
        book = openpyxl.Workbook()
        for row in rows:
            book.active.append(row)
        book.save(path)
        return path
    delimiter = ";" if path.stem.endswith("german") else ","
    with path.open("w", newline="") as file:
        sheet = csv.writer(file, delimiter=delimiter)
        for row in rows:
            cells = ("" if cell is None else str(cell) for cell in row)
            sheet.writerow(cell.replace(".", ",") if delimiter == ";" else cell for cell in cells)
    return path


@pytest.mark.parametrize("suffix", [".csv", "-german.csv", ".xlsx"])
def test_the_row_with_the_names_may_be_another_than_the_first(tmp_path, monkeypatch, suffix):
    """On every way in: a site's own file, prepared or not, a node's configuration, [data], `check` and `advise`."""
    path = titled(tmp_path, suffix)
    file = SiteFile(path, id="i", header=3)
    data, raw = file.read(), read_raw(SiteFile.of_node(file.to_node()))
    assert (data.columns, data.ids) == (("x", "y"), tuple(f"p{row}" for row in range(30)))
    expected = np.column_stack([np.arange(30) + 0.5, 2 * np.arange(30)])
    np.testing.assert_array_equal(data.X, expected)
    np.testing.assert_array_equal(np.column_stack(list(raw.columns.values())), expected)
    assert raw.row(0) == "row 4 (row 3 has the names)"
    monkeypatch.chdir(tmp_path)
    (shard,) = Shards(shards=[path.name], id="i", header=3).within(tmp_path).files
    np.testing.assert_array_equal(shard.read().X, expected)
    (tmp_path / "plain.csv").write_text("i,x,y\nq,1,2\n")
    mixed = Shards(shards=["plain.csv", path.name], id="i", forms={path.name: {"header": 3}})
    plain, shard = mixed.within(tmp_path).files
    assert plain.read().ids == ("q",)
    np.testing.assert_array_equal(shard.read().X, expected)
    with pytest.raises(ValueError, match=f"which is none of the files in shards; allowed: {path.name}"):
        Shards(shards=[path.name], forms={"plain.csv": {"header": 1}}).within(tmp_path)
    for command in (("check", path.name, "--id", "i"), ("advise", path.name, "--id", "i", "--goal", "clusters")):
        done = CliRunner().invoke(app, [*command, "--header", "3"])
        assert done.exit_code == 0, done.output
        done = CliRunner().invoke(app, [*command, "--header", "99"])
        assert done.exit_code == 2
        assert f"header = 99, but {path.name} has 33 rows; allowed: the row of the column names" in done.stderr


@pytest.mark.parametrize("suffix", [".csv", ".xlsx"])
@pytest.mark.parametrize(
    ("header", "sentence"),
    [
        (0, "header = 0, but must be the number of a row, from 1"),
        (2, "row 2 of {path} is empty; allowed: column names there, or a different --header"),
        (33, "id = 'i' is no column of {path}; there are: 'p29', '29.5', '58', the names in row 33 (header)"),
        (34, "header = 34, but {path} has 33 rows; allowed: the row of the column names"),
    ],
)
def test_a_row_that_has_no_names_is_refused(tmp_path, suffix, header, sentence):
    path = titled(tmp_path, suffix)
    with refusing(whole=sentence.format(path=path)):
        SiteFile(path, id="i", header=header).read()


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("b,5", "row 5 (row 3 has the names) has 2 values"),
        ("b,c,5", "column 'x' holds string in row 5 (row 3 has the names)"),
        ("b,,5", "row 5 (row 3 has the names), column 'x' holds no value"),
        ("a,1,5", "rows 4 and 5 (row 3 has the names) have the same id"),
    ],
)
def test_rows_are_counted_from_the_file_s_first(tmp_path, row, sentence):
    path = written(tmp_path, f'"a\nb"\n\ni,x,y\na,1,2\n{row}\n')
    with refusing(sentence):
        SiteFile(path, id="i", header=3).read()


def test_a_spreadsheet_is_read_as_a_csv_file_and_refused_without_openpyxl(tmp_path, monkeypatch):
    book = openpyxl.Workbook()
    for row in (["id", " x", "y", "when", None], ["007", 1, 2.5, date(2020, 1, 1)], [], [8.0, 3, "NA", "?"]):
        book.active.append(row)
    book.active["Z9"].number_format = "0.00"  # formatted, and empty
    book.save(tmp_path / "a.xlsx")
    raw = read_raw(SiteFile(tmp_path / "a.xlsx", id="id", label=["when"]))
    assert raw.ids == ("007", "8")
    np.testing.assert_array_equal(np.column_stack(list(raw.columns.values())), [[1, 2.5], [3, np.nan]])
    assert raw.names == ("x", "y")
    assert raw.labels["when"].tolist() == ["2020-01-01 00:00:00", "?"]
    np.testing.assert_array_equal(SiteFile(tmp_path / "a.xlsx", columns=["x"], id="id").read().X, [[1], [3]])
    with pytest.raises(InputError, match=r"row 3 \(row 1 has the names\), column 'y' holds no value"):
        SiteFile(tmp_path / "a.xlsx", id="id", label="when").read()
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(InputError, match=r"needs openpyxl, which is missing: pip install 'fedkernel\[xlsx\]'"):
        SiteFile(tmp_path / "a.xlsx").read()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_columns_are_dropped_and_several_are_labels(tmp_path, kind):
    file = NAMED[kind](tmp_path)
    labels = replace(file, label=("city", "smokes"), drop=["score"])
    data, raw = labels.read(), read_raw(labels)
    assert data.columns == raw.names == ("pressure",)
    np.testing.assert_array_equal(data.X, X[:, :1])
    assert raw.labels["city"].tolist() == CITY
    assert [label.lower() for label in raw.labels["smokes"]] == [str(bool(cell)).lower() for cell in X[:, 1]]
    assert SiteFile.of_node(labels.to_node()) == replace(labels, path=str(labels.path))


def csv_of(text):
    return lambda folder: written(folder, text)


def parquet_of(columns):
    return lambda folder: write_parquet(folder, columns)


FAR_BELOW = b"".join(b"%d,1\n" % row for row in range(9999))
TWICE = f"i,x\nb,1\n{NUMBER},2\nc,3\n{NUMBER},4\n"
REFUSED = {
    "missing": (lambda f: f / "none.csv", {}, "there is no file {path}"),
    "unknown": (lambda f: f / "a.ods", {}, "{path} ends in '.ods'; allowed: .csv, .xlsx, .parquet, .npy, .npz"),
    "a folder": (lambda f: f, {}, "{path} is a folder; allowed: a file with a table"),
    "empty": (csv_of(""), {}, "{path} is empty; allowed: a row with the names"),
    "no rows": (csv_of("a,b\n"), {}, "{path} has no rows; allowed: at least one"),
    "no rows, parquet": (lambda f: write_parquet(f, {"a": pa.array([], pa.float64())}), {}, "{path} has shape (0, 1)"),
    "not UTF-8": (csv_of(b"a,b\n\xff,1\n"), {}, "{path} cannot be read (UnicodeDecodeError); allowed: text in UTF-8"),
    "not UTF-8, far below": (csv_of(b"a,b\n" + FAR_BELOW + b"\xff,1\n"), {}, "{path}: column 'a' holds binary"),
    "not UTF-8, ids": (csv_of(b"a,b\n" + FAR_BELOW + b"\xff,1\n"), {"id": "a"}, "{path} cannot be read (ArrowInvalid)"),
    "a binary file": (csv_of(b"\x93NUMPY\x00\x01"), {}, "{path} cannot be read (UnicodeDecodeError); allowed: text in"),
    "no such column": (csv_of("a,b\n1,2\n"), {"columns": ["a", "c"]}, "columns = 'c' is no column of {path}; there"),
    "no such label": (csv_of("a,b\n1,2\n"), {"label": "c"}, "label = 'c' is no column of {path}; there are: 'a', 'b'"),
    "no such id": (csv_of("a,b\n1,2\n"), {"id": "c"}, "id = 'c' is no column of {path}; there are: 'a', 'b'"),
    "no such number": (write_npy, {"columns": ["3"]}, "columns = '3' is no column of {path}; there are: '0', '1', '2'"),
    "no such name": (write_npz, {"columns": ["0"]}, "columns = '0' is no column of {path}; there are: 'pressure'"),
    "text": (csv_of(f"a,b\n1,2\n{NUMBER},x{NUMBER}\n"), {}, "{path}: column 'b' holds string in row 3 (row 1 has the"),
    "text, parquet": (write_parquet, {"id": "patient"}, "{path}: column 'city' holds string; allowed in the table"),
    "dates": (csv_of("a\n2020-01-01\n"), {}, "{path}: column 'a' holds date32[day]; allowed in the table: numbers"),
    "no value": (csv_of(f"a,b\n1,2\n{NUMBER},\n"), {}, "{path}: row 3 (row 1 has the names), column 'b' holds no"),
    "NaN": (csv_of("a,b\n1,2\n3,NaN\n"), {}, "{path}: row 3 (row 1 has the names), column 'b' holds no value"),
    "no values": (csv_of("a,b\n1,\n3,\n"), {}, "{path}: row 2 (row 1 has the names), column 'b' holds no value"),
    "an empty line": (csv_of("a\n1\n\n3\n"), {}, "{path}: row 3 (row 1 has the names), column 'a' holds no value"),
    "a short row": (csv_of(f"a,b\n1,2\n{NUMBER}\n"), {}, "{path}: row 3 (row 1 has the names) has 1 values; allowed:"),
    "the same name": (csv_of("a,b,a\n1,2,3\n"), {}, "{path} has two columns 'a'; allowed: names that differ"),
    "the same name, parquet": (parquet_of(pa.table([[1.0], [2.0]], ["a", "a"])), {}, "{path} has two columns 'a'"),
    "the same name, npz": (lambda f: write_npz(f, columns=np.array([*"aba"])), {}, "{path} has two columns 'a'"),
    "no name": (csv_of("a,,b\n1,2,3\n"), {}, "{path}: column 1 (counted from 0) has no name"),
    "the same id": (csv_of(TWICE), {"id": "i"}, "{path}: column 'i': rows 3 and 5 (row 1 has the names) have the same"),
    "no id": (csv_of("i,x\nb,1\n ,2\n"), {"id": "i"}, "{path}: column 'i': row 3 (row 1 has the names) has no id"),
    "no id, parquet": (parquet_of({"i": ["a", None], "x": [1, 2]}), {"id": "i"}, "{path}: column 'i': row 3 (row 1"),
    "fractions as ids": (parquet_of({"i": [0.5, 1.5], "x": [1, 2]}), {"id": "i"}, "{path}: column 'i' holds double"),
    "ids of an npy file": (write_npy, {"id": "0"}, "id = '0', but {path} has no column of ids; allowed: an .npz file"),
    "ids of fractions": (lambda f: write_npz(f, ids=np.ones(N)), {}, "ids in {path} must be one text or whole number"),
    "too few ids": (lambda f: write_npz(f, ids=np.arange(N - 1)), {}, "ids in {path} must be one text or whole number"),
    "the same id, npz": (lambda f: write_npz(f, ids=np.zeros(N, int)), {}, "ids in {path}: rows 0 and 1 (counted from"),
    "objects": (lambda f: write_npz(f, ids=np.array([None] * N)), {}, "ids in {path} announces object (9,)"),
    "too few names": (lambda f: write_npz(f, columns=np.array(["a"])), {}, "columns in {path} must be the names of"),
    "no X": (lambda f: write_npz(f, X=np.ones(3)), {}, "{path} has shape (3,); allowed"),
    "only ids": (csv_of("i\nb\n"), {"id": "i"}, "{path} has no columns besides label and id; allowed: at least one"),
    "another kind": (lambda f: write_parquet(f, {"a": [1.5]}).rename(f / "a.npy"), {}, "{path} is no .npy file"),
    "no parquet": (lambda f: write_npy(f).rename(f / "a.parquet"), {}, "{path} cannot be read (ArrowInvalid)"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_wrong_is_said_in_one_sentence_without_a_value(kind, tmp_path):
    write, options, text = REFUSED[kind]
    path = write(tmp_path)
    with pytest.raises(InputError) as caught:
        SiteFile(path, **options).read()
    message = str(caught.value)
    assert message.startswith(text.format(path=path))
    assert NUMBER not in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"columns": ["a", "b", "a"]}, "columns names 'a' twice; allowed: each column once"),
        ({"columns": ["a", "b"], "label": "b"}, "columns names 'b', which is the label; allowed: columns of the table"),
        ({"columns": ["a", "b"], "id": "a"}, "columns names 'a', which is the id; allowed: columns of the table"),
        ({"columns": ["a"], "drop": ["a"]}, "columns and drop both name 'a'; allowed: one of them"),
        ({"id": "a", "drop": ["a"]}, "drop names 'a', which is the id; allowed: columns of the table"),
        ({"delimiter": ";;"}, "delimiter = ';;', but must be one character, such as ';', or tab"),
        ({"decimal": ";"}, "decimal = ';', but must be '.' or ','"),
        ({"encoding": "latin-99"}, "encoding = 'latin-99' is unknown; allowed: utf-8, latin-1, ..."),
        ({"path": "a.npz", "decimal": ","}, "decimal is for .csv files, but a.npz ends in '.npz'"),
        ({"path": "a.npz", "header": 2}, "header is for .csv and .xlsx files, but a.npz ends in '.npz'"),
    ],
)
def test_choices_that_contradict_each_other_are_refused(options, sentence):
    with refusing(whole=sentence):
        SiteFile(**{"path": "a.csv"} | options)


FAR = b'<row r="1048576"><c r="XFD1048576"><v>1</v></c></row></sheetData>'


@pytest.mark.parametrize(
    ("swap", "text"),
    [
        (
            lambda sheet: sheet.replace(b"A1:A2", b"A1:XFD1048576").replace(b"</sheetData>", FAR),
            "has 1,048,576 rows x 16,384 columns; allowed: 50",
        ),
        (lambda sheet: sheet[:-40], "is damaged or no spreadsheet"),
    ],
)
def test_a_small_spreadsheet_with_a_cell_far_off_takes_no_memory_and_a_damaged_one_is_named(tmp_path, swap, text):
    book = openpyxl.Workbook()
    book.active.append(["x"])
    book.active.append([1])
    book.save(tmp_path / "a.xlsx")
    with zipfile.ZipFile(tmp_path / "a.xlsx") as whole, zipfile.ZipFile(tmp_path / "b.xlsx", "w") as other:
        for name in whole.namelist():
            content = whole.read(name)
            other.writestr(name, swap(content) if name.endswith("sheet1.xml") else content)
    with pytest.raises(InputError, match=text):
        read_raw(SiteFile(tmp_path / "b.xlsx"))
