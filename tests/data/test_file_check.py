"""What is wrong with a site's file, all at once."""

import re

import numpy as np
import openpyxl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from messy_files import COLUMNS, ID, LABEL, NOTE, truth, write_messy_files
from test_site_files import IDS, NAMED, NUMBER, REFUSED
from typer.testing import CliRunner

from fedkernel.data import SiteFile, read_raw
from fedkernel.data.checks import check_file
from fedkernel.data.checks.findings import column_letters
from fedkernel.experiments.cli import app
from fedkernel.ground import InputError


def checked(code, *arguments):
    """Run the command, and return what it prints as lines of words."""
    done = CliRunner().invoke(app, ["check", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return [" ".join(line.split()) for line in done.output.splitlines()]


def severities(path, **options):
    """What is found, by its beginning: severity and place."""
    return [(each.severity, each.problem, each.where) for each in check_file(SiteFile(path, **options), 1).findings]


# One call finds every mess

OPTIONS = ("--id", ID, "--label", LABEL, "--drop", NOTE)
MESSES = {
    "a": (0, True, []),
    "b": (
        2,
        True,
        [
            "fault the text is not in utf-8 rows 2, 3, 4, 5, 6, 7 and 30 more give its --encoding",
            "fault 7 of 36 ids do not have 5 characters rows 5, 10, 15, 20, 25, 30 and 1 more zeros were cut",
            "doubt 7 of 36 ids have less than 5 digits: were zeros cut",
            "note read with delimiter = ';' and decimal = ','",
            "note blanks around names, which are ignored column C ' colour ', column F ' ash '",
            "note the columns are in a different order",
        ],
    ),
    "c": (
        2,
        True,
        [
            "fault 2 missing cells of 35 column C 'ash', rows 5, 10 [prepare] missing",
            "fault 2 missing cells of 35 column E 'flavanoids', rows 10, 22 [prepare] missing",
            "fault 1 missing cell of 35 column F 'colour', row 7 [prepare] missing",
            "fault 32 of 33 numbers outside what the schema allows column E 'flavanoids', rows 2, 3, 4",
        ],
    ),
    "c of one row": (
        2,
        False,
        [
            "fault 1 row, but a site answers from 20 (table.min_rows of its policy) more rows, or join --min-rows",
            "doubt 1 row against 6 columns",
            "fault 1 of 1 number outside what the schema allows column E 'flavanoids', row 2 a different unit?",
        ],
    ),
}


@pytest.mark.parametrize("case", MESSES)
def test_each_mess_of_the_three_files_is_found_in_one_call(tmp_path, case):
    code, whole, findings = MESSES[case]
    path = write_messy_files(tmp_path, whole=whole)[case[0]]
    lines = checked(code, path, *OPTIONS, "--against", tmp_path / "schema.toml")
    for finding in findings:
        assert [line for line in lines if line.startswith(finding)], (finding, lines)
    words = {line.split()[0] for line in lines[1:-1]}
    assert words <= ({"note"} if case == "a" else {"fault", "doubt", "note"})
    assert re.search(r"\d rows?, \d columns, ids: .*\d (fault|note)", lines[-1]), lines[-1]
    if case != "b":
        return
    # what is to be done about b is done: its ids are as they were, and its text is read as Latin-1
    ids = truth().of("b").ids
    header, *rows = path.read_text("latin-1").splitlines()
    mended = [f"{row.rpartition(';')[0]};{id_}" for row, id_ in zip(rows, ids, strict=True)]
    path.write_text("\n".join([header, *mended]), "latin-1")
    checked(0, path, *OPTIONS, "--encoding", "latin-1", "--against", tmp_path / "schema.toml")
    data = SiteFile(path, id=ID, label=LABEL, drop=[NOTE], encoding="latin-1", columns=COLUMNS).read()
    np.testing.assert_array_equal(data.X, truth().of("b").X)
    assert data.ids == ids


MESSY = """id,n,text,when,comma,cut,unit,flat,twin,,n,two,far
007,1,a,2020-01-31,"1,5",<5,5 mg,3,1,1,1,4.1,1
12,2,b,2020-02-01,"2,5",6,6 mg,3,2,1,1,5.2,2
 13,3,c,2020-02-02,"3,5",7,7 mg,3,3,1,1,6.3,3

12,4,d,2020-02-03,"4,5",8,8 mg,3,4,1,1,4.4,4
,5,e,2020-02-04,"5,5",9,9 mg,3,5,1,1,5.5,5
16,6,f,2020-02-05,"6,5",,1 mg,3,6,1,1,96,6
17,7,g,2020-02-06,"7,5",?,2 mg,3,7,1,1,107,7
18,8,h,2020-02-07,"8,5",5,3 mg,3,8,1,1,118,8
19,9,i,2020-02-08,"9,5",6,4 mg,3,9,1,1,99,9
020,10,j,2020-02-09,"1,5",7,5 mg,3,10,1,1,100,10
21,11,k,2020-02-10,"1,5",  ,6 mg,3,11,1,1,111,8675309
22,12
"""


def test_all_other_messes_are_found_at_once_where_a_spreadsheet_has_them(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(MESSY)
    ids = "column A 'id', rows"
    findings = severities(path, id="id")
    expected = [
        ("fault", "1 row with more or fewer values than the 13 names", "row 14"),
        ("fault", "1 column without a name", "column J ''"),
        ("fault", "2 columns of the same name", "column B 'n', column K 'n'"),
        ("fault", "1 row without an id", "column A 'id', row 7"),
        ("fault", "1 id with blanks around", "column A 'id', row 4"),
        ("fault", "1 id on several rows", f"{ids} 3, 6"),
        ("fault", "text", "column C 'text'"),
        ("fault", "dates", "column D 'when'"),
        ("fault", "11 cells with a different decimal mark in a column of numbers", "column E 'comma', rows 2, 3, 4,"),
        ("fault", "1 missing cell of 11", "column F 'cut', row 8"),
        ("fault", "1 cell with a sign such as < in a column of numbers", "column F 'cut', row 2"),
        ("fault", "1 cell with words in a column of numbers", "column F 'cut', row 9"),
        ("fault", "1 cell of blanks only in a column of numbers", "column F 'cut', row 13"),
        ("fault", "11 cells with a unit or word after the number in a column of numbers", "column G 'unit', rows 2, 3"),
        ("doubt", "all its numbers are the same", "column H 'flat'"),
        ("doubt", "columns with the same cells", "column B 'n', column I 'twin'"),
        ("doubt", "two groups of numbers, whose medians are ", "column L 'two', rows 2, 3, 4, 6, 7"),
        ("doubt", "1 number beyond 3 interquartile ranges; the farthest, ", "column M 'far', row 13"),
        ("doubt", "11 rows against 12 columns", ""),
        ("note", "1 empty line, skipped", "row 5"),
    ]
    for severity, what, where in expected:
        assert any(a == severity and b.startswith(what) and c.startswith(where) for a, b, c in findings), what
    assert not [what for severity, what, _ in findings if "zeros" in what], "ids that are no digits tell of no zeros"
    lines = checked(2, path, "--id", "id")
    assert not any(cell in line for line in lines for cell in (NUMBER, "2020-01-31", "5 mg", "'?'"))
    quoted = checked(2, path, "--id", "id", "--show-values")
    assert all(any(cell in line for line in quoted) for cell in (NUMBER, "2020-01-31", "5 mg", "'?'"))


@pytest.mark.parametrize(
    ("cells", "severity", "what"),
    [
        ([*range(0, 900, 30), -999], "doubt", "1 number of nines, far from the others: do they stand for missing"),
        ([*range(0, 900, 30), 9999, 9999], "doubt", "2 numbers of nines"),
        ([*range(-20, 10), 99], None, "nines"),
        (["1.234,5", "1.000,0", "-12.345,67"], "fault", "3 cells with one mark for thousands and another for decimals"),
        (["1 234", "1\u202f000", "12"], "fault", "2 cells with a mark for thousands"),
        (["1,234", "2", "3"], "fault", "1 cell with a mark for thousands or a different decimal mark"),
        ([2.0**place for place in range(20)], None, "two groups"),  # far apart, and of one kind
        ([*range(20), *range(400, 420)], None, "two groups"),  # from 0: no ratio
        ([*range(4, 11), *(18 * cell for cell in range(4, 11))], "doubt", "groups of numbers, whose medians are 18 "),
    ],
)
def test_numbers_that_are_not_what_they_seem(tmp_path, cells, severity, what):
    path = tmp_path / "a.csv"
    path.write_text("x\n" + "".join(f'"{cell}"\n' for cell in cells), encoding="utf-8")
    assert [kind for kind, text, _ in severities(path) if what in text] == [severity] * (severity is not None)


@pytest.mark.parametrize(
    ("ids", "severity"),
    [
        ([str(number) for number in range(1, 201)], None),  # running numbers
        ([f"{number:05}" for number in range(0, 90_000, 1000)], None),
        ([str(number) for number in range(1500, 90_000, 1000)], "doubt"),  # five digits, but for nine
        (["007", "12", "13"], "fault"),
        ([f"a{number}" for number in range(5, 15)], None),
    ],
)
def test_ids_whose_zeros_were_cut(tmp_path, ids, severity):
    path = tmp_path / "a.csv"
    path.write_text("i,x\n" + "".join(f"{id_},{place % 7}\n" for place, id_ in enumerate(ids)))
    assert [kind for kind, what, _ in severities(path, id="i") if "zeros cut" in what] == [severity] * (
        severity is not None
    )


def test_a_title_above_the_names_and_units_below_are_one_fault_each(tmp_path):
    path, cells = tmp_path / "a.csv", "".join(f"p{row};{row},5;{row * row}\n" for row in range(12))
    path.write_text(f"Ward South, 2024\n\nid;weight;dose\n;kg;mg/l\n{cells}")
    title = ("fault", "row 1 does not have the columns' names, but row 3 may", "")
    units = ("fault", "units, or other words, below the names", "row 4")
    assert [each for each in severities(path, id="id") if each[0] == "fault"] == [title, units]
    with pytest.raises(InputError, match=r"there are: 'Ward South', '2024'; row 3 may have the names \(--header 3\)$"):
        SiteFile(path, id="id").read()
    path.write_text(f"id;weight;dose\n{cells}")
    assert not [each for each in severities(path, id="id") if each[0] == "fault"]


def test_a_file_that_several_delimiters_divide_is_read_with_one_and_told_which_to_give(tmp_path):
    (path := tmp_path / "a.csv").write_text("a;b,c\n1;2,3\n")
    (fault,) = [each for each in check_file(SiteFile(path), 1).findings if "delimiters" in each.problem]
    assert (fault.severity, fault.remedy) == ("fault", "--delimiter")
    assert fault.problem.startswith("fits several delimiters: ',', ';'")


def test_a_title_above_a_sheet_s_names_is_one_fault(tmp_path):
    path, book = tmp_path / "a.xlsx", openpyxl.Workbook()
    for row in (["Ward South, 2024"], [], ["id", "x", "kind"], *([f"p{row}", row, "ab"[row % 2]] for row in range(9))):
        book.active.append(row)
    book.save(path)
    title = ("fault", "row 1 does not have the columns' names, but row 3 may", "")
    text = ("fault", "text, 2 levels", "column C 'kind'")
    assert [each for each in severities(path, id="id") if each[0] == "fault"] == [title, text]
    with pytest.raises(InputError, match=r"column 1 .* has no name; .*; row 3 may have the names \(--header 3\)$"):
        SiteFile(path, id="id").read()
    book.active.delete_rows(1, 2)
    book.save(path)
    assert [each for each in severities(path, id="id") if each[0] == "fault"] == [text]


def test_a_spreadsheet_is_looked_at_too(tmp_path):
    book = openpyxl.Workbook()
    for row in (["id", "x", "y"], [7, 1.5, "5 mg"], [8, None, "6 mg"], [], [8, 2, 7]):
        book.active.append(row)
    book.create_sheet("more")
    book.save(tmp_path / "a.xlsx")
    assert severities(tmp_path / "a.xlsx", id="id") == [
        ("fault", "1 id on several rows", "column A 'id', rows 3, 5"),
        ("fault", "1 missing cell of 3", "column B 'x', row 3"),
        ("fault", "2 cells with a unit or word after the number in a column of numbers", "column C 'y', rows 2, 3"),
        ("doubt", "3 rows against 2 columns: too few for reliable estimates", ""),
        ("note", "the first of 2 sheets is read", "sheet 'Sheet'"),
        ("note", "1 empty line, skipped", "row 4"),
    ]
    assert [column_letters(place) for place in (0, 25, 26, 701, 702)] == ["A", "Z", "AA", "ZZ", "AAA"]
    path = tmp_path / "labels.csv"
    path.write_text("x,kind\n1,a\n2,\n3,b\n4,NA\n")
    assert ("doubt", "2 rows of 4 without a label", "column B 'kind', rows 3, 5") in severities(path, label="kind")
    assert read_raw(SiteFile(path, label="kind")).labels["kind"].tolist() == ["a", None, "b", None]


@pytest.mark.parametrize("kind", REFUSED)
def test_what_reading_refuses_is_a_fault(kind, tmp_path):
    write, options, _ = REFUSED[kind]
    file = SiteFile(write(tmp_path), **options)
    try:
        findings = check_file(file, 1).findings
    except InputError:
        return  # there is nothing to look at
    assert "fault" in [finding.severity for finding in findings]


@pytest.mark.parametrize("kind", NAMED)
def test_what_can_be_read_has_no_fault(kind, tmp_path):
    look = check_file(NAMED[kind](tmp_path, drop=["smokes"]), 1)
    assert {finding.severity for finding in look.findings} <= {"doubt", "note"}
    assert [column.name for column in look.columns] == ["pressure", "score"]
    assert look.ids == IDS


CELLS = ["1", "2.5", "-3e2", "", "NA", " ", "1,5", "x", '"', "true", "<5", "2020-01-01", "inf", "0" * 3, "\xe4", "1;2"]


@given(st.lists(st.lists(st.sampled_from(CELLS), min_size=1, max_size=3), max_size=4), st.sampled_from(",;\t"))
def test_no_file_ends_it_otherwise(tmp_path_factory, rows, delimiter):
    path = tmp_path_factory.mktemp("any") / "a.csv"
    path.write_text("\n".join(map(delimiter.join, [["p", "q"], *rows])) + "\n", encoding="latin-1")
    try:
        faults = [finding for finding in check_file(SiteFile(path), 1).findings if finding.severity == "fault"]
    except InputError:
        return
    if not faults:
        assert np.isfinite(np.asarray(SiteFile(path).read().X)).all()
