"""Figures by iteration show, at each outer iteration, what its rounds told: the curves are the runs' own numbers."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from report_runs import a_run as run_of_report
from sklearn.datasets import make_blobs

from fedkernel import RBF, InputError, Linear
from fedkernel.experiments.config import ReportOptions
from fedkernel.experiments.report.convergence_curves import value_by_iteration
from fedkernel.experiments.report.plot_style import Scale, looks
from fedkernel.experiments.report.plots import _by_method, _shown, draw
from fedkernel.experiments.results import by_iteration, summarise
from fedkernel.models import KernelPCA, PeerComponents, kernel_kmeans
from fedkernel.run import HUES, MARKERS, Result

CLIENTS = "partition.clients"
ROWS = (("best", 0.1), ("worst", 0.2))


def a_run(name, seed, rounds, **changed):
    """Make a run whose rounds have these values; `floats` is what a round uploads."""
    history = [
        {
            **{"round": number, "phase": "Step", "seconds": 0.1, "clients": 2, "bytes_up": 0, "bytes_down": 0},
            **{"floats_up": int(values.get("floats") or 0), "floats_down": 0},
            "values": {key: value for key, value in values.items() if key != "floats"},
        }
        for number, values in enumerate(rounds)
    ]
    return run_of_report(name, seed, **{"metrics": {"nmi": 0.5}, "phases": {}, "history": history} | changed)


def curved(name, *curves, value="recover_error", **changed):
    """Make a run for each seed, with a value at each of t = 1, 2, ..."""
    rounds = [[{"t": t, value: x} for t, x in enumerate(curve, start=1)] for curve in curves]
    return [a_run(name, seed, own, **changed) for seed, own in enumerate(rounds)]


def drawn(runs, value):
    return value_by_iteration(runs, value, looks(summarise(runs)))[1:]


def lines(canvas, panel=0):
    return [(list(line.get_xdata()), list(line.get_ydata())) for line in canvas.axes[panel].lines]


def labels(canvas):
    return [text.get_text() for text in canvas.legends[0].get_texts()]


def test_an_iteration_has_the_last_value_of_its_rounds_and_the_sum_of_their_floats():
    rounds = [
        {"floats": 1000},  # before the iterations
        {"t": 1, "rank": 2, "floats": 10},
        {"t": 1, "rank": 3, "floats": 20},
        {"t": 1, "rank": None, "floats": 30},
        {"t": 2, "floats": 5},
        {"t": 3, "rank": 7, "floats": 0},
    ]
    run = a_run("A", 0, rounds)
    assert by_iteration(run, "rank") == {1: 3, 3: 7}
    assert by_iteration(run, "floats_up") == {1: 60, 2: 5, 3: 0}
    assert by_iteration(run, "colour") == {}


def test_curves_are_means_over_the_seeds_that_reached_the_iteration_with_a_band():
    runs = [*curved("A", [2.0, 4.0, 9.0], [4.0, 8.0], value="rank"), *curved("B", [1.0], value="rank")]
    caption, canvas = drawn(runs, "rank")
    assert lines(canvas) == [([1, 2, 3], [3.0, 6.0, 9.0]), ([1], [1.0])]
    band = canvas.axes[0].collections[0].get_paths()[0].vertices
    ends = {(x, round(float(y), 9)) for x, y in np.asarray(band)}
    for t, mean, std in ((1, 3, math.sqrt(2)), (2, 6, math.sqrt(8)), (3, 9, 0)):
        assert {(t, round(mean - std, 9)), (t, round(mean + std, 9))} <= ends
    assert "The band is one standard deviation over seeds." in caption
    assert "The band" not in drawn(curved("A", [2.0, 4.0], value="rank"), "rank")[0]
    assert (canvas.axes[0].get_xscale(), canvas.axes[0].get_yscale()) == ("linear", "linear")
    assert labels(canvas) == ["A", "B"]
    for highest, scale in ((99.0, "linear"), (101.0, "log")):
        _, canvas = drawn(curved("A", [1.0, highest], value="rank"), "rank")
        assert canvas.axes[0].get_yscale() == scale


def test_the_recover_error_is_held_against_the_least_c_over_t_that_no_mean_exceeds():
    runs = [*curved("A", [0.4, 0.3, 0.2, 0.1], [0.6, 0.5, 0.2, 0.1]), *curved("B", [0.1, 0.1, 0.1])]
    # t times the mean: of A 0.5, 0.8, 0.6, 0.4, of B 0.1, 0.2, 0.3
    caption, canvas = drawn(runs, "recover_error")
    (a, b, guide), axes = lines(canvas), canvas.axes[0]
    np.testing.assert_allclose(a[1], [0.5, 0.4, 0.2, 0.1])
    np.testing.assert_allclose(b[1], [0.1, 0.1, 0.1])
    np.testing.assert_allclose(guide, ([1, 2, 3, 4], [0.8, 0.4, 0.8 / 3, 0.2]))
    assert axes.lines[2].get_linestyle() == "--"
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    flat = drawn(curved("A", [0.5] * 4), "recover_error")[1].axes[0]
    assert flat.get_ylim()[1] > 2 == flat.lines[1].get_ydata()[0]  # 4 times 0.5, at t = 1
    assert labels(canvas) == ["A", "B", "c / t, c = 0.8"]
    assert "Lower is better." in caption
    assert "Both axes are logarithmic" in caption


@pytest.mark.parametrize("errors", [[0.0, 0.0], [1.0], [math.nan, 0.1], [1e-300, 0.0], [0.5] * 130])
def test_any_recover_error_can_be_drawn(errors, tmp_path, render):
    render("recover_error_by_iteration.png")
    (*_, figure) = draw(curved("A", errors), tmp_path, by_iteration=["recover_error"])
    assert figure.name == "recover_error_by_iteration"
    assert figure.png.stat().st_size > 5_000
    assert ("c / t is a straight line" in figure.caption) == any(error > 0 for error in errors)


def test_settings_of_a_method_share_its_row_the_first_on_top():
    points = [{CLIENTS: clients} for clients in (2, 5, 10)]
    runs = [a_run(name, 0, [], metrics={"error": error}, point=point) for point in points for name, error in ROWS]
    summaries = summarise(runs)
    (axes,) = _by_method(_shown(summaries, "error"), "error", looks(summaries))[2].axes
    heights = [float(line.get_ydata()[0]) for line in axes.lines if len(line.get_ydata()) == 1]
    assert heights == [-0.25, 0.0, 0.25, 0.75, 1.0, 1.25]
    bottom, top = axes.get_ylim()
    assert bottom > 1.25 > -0.25 > top
    assert bottom + top == pytest.approx(len(ROWS) - 1, abs=0.25), "about as much room above as below"


def test_a_swept_number_tells_curves_apart_where_each_setting_cannot_have_a_panel():
    def swept(sets):
        points = [{"data.name": name, CLIENTS: clients} for name in sets for clients in (2, 5)]
        methods = [("A", [1.0, 0.5]), ("once", [1.0])]
        return [
            run
            for point in points
            for name, curve in methods
            for run in curved(name, [x * point[CLIENTS] for x in curve], value="distance", point=point)
        ]

    _, panels = drawn(swept("wxyz"), "distance")  # 8 settings: a panel each
    assert sum(axes.get_visible() for axes in panels.axes) == 8
    assert labels(panels) == ["A", "once"]
    _, curves = drawn(swept("vwxyz"), "distance")
    assert [axes.get_title() for axes in curves.axes[:5]] == [f"data.name = {name}" for name in "vwxyz"]
    assert labels(curves) == ["A, clients = 2", "A, clients = 5"]
    assert lines(curves) == [([1, 2], [2.0, 1.0]), ([1, 2], [5.0, 2.5])]
    _, names_only = drawn([run for run in swept("qrstuvwxyz") if run.point[CLIENTS] == 2], "distance")
    assert labels(names_only) == ["A", "once"]  # a number that would leave more panels than there are changes nothing


def test_figures_by_iteration_come_last_in_the_order_asked_for_without_those_that_no_run_tells(tmp_path):
    rounds = [{"t": t, "rank": t, "recover_error": 1 / t, "floats": 10} for t in (1, 2)]
    runs = [a_run("A", seed, rounds) for seed in (0, 1)]
    rest = [figure.name for figure in draw(runs, tmp_path)]
    values = ["floats_up", "floats_down", "colour", "recover_error", "rank"]
    once, again = (draw(runs, tmp_path / folder, by_iteration=values) for folder in ("once", "again"))
    by_t = [f"{value}_by_iteration" for value in values if value != "colour"]
    assert [figure.name for figure in once] == [*rest, *by_t]
    titles = [figure.title for figure in once[-4:-2]]
    assert titles == ["Floats uploaded by iteration", "Floats downloaded by iteration"]
    for a, b in zip(once, again, strict=True):
        assert a.png.read_bytes() == b.png.read_bytes()
        assert a.svg.read_bytes() == b.svg.read_bytes()


def test_further_metrics_are_drawn_by_what_is_swept_and_named_once(tmp_path, render):
    render(f"*_by_{CLIENTS}.svg")
    runs = [a_run("A", 0, [], point={CLIENTS: n}, metrics={"error": 0.1, "bound": n}) for n in (2, 5)]
    runs += [a_run("B", 0, [], point={CLIENTS: n}, metrics={"error": 0.0}) for n in (2, 5)]
    without = {figure.name for figure in draw(runs, tmp_path)}
    figures = draw(runs, tmp_path, also=["bound", "floats_up", "error", "rows_up", "colour"])
    further = [figure for figure in figures if figure.name not in without]
    assert [figure.title for figure in further] == [f"{what} by {CLIENTS}" for what in ("Bound", "Floats uploaded")]
    bound, floats = (figure.svg.read_text(encoding="utf-8") for figure in further)
    assert ("<!-- B -->" in bound, "<!-- B -->" in floats) == (False, True)
    assert "<!-- number of clients -->" in bound
    assert ReportOptions(also=["bound", "floats_up"]).also == ["bound", "floats_up"]
    for wrong, text in ((["colour"], "'colour' is not known"), (["bound", "bound"], "'bound' is listed twice")):
        with pytest.raises(ValueError, match=text):
            ReportOptions(also=wrong)


def test_each_panel_has_an_axis_of_its_own_where_one_from_0_would_not_show_differences(tmp_path, render):
    render(f"*_by_{CLIENTS}.svg")
    runs = [
        a_run("A", 0, [], point={CLIENTS: n, "data.name": name}, metrics={"explained_variance": level + n / 100})
        for name, level in (("low", 0.2), ("high", 9.0))
        for n in (2, 5)
    ]
    figures = draw(runs, tmp_path, also=["explained_variance"])
    (svg,) = [figure.svg.read_text(encoding="utf-8") for figure in figures if figure.title.endswith(f" by {CLIENTS}")]
    ticks = [float(text) for text in re.findall(r"<!-- (\d\.\d+) -->", svg)]
    assert any(9 < tick < 9.1 for tick in ticks)
    assert any(0.2 < tick < 0.3 for tick in ticks)


@pytest.mark.parametrize(("value", "end"), [(0.0, 0.1), (5.0, 5.5), (-5.0, -4.5)])
def test_an_axis_of_a_single_value_has_a_length(value, end):
    scale = Scale.around([value, value], log=False)
    assert (scale.low, scale.high) == (value, end)


BLOBS, GROUPS = make_blobs([9, 12, 6], cluster_std=0.1, random_state=0)


def test_a_result_s_figure_has_its_rows_clusters_and_spectrum_and_none_without_either():
    """Each cluster has a marker and a hatch of its own, so that it can be told without colours."""
    model = kernel_kmeans(BLOBS, RBF(gamma=1.0), 3, 4)
    sites = {0: {"embedding": model.training_[:20]}, 1: {"embedding": model.training_[20:]}}
    for result in (Result(model), Result(replace(model, training_=None), outputs=sites)):
        rows, clusters, spectrum = result.plot().axes
        counts = sorted(np.bincount(GROUPS))
        assert sorted(len(line.get_xdata()) for line in rows.lines) == counts
        markers, hatches = {line.get_marker() for line in rows.lines}, {bar.get_hatch() for bar in clusters.patches}
        assert len(markers) == len(hatches) == 3
        assert sorted(int(text.get_text().split()[1]) for text in clusters.get_yticklabels()) == counts
        np.testing.assert_array_equal(spectrum.lines[0].get_ydata(), model.eigenvalues_)
    assert math.gcd(len(HUES), len(MARKERS)) == 1
    pca = KernelPCA.of_gram(BLOBS @ BLOBS.T, Linear(), 2, center=True)
    rows, _ = Result(pca).plot().axes
    np.testing.assert_array_equal(rows.lines[0].get_xydata(), pca.embedding())
    (_,) = Result(pca.first(1)).plot().axes
    with pytest.raises(InputError, match="PeerComponents has nothing to draw; allowed: models with eigenvalues"):
        Result(PeerComponents(Linear(), 2)).plot()
