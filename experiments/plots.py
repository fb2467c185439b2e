"""The figures of an experiment, saved as png and svg, the same bytes for the same runs, each with how to read it.

A method has one colour, marker and line in every figure: hues that colour-blind readers tell apart for strategies,
greys for baselines. Only matplotlib's objects are used, never pyplot's global figure.
"""

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, NullLocator

from experiments.axes import FAINT, PHASES, STYLE, Look, Scale, beside, dot, legend, looks, plain, value_scale
from experiments.rows import Run, Spread, Summary, by_setting, leading_metric, summarise

MOST_PANELS = 6
OUTSIDE = "outside any phase"


@dataclass(frozen=True)
class Figure:
    """A saved figure: its stable name, title, how to read it, and its two files."""

    name: str
    title: str
    caption: str
    png: Path
    svg: Path


_Drawn = tuple[str, str, Canvas]  # title, caption, canvas


def draw(runs: Sequence[Run], folder: Path) -> list[Figure]:
    """Draw every figure that applies to these runs.

    Parameters
    ----------
    runs : sequence of Run
    folder : Path
        Where `NAME.png` and `NAME.svg` go; made if there is none.

    Returns
    -------
    list of Figure
        In reading order. They show the error, or the first metric if no run has an error.
    """
    folder.mkdir(parents=True, exist_ok=True)
    summaries = summarise(runs)
    metric = leading_metric(summaries) or "error"
    shown = [(s, m) for s in summaries if (m := s.metrics.get(metric)) and math.isfinite(m.mean)]
    missing = [s.name for s in summaries if (m := s.metrics.get(metric)) and not math.isfinite(m.mean)]
    lost = f" Not drawn because a seed gave no finite number: {', '.join(dict.fromkeys(missing))}." if missing else ""
    label, look = "error against central" if metric == "error" else metric, looks(summaries)
    made: list[Figure] = []
    with mpl.rc_context():
        mpl.rcdefaults()  # a user's matplotlibrc would change the bytes
        mpl.rcParams.update(STYLE)
        if shown:
            title, caption, canvas = _by_method(shown, label, look)
            made.append(_save(folder, f"{metric}_by_method", title, caption + lost, canvas))
        if any(s.floats_up.mean > 0 for s, _ in shown):
            made.append(_save(folder, f"{metric}_by_floats_up", *_by_floats(shown, label, look)))
        if drawn := _by_round(runs, look):
            made.append(_save(folder, "error_by_round", *drawn))
        for parameter in dict.fromkeys(name for s, _ in shown for name in s.point):
            if len({s.point[parameter] for s, _ in shown if _is_number(s.point.get(parameter))}) >= 2:
                name = f"{metric}_by_{parameter}"
                made.append(_save(folder, name, *_by_parameter(shown, parameter, label, look)))
        if any(s.seconds.mean > 0 for s in summaries):
            made.append(_save(folder, "seconds_by_phase", *_by_phase(summaries)))
    return made


def _by_method(shown: list[tuple[Summary, Spread]], label: str, look: dict[str, Look]) -> _Drawn:
    scale = value_scale([m for _, m in shown], label)
    groups: dict[str, dict[str, list[Spread]]] = {}
    for s, m in shown:
        groups.setdefault(s.group or "", {}).setdefault(s.name, []).append(m)
    heights = [len(rows) + 0.6 for rows in groups.values()]
    figure = Canvas(figsize=(7.2, 0.9 + 0.27 * sum(heights) + 0.12 * len(groups)), layout="constrained")
    panels = figure.subplots(len(groups), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (group, rows) in zip(panels, groups.items(), strict=True):
        best_first = sorted(rows, key=lambda name: sum(m.mean for m in rows[name]) / len(rows[name]))
        for y, name in enumerate(best_first):
            for i, m in enumerate(rows[name]):
                dodge = 0.0 if len(rows[name]) == 1 else 0.5 * (i / (len(rows[name]) - 1) - 0.5)
                dot(axes, (scale.place(m.mean), y + dodge), look[name], scale.bar(m), across=True)
        axes.set_yticks(range(len(rows)), [plain(name) for name in best_first])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.set_title(plain(group), fontweight="bold")
        scale.apply(axes, axes.xaxis)
    panels[-1].set_xlabel(label)
    repeated = any(len(rows) > 1 for group in groups.values() for rows in group.values())
    swept = " A method's row has one dot per setting of the sweep, first setting on top." if repeated else ""
    grouped = " in each group" if len(groups) > 1 else ""
    better = ", lowest first" if label.startswith("error") else ", in increasing order"
    caption = f"Each dot is the mean{_over(shown)}{better}{grouped}.{_bars(shown)}{swept}{scale.note()}"
    return f"{label[:1].upper()}{label[1:]} by method", caption, figure


def _by_floats(shown: list[tuple[Summary, Spread]], label: str, look: dict[str, Look]) -> _Drawn:
    across, up = Scale.of([s.floats_up.mean for s, _ in shown]), value_scale([m for _, m in shown], label)
    figure = Canvas(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.subplots()
    there: dict[tuple[float, float], list[str]] = {}
    for name, its in look.items():
        points = [(across.place(s.floats_up.mean), m) for s, m in shown if s.name == name]
        axes.plot([x for x, _ in points], [up.place(m.mean) for _, m in points], color=its.colour, lw=0.8, alpha=0.6)
        for x, m in points:
            at = (x, up.place(m.mean))
            there.setdefault(at, []).append(name)
            dot(axes, at, its, up.bar(m))
    across.apply(axes, axes.xaxis)
    up.apply(axes, axes.yaxis)
    axes.set(xlabel="floats uploaded by all clients", ylabel=label)
    legend(figure, look, [s.name for s, _ in shown], line=False)
    good = " Lower left is better: less sent, smaller error." if label.startswith("error") else ""
    joined = " A thin line joins the settings of the sweep." if any(s.point for s, _ in shown) else ""
    covered = dict.fromkeys(" and ".join(dict.fromkeys(names)) for names in there.values() if len(set(names)) > 1)
    notes = dict.fromkeys([up.note(), across.note(), *(f" One dot covers another: {names}." for names in covered)])
    caption = f"Each dot is a method's mean{_over(shown)}.{good}{_bars(shown)}{joined}{''.join(notes)}"
    return f"{label[:1].upper()}{label[1:]} by floats uploaded", caption, figure


def _by_round(runs: Sequence[Run], look: dict[str, Look]) -> _Drawn | None:
    curves: dict[str, dict[str, dict[int, Spread]]] = {}
    for same in by_setting(runs).values():
        rounds: dict[int, list[float]] = {}
        for row in (row for run in same for row in run.history):
            if (value := row.values.get("error")) is not None and math.isfinite(value):
                rounds.setdefault(row.round, []).append(value)
        if rounds:
            curve = {number: Spread.of(rounds[number]) for number in sorted(rounds)}
            curves.setdefault(_setting(same[0].point), {})[same[0].name] = curve
    if not curves:
        return None
    points = [m for panel in curves.values() for curve in panel.values() for m in curve.values()]
    scale = value_scale(points, "error")
    every = 1 + max(x for panel in curves.values() for curve in panel.values() for x in curve) // 13
    figure, panels, note = _panels(list(curves))
    for axes, (_, panel) in zip(panels, curves.items(), strict=False):
        for name, curve in panel.items():
            x, ends = list(curve), [scale.bar(m) for m in curve.values()]
            y, its = [scale.place(m.mean) for m in curve.values()], look[name]
            axes.plot(x, y, its.line, c=its.colour, marker=its.marker, mfc=its.face, ms=5, lw=1.3, markevery=every)
            axes.fill_between(x, [e[0] for e in ends], [e[1] for e in ends], color=its.colour, alpha=0.15, lw=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        scale.apply(axes, axes.yaxis)
    figure.supxlabel("communication round", fontsize=9.5)
    figure.supylabel("error against central", fontsize=9.5)
    legend(figure, look, [name for panel in curves.values() for name in panel])
    band = " The band is one standard deviation over seeds." if any(m.n > 1 for m in points) else ""
    caption = f"The error after each round, mean over the seeds that reached it.{band}{note}{scale.note()}"
    return "Error by round", caption, figure


def _by_parameter(shown: list[tuple[Summary, Spread]], parameter: str, label: str, look: dict[str, Look]) -> _Drawn:
    swept = [(s, m) for s, m in shown if _is_number(s.point.get(parameter))]
    fixed = [(s, m) for s, m in shown if parameter not in s.point]
    settings: dict[str, list[tuple[Summary, Spread]]] = {}
    for s, m in swept:
        rest = {name: value for name, value in s.point.items() if name != parameter}
        settings.setdefault(_setting(rest), []).append((s, m))
    scale = value_scale([m for _, m in swept + fixed], label)
    ticks = sorted({float(s.point[parameter]) for s, _ in swept})
    figure, panels, note = _panels(list(settings))
    for axes, (_, points) in zip(panels, settings.items(), strict=False):
        for name, its in look.items():
            curve = sorted(((float(s.point[parameter]), m) for s, m in points if s.name == name), key=lambda at: at[0])
            x, y = [at for at, _ in curve], [scale.place(m.mean) for _, m in curve]
            axes.plot(x, y, its.line, color=its.colour, lw=1.3)
            for at, (_, m) in zip(zip(x, y, strict=True), curve, strict=True):
                dot(axes, at, its, scale.bar(m))
        for s, m in fixed:
            axes.axhline(scale.place(m.mean), color=look[s.name].colour, linestyle=":", lw=1.2)
        if ticks[0] > 0 and ticks[-1] / ticks[0] >= 20:
            axes.set_xscale("log")
        if len(ticks) <= 8:
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.xaxis.set_minor_locator(NullLocator())
        scale.apply(axes, axes.yaxis)
    figure.supxlabel(plain(parameter), fontsize=9.5)
    figure.supylabel(label, fontsize=9.5)
    legend(figure, look, [s.name for s, _ in swept + fixed])
    dotted = " Dotted lines are methods that the parameter does not reach." if fixed else ""
    caption = (
        f"Each dot is the mean{_over(swept)} at one value of {parameter}.{_bars(swept)}{dotted}{note}{scale.note()}"
    )
    return f"{label[:1].upper()}{label[1:]} by {parameter}", caption, figure


def _by_phase(summaries: list[Summary]) -> _Drawn:
    names = list(dict.fromkeys(s.name for s in summaries))
    phases = list(dict.fromkeys(phase for s in summaries for phase in s.phases))
    figure = Canvas(figsize=(7.2, 1.1 + 0.27 * len(names)), layout="constrained")
    axes = figure.subplots()
    used: dict[str, dict[str, Any]] = {}
    longest = 0.0
    for y, name in enumerate(names):
        mine = [s for s in summaries if s.name == name]
        parts = {p: sum(s.phases[p].mean for s in mine if p in s.phases) / len(mine) for p in phases}
        total = max(sum(s.seconds.mean for s in mine) / len(mine), sum(parts.values()))
        parts[OUTSIDE] = total - sum(parts.values())
        left = 0.0
        for i, (phase, seconds) in enumerate(parts.items()):
            if seconds <= 1e-9 * total:
                continue
            hatch = "////" if phase != OUTSIDE and i >= len(PHASES) else ""
            used[phase] = {"facecolor": FAINT if phase == OUTSIDE else PHASES[i % len(PHASES)], "hatch": hatch}
            axes.barh(y, seconds, left=left, height=0.66, edgecolor="white", lw=0.5, **used[phase])
            left += seconds
        text = f"{total:.2g} s" if total < 10 else f"{total:,.0f} s"
        axes.annotate(text, (total, y), (4, 0), textcoords="offset points", va="center", fontsize=8)
        longest = max(longest, total)
    axes.set_yticks(range(len(names)), [plain(name) for name in names])
    axes.set(xlabel="seconds per run", xlim=(0, longest * 1.12), ylim=(len(names) - 0.4, -0.6))
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")
    order = [phase for phase in (*phases, OUTSIDE) if phase in used]
    beside(figure, [Patch(edgecolor="white", **used[phase]) for phase in order], order)
    swept = " and over the settings of the sweep" if any(s.point for s in summaries) else ""
    caption = f"Mean seconds of a run over seeds{swept}, by phase; the number at a bar's end is its total."
    return "Seconds by phase", caption + (" Grey is time outside any phase." if OUTSIDE in used else ""), figure


def _panels(settings: list[str]) -> tuple[Canvas, list[Axes], str]:
    """Lay out one axes per setting of the other parameters, with the caption's word about it."""
    shown = settings[:MOST_PANELS]
    columns = min(3, len(shown))
    rows = math.ceil(len(shown) / columns)
    size = (7.2, 4.0) if len(shown) == 1 else (3.2 + 2.4 * columns, 0.9 + 2.4 * rows)
    figure = Canvas(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for axes, setting in itertools.zip_longest(grid, shown):
        axes.set_visible(setting is not None)
        axes.tick_params(labelbottom=True)
        axes.set_title(plain(setting or ""), fontsize=8.5)
    left_out = f" ({len(settings) - len(shown)} more are only in the table)" if len(settings) > len(shown) else ""
    return figure, list(grid[: len(shown)]), f" One panel per setting{left_out}." if len(shown) > 1 else ""


def _save(folder: Path, name: str, title: str, caption: str, figure: Canvas) -> Figure:
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", name)
    png, svg = folder / f"{name}.png", folder / f"{name}.svg"
    figure.savefig(png, dpi=150, metadata={"Software": None})
    figure.savefig(svg, metadata={"Date": None, "Creator": None})
    return Figure(name, title, caption, png, svg)


def _over(shown: list[tuple[Summary, Spread]]) -> str:
    counts = sorted({m.n for _, m in shown})
    return (
        f" over {counts[0]} to {counts[-1]} seeds"
        if len(counts) > 1
        else f" over {counts[0]} seeds"
        if counts[0] > 1
        else " (one seed)"
    )


def _bars(shown: list[tuple[Summary, Spread]]) -> str:
    if all(m.n == 1 for _, m in shown):
        return ""
    return " Bars are one standard deviation over seeds, cut at the smallest seed where they would come near 0."


def _setting(point: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in point.items())


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
