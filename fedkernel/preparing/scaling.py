"""Centre and scale of each column from its statistics, as in scikit-learn's scalers."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedkernel.data import Preparation, Prepare, RawTable
from fedkernel.ground import EPS, FloatArray, InputError, and_more

QUARTILES = (0.25, 0.5, 0.75)


class Moments(NamedTuple):
    """Moments of columns: number of values, mean and variance, each of shape (p,)."""

    counts: FloatArray
    means: FloatArray
    variances: FloatArray

    def filled(self, rows: int, fill: FloatArray) -> "Moments":
        """Return the columns' moments after all empty cells are filled with `fill` (p,)."""
        share = self.counts / rows
        means = self.means + (1 - share) * (fill - self.means)  # exactly the mean if the fill is the mean
        within = share * (self.variances + (self.means - means) ** 2) + (1 - share) * (fill - means) ** 2
        # columns without an empty cell keep every bit
        whole = self.counts == rows
        means, variances = np.where(whole, self.means, means), np.where(whole, self.variances, within)
        return Moments(np.full_like(self.counts, rows), means, variances)

    @property
    def constant(self) -> npt.NDArray[np.bool_]:
        """Mask of columns that vary by no more than rounding errors, by scikit-learn's rule."""
        n = self.counts
        return np.asarray(self.variances <= n * EPS * self.variances + (n * self.means * EPS) ** 2)


def moments_of(
    counts: FloatArray, center: FloatArray, deviations: FloatArray, squares: FloatArray, ddof: int = 0
) -> Moments:
    """Compute columns' moments from sums of deviations from a center near the mean, and of their squares."""
    n = np.maximum(counts, 1 + ddof)
    shifts = deviations / n
    return Moments(counts, center + shifts, np.maximum(squares - shifts * deviations, 0) / (n - ddof))


class Scaling(NamedTuple):
    """Center to subtract from columns, and scale to divide by, each of shape (p,)."""

    center: FloatArray
    scale: FloatArray


def standard(moments: Moments) -> Scaling:
    """Return the scaling of columns to mean 0 and standard deviation 1, from their moments."""
    return Scaling(moments.means, np.where(moments.constant, 1.0, np.sqrt(moments.variances)))


def minmax(least: FloatArray, greatest: FloatArray) -> Scaling:
    """Return the scaling of columns to the range from 0 to 1, from their extremes."""
    distance = greatest - least
    return Scaling(least, np.where(distance < 10 * EPS, 1.0, distance))


def robust(quartiles: FloatArray, resolution: FloatArray | float = 0.0) -> Scaling:
    """Return the scaling by median and interquartile range, from quartiles (p, 3). Ranges up to `resolution` are 0."""
    distance = quartiles[:, 2] - quartiles[:, 0]
    return Scaling(quartiles[:, 1], np.where(distance <= np.maximum(10 * EPS, resolution), 1.0, distance))


def stated(prepare: Prepare, names: Sequence[str]) -> tuple[FloatArray, Scaling]:
    """Return the fill and scaling that the options state for numeric columns, by default 0 and no scaling.

    Raises InputError if `Prepare.scale` is a table that lacks a column.
    """
    table = prepare.scale if isinstance(prepare.scale, dict) else dict.fromkeys(names, (0.0, 1.0))
    if lacking := [name for name in names if name not in table]:
        text = f"prepare.scale has no column {lacking[0]!r}{and_more(len(lacking) - 1)}"
        raise InputError(f"{text}; allowed: centre and unit of each column of numbers, such as {{ age = [60, 12] }}")
    scaling = Scaling(*np.array([table[name] for name in names], dtype=np.float64).reshape(-1, 2).T)
    return scaling.center if prepare.missing == "center" else np.zeros(len(names)), scaling


def fitted(prepare: Prepare, raw: RawTable) -> Preparation:
    """Fit a preparation to one table's own statistics; InputError if a column has no value to fill cells with."""
    numbers, names = prepare.numeric_columns(raw), prepare.numeric_names(raw.names)
    columns = numbers.shape[1]
    present = np.isfinite(numbers)
    counts = present.sum(axis=0).astype(np.float64)
    check_filled(prepare, names, counts)
    center = np.nansum(numbers, axis=0) / np.maximum(counts, 1)
    apart = numbers - center
    moments = moments_of(counts, center, np.nansum(apart, axis=0), np.nansum(apart**2, axis=0))
    fill, scaling = stated(prepare, names)
    if prepare.missing in ("mean", "median") and columns:
        fill = moments.means if prepare.missing == "mean" else np.nanmedian(numbers, axis=0)
    filled = np.where(present, numbers, fill)
    if prepare.scale == "standard":
        scaling = standard(moments.filled(raw.rows, fill))
    elif prepare.scale == "minmax" and columns:
        scaling = minmax(filled.min(axis=0), filled.max(axis=0))
    elif prepare.scale == "robust" and columns:
        scaling = robust(np.quantile(filled, QUARTILES, axis=0).T)
    return Preparation(prepare, raw.names, fill, *scaling, flagged(prepare, names, counts, raw.rows))


def flagged(prepare: Prepare, names: Sequence[str], counts: FloatArray, rows: int) -> tuple[str, ...]:
    """Return the names of the columns that get an indicator column: those with empty cells."""
    return tuple(name for name, count in zip(names, counts, strict=True) if prepare.indicator and count < rows)


def check_filled(prepare: Prepare, names: Sequence[str], counts: FloatArray) -> None:
    """Raise InputError if a column has no value to fill its empty cells with."""
    empty = [name for name, count in zip(names, counts, strict=True) if not count]
    if empty and prepare.missing in ("mean", "median"):
        column = f"column {empty[0]!r}{and_more(len(empty) - 1)} has no value in any row"
        raise InputError(f"{column}, so its {prepare.missing} cannot fill empty cells; drop the column")
