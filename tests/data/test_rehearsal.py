"""A site that rehearses: rows that are made up, of the columns, kinds and ranges that a schema says."""

import shutil

import numpy as np
import pytest
from federation import NAMES, federation
from refusals import refusing
from typer.testing import CliRunner

from fedkernel.data import SiteFile, read_raw
from fedkernel.data.checks import Schema, read_schema, schema_of
from fedkernel.experiments.cli import app
from fedkernel.ground import InputError
from fedkernel.site import read_outbox

TABLE = 'age,"b ""m"" i",patient\n18,15.5,p1\n99,45.0,p2\n40,20.25,p3\n'


def test_the_schema_of_a_table_and_rows_made_up_by_it(tmp_path):
    (tmp_path / "own.csv").write_text(TABLE)
    done = CliRunner().invoke(
        app, ["policy", "schema", str(tmp_path / "own.csv"), "--id", "patient", "--out", str(tmp_path / "schema.toml")]
    )
    assert done.exit_code == 0, done.output
    assert (tmp_path / "schema.toml").read_text() == (
        "rows = 3\nids = true\nid_length = 2\n\n[columns]\n"
        '"age" = { from = 18.0, to = 99.0, measured = true, whole = true }\n'
        '"b \\"m\\" i" = { from = 15.5, to = 45.0, measured = true }\n'
    )
    schema = read_schema(tmp_path / "schema.toml").model_copy(update={"rows": 500})
    table = SiteFile(schema.write(tmp_path / "made-up.parquet", seed=0), id=schema.id).read()
    assert table.columns == ("age", 'b "m" i')
    assert len(set(table.ids)) == 500
    X = np.asarray(table.X)
    assert ((X >= [18, 15.5]) & (X <= [99, 45])).all()
    assert (X[:, 0] == np.round(X[:, 0])).all()
    assert len(np.unique(X[:, 1])) == 500
    np.testing.assert_allclose(X.mean(axis=0), [58.5, 30.25], rtol=0.1)


def test_a_schema_without_ranges_is_rehearsed_too(tmp_path):
    (tmp_path / "schema.toml").write_text(
        "ids = true\n[columns]\nx = {}\nlow = { to = -5 }\nhigh = { from = 7, whole = true }\nid = { from = 1 }\n"
        'sex = { type = "text", levels = ["f", "m"] }\nseen = { type = "date" }\n'
    )
    schema = read_schema(tmp_path / "schema.toml")
    file = SiteFile(schema.write(tmp_path / "made-up.parquet", seed=0), id=schema.id, drop=["seen"], label="sex")
    X, raw = np.asarray(file.read().X), read_raw(file)
    assert (len(set(raw.ids)), raw.names, schema.id) == (200, ("x", "low", "high", "id"), "id_")
    assert ((X >= [0, -6, 7, 1]) & (X <= [1, -5, 8, 2])).all()
    assert set(raw.labels["sex"]) == {"f", "m"}
    assert schema_of(read_raw(SiteFile(file.path, id="id_")), ranges=False).columns["seen"].type == "date"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("rows = 3", "columns is required"),
        ("rows = 3\n[columns]\na = { from = 2, to = 1 }", "from = 2 is more than to = 1"),
        ('rows = 3\n[columns]\na = { type = "text", from = 2 }', 'type = "text", but unit, from, to and whole are for'),
        ('[columns]\na = { levels = ["f"] }', 'type = "number", but levels are for text'),
        ("rows = 0\n[columns]\na = { from = 1, to = 2 }", "rows = 0"),
        ("rows", "is not valid TOML"),
    ],
)
def test_a_schema_that_is_none_is_refused_in_one_sentence(tmp_path, text, sentence):
    (tmp_path / "schema.toml").write_text(text)
    with refusing(sentence, start=str(tmp_path)):
        read_schema(tmp_path / "schema.toml")
    with pytest.raises(InputError, match="there is no file"):
        read_schema(tmp_path / "none.toml")


def test_what_stands_beside_a_rehearsal_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["join", "127.0.0.1:1", "--name", "a", "--out", "kept", "--insecure"]
    for more, sentence in (
        ([], "--data FILE or --rehearse SCHEMA is needed, but neither is given"),
        (["--rehearse", "schema.toml", "--data", "a.csv"], "--rehearse replaces --data, --id and --label"),
    ):
        done = CliRunner().invoke(app, command + more)
        assert done.exit_code == 2
        assert sentence in done.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.xdist_group("sites")
def test_a_site_that_rehearses_opens_nothing_of_its_own(place, tls):
    """As its operating system sees it; what leaves it stands in a record of its own."""
    if shutil.which("strace") is None:
        pytest.skip("strace, by which the operating system tells what a process opens, is not installed")
    columns = {f"a{place}": {"from": 0, "to": 5} for place in range(5)}
    lines = [f'"{name}" = {{ from = {range_["from"]}, to = {range_["to"]} }}' for name, range_ in columns.items()]
    (place / "schema.toml").write_text("\n".join(["rows = 170", "[columns]", *lines]))
    assert Schema.model_validate({"rows": 170, "columns": columns}) == read_schema(place / "schema.toml")
    for name in "bc":  # without ids, so that rows meet
        text = (place / f"{name}.csv").read_text().splitlines()
        (place / f"{name}.csv").write_text("\n".join(line.split(",", 1)[1] for line in text) + "\n")
    with federation(place, tls) as (serve, join):
        server = serve()
        trace = ("strace", "-f", "-e", "trace=open,openat,openat2", "-o", str(place / "trace"))
        sites = [join("a", "--rehearse", "schema.toml", within=trace)]
        sites += [join(name, "--data", f"{name}.csv") for name in "bc"]
        assert [process.end(90) for process in (server, *sites)] == [0, 0, 0, 0], server.text + sites[0].text
    opened = (place / "trace").read_text()
    assert "schema.toml" in opened
    assert "a.csv" not in opened
    assert [path.name for path in (place / "kept-a").iterdir()] == ["rehearsal"]
    assert read_outbox(place / "kept-a" / "rehearsal").departures[-1].reply == "LocalSpectrum"
    assert NAMES == ("a", "b", "c")
