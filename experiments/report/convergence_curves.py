"""Curves of errors and other values by communication round or outer iteration, mean and spread over seeds."""

import math
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FixedLocator, FormatStrFormatter, MaxNLocator, NullLocator

from fedkernel.experiments.report.plot_style import MOST_PANELS, Drawn, Look, Scale, legend, looks, panels, value_scale
from fedkernel.experiments.results import Run, Spread, by_iteration, by_setting, setting, summarise
from fedkernel.models import MAIN_METRIC, metric_of

Curves = dict[str, dict[str, dict[int, Spread]]]  # by setting of the sweep, name of the method, round or iteration


def error_by_round(runs: Sequence[Run], look: dict[str, Look]) -> Drawn | None:
    """Draw the error of each round's estimate, if any run has it."""
    runs, look = _in_panels(runs, look, _error_of_rounds)
    if not (curves := _curves(runs, _error_of_rounds)):
        return None
    scale = value_scale(_points(curves), MAIN_METRIC)
    figure, _, note = _drawn(curves, scale, look, ("communication round", metric_of(MAIN_METRIC).heading))
    legend(figure, look, [name for panel in curves.values() for name in panel])
    caption = f"The error after each round, mean over the seeds that reached it.{_band(curves)}{note}{scale.note()}"
    return "Error by round", caption, figure


def value_by_iteration(runs: Sequence[Run], value: str, look: dict[str, Look]) -> Drawn | None:
    """Draw a value of the rounds against the outer iteration t, if any run has it.

    Baselines with a metric of this name are level lines. A value that `falls` has none, but two logarithmic axes and
    the line c / t, with the least c such that no mean lies above it.
    """
    runs, look = _in_panels(runs, look, lambda run: by_iteration(run, value))
    if not (curves := _curves(runs, lambda run: by_iteration(run, value))):
        return None
    metric = metric_of(value)
    if not metric.falls:
        steps = sorted({t for panel in curves.values() for curve in panel.values() for t in curve})

        def read_or_level(run: Run) -> dict[int, float]:
            level = run.metrics.get(value) if run.kind == "baseline" else None
            return by_iteration(run, value) if level is None else dict.fromkeys(steps, level)

        curves = _curves(runs, read_or_level)
    along = [at for panel in curves.values() for curve in panel.values() for at in curve.items()]
    all_t, c = sorted({t for t, _ in along}), max(t * m.mean for t, m in along)
    guide = [c / t for t in all_t] if metric.falls and all_t[0] > 0 and c > 0 else []
    scale = value_scale(_points(curves), value, also=guide)
    what, label, title = f"the last {value} of", metric.heading, value
    if metric.counted:
        what, label, title = f"the sum of {label} by all clients in", f"{label} by all clients", label
    figure, grid, note = _drawn(curves, scale, look, ("outer iteration t", label))
    read, others = "", {}
    if guide:
        for axes in grid:
            (line,) = axes.plot(all_t, [scale.place(at) for at in guide], color="#8c8c8c", linestyle="--", lw=0.8)
            others = {f"c / t, c = {c:.2g}": line}
            _logarithmic(axes, all_t[0], all_t[-1])
        read = (
            " Both axes are logarithmic, so c / t is a straight line: c is the largest mean of t times the error, and "
            "a curve that stays along the line or falls away from it decreases at least as fast as 1 / t."
        )
    legend(figure, look, [name for panel in curves.values() for name in panel], others=others)
    better = f" {best.capitalize()} is better." if (best := metric.better) else ""
    caption = f"Each point is {what} an outer iteration, mean over the seeds that reached it.{better}"
    caption = f"{caption}{_band(curves)}{read}{note}{scale.note()}"
    return f"{title[:1].upper()}{title[1:]} by iteration", caption, figure


def _error_of_rounds(run: Run) -> dict[int, float]:
    return {row.round: error for row in run.history if (error := row.values.get(MAIN_METRIC)) is not None}


def _in_panels(
    runs: Sequence[Run], look: dict[str, Look], read: Callable[[Run], dict[int, float]]
) -> tuple[Sequence[Run], dict[str, Look]]:
    """Distinguish curves by a swept number in place of panels, if there are more settings than panels.

    Of several numbers the first that leaves few enough panels; methods then have a name, and a look, for each value.
    Baselines and runs without a second point are left to the figures by setting.
    """
    points = [run.point for run in runs if read(run)]
    if len({setting(point) for point in points}) <= MOST_PANELS:
        return runs, look
    for number in points[0]:
        others = {setting({key: value for key, value in point.items() if key != number}) for point in points}
        if isinstance(points[0][number], int | float) and len(others) <= MOST_PANELS:
            spread = []
            for run in (run for run in runs if number in run.point and len(read(run)) > 1):
                name = f"{run.name}, {number.rpartition('.')[2]} = {run.point[number]}"
                point = {key: run.point[key] for key in run.point if key != number}
                spread.append(run.model_copy(update={"name": name, "point": point}))
            return spread, looks(summarise(spread))
    return runs, look


def _curves(runs: Sequence[Run], read: Callable[[Run], dict[int, float]]) -> Curves:
    """Return mean and spread over seeds of the finite values from `read`."""
    curves: Curves = {}
    for same in by_setting(runs).values():
        values: dict[int, list[float]] = {}
        for x, value in (at for run in same for at in read(run).items()):
            if math.isfinite(value):
                values.setdefault(x, []).append(value)
        if values:
            curve = {x: Spread.of(values[x]) for x in sorted(values)}
            curves.setdefault(setting(same[0].point), {})[same[0].name] = curve
    return curves


def _drawn(
    curves: Curves, scale: Scale, look: dict[str, Look], labels: tuple[str, str]
) -> tuple[Canvas, list[Axes], str]:
    """Draw the curves, a panel per setting; also return the caption's sentence about the panels."""
    every = 1 + max(x for panel in curves.values() for curve in panel.values() for x in curve) // 13
    figure, grid, note = panels(list(curves), *labels)
    for axes, panel in zip(grid, curves.values(), strict=False):
        for under, (name, curve) in zip(range(len(panel) - 1, -1, -1), panel.items(), strict=True):
            # A curve is wider than the last two drawn over it, so that it can be seen where they coincide.
            width, size = 1.3 + 1.2 * min(under, 2), 5 + 2.5 * min(under, 2)
            x, ends = list(curve), [scale.bar(m) for m in curve.values()]
            y, its = [scale.place(m.mean) for m in curve.values()], look[name]
            axes.plot(x, y, its.line, c=its.colour, marker=its.marker, mfc=its.face, ms=size, lw=width, markevery=every)
            axes.fill_between(x, [e[0] for e in ends], [e[1] for e in ends], color=its.colour, alpha=0.15, lw=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        scale.apply(axes, axes.yaxis)
    return figure, grid, note


def _logarithmic(axes: Axes, first: int, last: int) -> None:
    """Make the axis of iterations logarithmic, with ticks at 1, 2 and 5 times powers of ten."""
    axes.set_xscale("log")
    axes.set_xlim(first / 1.1, last * 1.1)
    ticks = [m * 10**k for k in range(len(str(last))) for m in (1, 2, 5)]
    axes.xaxis.set_major_locator(FixedLocator([tick for tick in ticks if first <= tick <= last]))
    axes.xaxis.set_major_formatter(FormatStrFormatter("%d"))
    axes.xaxis.set_minor_locator(NullLocator())


def _points(curves: Curves) -> list[Spread]:
    return [m for panel in curves.values() for curve in panel.values() for m in curve.values()]


def _band(curves: Curves) -> str:
    return " The band is one standard deviation over seeds." if any(m.n > 1 for m in _points(curves)) else ""
