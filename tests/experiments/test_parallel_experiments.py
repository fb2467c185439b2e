"""The experiments of a folder are run side by side, each by itself, and told on one page."""

import html
import json
import os
import re

import pytest
from command_line import call
from test_pages import Nesting

from fedkernel.experiments.config import Experiment, read_config
from fedkernel.experiments.report import Entry, overview, write_index
from fedkernel.experiments.results import read_runs
from fedkernel.experiments.running import outcome_of, run_all, run_experiment
from fedkernel.experiments.running.parallel_experiments import LOST_PROCESS, startable

FIRST = """
name = "first"
title = "The first | <best>"
seeds = [0, 1]
data.name = "iris"
partition.clients = 2
strategy = [{ name = "one | vector", method = "DKPCA", n_components = 2, local_components = 1 }]
baseline = [{ name = "central", method = "central PCA", n_components = 2 }]
quick.seeds = [5]
report.plots = true
claim = [
  { text = "One is not enough <here>.", check = "value", metric = "error", of = "one | vector", at_least = 1e-9 },
  { text = "One of two | is.", check = "value", metric = "error", of = "one | vector", at_most = 0 },
]
[paper]
name = "DKPCA"
shows = "figure 2"
setting = "400 rows & 1000 columns."
here = "Flowers."
plots = ["error_by_floats_up"]
"""
SECOND = FIRST.replace('"first"', '"second"').replace("The first", "The second").replace('"iris"', '"npz:/not/there"')


@pytest.fixture(name="folder")
def _folder(tmp_path):
    folder = tmp_path / "two"
    folder.mkdir()
    (folder / "first.toml").write_text(FIRST, encoding="utf-8")
    (folder / "second.toml").write_text(SECOND, encoding="utf-8")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.drill)])
def test_all_experiments_of_a_folder_are_run_and_one_that_fails_stops_no_other(folder, tmp_path, jobs):
    out = tmp_path / "out"
    (folder / "first.toml").write_text(FIRST.replace("plots = true", "plots = false"), encoding="utf-8")
    result = call("run", folder, "--all", "--quick", "--jobs", jobs, "--out", out, code=1)
    assert "second, failed: " in result.output
    assert "1 of 2 failed: second" in result.output
    assert "Claims: 1 holds, 1 does not hold" in result.output
    table = json.loads((out / "report/results.json").read_text())
    first, second = sorted(table["experiments"], key=lambda each: each["name"])
    assert [run.seed for run in read_runs(out / "first/runs.jsonl")] == [5, 5]
    assert (first["runs"], second["runs"], second["missing"]) == (2, 0, 2)
    assert "/not/there" in str(second["error"])
    page = out / "report/README.md"
    before = page.read_text()
    call("report", out)
    assert page.read_text().partition("## second")[0].count("first") == before.partition("## second")[0].count("first")


def ended_from_outside():
    """Load a data set as a process does that the system ends for want of memory."""
    os._exit(1)


@pytest.mark.drill
def test_a_process_that_is_ended_takes_no_other_experiment_with_it_but_for_this_time(folder):
    text = SECOND.replace("npz:/not/there", "test_parallel_experiments:ended_from_outside")
    (folder / "second.toml").write_text(text, encoding="utf-8")
    first, second = (read_config(folder / f"{name}.toml", ["report.plots=false"]) for name in ("first", "second"))
    ended = {experiment.name: error for experiment, _, error in run_all([second, first], folder / "out", jobs=1)}
    assert ended == {"second": LOST_PROCESS, "first": "not begun: the process of another experiment was killed"}
    assert [error for _, _, error in run_all([first], folder / "out", jobs=1)] == [None]
    # where no page has been written, one is made of what is there
    assert "has no page of its experiments yet" in call("report", folder / "out", "--format", "csv", code=2).output
    call("report", folder / "out")
    assert "fedkernel run FOLDER/first.toml" in (folder / "out/report/README.md").read_text(encoding="utf-8")


def test_a_folder_is_run_with_all_and_a_file_without(folder):
    for arguments, says in (
        ([folder], "is a folder; allowed: a folder with --all, a file without it"),
        ([folder / "first.toml", "--all"], "is no folder; allowed: a folder with --all, a file without it"),
        ([folder, "--all", "--dry-run"], "--all takes no --dry-run"),
        ([folder / "first.toml", "--jobs", "2"], "--jobs 2 needs --all and a folder"),
    ):
        assert says in call("run", *arguments, code=2).output


def _needing(memory, name):
    table = {"name": name, "data": {"name": "iris"}, "partition": {"clients": 2}}
    table["strategy"] = [{"name": "a", "method": "VFedPCA"}]
    return Experiment.from_table({**table, "paper": {"name": "x", "shows": "y", "memory": memory}}, name)


def test_no_more_begin_than_there_are_processors_and_memory():
    big, middle, small = (_needing(memory, str(memory)) for memory in (9.0, 4.0, 1.0))
    assert startable([big, middle, small], [], 2, 8.0) == [big]  # by itself, whatever it takes
    assert startable([middle, big, small], [], 2, 8.0) == [middle, small]
    assert startable([middle, small], [small], 3, 5.0) == [middle]
    assert startable([small], [small, small], 2, 8.0) == []


def test_the_page_has_claims_settings_figures_and_costs_of_each(folder, tmp_path):
    experiment, out = read_config(folder / "first.toml"), tmp_path / "first"
    rows = run_experiment(experiment, out).rows
    entry = Entry(experiment, *outcome_of(experiment, rows, out), out)
    page = write_index(tmp_path / "page", [entry], command="fedkernel run two --all", environment={"python": "3"})
    nesting = Nesting()
    nesting.feed(markup := page.read_text(encoding="utf-8"))
    assert (nesting.open, nesting.faults) == ([], [])
    shown = html.unescape(re.sub(r"<[^>]*>", "", markup))
    texts = ("One is not enough <here>.", "The first | <best>", "400 rows & 1000 columns.", "Flowers.")
    for text in (*texts, "fedkernel run two/first.toml", "✗ does not hold", "✓ holds"):
        assert text in shown
    assert "first-error_by_floats_up.png" in markup
    assert [path.name for path in (tmp_path / "page/figures").iterdir()] == ["first-error_by_floats_up.png"]
    lines = (tmp_path / "page/README.md").read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith("| [first](#first) | One of two \\| is. | does not hold |") for line in lines) == 1
    (costs,) = (line for line in lines if line.startswith("| one \\| vector"))
    assert f" {rows[0].floats_up} | 1 |" in costs
    results = json.loads((tmp_path / "page/results.json").read_text(encoding="utf-8"))
    assert overview(results).rows == [["first", "The first | <best>", "1", "", "", "1", "", "0"]]
    printed = call("report", tmp_path / "page", "--format", "markdown").output
    assert printed.splitlines()[1].startswith("| --- | --- | ---: |")
    assert printed.splitlines()[2] == r"| first | The first \| \<best\> | 1 |  |  | 1 |  | 0 |"
