"""Pictures of rows along two components, coloured by cluster or class, and of components over pixels."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from scipy.linalg import orthogonal_procrustes
from scipy.optimize import linear_sum_assignment

from fedkernel.data import sorted_classes
from fedkernel.experiments.report.page_tables import is_central
from fedkernel.experiments.report.plot_style import Drawn, add_legend, pictured, plain
from fedkernel.experiments.results import RowPicture, Run, setting
from fedkernel.ground import AnyArray, FloatArray
from fedkernel.run import HUES, MARKERS, MOST_ROWS

COLUMNS = 4  # panels in a row
SIDE = 2.0  # inches of a panel


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
    """Draw panels with one legend. Each panel has a scale of its own, the same on both axes.

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
    for axes_of_line, line in zip(grid, places, strict=True):
        for axes, panel in zip_longest(axes_of_line, line):
            axes.set_visible(panel is not None)
            legend |= ({} if panel is None else _draw(axes, panel)) | legend
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


MOST_PICTURES = 24


def row_pictures(runs: Sequence[Run], pictures: Mapping[str, RowPicture]) -> Drawn | None:
    """Draw each method's rows along two components, with the first seed. A line of panels is a group at a setting."""
    if not (having := pictured(runs, pictures)):
        return None
    drawn = having[:MOST_PICTURES]
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in drawn:
        groups.setdefault((setting(run.point), run.group or ""), []).append(run)
    lines = []
    for (where, group), same in groups.items():
        central_first = sorted(same, key=lambda run: not is_central(run))
        lines.append(_line(central_first, pictures, ", ".join(part for part in (where, group) if part)))
    kinds = {panel.of for line in lines for panel in line if panel.kinds is not None}
    by = "cluster and class" if len(kinds) > 1 else next(iter(kinds), "")
    coloured = f", coloured by {by}" if by else ""
    rows = max(len(pictures[run.id].points) for run in drawn)
    sample = f" {MOST_ROWS:,} rows are drawn, chosen at random, the same for all methods." if rows == MOST_ROWS else ""
    seeds = ", ".join(map(str, sorted({run.seed for run in having})))
    left_out = f" {len(having) - len(drawn)} more are not drawn." if len(having) > len(drawn) else ""
    clusters = (
        " Clusters, and classes beside them, have the colours of the first picture's that they share most rows with."
    )
    caption = (
        f"The rows along the first two components that each method finds{coloured}, seed {seeds}. "
        "Signs and rotations of components are arbitrary: in each line, the others are turned or reflected onto the "
        "first picture (orthogonal Procrustes), which changes no distance; scales are each picture's own. An isolated "
        f"method's is client 0's; what finds one component has none.{clusters if 'cluster' in kinds else ''}{sample}"
        f"{left_out}"
    )
    return "Rows along the first two components", caption, draw_panels(lines)


def _line(runs: Sequence[Run], pictures: Mapping[str, RowPicture], above: str) -> list[Panel]:
    """Return the panels of comparable methods, rotated onto the first, with the heading `above`."""
    top = pictures[runs[0].id]
    panels = []
    if top.classes is not None and any(pictures[run.id].clusters is not None for run in runs):
        places = {} if top.clusters is None else class_colours(top.classes, top.clusters)
        panels.append(Panel(f"{runs[0].name}, by class", top.points, top.classes, "class", above, places))
    for run in runs:
        picture = pictures[run.id]
        kinds, of = picture.classes, "class"
        if picture.clusters is not None:
            numbers = matched_clusters(picture.clusters, picture.clusters if top.clusters is None else top.clusters)
            kinds, of = numbers.astype(str), "cluster"
        points, head = rotated_onto(picture.points, top.points), "" if panels else above
        panels.append(Panel(run.name, points, kinds, of, head))
    return panels


def rotated_onto(points: FloatArray, onto: FloatArray) -> FloatArray:
    """Return centred points (n, 2), rotated or reflected to lie nearest to the points `onto` (n, 2)."""
    centred = points - points.mean(axis=0)
    if points.shape != onto.shape:
        return np.array(centred)
    rotation, _ = orthogonal_procrustes(centred, onto - onto.mean(axis=0))
    return np.asarray(centred @ rotation)


def matched_clusters(clusters: AnyArray, onto: AnyArray) -> AnyArray:
    """Renumber clusters (n,) by the best one-to-one match, in shared rows, with the clusters `onto`."""
    if clusters.shape != onto.shape:
        return clusters
    size = int(max(clusters.max(initial=0), onto.max(initial=0))) + 1
    shared = np.zeros((size, size), dtype=np.int64)
    np.add.at(shared, (clusters, onto), 1)
    return np.asarray(linear_sum_assignment(-shared)[1][clusters])


def class_colours(kinds: AnyArray, clusters: AnyArray) -> dict[str, int]:
    """Return each class's colour number: the cluster that matches it best, one to one, by shared rows."""
    names = sorted_classes(kinds)
    numbers = np.array([names.index(kind) for kind in kinds.tolist()])
    places = matched_clusters(numbers, clusters)
    return {names[number]: int(place) for number, place in zip(numbers, places, strict=True)}


MOST_COMPONENTS, MOST_SETTINGS = 3, 4


def eigen_images(runs: Sequence[Run], directions: Mapping[str, FloatArray]) -> Drawn | None:
    """Draw each method's leading directions in its run with the first seed.

    A row is a method, a block of columns a setting. `directions`, ndarrays of shape (k, rows, columns), are by the id
    of a run; runs without an entry are not drawn.
    """
    if not (having := pictured(runs, directions)):
        return None
    names, settings = list(dict.fromkeys(r.name for r in having)), list(dict.fromkeys(setting(r.point) for r in having))
    shown = settings[:MOST_SETTINGS]
    wide = min(MOST_COMPONENTS, max(len(directions[run.id]) for run in having))
    figure = Canvas(figsize=(1.8 + 0.75 * wide * len(shown), 0.6 + 0.8 * len(names)), layout="constrained")
    grid = figure.subplots(len(names), wide * len(shown), squeeze=False)
    for axes in grid.ravel():
        axes.set(xticks=[], yticks=[])
        axes.set_frame_on(False)
    tops: dict[int, FloatArray] = {}
    for run in having:
        if setting(run.point) not in shown:
            continue
        left = wide * shown.index(setting(run.point))
        for place, picture in enumerate(directions[run.id][:wide], start=left):
            # the sign of a direction is arbitrary: match that of the picture on top
            top = tops.setdefault(place, picture)
            turned = -picture if np.vdot(picture, top) < 0 else picture
            grid[names.index(run.name), place].imshow(turned, cmap="gray", interpolation="nearest")
    for axes, name in zip(grid[:, 0], names, strict=True):
        axes.set_ylabel(plain(name), rotation=0, ha="right", va="center")
    for place, axes in enumerate(grid[0]):
        block, component = divmod(place, wide)
        axes.set_title(f"\n{component + 1}", fontsize=8.5)
        if component == 0:  # a title wider than its picture must not move the next picture
            at = {"xycoords": "axes fraction", "textcoords": "offset points"}
            name = axes.annotate(plain(shown[block]), (0, 1), (0, 18), fontsize=8.5, **at)
            name.set_in_layout(False)
    left_out = f" Only the first {len(shown)} settings are shown." if len(settings) > len(shown) else ""
    seeds = sorted({run.seed for run in having})
    caption = (
        "The direction of each component over the columns, X^T u, a pixel for a column, black for the least and white "
        f"for the largest; signs as on top, seed {', '.join(map(str, seeds))}. Where clients have directions of their "
        f"own, each one's pixels are of its own.{left_out}"
    )
    return "Components as images", caption, figure
