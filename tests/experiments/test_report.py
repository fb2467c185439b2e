"""Rows survive interruption, summaries say what the seeds say, and the report shows it."""

import html
import io
import math
import re

import numpy as np
import pytest
from refusals import refusing
from rich.console import Console

from fedkernel.data import PartitionSpec
from fedkernel.experiments import results
from fedkernel.experiments.claims import Claim, Verdict
from fedkernel.experiments.config import Experiment, ReportOptions, Sites
from fedkernel.experiments.report import for_terminal, lay_out, write_report
from fedkernel.experiments.report.about import data_lines
from fedkernel.experiments.report.page_tables import size_rows
from fedkernel.experiments.report.plot_style import value_scale
from fedkernel.experiments.report.plots import draw
from fedkernel.experiments.results import Run, Spread, append_run, read_runs, summarise, write_shapes
from fedkernel.experiments.running import run_experiment
from fedkernel.ground import InputError, write_atomic
from fedkernel.models import METRICS, check_metric, compute_metrics, metric_of
from fedkernel.site import RECEIPTS
from fedkernel.site.privacy_receipt import PrivacyReceipt


def experiment(title="", text="", options=None):
    table = {
        "name": "x",
        "title": title,
        "data": {"name": "iris"},
        "partition": {"clients": 2},
        "strategy": [{"name": "a", "method": "DKPCA", "n_components": 1}],
        "report": (options or ReportOptions()).model_dump(),
    }
    return Experiment.from_table(table, "x.toml", text)


def a_round(number, error, **values):
    traffic = {"floats_up": 10, "floats_down": 2, "bytes_up": 80, "bytes_down": 16}
    metrics = {"error": error, **values}
    return {"round": number, "phase": "Power", "seconds": 0.01, "clients": 5, **traffic, "values": metrics}


def a_run(name="DKPCA-5", seed=0, error=0.001, **changed):
    row = {
        "id": f"{name}__{changed.get('point', {})}__seed={seed}",
        "name": name,
        "kind": "strategy",
        "method": "DKPCA",
        "parameters": {"n_components": 5, "kernel": {"type": "rbf", "gamma": 0.05}},
        "seed": seed,
        "engine": "local",
        "clients": 5,
        "metrics": {"error": error, "bound": None},
        "rounds": 1,
        "floats_up": 14250,
        "floats_down": 0,
        "bytes_up": 114900,
        "bytes_down": 2500,
        "seconds": 0.12,
        "phases": {"FindLocalEigenpairs": 0.09},
    }
    return Run.model_validate({**row, **changed})


def an_experiment(sweep=False):
    runs = []
    for clients in (2, 5, 10) if sweep else (5,):
        point = {"partition.clients": clients} if sweep else {}
        for seed in range(3):
            error = 1e-3 * clients * (1 + seed)
            history = [a_round(i, 10.0**-i) for i in range(1, 6)]
            runs += [
                a_run("DKPCA-5", seed, error, point=point, group="rbf"),
                a_run("VFedPCA", seed, 100 * error, point=point, group="linear", history=history, floats_up=900),
                a_run("central", seed, 0.0, point=point, kind="baseline", method="central", floats_up=0, phases={}),
            ]
    return runs


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


def test_every_figure_that_applies_is_made_and_no_other(tmp_path):
    names = ["error_by_method", "error_by_floats_up", "error_by_round", "seconds_by_phase"]
    assert [figure.name for figure in draw(an_experiment(), tmp_path)] == names
    swept = [figure.name for figure in draw(an_experiment(sweep=True), tmp_path)]
    assert swept == [*names[:3], "error_by_partition.clients", names[3]]
    more = {"nmi": 0.5, "bound": 1.0}
    both = [run.model_copy(update={"metrics": run.metrics | more}) for run in an_experiment(sweep=True)]
    of_both = {figure.name for figure in draw(both, tmp_path, also=["nmi", "error", "bound", "ari"])}
    costs = {"nmi_by_floats_up", "nmi_by_partition.clients", "bound_by_partition.clients"}
    assert of_both == {*swept, *costs}
    assert draw([a_run(error=None, seconds=0.0)], tmp_path / "none") == []


def test_of_one_method_only_its_settings_are_compared_once_each(tmp_path):
    """A single number is in the table; settings that are numbers have an axis of their own."""
    for values, expected in (([1], []), ([1, 2], ["floats_up", "x"]), (["iris", "wine"], ["method", "floats_up"])):
        runs = [a_run(seed=seed, point={"x": value}) for value in values for seed in (0, 1)]
        names = [figure.name for figure in draw(runs, tmp_path)]
        assert names == [*(f"error_by_{what}" for what in expected), "seconds_by_phase"]


@pytest.mark.parametrize("errors", [[0.0], [1e-320, 1.0], [-1e-18, 1e-3], [math.nan, 1.0]])
def test_any_error_can_be_drawn_and_the_caption_says_what_is_not_at_its_place(tmp_path, errors):
    figures = draw([a_run(f"m{i}", 0, error) for i, error in enumerate(errors)], tmp_path)
    caption = figures[0].caption
    assert ("shaded strip" in caption) == (min(errors) < 1e-16 < max(errors))
    assert ("Not drawn" in caption) == any(math.isnan(error) for error in errors)


def test_the_metric_wanted_is_drawn_with_a_dot_for_each_seed_and_said_which_way_is_better(tmp_path):
    runs = [a_run(name, error=1.0, metrics={"error": 1.0, "recover_error": 0.1, "nmi": 0.5}) for name in ("a", "b")]
    for wanted, drawn, order, side in (
        ("nmi", "nmi", "highest first", "Upper left is better: less sent, higher nmi."),
        ("recover_error", "recover_error", "lowest first", "Lower left is better: less sent, smaller error."),
        ("ari", "error", "lowest first", "Lower left is better: less sent, smaller error."),
    ):
        by_method, by_floats = draw(runs, tmp_path, metric=wanted)[:2]
        assert (by_method.name, by_floats.name) == (f"{drawn}_by_method", f"{drawn}_by_floats_up")
        assert order in by_method.caption
        assert side in by_floats.caption
    several, one = ([a_run(name, seed, 10.0**-seed) for name in "ab" for seed in range(n)] for n in (3, 1))
    with_dots, without = (draw(runs, tmp_path)[0] for runs in (several, one))
    assert "small dots are the seeds" in with_dots.caption
    assert "small dots" not in without.caption
    scale = value_scale([Spread.of([1.0, 0.1, 1e-20])], "error")
    assert scale.seeds(Spread.of([1.0, 0.1, 1e-20])) == [1.0, 0.1, scale.floor]
    assert Spread.of([1.0, math.inf]).values == ()


def test_axes_show_differences_and_methods_that_differ_in_rounds_are_drawn_by_these_too(tmp_path):
    near = value_scale([Spread.of([1.01, 1.03]), Spread.of([1.2])], "error_ratio")
    assert (near.log, near.low, near.high) == (False, pytest.approx(1.02 - Spread.of([1.01, 1.03]).std), 1.2)  # type: ignore[operator]
    far = value_scale([Spread.of([1.01]), Spread.of([20.0])], "error_ratio")
    assert (far.log, far.low, far.high) == (True, 1.01, 20.0)
    scale = value_scale([Spread.of([0.5])], "reconstruction_error")
    assert scale.low == 0.5 < scale.high
    runs = [a_run(name, metrics={"error_ratio": ratio}) for name, ratio in (("a", 1.1), ("b", 1.0))]
    by_method, by_floats = draw(runs, tmp_path)[:2]
    assert "lowest first" in by_method.caption
    assert "Lower left is better: less sent, lower error_ratio." in by_floats.caption
    runs = [a_run("one shot", error=0.1), a_run("iterative", error=0.01, rounds=2)]
    central = a_run("central", error=0.0, rounds=0, kind="baseline", method="central")
    figure = draw([*runs, central], tmp_path)[2]
    assert (figure.name, figure.title) == ("error_by_rounds", "Error against central by rounds of communication")
    assert "Lower left is better: fewer rounds, smaller error." in figure.caption
    # a baseline has no rounds, which makes no difference between strategies
    assert "error_by_rounds" not in [figure.name for figure in draw([runs[0], central], tmp_path)]


def test_groups_and_data_sets_are_not_compared_by_what_they_take_but_have_a_panel_each(tmp_path, render):
    render("error_by_floats_up.svg")
    cases = [{"data.name": data, "strategy.a.n": n} for data in ("iris", "wine") for n in (1, 2)]
    for runs, titles, says in (
        ([a_run(name, group=group) for name, group in ("ax", "by", "cy")], "xy", "One dot covers another: b and c."),
        ([a_run("a", point=p, floats_up=i) for i, p in enumerate(cases)], ("data.name = iris", "data.name = wine"), ""),
    ):
        by_floats = draw(runs, tmp_path)[1]
        assert "One panel per setting" in by_floats.caption
        assert says in by_floats.caption
        text = by_floats.svg.read_text(encoding="utf-8")
        assert [text.count(f"<!-- {title} -->") for title in titles] == [1, 1]


def test_the_page_shows_everything(tmp_path):
    claims = [
        Claim("one round is enough", Verdict.HOLDS, "1 = 1"),
        Claim("it is exact", Verdict.FAILS, "0.1 > 0"),
        Claim("it is best", Verdict.NOISE, "0.1 ~ 0.1"),
        Claim("it is fast", Verdict.UNTESTABLE, "2 of 3 runs are missing"),
    ]
    runs = an_experiment(sweep=True)
    path = write_report(tmp_path, experiment("A title", 'name = "x"'), runs, claims=claims, environment={"numpy": "2"})
    page = path.read_text(encoding="utf-8")
    assert path == tmp_path / "report.html"
    shown = ("A title", "name = &#34;x&#34;", "DKPCA-5", "VFedPCA", "central", "FindLocalEigenpairs", "numpy", "2.0")
    assert [text for text in shown if text not in page] == []
    verdicts = ("enough.*?✓ holds", "exact.*?✗ does not hold", "best.*?≈ holds within noise", "fast.*?not testable")
    assert re.search("<.*?".join(verdicts), page, re.DOTALL)
    # but for what a figure is shown large in
    assert page.count('src="data:image/svg+xml;base64,') == page.count("<img") - 1 == 5
    # shares of phases that overlap are of their sum, more than the seconds on the clock
    run = a_run(seconds=1.0, phases={"Draw": 0.9, "Solve": 0.6})
    page = write_report(tmp_path / "one", experiment("A title"), [run]).read_text(encoding="utf-8")
    rows = re.findall(r'<td class="words">(Draw|Solve)</td><td>([^<]*)</td><td>([^<]*)</td>', page)
    assert rows == [("Draw", "0.900", "60%"), ("Solve", "0.600", "40%")]
    with pytest.raises(InputError, match="no finished runs"):
        write_report(tmp_path, experiment("A title"), [])


def tables(path):
    """Return the tables on a page by their labels, headings first; bold cells have stars."""
    page = path.read_text(encoding="utf-8")
    by_label = {}
    for label, table in re.findall(r'aria-label="([^"]*)">\s*<table[^>]*>(.*?)</table>', page, re.DOTALL):
        rows = re.findall(r"<tr>(.*?)</tr>", table.replace("<strong>", "*").replace("</strong>", "*"), re.DOTALL)
        cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
        by_label[label] = [[re.sub(r"<[^>]*>", "", cell) for cell in row] for row in cells]
    return by_label


def test_the_page_begins_with_what_was_asked_and_then_says_what_it_took(tmp_path):
    """Of each what few rows have comes last; tables can be scrolled by the keyboard too, with a bar that shows."""
    common = {"error": 0.1, "parallel_seconds": 0.2, "nmi": 0.5, "local_components": 25.0}
    runs = [
        a_run("DKPCA", metrics={"bound": 1.0, **common}, point={"partition.clients": 2}),
        a_run("isolated", kind="baseline", metrics={"worst_error": 0.3, **common}, point={"partition.clients": 2}),
    ]
    for wanted, first, second in ((None, "error against central", "nmi"), ("nmi", "nmi", "error against central")):
        path = write_report(tmp_path, experiment(options=ReportOptions(plots=False, metric=wanted)), runs)
        assert [*tables(path)][:2] == ["Answer", "What it took"]
        answer, took = (tables(path)[label] for label in ("Answer", "What it took"))
        assert answer[0] == ["method", "partition.clients", first, second, "worst_error", "bound", "seeds"]
        costs = ["floats up", "floats down", "rounds", "seconds", "parallel_seconds", "local_components"]
        assert took[0] == ["method", "partition.clients", *costs, "bytes up", "bytes down", "seeds"]
    assert answer[1] == ["DKPCA", "2", "0.5000", "1.00e-01", "–", "1.00e+00", "1"]
    assert took[1] == ["DKPCA", "2", "14,250", "0", "1", "0.120", "0.200", "25", "114.9 kB", "2.5 kB", "1"]
    page = path.read_text(encoding="utf-8")
    assert re.search(r'<div class="scroll" tabindex="0" [^>]*>\s*<table', page)
    assert "::-webkit-scrollbar " in page


def test_whatever_is_named_is_escaped(tmp_path):
    bad = "<b>&\"'"
    runs = [a_run(bad, seed, point={bad: seed}, group=bad, phases={bad: 0.1}, engine=bad) for seed in (1, 2)]
    more = {"claims": [Claim(bad, Verdict.HOLDS, bad)], "environment": {bad: bad}}
    page = write_report(tmp_path, experiment(bad, bad), runs, **more).read_text(encoding="utf-8")
    assert "<b>" not in page
    assert "&lt;b&gt;&amp;&#34;&#39;" in page


def test_the_options_decide_what_is_drawn_and_what_could_not_be_is_said(tmp_path):
    history = [a_round(1, None, t=1, rank=3)]
    runs = [a_run(name, metrics={"error": 0.1, "nmi": 0.5}, history=history) for name in ("a", "b")]
    options = ReportOptions(metric="nmi", by_iteration=["rank", "rnak"])
    page = write_report(tmp_path, experiment("A title", options=options), runs).read_text(encoding="utf-8")
    drawn = re.findall(r'<figure id="(\w+)">', page)
    assert drawn == ["nmi_by_method", "nmi_by_floats_up", "seconds_by_phase", "rank_by_iteration"]
    assert "No figure by iteration of rnak:" in page
    bare = ReportOptions(plots=False, by_iteration=["rnak"])
    assert "by iteration" not in write_report(tmp_path, experiment(options=bare), runs).read_text(encoding="utf-8")


def test_each_group_has_a_table_of_its_own_where_the_best_strategy_is_bold(tmp_path):
    """Not a baseline, nor where the digits that are shown tell none apart; where a setting has few, within it."""
    metrics = {"a": (1e-3, 0.4), "b": (1e-20, 0.4), "c": (0.0, 0.4), "d": (2e-3, 0.9)}
    groups = {"a": "5 components", "b": "5 components", "c": "5 components", "d": "1 component"}
    runs = [a_run(name, group=groups[name], metrics={"error": e, "nmi": n}) for name, (e, n) in metrics.items()]
    runs.append(a_run("central", kind="baseline", method="central", group="1 component", metrics={"error": 0.0}))
    runs.append(a_run("e", group="1 component", metrics={"error": 1e-3, "nmi": 0.8}, floats_up=99))
    pages = tables(write_report(tmp_path, experiment(options=ReportOptions(plots=False)), runs))
    heading, *cells = [row[1:3] for row in pages["Answer: 5 components"]]
    assert heading == ["error against central", "nmi"]
    assert cells == [["1.00e-03", "0.4000"], ["*≤ 1e-16*", "0.4000"], ["*0*", "0.4000"]]
    cells = [row[1:3] for row in pages["Answer: 1 component"][1:]]
    assert cells == [["2.00e-03", "*0.9000*"], ["0 (reference)", "–"], ["*1.00e-03*", "0.8000"]]
    assert [row[1] for row in pages["What it took: 1 component"]] == ["floats up", "14,250", "14,250", "*99*"]
    swept = [a_run(name, error=e, point={"n": n}) for name, n, e in (("a", 1, 0.1), ("b", 1, 0.2), ("a", 2, 0.4))]
    answer = tables(write_report(tmp_path, experiment(options=ReportOptions(plots=False)), swept))["Answer"]
    assert [row[2] for row in answer[1:]] == ["*1.00e-01*", "2.00e-01", "4.00e-01"]


def test_the_page_says_what_the_data_are_how_they_are_divided_and_what_each_metric_means(tmp_path):
    write_shapes(tmp_path, [(150, 3), (150, 1)])
    page = write_report(tmp_path, experiment(), an_experiment()).read_text(encoding="utf-8")
    lines = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page))
    assert lines["data"] == "iris"
    assert lines["divided"] == "by columns (vertical), even, among 2 clients"
    sizes = "150 rows and 4 columns; 3, 1 columns at the clients; of floats, the whole table is N d = 600"
    assert lines["sizes"] == sizes
    named = {metric_of("error").heading, "floats up", "seconds"}
    assert named <= lines.keys()
    assert lines["error against central"].endswith("lower is better, 0 at best, below 1e-16 only rounding.")
    assert lines["floats up"] == "floats that all clients upload; in floats, lower is better."
    sites = experiment().model_copy(update={"data": Sites(sites=["north", "east"])})
    assert data_lines(sites, []) == [("data", "held by the sites north, east, each its own; none of it is here")]
    own = {"left": {}, "refused": 0, "table_share": 0.5, "share_in_all": 0.5, "privacy": None, "versions": {}}
    receipt = PrivacyReceipt(site="north", run="a", study="1" * 64, sha256="2" * 64, **own)
    write_atomic(tmp_path / RECEIPTS / "a.json", lambda file: file.write(receipt.model_dump_json().encode()))
    page = write_report(tmp_path, sites, an_experiment()).read_text(encoding="utf-8")
    text = "north: only masked sums, 0.50 numbers for each entry of the table (0.50 in all its runs), no noise"
    assert f"<dt>receipts</dt><dd>of study {'1' * 12}, signers unknown; {text}</dd>" in page
    divided = PartitionSpec(kind="horizontal", method="dirichlet", alpha=0.5, shuffle=True, clients=13)
    rows = experiment().model_copy(update={"partition": divided})
    sizes = [(10 + number, 4) for number in range(13)]
    assert data_lines(rows, sizes)[1:] == [
        ("divided", "by rows (horizontal), dirichlet, alpha = 0.5, shuffled anew with every seed, among 13 clients"),
        ("sizes", "208 rows and 4 columns; 10 to 22 rows at the clients; of floats, the whole table is N d = 832"),
    ]


def test_the_page_says_which_columns_there_are_and_what_was_done_to_them_before(tmp_path):
    """Rows that files here have lost are counted; sites that hold their own drop them before they say how many."""
    rng = np.random.default_rng(0)
    for name, cells in (("a", ["", "f", "f"]), ("b", ["1.5", "", "m"]), ("c", ["2.5", "f", "m"])):
        rows = [f"{a:.3f},{b:.3f},{'fm'[place % 2]}" for place, (a, b) in enumerate(rng.random((20, 2)))]
        rows += [f"{cells[0]},1.0,{kind}" for kind in cells[1:]]
        (tmp_path / f"{name}.csv").write_text("\n".join(["age,glucose,sex", *rows]), encoding="utf-8")
    prepare = {"missing": "drop", "log": ["glucose"], "categories": {"sex": ["f", "m"]}, "drift": "ignore"}
    table = {
        "name": "x",
        "data": {"shards": [str(tmp_path / f"{name}.csv") for name in "abc"]},
        "prepare": prepare | {"clip": {"age": [0, 90]}},
        "strategy": [{"name": "a", "method": "RFKKMeans", "n_clusters": 2, "n_features": 10}],
        "report": {"plots": False},
    }
    run_experiment(Experiment.from_table(table, "x.toml"), tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    lines = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page))
    assert lines["sizes"].startswith("63 rows and 4 columns; 20, 21, 22 rows")
    assert lines["columns"] == "3: age, glucose, sex; 4 once prepared"
    assert lines["prepared"] == (
        "clipped: age to 0 to 90; logarithms of glucose; rows with an empty cell are left out; so left out: 2 at "
        "client 0, 1 at client 1; scaled to mean 0 and standard deviation 1; levels as columns of 0 and 1: sex (f, m); "
        "over the rows of all clients together"
    )
    columns = results.Columns(tuple(f"c{place}" for place in range(32)), 32)
    named = dict(data_lines(experiment(), [], columns))["columns"]
    assert (named.startswith("32: c0, c1, "), named.endswith(", c29 and 2 more")) == (True, True)
    assert "prepared" not in dict(data_lines(experiment(), []))


def test_the_page_says_what_runs_chose_and_warn_of(tmp_path):
    findings = ["k = 3 is chosen.", "clusters < sites: another unit?"]
    runs = [a_run(seed=seed, findings=[findings[0].replace("3", f"{3 + seed}"), findings[1]]) for seed in (0, 1)]
    path = write_report(tmp_path, experiment(options=ReportOptions(plots=False)), runs)
    (items,) = re.findall(r"Findings of the runs</h3>\n<ul>(.*?)</ul>", path.read_text(encoding="utf-8"), re.DOTALL)
    others = " and 1 more runs with other values", " and 1 more runs"
    sentences = [f"{runs[0].id}{more}: {sentence}" for sentence, more in zip(findings, others, strict=True)]
    assert re.findall(r"<li>(.*?)</li>", items) == [html.escape(sentence, quote=False) for sentence in sentences]
    many = [f"column {place}: drift" for place in range(20)]
    runs = [a_run(name, findings=[f"{name} is unlike sites.", *many]) for name in ("a", "b")]
    page = write_report(tmp_path, experiment(options=ReportOptions(plots=False)), runs).read_text(encoding="utf-8")
    listed = re.findall(r"<li>.*?: (.*?)</li>", page)
    assert listed[:3] == ["a is unlike sites.", "b is unlike sites.", many[0]], "the first of each run come first"
    assert "and 10 more" in page
    for swept in (2, 3):
        runs.append(a_run(metrics={"simplified_silhouette": swept / 10}, point={"k": swept}))
    page = write_report(tmp_path, experiment(options=ReportOptions(plots=False)), runs).read_text(encoding="utf-8")
    assert "k = 3 is recommended" in page


def test_sizes_that_sites_told_stand_by_cluster_and_site():
    values = {"cluster 0 at client 0 (site 'north')": 40.0, "cluster 1 at client 0 (site 'north')": 95.0}
    values |= {"cluster 0 at client 1": 0.0, "cluster 1 at client 1": 1000.0}
    runs = [a_run(seed=seed, history=[a_round(1, None, **values)]) for seed in (0, 1)]
    assert size_rows(runs, {}) == [("DKPCA-5", "", "1,095 (north 95, client 1 1,000); 40 (north 40, client 1 0)")]
    assert size_rows([a_run()], {}) == []
