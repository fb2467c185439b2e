"""What all sites agreed on, held against a site's file."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from messy_files import COLUMNS, ID, LABEL, NOTE, truth, write_messy_files
from test_file_check import OPTIONS, checked
from typer.testing import CliRunner

from fedkernel.data import Prepare, SiteFile, read_raw
from fedkernel.data.checks import (
    Schema,
    check_file,
    compare,
    compare_schemas,
    compare_with_prepare,
    read_schema,
    schema_of,
)
from fedkernel.engines import grpc
from fedkernel.experiments.cli import app
from fedkernel.ground import InputError
from fedkernel.site import read_own_data

AGREED = """
ids = true
[columns]
glucose = { unit = "mmol/l", from = 1, to = 40 }
age = { from = 0, to = 120, whole = true }
sex = { type = "text", levels = ["f", "m"] }
seen = { type = "date" }
"""


def compared(folder, text, **options):
    (folder / "agreed.toml").write_text(AGREED)
    (folder / "a.csv").write_text(text)
    findings = compare(check_file(SiteFile(folder / "a.csv", **options), 1), read_schema(folder / "agreed.toml"))
    return [(finding.severity, finding.problem, finding.where) for finding in findings]


@pytest.mark.parametrize(("times", "apart"), [(1, None), (12, "55"), (0.01, "5")])
def test_a_column_in_another_unit_than_a_study_states_is_a_doubt(tmp_path, times, apart):
    ages = times * (60 + 12 * np.linspace(-1.7, 1.7, 40))
    (tmp_path / "a.csv").write_text("age,dose\n" + "".join(f"{age},{place}\n" for place, age in enumerate(ages)))
    look = check_file(SiteFile(tmp_path / "a.csv"), 1)
    for prepare in (Prepare(scale={"age": (60, 12)}), Prepare(scale={"age": (60, 12)}, clip={"age": (0, 110)})):
        found = list(compare_with_prepare(look, prepare))
        assert [(it.severity, it.where) for it in found] == ([("doubt", "column A 'age'")] if apart else [])
        assert apart is None or f"its median is {apart} from the centre" in found[0].problem
    logs = Prepare(scale={"age": (np.log(60 * times), 0.25)}, log=("age",), clip={"age": (1e-9, 1e9)})
    assert not list(compare_with_prepare(look, logs))


def test_what_a_schema_says_is_held_against_a_file(tmp_path):
    same = "id,glucose,age,sex,seen\n1,5.5,30,f,2020-01-01\n2,6,31,m,2020-01-02\n"
    assert compared(tmp_path, same, id="id") == []
    order = "id,age,seen,glucose,sex\n1,30,2020-01-01,5.5,f\n"
    assert [(severity, what[:35]) for severity, what, _ in compared(tmp_path, order, id="id")] == [
        ("note", "the columns are in a different orde")
    ]
    other = "glucose [mg/dl],age,sex,extra\n99,30.5,x,1\n108,200,f,2\n"
    assert compared(tmp_path, other) == [
        ("fault", "its unit is mg/dl, in the schema mmol/l", "column A 'glucose [mg/dl]'"),
        ("fault", "the schema calls it 'glucose'", "column A 'glucose [mg/dl]'"),
        ("fault", "1 column of the schema is missing", "'seen'"),
        ("fault", "1 column that the schema does not have", "column D 'extra'"),
        ("fault", "rows have no ids, but the schema requires them", ""),
        ("fault", "1 of 2 numbers outside what the schema allows", "column B 'age', row 3"),
        ("fault", "1 number with a fraction, but the schema has whole numbers", "column B 'age', row 2"),
        ("fault", "1 cell with a level that the schema does not list", "column C 'sex', row 2"),
    ]
    kinds = "id,glucose,age,sex,seen\n1,low,30,f,5\n2,high,31,m,6\n"
    assert compared(tmp_path, kinds, id="id") == [
        ("fault", "text, but the schema has number", "column B 'glucose'"),
        ("fault", "number, but the schema has date", "column E 'seen'"),
    ]


def test_a_site_joins_with_its_columns_in_the_agreed_order_or_says_why_not(tmp_path, monkeypatch):
    """In the order of the file, the other sites would refuse it; with a different unit, the answer would be wrong."""
    paths = write_messy_files(tmp_path)
    tables = []

    class Joined:
        ended = False

        def __init__(self, app, name, config, *rest):
            tables.append(read_own_data(config))

        def serve(self, *rest):
            pass

    monkeypatch.setattr(grpc, "Node", Joined)
    common = ["--insecure", *OPTIONS, "--against", str(tmp_path / "schema.toml"), "--out", str(tmp_path / "kept")]
    for site, more, code in (("a", [], 0), ("b", ["--encoding", "latin-1"], 2), ("c", [], 2)):
        command = ["join", "127.0.0.1:1", "--name", site, "--data", str(paths[site]), *more, *common]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == code, done.output
        if code:
            cause = {"b": "7 of 36 ids do not have 5 characters", "c": "32 of 33 numbers outside what the schema"}
            assert f"{paths[site]} differs from {tmp_path / 'schema.toml'}: {cause[site]}" in done.output
    text = (tmp_path / "schema.toml").read_text().replace("id_length = 5", "")
    (tmp_path / "schema.toml").write_text(text)
    done = CliRunner().invoke(app, ["join", "127.0.0.1:1", "--name", "b", "--data", str(paths["b"]), *common[:-1],
                                    str(tmp_path / "b"), "--encoding", "latin-1"])  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "is read with delimiter = ';' and decimal = ',', guessed from the file" in done.output
    for table, site in zip(tables, "ab", strict=True):
        assert table.columns == COLUMNS
        np.testing.assert_array_equal(table.X, truth().of(site).X)


def test_schemas_of_two_sites_are_compared(tmp_path):
    (tmp_path / "agreed.toml").write_text(AGREED)
    (tmp_path / "own.toml").write_text(
        'ids = true\n[columns]\nage = { from = -1, to = 9 }\nsex = { type = "text", levels = ["d"] }\n'
        'glucose = { unit = "mg/dl" }\nseen = {}\n'
    )
    agreed, own = (read_schema(tmp_path / name) for name in ("agreed.toml", "own.toml"))
    assert [(finding.severity, finding.problem, finding.where) for finding in compare_schemas(own, agreed)] == [
        ("note", "the columns are in a different order than in the schema", ""),
        ("fault", "its unit is mg/dl, in the schema mmol/l", "'glucose'"),
        ("fault", "its range exceeds the schema's", "'age'"),
        ("fault", "1 level that the schema does not list", "'sex'"),
        ("fault", "number, but the schema has date", "'seen'"),
    ]
    assert list(compare_schemas(agreed, agreed)) == []
    assert checked(2, tmp_path / "own.toml", "--against", tmp_path / "agreed.toml")[-1].endswith("4 faults, 1 note")


def test_a_schema_is_written_from_the_data_and_tells_of_no_row_unless_asked(tmp_path):
    paths = write_messy_files(tmp_path)
    checked(0, paths["a"], "--id", ID, "--label", NOTE, "--drop", LABEL, "--schema", tmp_path / "own.toml")
    kinds = {name: "{ whole = true }" if name in ("magnesium", "proline") else "{}" for name in COLUMNS}
    columns = "".join(f'"{name}" = {kind}\n' for name, kind in kinds.items())
    assert (tmp_path / "own.toml").read_text() == f"ids = true\nid_length = 5\n\n[columns]\n{columns}"
    command = (paths["a"], "--id", ID, "--drop", NOTE, "--schema", tmp_path / "all.toml", "--ranges")
    checked(2, *command)  # the cultivar is text
    schema = read_schema(tmp_path / "all.toml")
    part = truth().of("a")
    assert schema.rows == 36
    assert schema.columns["alcohol"].least == part.X[:, 0].min()
    assert schema.columns["cultivar"].levels == ("Barbera", "Barolo")
    assert not list(compare(check_file(SiteFile(paths["a"], id=ID, drop=[NOTE]), 1), schema))
    assert schema.columns["alcohol"].measured


def test_a_range_that_was_measured_is_no_limit_and_one_by_hand_is(tmp_path):
    """Of 10 to 14, what is beyond by no more than 4 is a note, what is farther a fault; the same of schemas."""
    rows = "x\n10\n14\n12\n"
    (tmp_path / "a.csv").write_text(rows)
    schema = schema_of(read_raw(SiteFile(tmp_path / "a.csv")), ranges=True)
    by_hand = Schema.model_validate({"columns": {"x": {"from": 10, "to": 14}}})
    assert '"x" = { from = 10.0, to = 14.0, measured = true, whole = true }' in schema.to_toml()
    for least, most, severity in ((10, 14, None), (6, 18, "note"), (5, 18, "fault"), (6, 19, "fault")):
        (tmp_path / "b.csv").write_text(f"x\n{least}\n{most}\n12\n")
        look = check_file(SiteFile(tmp_path / "b.csv"), 1)
        own = Schema.model_validate({"columns": {"x": {"from": least, "to": most}}})
        whole = Schema.model_validate({"columns": {"x": {}}})
        for findings in (compare(look, schema), compare_schemas(own, schema)):
            assert [finding.severity for finding in findings] == [severity] * (severity is not None)
        for findings in (compare(look, by_hand), compare_schemas(own, by_hand)):
            assert [finding.severity for finding in findings] == ["fault"] * (severity is not None)
        assert not list(compare_schemas(whole, by_hand))
    (tmp_path / "wrong.toml").write_text("[columns]\nx = { from = 1, measured = true }\n")
    with pytest.raises(InputError, match="measured = true, but not both from and to"):
        read_schema(tmp_path / "wrong.toml")


@given(st.dictionaries(st.text(min_size=1, max_size=5).map(str.strip).filter(bool), st.text(max_size=3), min_size=1))
def test_a_schema_reads_as_it_was_written(tmp_path_factory, units):
    columns = {name: {"unit": unit, "from": -0.1, "whole": True} for name, unit in units.items()}
    schema = Schema.model_validate({"rows": 3, "columns": columns})
    path = tmp_path_factory.mktemp("schema") / "schema.toml"
    path.write_text(schema.to_toml(), encoding="utf-8")
    assert read_schema(path) == schema
