"""Tables for documents and programs: figures in full come back as they were, cells as they are on the console."""

import io
import re

import pandas as pd
import pytest
from command_line import call
from report_runs import a_run

from fedkernel.experiments.report import Layout, as_csv, as_latex, as_markdown, in_full, lay_out
from fedkernel.experiments.results import append_run, read_runs, summarise

TINY = """
name = "tiny"
seeds = [0, 1, 2]
data.name = "iris"
partition = { clients = 2, shuffle = true }
strategy = [{ name = 'one | round, "50% & [red]_$1"', method = "DKPCA", n_components = 2, local_components = 1 }]
baseline = [{ name = "central", method = "central PCA", n_components = 2 }]
report = { plots = false }
"""
NAME = 'one | round, "50% & [red]_$1"'


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a small experiment that has run."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "tiny.toml").write_text(TINY, encoding="utf-8")
    call("run", folder / "tiny.toml", "--out", folder / "runs")
    return folder / "runs"


def test_csv_keeps_every_digit_and_every_name():
    point = {"partition.clients": 4, "data.name": 'a "set", of lines'}
    errors = [1 / 3, 2 / 7, 1e-17]
    runs = [a_run(NAME, seed, error, point=point) for seed, error in enumerate(errors)]
    runs += [a_run("näive", seed, metrics={"nmi": 0.1 if seed else None}, floats_up=10**16 + 1) for seed in range(3)]
    summaries = summarise(runs)
    written = as_csv(*in_full(summaries))
    table, text = pd.read_csv(io.StringIO(written)), pd.read_csv(io.StringIO(written), dtype=str)
    assert list(table.columns[:6]) == ["name", "kind", "method", *point, "seeds"]
    assert table["name"].tolist() == [NAME, "näive"]
    assert table.loc[0, [*point]].tolist() == [4, point["data.name"]]
    assert table.loc[1, [*point]].isna().all()
    error = summaries[0].metrics["error"]
    assert (float(text.error_mean[0]), float(text.error_std[0])) == (error.mean, error.std)
    assert table.error_mean[0] == pytest.approx(error.mean, rel=1e-14)
    assert pd.isna(table.error_mean[1])
    assert not any(column.startswith("bound") for column in table)  # no run has it
    # of three seeds two have it; where all have it, `seeds` says so
    assert (table.nmi_seeds[1], table.seeds[1]) == (2, 3)
    assert "seconds_seeds" not in table
    assert float(text.floats_up_mean[1]) == summaries[1].floats_up.mean
    took = [f"{key}_{what}" for key in ("floats_down", "bytes_up", "bytes_down", "rounds") for what in ("mean", "std")]
    assert {*took, "seconds_mean", "seconds_std"} <= set(table)
    # one seed has no deviation
    table = pd.read_csv(io.StringIO(as_csv(*in_full(summarise([a_run("a", error=0.5)])))))
    assert table.error_mean[0] == 0.5
    assert pd.isna(table.error_std[0])


def test_markdown_has_the_cells_of_the_console():
    runs = [a_run(NAME, seed, 1e-3 * (1 + seed), point={"a.b": 1, "c.b": "x\\y"}) for seed in range(2)]
    layout = lay_out(summarise(runs))
    heading, rule, row, *rest = as_markdown(layout).splitlines()
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in (heading, rule, row)]
    shown = [[re.sub(r"\\(.)", r"\1", cell.strip()) for cell in line] for line in cells]
    assert shown[0] == layout.headings == ["Method", "a.b", "c.b", *layout.headings[3:]]
    assert shown[1] == ["---", *["---:"] * (len(layout.headings) - 1)]
    assert shown[2] == layout.rows[0] == [NAME, "1", "x\\y", "1.50e-03 ± 7.1e-04", "14,250", "0", "1", "0.120"]
    assert rest == ["", "mean ± standard deviation over 2 seeds"]


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ("1.50e-03 ± 7.1e-04", r"$1.50 \cdot 10^{-3}$ $\pm$ $7.1 \cdot 10^{-4}$"),
        ("≤ 1e-16", r"$\le$ $10^{-16}$"),
        ("1.67e+00", "1.67"),
        ("-1.20e-10", r"$-1.20 \cdot 10^{-10}$"),
        ("-0.0312", "$-0.0312$"),
        ("17,100", "17,100"),
        ("<0.001", "$<$0.001"),
        ("0 (reference)", "0 (reference)"),
        ("–", "--"),
    ],
)
def test_latex_writes_numbers_as_mathematics(cell, written):
    lines = as_latex(Layout(["Method", "error"], [["a 1e-3", cell]], caption="of\n3 seeds")).splitlines()
    assert lines[0] == "% of 3 seeds"
    assert lines[1:4] == [r"\begin{tabular}{lr}", r"\toprule", r"Method & error \\"]
    assert lines[5] == rf"a 1e-3 & {written} \\"  # a name is a name
    assert lines[4::2] == [r"\midrule", r"\bottomrule"]
    assert lines[-1] == r"\end{tabular}"


def test_latex_gets_no_sign_that_it_would_take_for_a_command():
    signs = "\\{}&%$#_~^<>|"
    (row,) = (line for line in as_latex(Layout(["m"], [[f"x{signs}y"]])).splitlines() if line.startswith("x"))
    bare = re.sub(r"\\[&%$#_{}]|\\text[a-z]+\{\}|\$[<>]\$", "", row.removesuffix(r" \\"))
    assert bare == "xy"


def test_report_prints_the_table_alone_and_writes_nothing(finished):
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    tables = {}
    for form in ("csv", "latex", "markdown"):
        done = call("report", finished, "--format", form)
        assert done.stderr == ""
        tables[form] = done.stdout
    assert pd.read_csv(io.StringIO(tables["csv"])).shape[0] == 2
    assert tables["markdown"].count("\n| ") == 3
    assert tables["latex"].endswith("\\end{tabular}\n")
    assert {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()} == before


def test_what_is_not_finished_is_named_beside_the_table(finished, tmp_path):
    for name in ("config.json", "config.toml"):
        (tmp_path / name).write_bytes((finished / name).read_bytes())
    for run in read_runs(finished / "runs.jsonl")[:-1]:
        append_run(tmp_path / "runs.jsonl", run)
    done = call("report", tmp_path, "--format", "csv")
    assert pd.read_csv(io.StringIO(done.stdout)).seeds.tolist() == [3, 2]
    assert done.stderr == "not finished, and in no figure: central__seed=2\n"
