"""Figure of a result, and the colours, markers and rows that all figures share."""

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedkernel.ground import FloatArray, InputError, generator
from fedkernel.models import KernelPCA
from fedkernel.numerics import assign, simplified_silhouettes

if TYPE_CHECKING:  # matplotlib takes a second to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#333333"
# Okabe and Ito's palette without its yellow, too light on white, and three of Tol's muted colours
HUES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#332288", "#999933")
MARKERS, HATCHES = "osD^vP<>p*h", ("", "///", "...", "xxx", "---", r"\\\\", "++", "oo")
STYLE: dict[Any, Any] = {
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color"), INK),
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelsize": 9.5,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.5,
    "font.size": 9,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "hatch.linewidth": 0.6,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "svg.hashsalt": "fedkernel",
}
MOST_ROWS = 2000
"""Most rows that are drawn; of more, a fixed random sample of this size."""


def rows_to_draw(rows: int) -> npt.NDArray[np.intp]:
    """Return the positions of the rows to draw, in order."""
    if rows <= MOST_ROWS:
        return np.arange(rows)
    return np.sort(generator("drawn rows", rows).choice(rows, MOST_ROWS, replace=False))


def two_coordinates(coordinates: FloatArray, *, turn: bool = False) -> FloatArray | None:
    """Return the first two coordinates (n, 2) of (n, s), or with `turn` the principal two. None if n or s is < 2."""
    if coordinates.ndim != 2 or min(coordinates.shape) < 2:
        return None
    if not turn:
        return np.array(coordinates[:, :2], dtype=np.float64)
    centred = coordinates - coordinates.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    return np.array(centred @ axes[:2].T, dtype=np.float64)


def draw_result(model: Any, points: FloatArray | None) -> "Figure":
    """Draw a model's rows `points` (n, s), clusters and eigenvalues, each in a panel of its own."""
    import matplotlib as mpl  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    centers, values = getattr(model, "centers_", None), getattr(model, "eigenvalues_", None)
    panels = []
    if points is not None:
        labels = np.zeros(len(points), dtype=np.intp) if centers is None else assign(points, centers)[0]
        drawn = rows_to_draw(len(points))
        if (pair := two_coordinates(points, turn=centers is not None)) is not None:
            axis = "component" if centers is None else "principal coordinate"
            panels.append(partial(_rows, points=pair[drawn], labels=labels[drawn], axis=axis))
        if centers is not None:
            sizes, widths = np.bincount(labels, minlength=len(centers)), simplified_silhouettes(points[drawn], centers)
            panels.append(partial(_silhouettes, values=widths, labels=labels[drawn], sizes=sizes))
    if values is not None and len(values):
        panels.append(partial(_spectrum, values=values))
    if not panels:
        name = type(model).__name__
        raise InputError(f"{name} has nothing to draw; allowed: models with eigenvalues, runs of simulated sites")
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.6 * len(panels), 3.4), layout="constrained")
        for axes, draw in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            draw(axes)
    return figure


def row_coordinates(model: Any, outputs: dict[int, dict[str, npt.NDArray[Any]]]) -> FloatArray | None:
    """Return the training rows' coordinates (N, s) from model or simulated sites, or None if sites keep them."""
    if isinstance(model, KernelPCA):
        return model.embedding()
    if (own := getattr(model, "training_", None)) is not None:
        return np.asarray(own)
    tables = [arrays["embedding"] for _, arrays in sorted(outputs.items()) if "embedding" in arrays]
    return np.concatenate(tables) if tables and len(tables) == len(outputs) else None


def _rows(axes: "Axes", points: FloatArray, labels: npt.NDArray[np.intp], axis: str) -> None:
    size = float(np.clip(60 / math.sqrt(len(points)), 1.8, 6))
    for label in np.unique(labels):  # a marker each, which tells clusters apart without colours
        look: dict[str, Any] = {"color": HUES[label % len(HUES)], "marker": MARKERS[label % len(MARKERS)]}
        axes.plot(*points[labels == label].T, ls="", ms=size, mec="white", mew=0.25, label=str(label), **look)
    axes.set(title="Rows", xlabel=f"{axis} 1", ylabel=f"{axis} 2", aspect="equal", adjustable="datalim")
    if 1 < len(axes.lines) <= len(MARKERS):
        axes.legend(title="cluster", markerscale=6 / size)


def _silhouettes(axes: "Axes", values: FloatArray, labels: npt.NDArray[np.intp], sizes: npt.NDArray[np.intp]) -> None:
    base, middles = 0, {}
    for label in np.unique(labels):
        own = np.sort(values[labels == label])
        look: dict[str, Any] = {"facecolor": HUES[label % len(HUES)], "hatch": HATCHES[label % len(HATCHES)]}
        axes.stairs(own, np.arange(base, base + len(own) + 1), orientation="horizontal", fill=True, ec="white", **look)
        middles[base + len(own) / 2] = f"{label}: {sizes[label]:,}"
        base += len(own) + max(1, len(values) // 50)
    axes.axvline(float(values.mean()), color=INK, ls="--", lw=1)
    axes.set(title="Clusters (dashed: mean)", xlabel="simplified silhouette", ylabel="cluster: rows", xlim=(0, 1))
    axes.set_yticks(list(middles), list(middles.values()))


def _spectrum(axes: "Axes", values: FloatArray) -> None:
    axes.plot(np.arange(1, len(values) + 1), values, "o-", color=INK, ms=4)
    axes.set(title="Spectrum", xlabel="component", ylabel="eigenvalue")
    if values.min() > 0 and values.max() >= 100 * values.min():
        axes.set_yscale("log")
