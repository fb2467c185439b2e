"""Rows of runs survive interruption; summaries and the table in the terminal say what the seeds say."""

import io
import math
import re

import numpy as np
import pytest
from refusals import refusing
from report_runs import a_run, an_experiment, experiment, tables
from rich.console import Console

from fedkernel.experiments import results
from fedkernel.experiments.config import ReportOptions
from fedkernel.experiments.report import for_terminal, lay_out, write_report
from fedkernel.experiments.report.plot_style import value_scale
from fedkernel.experiments.report.plots import draw
from fedkernel.experiments.results import Run, Spread, append_run, read_runs, summarise
from fedkernel.ground import InputError
from fedkernel.models import METRICS, check_metric, compute_metrics, metric_of


def printed(runs, width=100, metric=None):
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(for_terminal(lay_out(summarise(runs), metric)))
    return console.export_text().splitlines()


def test_rows_come_back_as_they_were_written_and_a_torn_line_is_cut_by_the_next_append(tmp_path):
    path, errors = tmp_path / "new" / "runs.jsonl", (1e-3, None, 0.0, 1 / 3, math.inf, math.nan)
    assert read_runs(path) == []
    runs = [a_run(seed=seed, error=error) for seed, error in enumerate(errors)]
    for run in runs:
        append_run(path, run)
    assert list(map(repr, read_runs(path))) == list(map(repr, runs))
    path = tmp_path / "runs.jsonl"
    whole = a_run("méthode", seed=1).model_dump_json().encode()
    for cut in range(1, len(whole), 7):
        path.unlink(missing_ok=True)
        append_run(path, a_run())
        with path.open("ab") as file:
            file.write(whole[:cut])
        assert read_runs(path) == [a_run()]
        append_run(path, a_run(seed=2))
        assert read_runs(path) == [a_run(), a_run(seed=2)]
    path.write_text(a_run().model_dump_json(), encoding="utf-8")  # whole, without its end
    append_run(path, a_run(seed=1))
    assert read_runs(path) == [a_run(), a_run(seed=1)]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("not json", "not JSON"),
        ("\udcff", "not JSON"),
        ('{"id": "x"}', "name is required"),
        (a_run().model_dump_json().replace('"rounds":1', '"rounds":-1'), "rounds = -1"),
        (a_run().model_dump_json().replace('"rounds":1', '"rounds":1,"colour":"red"'), "colour is not a known name"),
        (a_run(seed=9).model_dump_json(), "repeats the id"),
    ],
)
def test_any_other_bad_line_is_named_by_file_and_number(tmp_path, line, says):
    path = tmp_path / "runs.jsonl"
    rows = [a_run(seed=9).model_dump_json(), line, a_run(seed=1).model_dump_json(), ""]
    path.write_text("\n".join(rows), encoding="utf-8", errors="surrogateescape")
    with pytest.raises(InputError, match=says) as caught:
        read_runs(path)
    assert str(caught.value).startswith(f"{path}, line 2: ")


def test_summaries_are_means_and_sample_deviations_in_order_of_appearance_and_none_without_finite_figures():
    errors = [0.1, 0.4, 0.7]
    runs = [a_run("z", 0, errors[0]), a_run("a", 0, None), a_run("z", 1, errors[1]), a_run("z", 2, errors[2])]
    z, a = summarise(runs)
    assert (z.name, a.name, z.seeds) == ("z", "a", 3)
    error = z.metrics["error"]
    np.testing.assert_allclose([error.mean, error.std or 0], [np.mean(errors), np.std(errors, ddof=1)])
    assert (error.low, error.high, error.n) == (0.1, 0.7, 3)
    assert a.metrics["error"] is None
    assert a.seconds.std is None
    (one,) = summarise([a_run(seed=0, error=2.0), a_run(seed=1, error=None)])
    assert one.metrics["error"] == Spread.of([2.0])
    points = {"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 2, "b": 2}
    assert [summary.seeds for summary in summarise([a_run(seed=i, point=p) for i, p in enumerate(points)])] == [2, 1]
    for wrong in (math.inf, -math.inf, math.nan):
        spread = Spread.of([1.0, wrong])
        assert np.isnan([spread.mean, spread.low, spread.high]).all()
        assert (spread.std, spread.n) == (None, 2)


def test_the_table_fits_100_columns_and_shows_exact_zeros_only_where_exact():
    runs = [*an_experiment(), *(a_run("nearly", seed, 1e-300) for seed in range(3))]
    lines = printed(runs)
    assert max(len(line.rstrip()) for line in lines) <= 100
    rows = {line.split()[0]: line for line in lines if line.strip()}
    assert "0 (reference)" in rows["central"]
    assert rows["nearly"].split()[1:3] == ["≤", "1e-16"]
    assert "14,250" in rows["DKPCA-5"]
    assert "1.00e-02 ± 5.0e-03" in rows["DKPCA-5"]


@pytest.mark.parametrize("width", [100, 80, 60, 40])
@pytest.mark.parametrize("swept", [0, 1, 3])
def test_a_narrow_terminal_gets_the_table_in_parts_that_have_the_names_and_lose_no_figure(width, swept):
    values = {"partition.clients": 12, "data.name": "breast_cancer", "strategy.*.n_components": 5}
    point = dict([*values.items()][:swept])
    runs = [a_run(name, seed, point=point, floats_down=123) for name in ("DKPCA RBF", "[red]x") for seed in (0, 1)]
    whole, lines = printed(runs, width=240), printed(runs, width=width)
    assert max(len(line.rstrip()) for line in lines) <= width
    assert "…" not in "".join(lines)
    parts = sum(line.startswith(" Method") for line in lines)
    assert parts > 1 or width > 60
    for name in ("DKPCA RBF", "[red]x"):
        (row,) = [re.split(r" {2,}", line.strip()) for line in whole if line.startswith(f" {name}")]
        shown = [re.split(r" {2,}", line.strip()) for line in lines if line.startswith(f" {name}")]
        assert len(shown) == parts
        assert [cell for cell in row if not any(cell in part for part in shown)] == []
    if swept == 1 and width > 40:  # which names a row with its method, so every part has it
        assert all(line.split()[-1] == "12" or " 12 " in line for line in lines if line.startswith(" [red]x"))
    assert " ".join(" ".join(lines).split()).count("over 2 seeds") == 1


def test_of_clusters_what_compares_across_settings_stands_before_their_objective(tmp_path):
    """As an experiment of named sites measures them, and one of simulated sites, whose rows have classes."""
    measured = {"kmeans_objective": 0.3, "calinski_harabasz": 40.0, "simplified_silhouette": 0.5, "site_nmi": 0.1}
    judged = {"recover_error": 0.1, "nmi": 0.8, "ari": 0.7, "stability": 0.9}
    for metrics, names in (
        (measured, "simplified_silhouette kmeans_objective calinski_harabasz site_nmi"),
        (measured | judged, "simplified_silhouette nmi ari stability kmeans_objective calinski_harabasz"),
        ({"kmeans_objective": 0.3, "nmi": 0.8}, "nmi kmeans_objective"),
    ):
        order, runs = names.split(), [a_run(name, metrics=metrics) for name in ("a", "b")]
        path = write_report(tmp_path, experiment(options=ReportOptions(plots=False)), runs)
        assert tables(path)["Answer"][0][1 : 1 + len(order)] == order
        assert order[0] in "\n".join(printed(runs))
        assert results.leading_metric(summarise(runs)) == order[0]
    objective = [a_run(metrics={"kmeans_objective": 0.3})]
    assert "kmeans_objective" in "\n".join(printed(objective)), "which leads where there is nothing else"


def test_what_a_run_took_leads_only_where_that_is_asked_for(tmp_path):
    """Across sites nobody can tell an error; traffic and seconds have columns of their own."""
    costs = {"floats_up_per_iteration": 310.0, "lanczos_iterations": 4.0, "parallel_seconds": 0.5}
    across = [a_run("sites", seed, metrics=costs) for seed in (0, 1)]
    heading = re.split(r" {2,}", next(line for line in printed(across) if "Method" in line).strip())
    assert heading == ["Method", "floats up", "floats down", "rounds", "seconds"]
    path = write_report(tmp_path, experiment(), across)
    assert tables(path)["What it took"][0] == [
        *["method", "floats up", "floats down", "rounds", "seconds"],
        *["floats_up_per_iteration", "lanczos_iterations", "parallel_seconds", "bytes up", "bytes down", "seeds"],
    ]
    assert "No metric of the answer was measured." in path.read_text(encoding="utf-8")
    assert [figure.name for figure in draw(across, tmp_path)] == ["seconds_by_phase"]
    assert "lanczos_iterations" in "\n".join(printed(across, metric="lanczos_iterations"))
    measured = [a_run("sites", seed, metrics=costs | {"explained_variance_ratio": 0.9}) for seed in (0, 1)]
    assert "explained_variance_ratio" in "\n".join(printed(measured))


@pytest.mark.parametrize(
    ("error", "cell"),
    [
        ((1.95e-29, 3.1e-29), "≤ 1e-16"),
        ((-3e-17, -2e-17), "≤ 1e-16"),  # of a difference of sums
        ((0.0, 1e-30), "≤ 1e-16"),
        ((0.0, 0.0), "0"),
        ((1e-15, 3e-15), "2.00e-15 ± 1.4e-15"),
        ((1e-16, 1e-16), "1.00e-16 ± 0.0e+00"),
    ],
)
@pytest.mark.parametrize("metric", ["error", "recover_error"])
def test_an_error_that_is_rounding_has_no_digits(tmp_path, metric, error, cell):
    runs = [a_run(seed=seed, metrics={metric: value}) for seed, value in enumerate(error)]
    row = next(line for line in printed(runs) if "DKPCA" in line)
    assert re.split(r" {2,}", row.strip())[1] == cell
    path = write_report(tmp_path, experiment(options=ReportOptions(plots=False)), runs)
    assert tables(path)["Answer"][1][1] == cell.removesuffix(" ± 0.0e+00")


def test_errors_have_orders_of_magnitude_and_what_a_run_took_leads_no_report():
    assert metric_of("my_error").axis == "orders"
    assert (metric_of("mine").axis, metric_of("mine").better) == ("from 0", None)
    for name, log in (("error", True), ("recover_error", True), ("nmi", False)):
        assert value_scale([Spread.of([0.4]), Spread.of([0.8])], name).log is log
        assert value_scale([Spread.of([0.004]), Spread.of([0.8])], name).log is True, "which spans decades"
    counted = {name: metric for name, metric in METRICS.items() if metric.counted}
    assert counted.keys() <= Run.model_fields.keys()
    assert not any(metric.leads for metric in METRICS.values() if metric.cost)
    assert check_metric("rounds", counted=True) == "rounds"
    with pytest.raises(ValueError, match="'rounds' is not known"):
        ReportOptions(metric="rounds")


def test_a_metric_of_ones_own_is_shown_by_its_name_and_as_it_says_once_imported(tmp_path, monkeypatch):
    name = "my_purity:purity"
    runs = [a_run(seed=seed, metrics={name: purity}) for seed, purity in enumerate((0.25, 0.75))]

    def shown(folder):
        (line,) = [line for line in printed(runs) if "0." in line or "e-01" in line]
        return line, draw([*runs, a_run("other", metrics={name: 0.25})], tmp_path / folder)[0].caption

    line, caption = shown("before")
    assert "5.00e-01 ± 3.5e-01" in line
    assert "in increasing order" in caption
    assert ReportOptions(metric=name).metric == name
    (tmp_path / "my_purity.py").write_text(
        "from fedkernel.models import Metric\n"
        "purity = Metric('purity', 'share of rows of their class', 'higher', digits=('.2f', '.2f'), "
        "function=lambda model, shards: model / len(shards))\n"
        "nothing = Metric('nothing')\n"
        "def text(model, shards):\n    return 'high'\n"
        "def narrow(model):\n    return 1.0\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert compute_metrics(["error", name], 3, [np.eye(2), np.eye(2)]) == {name: 1.5}
    with pytest.raises(InputError, match=r"metric = 'nothing' has no function; allowed: Metric\(\.\.\., function="):
        compute_metrics(["my_purity:nothing"], 3, [np.eye(2)])
    for wrong, cause in (("text", "ValueError: could not convert string"), ("narrow", "TypeError: narrow() takes 1")):
        with refusing(start=f"metric = 'my_purity:{wrong}' fails or returns no number for (model, tables): {cause}"):
            compute_metrics([f"my_purity:{wrong}"], 3, [np.eye(2)])
    line, caption = shown("after")
    assert "0.50 ± 0.35" in line
    assert "highest first" in caption
    assert metric_of(name).heading == "purity"
