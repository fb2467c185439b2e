"""`fedkernel advise`: what it recommends fits, takes what it says, and is where the documents say the rules are."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command_line import call

from fedkernel import InputError, Member
from fedkernel.experiments.commands.advice_output import WITH_NOISE, disclosures, infer_division
from fedkernel.experiments.commands.advise_candidates import CANDIDATES, Situation, advise, rules
from fedkernel.experiments.commands.advise_tables import SiteTable, read_site_table
from fedkernel.experiments.commands.forecast_table import lines_of
from fedkernel.experiments.config import read_config
from fedkernel.experiments.results import read_runs
from fedkernel.experiments.running import plan
from fedkernel.site import values_of

DOCS = Path(__file__).parents[2] / "docs"
WHICH = Path(__file__).parents[2] / "experiments" / "which_method"
COLUMNS, WIDE, ROWS = [(60, 5), (60, 4), (60, 6)], [(60, 5), (60, 90)], [(60, 5), (50, 5), (40, 5)]


def situation(shapes, **more):
    cohort = [Member(number, number, *shape, 0) for number, shape in enumerate(shapes)]
    divided = "horizontal" if shapes is ROWS else "vertical"
    return Situation(cohort, divided, **{"goal": "components"} | more)


def command(*arguments, code=0):
    return call("advise", *arguments, code=code).output


@pytest.mark.parametrize(
    ("its", "first"),
    [
        (situation(COLUMNS), "DKPCA, inner products"),
        (situation(WIDE, goal="clusters"), "DKPCA"),
        (situation(COLUMNS, memory=1e4), "DKPCA, linear"),
        (situation(ROWS), "centroid KPCA, local"),
        (situation(ROWS, share_rows=True), "centroid KPCA, local"),
        (situation(ROWS, goal="clusters"), "centroid k-means, local"),
        (situation(COLUMNS, no_trusted_coordinator=True), "peers, exact merge"),
        (situation(ROWS, no_trusted_coordinator=True, share_rows=True), "ADMM, rows"),
        (situation(ROWS, no_trusted_coordinator=True), "ADMM, features"),
    ],
)
def test_the_first_that_fits_and_whose_rule_holds_is_recommended(its, first):
    advice = advise(its)
    assert advice[0].candidate.name == first
    assert sorted(line.candidate.name for line in advice) == sorted(candidate.name for candidate in CANDIDATES)
    for line in advice:
        assert (line.plan is None) == bool(line.refusal)
        if line.plan is not None:
            assert line.forecast is not None
            assert disclosures(line.plan), "every pair says what it tells"
            assert its.share_rows or not any(values_of("share_rows", line.candidate.parameters(its)))


def test_advice_says_what_noise_costs_each_pair_of_sums():
    text = command("6000x5", "5000x5", "--goal", "clusters")
    for method in WITH_NOISE:
        assert re.search(f"  {method}, .*:\n    epsilon 1: noise moves .* is lost, as measured", text)


@pytest.mark.parametrize(
    "arguments",
    ["60x5 60x4 60x6", "60x5 50x5 --goal clusters -k 2", "60x5 50x5 --share-rows", "60x5 60x4 60x6 --partition peers"],
)
def test_the_experiment_to_start_with_runs_and_takes_what_was_said(tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    text = command(*arguments.split(), "--toml", "first.toml")
    (planned,) = plan(read_config(Path("first.toml")))
    assert f"Take {planned.method.name}" in text
    call("run", "first.toml", "--set", "report.plots=false", "--out", "out")
    (row,) = read_runs(tmp_path / "out" / "runs.jsonl")
    (forecast,) = lines_of([planned])[0].known
    assert row.rounds <= forecast.rounds
    settling = re.search(r"Of its (\d+) rounds, (\d+) settles? the kernel's width(; a simulated)?", text)
    assert (settling is None) == ("peers" in arguments)
    if settling is not None:
        assert int(settling[1]) - (int(settling[2]) if settling[3] else 0) == forecast.rounds
    assert row.floats_up <= forecast.floats_up
    if forecast.meaning == "exact":
        counted = (row.rounds, row.floats_up, row.floats_down)
        assert counted == (forecast.rounds, forecast.floats_up, forecast.floats_down)
        assert f"{row.floats_up:,}" in text


def test_files_say_what_is_divided_and_are_what_is_started_with(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    sites = tmp_path / "sites"
    sites.mkdir()
    for name, columns in (("a", "uv"), ("b", "wxyz")):
        table = pd.DataFrame(rng.standard_normal((30, len(columns))), columns=[*columns])
        table["patient"] = [f"p{row}" for row in rng.permutation(30)]
        table[len(columns) - 2 :].to_csv(sites / f"{name}.csv", index=False)  # two rows of the second are not there
    monkeypatch.chdir(sites)
    text = command("a.csv", "b.csv", "--id", "patient", "--toml", "../study.toml")
    assert "No column is in two files: columns are divided." in text
    assert read_site_table("a.csv", "patient")[:3] == (30, 2, ("u", "v"))
    call("run", tmp_path / "study.toml", "--set", "report.plots=false")
    (row,) = read_runs(next((sites / "runs").rglob("runs.jsonl")))
    assert row.floats_up == 28 * (2 + 4) + (2 + 4)
    assert "not FK k-means: is for divided rows, but columns are divided" in text
    with pytest.raises(InputError, match="in several files, such as 'patient', and some are not in all, such as 'u';"):
        infer_division([read_site_table("a.csv"), read_site_table("b.csv")], None)
    same = [SiteTable(20, 2, ("u", "v")), SiteTable(30, 2, ("v", "u"))]
    assert infer_division(same, None)[0] == "horizontal"
    assert infer_division(same, "vertical")[0] == "vertical"


def test_columns_that_are_no_numbers_are_left_out_or_categories_and_said(tmp_path, monkeypatch):
    """What `check` names: text of few levels becomes columns, dates, notes and empty columns are left out."""
    rng = np.random.default_rng(0)
    for site, rows in (("a", 40), ("b", 30)):
        table = pd.DataFrame(rng.standard_normal((rows, 3)), columns=["u", "v", "w"])
        table["blood group"] = rng.choice(["A", "B", "0"] if site == "a" else ["A", "AB"], rows)
        table["seen"] = [f"2024-01-{1 + row % 28:02}" for row in range(rows)]
        table["note"] = [f"row {row} of {site}" for row in range(rows)]
        table["void"], table["clinic"], table["number"] = "", "north", range(rows)
        table["outcome"] = rng.choice(["good", "bad"], rows)
        table.loc[3, ["u", "blood group"]] = None
        table["v"] = table["v"].astype(object)
        table.loc[5, "v"] = "< 3" if site == "b" else 3
        table.to_csv(tmp_path / f"{site}.csv", index=False)
    monkeypatch.chdir(tmp_path)
    text = command("a.csv", "b.csv", "--goal", "clusters", "--toml", "study.toml", "--drop", "v", "--label", "outcome")
    unusable_columns = re.findall(r"column '([a-z]+)' is left out, being ([^:]+): --drop '\1'\n", text)
    assert unusable_columns == [
        ("seen", "dates"),
        ("note", "text that differs from row to row, as ids do (--id, if they are such)"),
        ("void", "without a value"),
        ("clinic", "text that is the same in all rows"),
    ]
    assert "'blood group' is text of 4 levels, each of which becomes a column ([prepare] categories); --label" in text
    assert "to be mended" not in text
    (planned,) = plan(read_config(Path("study.toml")))
    assert planned.point.experiment.prepare.categories == {"blood group": ("0", "A", "AB", "B")}
    assert planned.shapes == ((40, 3 + 4), (30, 3 + 4))
    assert planned.point.experiment.report.metric == "ari"
    assert re.findall("column '(.*)' holds whole numbers that differ from row to row: --id", text) == ["number"]
    with_faults = command("a.csv", "b.csv", "--goal", "clusters", "--toml", "plain.toml")
    assert read_config(Path("plain.toml")).report.metric == "nmi_central"
    assert "b.csv has 1 fault to be mended before it can be used: fedkernel check b.csv" in with_faults


def test_a_column_that_one_file_has_can_be_dropped_and_spellings_of_a_level_are_said(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    for site, sexes, more in (("a", "fm", ()), ("b", "FM", ("ward",))):
        table = pd.DataFrame(rng.standard_normal((30, 3 + len(more))), columns=["u", "v", "w", *more])
        table["sex"] = rng.choice([*sexes], 30)
        table.to_csv(tmp_path / f"{site}.csv", index=False)
    monkeypatch.chdir(tmp_path)
    text = command("a.csv", "b.csv", "--drop", "ward", "--toml", "study.toml")
    assert "column 'sex' has levels that differ in case alone, 'F', 'M', 'f', 'm': one spelling in all files?" in text
    (planned,) = plan(read_config(Path("study.toml")))
    assert planned.shapes == ((30, 3 + 4), (30, 3 + 4))
    with pytest.raises(
        InputError, match=r"data.drop names 'wart', which no file has; the files have u, v, w, sex, ward"
    ):
        plan(read_config(Path("study.toml"), ['data.drop=["wart"]']))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["60x5"], "the tables' sizes do not show whether rows or columns are divided"),
        (["60x5", "50x5", "--sites", "3"], "--sites 3, but 2 tables; allowed: one table, or as many as sites"),
        (["60x5", "50x5", "--goal", "clusters", "--partition", "peers"], "no pair finds clusters of such tables"),
        (["nobody.csv"], "there is no file nobody.csv"),
    ],
)
def test_what_says_too_little_is_refused_in_one_sentence(arguments, sentence):
    assert f"error: {sentence}" in command(*arguments, code=2)


def test_the_documents_have_the_rules_and_what_the_experiments_take():
    """The tables' floats are those of the forecasts: equal, or no more where runs may end early."""
    advice = (DOCS / "how-to" / "which-method.md").read_text(encoding="utf-8")
    assert rules() in advice, "fedkernel.experiments.commands.advise_candidates.rules() returns what is to stand there"
    results = (DOCS / "results" / "README.md").read_text(encoding="utf-8")
    for candidate in CANDIDATES:
        assert f"## {candidate.evidence}\n" in results
    page = (DOCS / "results" / "which-method.md").read_text(encoding="utf-8")
    for path in sorted(WHICH.glob("*.toml")):
        assert f"`fedkernel run experiments/which_method/{path.name}`" in page
        for line in lines_of(plan(read_config(path, ["seeds=[0]"]))):
            (forecast,) = line.known
            cells = re.search(rf"^\| {re.escape(line.name)} \| [^|]+ \| ([\d,]+) \| ([\d,]+) \| [\d.]+ \|$", page, re.M)
            assert cells is not None, line.name
            up, down = (int(cell.replace(",", "")) for cell in cells.groups())
            most = forecast.meaning != "exact"
            assert up <= forecast.floats_up if most else up == forecast.floats_up, line.name
            assert down <= forecast.floats_down if most else down == forecast.floats_down, line.name
