"""Images of the components' directions over the columns, each column being a pixel."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure as Canvas

from experiments.report.plot_style import Drawn, pictured, plain
from experiments.results import Run, setting
from fedkernel.ground import FloatArray

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
