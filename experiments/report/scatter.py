"""Rows as points along two components, a colour for each cluster or class: one panel, and several side by side."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from experiments.report.axes import HUES, MARKERS, beside, plain
from fedkernel.arrays import AnyArray, FloatArray
from fedkernel.data.labels import kinds_in_order

COLUMNS = 4
"""Panels in a line."""

WIDTH = 0.95
"""Inches of an entry of a legend that stands below."""

INKED = 0.15
"""Share of a panel that weighted points cover together, if none covers another."""


@dataclass(frozen=True)
class Panel:
    """One picture: points (n, 2), and what each is of: text (n,) where something is known; `of` says what that is.

    `above` is a heading of the line that it begins, `places` says which colours kinds have that are no numbers. Points
    with `weights` (n,) have areas in proportion; `centers` (k, 2) are crosses.
    """

    title: str
    points: FloatArray
    kinds: AnyArray | None = None
    of: str = ""
    above: str = ""
    places: Mapping[str, int] = field(default_factory=dict)
    weights: FloatArray | None = None
    centers: FloatArray | None = None


def draw_panels(
    lines: Sequence[Sequence[Panel]], *, columns: int = COLUMNS, side: float = 2.0, below: bool = False
) -> Canvas:
    """Draw panels, each with scales of its own but both of its axes with the same, one legend for all.

    Parameters
    ----------
    lines : sequence of sequence of Panel
        Each begins a line of its own.
    columns : int
        Panels in a line at most.
    side : float
        Of a panel, in inches.
    below : bool
        Where the legend stands: else beside them.
    """
    places: list[list[Panel]] = []
    for line in lines:
        places += [list(line[first : first + columns]) for first in range(0, len(line), columns)]
    widest = max(len(line) for line in places)
    size = (0.2 if below else 1.7) + side * widest, 0.3 + (side + 0.2) * len(places)
    figure = Canvas(figsize=size, layout="constrained")
    grid = figure.subplots(len(places), widest, squeeze=False)
    legend: dict[str, Line2D] = {}
    for axes, panel in (
        (grid[row, column], panel) for row, line in enumerate(places) for column, panel in enumerate(line)
    ):
        legend |= {name: handle for name, handle in _draw(axes, panel, side).items() if name not in legend}
    for row, line in enumerate(places):
        for axes in grid[row, len(line) :]:
            axes.set_visible(False)
    if legend and below:
        across = max(2, int(size[0] / WIDTH))
        figure.set_figheight(size[1] + 0.2 * math.ceil(len(legend) / across))
        figure.legend(legend.values(), map(plain, legend), loc="outside lower left", ncols=across)
    elif legend:
        beside(figure, list(legend.values()), legend)
    return figure


def _draw(axes: Axes, panel: Panel, inches: float) -> dict[str, Line2D]:
    """Draw one panel; return a handle for each kind of point."""
    kinds = np.full(len(panel.points), "") if panel.kinds is None else panel.kinds
    areas = None if panel.weights is None else _areas(panel.weights, inches)
    handles = {}
    for order, name in enumerate(kinds_in_order(kinds)):
        place = panel.places.get(name, int(name) if name.isdecimal() else order)
        colour, marker = HUES[place % len(HUES)], MARKERS[place // len(HUES) % len(MARKERS)]
        size = float(np.clip(60 / math.sqrt(len(panel.points)), 1.8, 6))
        its = kinds == name
        points = panel.points[its]
        style: dict[str, Any] = {
            "marker": marker,
            "color": colour,
            "ls": "",
            "mec": "white",
            "mew": 0.25,
            "alpha": 0.85,
        }
        if areas is None:
            axes.plot(points[:, 0], points[:, 1], ms=size, rasterized=True, **style)
        else:
            sizes: dict[str, Any] = {
                "s": areas[its],
                "color": colour,
                "marker": marker,
                "edgecolor": "white",
                "lw": 0.4,
            }
            axes.scatter(points[:, 0], points[:, 1], alpha=0.65, zorder=2, rasterized=True, **sizes)
        if name:
            handles[" ".join(filter(None, (panel.of, name)))] = Line2D([], [], ms=6, **style)
    if panel.centers is not None:
        cross: dict[str, Any] = {"marker": "X", "color": "black", "ls": "", "mec": "white", "mew": 0.8, "ms": 9}
        axes.plot(panel.centers[:, 0], panel.centers[:, 1], zorder=3, **cross)
        handles["centre"] = Line2D([], [], **cross)
    axes.set(xticks=[], yticks=[], aspect="equal", adjustable="datalim")
    axes.set_title("\n".join(map(plain, filter(None, (panel.above, panel.title)))), loc="left", fontsize=8.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(True)
    for spine in axes.spines.values():
        spine.set_color("#cccccc")
    return handles


def _areas(weights: FloatArray, inches: float) -> FloatArray:
    """Return areas in square points, as the weights are; the least can be seen, and the largest leaves room."""
    panel = (72 * inches) ** 2
    return np.array(np.clip(INKED * panel * weights / weights.sum(), 4.0, panel / 100))
