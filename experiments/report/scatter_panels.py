"""Scatter plots of rows along two components, coloured by cluster or class: one panel, or several."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from experiments.report.plot_style import HUES, MARKERS, add_legend, plain
from fedkernel.data import sorted_classes
from fedkernel.ground import AnyArray, FloatArray

COLUMNS = 4
"""Panels in a row."""

SIDE = 2.0
"""Inches of a panel."""


@dataclass(frozen=True)
class Panel:
    """Scatter plot: points (n, 2), and the group of each as text (n,), if known.

    `of` names the grouping, `above` is the heading of the row that the panel begins, `places` are the colours of groups
    that are no numbers.
    """

    title: str
    points: FloatArray
    kinds: AnyArray | None = None
    of: str = ""
    above: str = ""
    places: Mapping[str, int] = field(default_factory=dict)


def draw_panels(lines: Sequence[Sequence[Panel]]) -> Canvas:
    """Draw panels with independent but equal scales on both axes, and one legend.

    `lines`: each begins a new row of the figure.
    """
    places: list[list[Panel]] = []
    for line in lines:
        places += [list(line[first : first + COLUMNS]) for first in range(0, len(line), COLUMNS)]
    widest = max(len(line) for line in places)
    size = 1.7 + SIDE * widest, 0.3 + (SIDE + 0.2) * len(places)
    figure = Canvas(figsize=size, layout="constrained")
    grid = figure.subplots(len(places), widest, squeeze=False)
    legend: dict[str, Line2D] = {}
    for axes, panel in (
        (grid[row, column], panel) for row, line in enumerate(places) for column, panel in enumerate(line)
    ):
        legend |= {name: handle for name, handle in _draw(axes, panel).items() if name not in legend}
    for row, line in enumerate(places):
        for axes in grid[row, len(line) :]:
            axes.set_visible(False)
    if legend:
        add_legend(figure, list(legend.values()), legend)
    return figure


def _draw(axes: Axes, panel: Panel) -> dict[str, Line2D]:
    """Draw one panel; return a handle for each kind of point."""
    kinds = np.full(len(panel.points), "") if panel.kinds is None else panel.kinds
    handles = {}
    for order, name in enumerate(sorted_classes(kinds)):
        place = panel.places.get(name, int(name) if name.isdecimal() else order)
        colour, marker = HUES[place % len(HUES)], MARKERS[place // len(HUES) % len(MARKERS)]
        size = float(np.clip(60 / math.sqrt(len(panel.points)), 1.8, 6))
        points = panel.points[kinds == name]
        look: dict[str, Any] = {"marker": marker, "color": colour, "ls": "", "mec": "white", "mew": 0.25, "alpha": 0.85}
        axes.plot(points[:, 0], points[:, 1], ms=size, rasterized=True, **look)
        if name:
            handles[" ".join(filter(None, (panel.of, name)))] = Line2D([], [], ms=6, **look)
    axes.set(xticks=[], yticks=[], aspect="equal", adjustable="datalim")
    axes.set_title("\n".join(map(plain, filter(None, (panel.above, panel.title)))), loc="left", fontsize=8.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(True)
    for spine in axes.spines.values():
        spine.set_color("#cccccc")
    return handles
