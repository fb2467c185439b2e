"""Style of the figures: each method's colour, marker and line, axis scales, captions and legends."""

import itertools
import math
import textwrap
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter

from fedkernel.experiments.results import Run, Spread, Summary, by_setting
from fedkernel.models import ERROR_ROUNDING, metric_of
from fedkernel.run import HUES, MARKERS

FLOOR = ERROR_ROUNDING
MOST_PANELS = 8
Line = Literal["-", "--", "-.", ":"]
Drawn = tuple[str, str, Canvas]  # unsaved figure: title, caption, canvas
FAINT, BAND = "#d9d9d9", "#f2f2f2"
GREYS = ("#000000", "#777777", "#4d4d4d", "#a6a6a6")
SWEPT_LABELS = {
    "partition.clients": "number of clients",
    "data.options.n": "number of rows",
    "data.rows": "number of rows",
    "data.share": "share of the rows",
    "n_components": "number of components",
}
"""Labels of frequently swept numbers, by dotted path or its last part."""
BASELINE_MARKERS = "Xd8H"
LINES: tuple[Line, ...] = ("-", "--", "-.", ":")
PHASES = ("#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#EE8866", "#44BB99", "#AAAA00")


@dataclass(frozen=True)
class Look:
    """Colour, marker and line of a method in every figure."""

    colour: str
    marker: str
    face: str
    line: Line


@dataclass(frozen=True)
class Scale:
    """Scale of an axis. With `log`, values up to `floor` are drawn at the floor, labelled `zero`."""

    low: float
    high: float
    log: bool
    floor: float = -math.inf
    zero: str | None = None

    @classmethod
    def of(cls, values: Iterable[float], ends: Iterable[float] = (), log: bool = True) -> "Scale":
        """Return a scale over the values and, within the range of a log axis, the ends of their bars."""
        values = list(values)
        covered = [*values, *ends]
        positive = [value for value in covered if value >= FLOOR]
        if not log or not positive:
            low, high = min(0.0, *covered), max(0.0, *covered) or 1.0
            return cls(low, high, False)
        low = 10.0 ** math.floor(math.log10(min(positive)) + 1e-9)
        high = max(10.0 ** math.ceil(math.log10(max(positive)) - 1e-9), 10 * low)
        floored = [value for value in values if value < FLOOR]
        if not floored:
            return cls(low, high, True, low)
        floor = FLOOR if any(floored) else max(FLOOR, low / 10)
        return cls(floor, high, True, floor, rf"≤{_power(FLOOR)}" if any(floored) else "0")

    @classmethod
    def around(cls, values: Iterable[float], log: bool) -> "Scale":
        """Return a scale over the values only, for metrics that do not start at 0."""
        covered = [value for value in values if value > 0 or not log]
        low, high = min(covered), max(covered)
        return cls(low, high if high > low else low + (abs(low) or 1.0) / 10, log, low if log else -math.inf)

    def place(self, value: float) -> float:
        """Return a value's position on the axis."""
        return max(value, self.floor)

    def bar(self, spread: Spread) -> tuple[float, float]:
        """Return the positions of the ends of a spread's bar."""
        low, high = _ends(spread, self.log)
        return self.place(low), self.place(high)

    def seeds(self, spread: Spread) -> list[float]:
        """Return the positions of the seeds' values."""
        return [self.place(value) for value in spread.values]

    def apply(self, axes: Axes, axis: Axis) -> None:
        """Set an axis's scale, limits and ticks. Log ticks are powers of ten, and if few 2 and 5 times these."""
        across = axis is axes.xaxis
        limit = axes.set_xlim if across else axes.set_ylim
        if not self.log:
            margin = 0.04 * (self.high - self.low)
            limit(self.low - margin, self.high + margin)
            return
        (axes.set_xscale if across else axes.set_yscale)("log")
        first = math.floor(math.log10(self.low) + 1e-9) + (1 if self.zero else 0)
        last = math.ceil(math.log10(self.high) - 1e-9)
        step = math.ceil((last - first + 1) / 9)
        ticks = [10.0**k for k in range(first + (step > 1 and bool(self.zero)), last + 1) if k % step == 0]
        if last - first <= 1 or self.high / self.low < 10**1.5:
            ticks = sorted({*ticks, *(m * 10.0**k for k in range(first, last) for m in (2, 5))})
        labels = [f"{tick:g}" if last - first <= 2 and first >= -3 and last <= 3 else _power(tick) for tick in ticks]
        if self.zero:
            ticks, labels = [self.floor, *ticks], [self.zero, *labels]
            strip = axes.axvspan if across else axes.axhspan
            strip(self.floor / 10, self.floor * 10**0.5, color=BAND, lw=0, zorder=0)
        minor = [m * 10.0**k for k in range(first, last) for m in range(2, 10)] if last - first <= 5 else []
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_major_formatter(FixedFormatter(labels))
        axis.set_minor_locator(FixedLocator(minor))
        axis.set_minor_formatter(NullFormatter())
        margin = (self.high / self.low) ** 0.03
        limit(self.low / margin / (1.3 if self.zero else 1), self.high * margin)

    def note(self) -> str:
        """Return the caption's sentence about values drawn at the floor."""
        if not self.zero:
            return ""
        what = "Values that are exactly 0" if self.zero == "0" else "Values of 0 or below 1e-16"
        return f" {what} are drawn in the shaded strip."


def looks(summaries: Sequence[Summary]) -> dict[str, Look]:
    """Assign each method name its look, in order of first appearance."""
    kinds = {s.name: s.kind for s in summaries}
    by_name: dict[str, Look] = {}
    for kind, colours, markers in (("strategy", HUES, MARKERS), ("baseline", GREYS, BASELINE_MARKERS)):
        for i, name in enumerate(name for name, its in kinds.items() if its == kind):
            colour, again = colours[i % len(colours)], i // len(colours)
            by_name[name] = Look(colour, markers[i % len(markers)], "white" if again % 2 else colour, LINES[again % 4])
    return {name: by_name[name] for name in kinds}


def value_scale(spreads: Sequence[Spread], metric: str, also: Sequence[float] = ()) -> Scale:
    """Return a metric's scale, which covers `also`, too. It is logarithmic for errors, and for others of wide range."""
    means, lie = [m.mean for m in spreads], metric_of(metric).axis
    if lie == "close":
        log = min(means) > 0 and max(means) >= 5 * min(means)
        return Scale.around([*means, *(end for m in spreads for end in (*_ends(m, log), *m.values)), *also], log)
    log = lie == "orders" or (min(means) > 0 and max(means) >= 100 * min(means))
    return Scale.of(means, [*(end for m in spreads for end in (*_ends(m, log), *m.values)), *also], log)


def _ends(spread: Spread, log: bool) -> tuple[float, float]:
    """Return the ends of a bar of one standard deviation. Near 0 on a log axis, it begins at the smallest seed."""
    if not spread.std or (log and spread.mean < FLOOR):
        return spread.mean, spread.mean
    low = spread.mean - spread.std
    return spread.low if log and low < spread.mean / 10 else low, spread.mean + spread.std


def panels(settings: Sequence[str], x: str, y: str, *, alike: bool = True) -> tuple[Canvas, list[Axes], str]:
    """Create labelled axes for each setting, with the same scales if `alike`; also return the caption's sentence."""
    shown = settings[:MOST_PANELS]
    columns = 2 if len(shown) == 4 else min(3, len(shown))
    rows = math.ceil(len(shown) / columns)
    size = (7.2, 4.0) if len(shown) == 1 else (3.2 + 2.4 * columns, 0.9 + 2.4 * rows)
    figure = Canvas(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, sharex=alike, sharey=alike, squeeze=False).ravel()
    for axes, setting in itertools.zip_longest(grid, shown):
        axes.set_visible(setting is not None)
        axes.tick_params(labelbottom=True)
        axes.set_title(plain(setting or ""), fontsize=8.5)
    figure.supxlabel(x, fontsize=9.5)
    figure.supylabel(y, fontsize=9.5)
    left_out = f" ({len(settings) - len(shown)} more are only in the table)" if len(settings) > len(shown) else ""
    own = "" if alike else ", each with scales of its own"
    return figure, list(grid[: len(shown)]), f" One panel per setting{own}{left_out}." if len(shown) > 1 else ""


def draw_mean(
    axes: Axes,
    at: tuple[float, float],
    look: Look,
    bar: tuple[float, float],
    *,
    across: bool = False,
    seeds: Sequence[float] = (),
) -> None:
    """Draw a mean, the bar between two ends, and a small faint dot for each seed if there are several."""
    if len(seeds) > 1:
        here = [at[1 if across else 0]] * len(seeds)
        axes.plot(*((seeds, here) if across else (here, seeds)), "o", color=look.colour, ms=3, mew=0, alpha=0.45)
    along = (bar, (at[1], at[1])) if across else ((at[0], at[0]), bar)
    axes.plot(*along, color=look.colour, lw=1.3, alpha=0.75, solid_capstyle="butt", zorder=2)
    edge = look.colour if look.face == "white" else "white"  # separates overlapping dots
    axes.plot(*at, look.marker, color=look.colour, mfc=look.face, mec=edge, ms=7.5, mew=0.5, zorder=3)


def legend(
    figure: Canvas,
    look: dict[str, Look],
    names: Iterable[str],
    line: bool = True,
    others: Mapping[str, Artist] | None = None,
) -> None:
    """List the drawn methods next to the axes in a fixed order, and below them the other artists."""
    named = set(names)
    shown = [name for name in look if name in named]
    handles: list[Artist] = []
    for its in (look[name] for name in shown):
        style = its.line if line else "none"
        handles.append(Line2D([], [], color=its.colour, ls=style, marker=its.marker, mfc=its.face, ms=6.5, lw=1.3))
    others = others or {}
    add_legend(figure, [*handles, *others.values()], [*shown, *others])


def add_legend(figure: Canvas, handles: Sequence[Artist], names: Iterable[str]) -> None:
    """Add a legend next to the axes, and make the figure high enough."""
    labels = [plain(name) for name in names]
    figure.set_figheight(max(figure.get_figheight(), 0.3 + 0.18 * "\n".join(labels).count("\n") + 0.18))
    figure.legend(handles, labels, loc="outside right upper")


def _power(value: float) -> str:
    """Format 1, 2 or 5 times a power of ten."""
    exponent = math.floor(math.log10(value) + 1e-9)
    factor = round(value / 10.0**exponent)
    return rf"$\mathregular{{{'' if factor == 1 else f'{factor}·'}10^{{{exponent}}}}}$"


def pictured(runs: Iterable[Run], pictures: Container[str]) -> list[Run]:
    """Return the first run with a picture, for each method and setting."""
    first = (next((run for run in same if run.id in pictures), None) for same in by_setting(runs).values())
    return [run for run in first if run is not None]


def swept_label(parameter: str) -> str:
    """Return the label of a swept number, by default its dotted path."""
    return plain(SWEPT_LABELS.get(parameter) or SWEPT_LABELS.get(parameter.rpartition(".")[2], parameter))


def plain(text: str) -> str:
    """Escape a name for matplotlib's mathematics and hidden legend entries, and break a long name."""
    text = "\n".join(textwrap.wrap(text, 34)) if len(text) > 34 else text
    return ("\u200a" if text.startswith("_") else "") + text.replace("$", r"\$")
