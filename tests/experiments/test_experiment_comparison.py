"""Two experiments side by side: differences as textbooks have them, verdicts that chance does not make, one command."""

import io
import math
import re

import numpy as np
import pandas as pd
import pytest
from claim_rows import a_run
from command_line import call
from scipy import stats

from fedkernel.experiments.report import compare_figure, match
from fedkernel.experiments.results import NOISE, append_run, difference, read_runs

TINY = """
name = "tiny"
seeds = [0, 1, 2]
data.name = "iris"
partition = { clients = 2, shuffle = true }
strategy = [
    { name = "few", method = "DKPCA", n_components = 2, local_components = 1 },
    { name = "all | of them", method = "DKPCA", n_components = 2 },
]
baseline = [{ name = "central", method = "central PCA", n_components = 2 }]
report.plots = false
"""


@pytest.mark.parametrize(("n", "m", "start"), [(2, 2, 0), (3, 3, 0), (9, 9, 0), (2, 2, 1), (3, 7, 1)])
def test_it_is_the_paired_difference_of_textbooks_with_the_same_seeds_and_welchs_with_others(n, m, start):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=n), 5 * rng.normal(size=m)
    comparison = difference(dict(enumerate(x)), dict(reversed([*enumerate(y, start)])))
    assert comparison.paired == (start == 0)
    oracle = stats.ttest_rel(y, x) if comparison.paired else stats.ttest_ind(y, x, equal_var=False)
    np.testing.assert_allclose(comparison.mean, np.mean(y) - np.mean(x))
    np.testing.assert_allclose(comparison.mean / comparison.error, oracle.statistic)


def test_one_seed_has_no_error_and_equal_values_none_but_0():
    assert difference({0: 1.0}, {0: 3.0}).error is difference({0: 1.0}, {1: 3.0, 2: 4.0}).error is None
    # of 0.1 three times the mean is 0.10000000000000002 and the deviation not 0
    same = dict.fromkeys(range(3), 0.1)
    for other in (same, dict.fromkeys(range(7), 0.1)):
        comparison = difference(same, other)
        assert (comparison.mean, comparison.error) == (0.0, 0.0)
    assert difference(same, dict.fromkeys(range(3), 0.3)).error == 0.0


@pytest.mark.parametrize(
    ("figure", "a", "b", "from_seed", "verdict", "differs"),
    [
        ("error", [1e-3, 2e-3, 3e-3], [1e-3, 2e-3, 3e-3], 0, "equal", False),
        ("error", [0.5], [0.5], 0, "equal", False),
        ("error", [0.5, 0.5], [0.5, 0.5], 7, "equal", False),
        ("error", [1e-17, 3e-17], [2e-29, 3e-29], 0, "within rounding", False),
        ("nmi", [0.5, 0.6], [0.5 + 2e-16, 0.6 + 2e-16], 0, "within rounding", False),
        ("nmi", [2e-17, 3e-17], [2e-29, 3e-29], 0, "A better", True),  # no error: it has no rounding of its own
        # paired: differences 1, 2, 3 (2 ± 0.58) and -1, 2, 3 (1.33 ± 1.2)
        ("error", [1.0, 2.0, 3.0], [2.0, 4.0, 6.0], 0, "A better", True),
        ("error", [1.0, 2.0, 3.0], [0.0, 4.0, 6.0], 0, "within noise", False),
        ("error", [2.0, 4.0, 6.0], [1.0, 2.0, 3.0], 0, "B better", True),
        ("nmi", [1.0, 2.0, 3.0], [2.0, 4.0, 6.0], 0, "B better", True),
        ("bound", [1.0, 2.0, 3.0], [2.0, 4.0, 6.0], 0, "differs", True),
        # Welch's: 2 ± sqrt(1/3 + 4/3)
        ("error", [1.0, 2.0, 3.0], [2.0, 4.0, 6.0], 1, "within noise", False),
        ("error", [1.0], [2.0], 0, "A better, 1 seed", True),
        ("bound", [1.0], [2.0, 2.0], 0, "differs, 1 seed", True),
        ("error", [1.0, math.nan], [2.0, 3.0], 0, "A not finite", True),
        ("error", [1.0, 2.0], [math.inf, 3.0], 0, "B not finite", True),
        ("error", [math.nan], [math.inf], 0, "neither finite", False),
        ("error", [None, None], [2.0, 3.0], 0, "only in B", False),
        ("error", [1.0], [None], 0, "only in A", False),
        ("error", [1.0, None, 3.0], [2.0, 9.0, 4.0], 0, "within noise", False),  # not paired: 1 and 3 against three
        ("parallel_seconds", [1.0, 1.1], [9.0, 9.1], 0, "not judged", False),
    ],
)
def test_verdicts(figure, a, b, from_seed, verdict, differs):
    """Of a metric's values of A, by seed from 0, and of B, by seed from another."""
    runs_a = [a_run("few", seed, metrics={figure: value}) for seed, value in enumerate(a)]
    runs_b = [a_run("few", seed, metrics={figure: value}) for seed, value in enumerate(b, start=from_seed)]
    (comparison,) = compare_figure(match(runs_a, runs_b)[0], figure)
    assert (comparison.verdict, comparison.differs) == (verdict, differs)


def test_methods_are_matched_by_name_and_setting_in_the_first_ones_order():
    a = [a_run(name, point={"x": x, "y": 1}) for name in ("p", "q") for x in (1, 2)]
    b = [a_run(name, point={"y": 1, "x": x}) for name in ("r", "q") for x in (3, 2)]
    both, *unmatched = match(a, b)
    assert [(one[0].name, one[0].point["x"], other[0].point["x"]) for one, other in both] == [("q", 2, 2)]
    alone = [[(runs[0].name, runs[0].point["x"]) for runs in side] for side in unmatched]
    assert alone == [[("p", 1), ("p", 2), ("q", 1)], [("r", 3), ("r", 2), ("q", 3)]]


def cells(text, name):
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines() if line.startswith(f" {name} ")]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two small experiments that have run, a and b, of which the second sends one local eigenpair more."""
    folder = tmp_path_factory.mktemp("compared")
    (folder / "tiny.toml").write_text(TINY, encoding="utf-8")
    changed = ["--set", "strategy.few.local_components=2", "--set", "title=Changed"]
    for name, overrides in (("a", []), ("b", changed)):
        call("run", folder / "tiny.toml", "--out", folder / name, *overrides)
    return folder


def test_an_experiment_is_equal_to_itself(folders):
    done = call("compare", folders / "a", folders / "a", "--all", "--fail")
    assert done.stderr == ""
    metrics, costs = done.stdout.split("what it took")
    assert [row[-1] for row in cells(metrics, "few")] == ["equal"] * 2 + ["not judged"] + ["equal"] * 3
    assert [row[-1] for row in cells(metrics, "central")] == ["equal", "equal", "not judged"]
    assert not {"→", "*"} & set(costs.split("mean, A → B")[0].split())
    assert costs.split()[-4:] == ["seconds", "are", "not", "judged"]  # no line about what is changed or alone


def test_what_differs_beyond_noise_is_marked_and_may_fail_a_script(folders):
    done = call("compare", folders / "a", folders / "b")
    assert done.stderr == ""
    error, costs = cells(done.stdout, "few")
    rows = [{run.seed: run for run in read_runs(folders / side / "runs.jsonl") if run.name == "few"} for side in "ab"]
    x, y = (np.array([side[seed].metrics["error"] for seed in range(3)], dtype=float) for side in rows)
    assert error[-1] == ("B better" if stats.ttest_rel(y, x).statistic < -NOISE else "within noise")
    assert error[1].startswith(f"{x.mean():.2e} ± ")
    assert error[3].startswith(f"{y.mean() - x.mean():#.3g} ± ")
    # a client of 150 rows sends an eigenpair more: 151 floats each of two
    assert costs[1:4] == ["302 → 604 *", "0", "1"]
    assert cells(done.stdout, "all | of them")[1][1:4] == ["604", "0", "1"]
    assert done.stdout.splitlines()[-1] == "configuration, A → B: strategy.few.local_components 1 → 2"
    done = call("compare", folders / "a", folders / "b", "--fail", "--metric", "floats_up", code=1)
    assert done.stderr.endswith("few: floats_up\n")
    assert cells(done.stdout, "few")[0][1:] == ["302", "604", "+302", "A better"]


def test_tables_for_documents_and_programs_stand_alone(folders):
    changed = "configuration, A → B: strategy.few.local_components 1 → 2\n"
    done = call("compare", folders / "a", folders / "b", "--format", "csv")
    assert done.stderr == changed
    table = pd.read_csv(io.StringIO(done.stdout)).set_index(["name", "figure"])
    few = table.loc["few", "floats_up"]
    assert (few.a_mean, few.b_mean, few.b_seeds, few.difference, few.standard_error) == (302, 604, 3, 302, 0)
    assert (few.better, few.verdict, bool(few.paired)) == ("lower", "A better", True)
    assert set(table.loc["central"].index) == {"error", "floats_up", "floats_down", "rounds", "seconds"}
    for form, rows, beginning in (("latex", "\\\\", "% error against central"), ("markdown", "| ", "error against")):
        done = call("compare", folders / "a", folders / "b", "--format", form)
        assert done.stderr == changed
        assert done.stdout.startswith(beginning)
        assert sum(rows in line for line in done.stdout.splitlines()) >= 8  # a heading and three methods, twice


def test_of_different_experiments_what_they_have_in_common_is_compared(folders, tmp_path):
    other = ["--set", "name=other", "--set", "strategy.few.name=new", "--set", "seeds=[1, 5]"]
    call("run", folders / "tiny.toml", "--out", tmp_path / "c", *other)
    done = call("compare", folders / "a", tmp_path / "c")
    assert done.stderr == ""
    for name in ("config.json", "config.toml"):
        (tmp_path / name).write_bytes((folders / "a" / name).read_bytes())
    append_run(tmp_path / "runs.jsonl", read_runs(folders / "a" / "runs.jsonl")[0])
    unfinished = call("compare", tmp_path, folders / "a")
    assert "A: not finished, and in no figure: all-of-them__seed=0, " in unfinished.stdout
    assert cells(unfinished.stdout, "few")[0][-1].endswith(", 1 seed")
    over = "over 3 seeds of A and 2 of B; B − A ± 2 standard errors, of means over different seeds"
    assert over in " ".join(done.stdout.split())
    assert done.stdout.splitlines()[-4:] == [
        "different experiments, tiny and other: only common methods and settings are compared",
        "configuration, A → B: seeds [0, 1, 2] → [1, 5]",
        "only in A: few",
        "only in B: new",
    ]


@pytest.mark.parametrize(
    ("b", "arguments", "says"),
    [
        ("none", [], "none holds no finished runs of an experiment (runs.jsonl)"),
        ("tiny.toml", [], "tiny.toml is a file, but must be the output folder of an experiment"),
        ("a", ["--metric", "eror"], "metric = 'eror', but no run has it (allowed: error, "),
        ("swept", [], "have no method at the same setting in common: few; all | of them; central against few at"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence(folders, b, arguments, says):
    if b == "swept":
        sweep = ["--set", "sweep.partition.clients=[2]"]
        call("run", folders / "tiny.toml", "--out", folders / b, *sweep)
    done = call("compare", folders / "a", folders / b, *arguments, code=2)
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert says in done.stderr
