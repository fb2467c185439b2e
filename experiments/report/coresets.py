"""Where the points lie that clusters were found from: a picture for each method, where the study keeps it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from experiments.report.axes import Drawn
from experiments.report.row_pictures import Pictured
from experiments.report.scatter import Panel, draw_panels
from experiments.results import Run, setting
from fedkernel.models import CoresetPicture

SIDES = (3.8, 2.7)
"""Inches of a panel's side where there is one in a line, and where there are two: all that is read on a telephone."""


def coreset_pictures(runs: Sequence[Run], coresets: Mapping[str, CoresetPicture]) -> Drawn | None:
    """Draw each method's coreset with the first seed, a line for each group and setting.

    Parameters
    ----------
    runs : sequence of Run
    coresets : mapping of str to CoresetPicture
        By the id of a run; those that it lacks have none.
    """
    if (pictured := Pictured.of(runs, coresets)) is None:
        return None
    lines: dict[str, list[Panel]] = {}
    for run in pictured.runs:
        where = ", ".join(part for part in (setting(run.point), run.group) if part)
        picture, line = coresets[run.id], lines.setdefault(where, [])
        kinds, above = picture.clusters.astype(str), "" if line else where
        panel = Panel(run.name, picture.points, kinds, "cluster", above)
        line.append(replace(panel, weights=picture.weights, centers=picture.centers))
    several = ", in each picture its own, and clusters are numbered by each method for itself: neither compares"
    caption = (
        "The points from which each method found its clusters, at the coordinator: sampled rows as they lie in the "
        f"method's embedding, and the sites' own centres, seed {pictured.seeds}. A point's area is the rows that it "
        "stands for, its colour the cluster; crosses are the clusters' centres. Axes are the two along which the "
        f"points spread most{several if len(pictured.runs) > 1 else ''}.{pictured.left_out}"
    )
    side = SIDES[any(len(line) > 1 for line in lines.values())]
    return "The coreset", caption, draw_panels(list(lines.values()), columns=len(SIDES), side=side, below=True)
