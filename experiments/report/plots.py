"""Figures of an experiment, saved as png and svg, each with a caption.

The same runs give the same bytes. A method has one colour, marker and line in every figure: hues that colour-blind
readers can distinguish for strategies, greys for baselines. Only matplotlib's objects are used, never pyplot's global
figure.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from fedkernel.experiments.report import plot_style as style
from fedkernel.experiments.report.convergence_curves import error_by_round, value_by_iteration
from fedkernel.experiments.report.pictures import eigen_images, row_pictures
from fedkernel.experiments.report.plot_style import Drawn, Look, Scale
from fedkernel.experiments.results import RowPicture, Run, Spread, Summary, leading_metric, setting, summarise
from fedkernel.ground import FloatArray
from fedkernel.models import MAIN_METRIC, metric_of
from fedkernel.run import STYLE

OUTSIDE = "outside any phase"


@dataclass(frozen=True)
class Figure:
    """Saved figure: stable name, title, caption, and two files."""

    name: str
    title: str
    caption: str
    png: Path
    svg: Path


def draw(
    runs: Sequence[Run],
    folder: Path,
    *,
    metric: str | None = None,
    also: Sequence[str] = (),
    by_iteration: Sequence[str] = (),
    directions: Mapping[str, FloatArray] | None = None,
    rows: Mapping[str, RowPicture] | None = None,
) -> list[Figure]:
    """Draw every figure that applies to these runs into a folder, and return the figures in reading order.

    - `metric`: as `leading_metric` takes it.
    - `also`: further metrics to draw against each number that is swept and, unless they are costs or promises of a run
      themselves, against floats and rounds.
    - `by_iteration`: values of the rounds to draw against the outer iteration, a figure each.
    - `directions`, `rows`: by the id of a run, for `eigen_images` and `row_pictures`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    summaries = summarise(runs)
    metric = leading_metric(summaries, metric) or MAIN_METRIC
    shown = _shown(summaries, metric)
    missing = [s.name for s in summaries if (m := s.metrics.get(metric)) and not math.isfinite(m.mean)]
    lost = f" Not drawn because a seed gave no finite number: {', '.join(dict.fromkeys(missing))}." if missing else ""
    look = style.looks(summaries)
    figures: list[Figure] = []
    with mpl.rc_context():
        mpl.rcdefaults()  # a user's matplotlibrc would change the bytes
        mpl.rcParams.update(STYLE)
        if shown and _adds_to_the_table([s for s in summaries if s.metrics.get(metric)]):
            title, caption, canvas = _by_method(shown, metric, look)
            figures += _saved(folder, f"{metric}_by_method", (title, caption + lost, canvas))
        figures += _saved(folder, "rows", row_pictures(runs, rows or {}))
        for judged in dict.fromkeys([metric, *(name for name in also if metric_of(name).leads)]):
            having = _shown(summaries, judged)
            if len(having) > 1 and any(s.floats_up.mean > 0 for s, _ in having):
                figures += _saved(folder, f"{judged}_by_floats_up", _by_cost(having, judged, look, "floats_up"))
            if len({s.rounds.mean for s, _ in having if s.kind == "strategy"}) > 1:
                figures += _saved(folder, f"{judged}_by_rounds", _by_cost(having, judged, look, "rounds"))
        figures += _saved(folder, "error_by_round", error_by_round(runs, look))
        for value in dict.fromkeys([metric, *also]):
            having = _shown(summaries, value)
            for parameter in dict.fromkeys(name for s, _ in having for name in s.point):
                if len({s.point[parameter] for s, _ in having if _is_number(s.point.get(parameter))}) >= 2:
                    drawn = _by_parameter(having, parameter, value, look)
                    figures += _saved(folder, f"{value}_by_{parameter}", drawn)
        if any(s.seconds.mean > 0 for s in summaries):
            figures += _saved(folder, "seconds_by_phase", _by_phase(summaries))
        for value in by_iteration:
            figures += _saved(folder, f"{value}_by_iteration", value_by_iteration(runs, value, look))
        figures += _saved(folder, "eigen_images", eigen_images(runs, directions or {}))
    return figures


def _by_method(shown: list[tuple[Summary, Spread]], metric: str, look: dict[str, Look]) -> Drawn:
    scale = style.value_scale([m for _, m in shown], metric)
    its_metric = metric_of(metric)
    sign = -1 if its_metric.better == "higher" else 1
    groups: dict[str, dict[str, list[Spread]]] = {}
    for s, m in shown:
        groups.setdefault(s.group or "", {}).setdefault(s.name, []).append(m)
    heights = [len(rows) + 0.6 for rows in groups.values()]
    figure = Canvas(figsize=(7.2, 0.9 + 0.27 * sum(heights) + 0.12 * len(groups)), layout="constrained")
    column = figure.subplots(len(groups), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (group, rows) in zip(column, groups.items(), strict=True):
        mean = {name: sum(m.mean for m in its) / len(its) for name, its in rows.items()}
        best_first = sorted(mean, key=lambda name: sign * mean[name])
        for y, name in enumerate(best_first):
            for i, m in enumerate(rows[name]):
                dodge = 0.0 if len(rows[name]) == 1 else 0.5 * (i / (len(rows[name]) - 1) - 0.5)
                at = scale.place(m.mean), y + dodge
                style.draw_mean(axes, at, look[name], scale.bar(m), across=True, seeds=scale.seeds(m))
        axes.set_yticks(range(len(rows)), [style.plain(name) for name in best_first])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.set_title(style.plain(group), fontweight="bold")
        scale.apply(axes, axes.xaxis)
    column[-1].set_xlabel(label := its_metric.heading)
    repeated = any(len(rows) > 1 for group in groups.values() for rows in group.values())
    swept = " A method's row has one dot per setting of the sweep, first setting on top." if repeated else ""
    grouped = " in each group" if len(groups) > 1 else ""
    orders = {"higher": ", highest first", "lower": ", lowest first", None: ", in increasing order"}
    better = orders[its_metric.better]
    caption = f"Each dot is the mean{_over(shown)}{better}{grouped}.{_bars(shown)}{swept}{scale.note()}"
    return f"{label[:1].upper()}{label[1:]} by method", caption, figure


def _by_cost(
    shown: list[tuple[Summary, Spread]], metric: str, look: dict[str, Look], cost: Literal["floats_up", "rounds"]
) -> Drawn:
    # groups, and settings that are no numbers, such as a data set's name, are not comparable: a panel each
    groups = list(dict.fromkeys(s.group for s, _ in shown))
    settings: dict[str, list[tuple[Summary, Spread]]] = {}
    for s, m in sorted(shown, key=lambda judged: groups.index(judged[0].group)):
        labels = setting({name: value for name, value in s.point.items() if not _is_number(value)})
        parts = (s.group if len(groups) > 1 else None, labels)
        settings.setdefault(", ".join(part for part in parts if part), []).append((s, m))
    its_metric, sent = metric_of(metric), cost == "floats_up"
    label, title = its_metric.heading, metric_of(cost).heading if sent else metric_of(cost).meaning
    figure, grid, note = style.panels(list(settings), f"{title} by all clients" if sent else title, label, alike=False)
    notes, joined = dict[str, None](), False
    if len(settings) == 1:
        figure.set_figheight(4.2)
    for axes, (_, points) in zip(grid, settings.items(), strict=False):
        across = Scale.of([getattr(s, cost).mean for s, _ in points])
        up = style.value_scale([m for _, m in points], metric)
        names_at: dict[tuple[float, float], list[str]] = {}
        for name, its in look.items():
            dots = [(across.place(getattr(s, cost).mean), m) for s, m in points if s.name == name]
            axes.plot([x for x, _ in dots], [up.place(m.mean) for _, m in dots], color=its.colour, lw=0.8, alpha=0.6)
            joined |= len(dots) > 1
            for at, m in (((x, up.place(m.mean)), m) for x, m in dots):
                names_at.setdefault(at, []).append(name)
                style.draw_mean(axes, at, its, up.bar(m), seeds=up.seeds(m))
        across.apply(axes, axes.xaxis)
        up.apply(axes, axes.yaxis)
        covered = (" and ".join(dict.fromkeys(names)) for names in names_at.values() if len(set(names)) > 1)
        notes |= dict.fromkeys([up.note(), across.note(), *(f" One dot covers another: {names}." for names in covered)])
    style.legend(figure, look, [s.name for s, _ in shown], line=False)
    small = "smaller error" if its_metric.axis == "orders" else f"lower {metric}"
    less = "less sent" if sent else "fewer rounds"
    goods = {"higher": f" Upper left is better: {less}, higher {metric}.", None: ""}
    good = goods.get(its_metric.better, f" Lower left is better: {less}, {small}.")
    along = " A thin line joins the settings of the sweep." if joined else ""
    caption = f"Each dot is a method's mean{_over(shown)}.{good}{_bars(shown)}{along}{note}{''.join(notes)}"
    return f"{label[:1].upper()}{label[1:]} by {title}", caption, figure


def _by_parameter(shown: list[tuple[Summary, Spread]], parameter: str, metric: str, look: dict[str, Look]) -> Drawn:
    swept = [(s, m) for s, m in shown if _is_number(s.point.get(parameter))]
    fixed = [(s, m) for s, m in shown if parameter not in s.point]
    label = metric_of(metric).heading
    settings: dict[str, list[tuple[Summary, Spread]]] = {}
    for s, m in swept:
        rest = {name: value for name, value in s.point.items() if name != parameter}
        settings.setdefault(setting(rest), []).append((s, m))
    scale = style.value_scale([m for _, m in swept + fixed], metric)
    ticks = sorted({float(s.point[parameter]) for s, _ in swept})
    alike = metric_of(metric).axis != "close"
    figure, grid, note = style.panels(list(settings), style.swept_label(parameter), label, alike=alike)
    for axes, (_, points) in zip(grid, settings.items(), strict=False):
        if not alike:
            scale = style.value_scale([m for _, m in points + fixed], metric)
        for name, its in look.items():
            curve = sorted(((float(s.point[parameter]), m) for s, m in points if s.name == name), key=lambda at: at[0])
            x, y = [at for at, _ in curve], [scale.place(m.mean) for _, m in curve]
            axes.plot(x, y, its.line, color=its.colour, lw=1.3)
            for at, (_, m) in zip(zip(x, y, strict=True), curve, strict=True):
                style.draw_mean(axes, at, its, scale.bar(m), seeds=scale.seeds(m))
        for s, m in fixed:
            axes.axhline(scale.place(m.mean), color=look[s.name].colour, linestyle=":", lw=1.2)
        if ticks[0] > 0 and ticks[-1] / ticks[0] >= 20:
            axes.set_xscale("log")
        if len(ticks) <= 8:
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.xaxis.set_minor_locator(NullLocator())
        scale.apply(axes, axes.yaxis)
    style.legend(figure, look, [s.name for s, _ in swept + fixed])
    dotted = " Dotted lines are methods that the parameter does not reach." if fixed else ""
    dots = f"Each dot is the mean{_over(swept)} at one value of {parameter}."
    caption = f"{dots}{_bars(swept)}{dotted}{note}{scale.note()}"
    return f"{label[:1].upper()}{label[1:]} by {parameter}", caption, figure


def _by_phase(summaries: list[Summary]) -> Drawn:
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
            hatch = "////" if phase != OUTSIDE and i >= len(style.PHASES) else ""
            colour = style.FAINT if phase == OUTSIDE else style.PHASES[i % len(style.PHASES)]
            used[phase] = {"facecolor": colour, "hatch": hatch}
            axes.barh(y, seconds, left=left, height=0.66, edgecolor="white", lw=0.5, **used[phase])
            left += seconds
        text = f"{total:.2g} s" if total < 10 else f"{total:,.0f} s"
        axes.annotate(text, (total, y), (4, 0), textcoords="offset points", va="center", fontsize=8)
        longest = max(longest, total)
    axes.set_yticks(range(len(names)), [style.plain(name) for name in names])
    axes.set(xlabel="seconds per run", xlim=(0, longest * 1.12), ylim=(len(names) - 0.4, -0.6))
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")
    order = [phase for phase in (*phases, OUTSIDE) if phase in used]
    style.add_legend(figure, [Patch(edgecolor="white", **used[phase]) for phase in order], order)
    swept = " and over the settings of the sweep" if any(s.point for s in summaries) else ""
    caption = f"Mean seconds of a run over seeds{swept}, by phase; the number at a bar's end is its total."
    return "Seconds by phase", caption + (" Grey is time outside any phase." if OUTSIDE in used else ""), figure


def _saved(folder: Path, name: str, drawn: Drawn | None) -> list[Figure]:
    if drawn is None:
        return []
    title, caption, figure = drawn
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", name)
    png, svg = folder / f"{name}.png", folder / f"{name}.svg"
    figure.savefig(png, dpi=150, metadata={"Software": None})
    figure.savefig(svg, metadata={"Date": None, "Creator": None})
    return [Figure(name, title, caption, png, svg)]


def _shown(summaries: Sequence[Summary], metric: str) -> list[tuple[Summary, Spread]]:
    """Return the summaries with a finite metric or count, each with its spread."""
    return [(s, m) for s in summaries if (m := s.spread(metric)) and math.isfinite(m.mean)]


def _adds_to_the_table(summaries: Sequence[Summary]) -> bool:
    """Return whether there are several methods, or settings of one method that are on no other figure's axis."""
    swept = any(not _is_number(value) for s in summaries for value in s.point.values())
    return len({s.name for s in summaries}) > 1 or (swept and len(summaries) > 1)


def _over(shown: list[tuple[Summary, Spread]]) -> str:
    counts = sorted({m.n for _, m in shown})
    if counts == [1]:
        return " (one seed)"
    return f" over {' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} seeds"


def _bars(shown: list[tuple[Summary, Spread]]) -> str:
    if all(m.n == 1 for _, m in shown):
        return ""
    return (
        " Bars are one standard deviation over seeds, cut at the smallest seed where they would come near 0; "
        "small dots are the seeds."
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
