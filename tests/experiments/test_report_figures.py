"""Figures of a report: which are drawn, with which axes and captions."""

import math

import pytest
from report_runs import a_run, an_experiment

from fedkernel.experiments.report.plot_style import value_scale
from fedkernel.experiments.report.plots import draw
from fedkernel.experiments.results import Spread


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
