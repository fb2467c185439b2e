"""Scatter plots of rows along two components, one small panel per method and one for the central solution."""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.linalg import orthogonal_procrustes
from scipy.optimize import linear_sum_assignment

from experiments.report.page_tables import is_central
from experiments.report.plot_style import Drawn, pictured
from experiments.report.scatter_panels import Panel, draw_panels
from experiments.results import MOST_ROWS, RowPicture, Run, setting
from fedkernel.data import sorted_classes
from fedkernel.ground import AnyArray, FloatArray

MOST_PICTURES = 24


def row_pictures(runs: Sequence[Run], pictures: Mapping[str, RowPicture]) -> Drawn | None:
    """Draw each method's rows along two components, with its first seed.

    A line is a group at a setting, the central method first. `pictures`: by the id of a run; runs without an entry are
    not drawn.
    """
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
    result: FloatArray = centred @ rotation
    return result


def matched_clusters(clusters: AnyArray, onto: AnyArray) -> AnyArray:
    """Renumber clusters (n,) by the best one-to-one match, in shared rows, with the clusters `onto`."""
    if clusters.shape != onto.shape:
        return clusters
    size = int(max(clusters.max(initial=0), onto.max(initial=0))) + 1
    shared = np.zeros((size, size), dtype=np.int64)
    np.add.at(shared, (clusters, onto), 1)
    numbers = linear_sum_assignment(-shared)[1]
    renumbered: AnyArray = numbers[clusters]
    return renumbered


def class_colours(kinds: AnyArray, clusters: AnyArray) -> dict[str, int]:
    """Return each class's colour number: its best matching cluster, one to one, in shared rows."""
    names = sorted_classes(kinds)
    numbers = np.array([names.index(kind) for kind in kinds.tolist()])
    return {
        names[number]: int(place) for number, place in zip(numbers, matched_clusters(numbers, clusters), strict=True)
    }
