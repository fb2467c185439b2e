"""Kernel widths by rule: the table of a kernel may say ``width = "median"`` in place of a number.

``factor`` is by what the width sigma that the rule gives is multiplied: disKPCA's experiments take 0.2 medians.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.spatial.distance import pdist
from sklearn.utils.extmath import row_norms

from fedkernel.arrays import EPS, FloatArray, Rows, row_blocks
from fedkernel.data import check_rows
from fedkernel.errors import InputError


def median_sigma(X: Rows, max_rows: int = 1000, seed: int = 0) -> float:
    """Median Euclidean distance between rows: the median heuristic for `RBF(sigma=...)`.

    Source: Gretton et al., A Kernel Two-Sample Test, JMLR 13 (2012), section 8; disKPCA's experiments (Balcan et al.,
    2016) take 0.2 times it.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n, d)
    max_rows : int, default=1000
        At least 2. With more rows than this, the median over that many, drawn without replacement.
    seed : int, default=0
        Of that draw.

    Raises
    ------
    InputError
        If there are fewer than two rows, or at least half of the distances are zero.
    """
    X = check_rows(X, "X")
    n = X.shape[0]
    if max_rows < 2 or n < 2:
        raise InputError(f"a median distance needs two rows; there are {n}, of which max_rows = {max_rows} count")
    if n > max_rows:
        X = X[np.random.default_rng(seed).choice(n, max_rows, replace=False)]
    sigma = float(np.median(pdist(X) if isinstance(X, np.ndarray) else _sparse_distances(X)))
    if sigma == 0.0:
        raise InputError("the median distance between rows is 0, which is no width; most rows are the same")
    return sigma


def _sparse_distances(X: sparse.csr_array) -> FloatArray:
    """Compute the distances between the rows of X (n, d) from inner products: shape (n (n - 1) / 2,)."""
    squares = row_norms(X, squared=True)
    pairs = np.triu_indices(X.shape[0], 1)
    sums = squares[pairs[0]] + squares[pairs[1]]
    distances = sums - 2 * (X @ X.T).toarray()[pairs]
    # what rounding leaves of equal rows is no distance
    return np.sqrt(np.where(distances > 16 * EPS * sums, distances, 0.0))


class Moments(NamedTuple):
    """What rows come to: their mean (d,) and scatter, the sum of squared distances to the mean."""

    rows: int
    mean: FloatArray
    scatter: float


def moments(X: Rows) -> Moments:
    """Compute the moments of rows X (n, d), a block of rows at a time."""
    if not isinstance(X, np.ndarray):
        n = X.shape[0]
        center = np.bincount(X.indices, weights=X.data, minlength=X.shape[1]) / n
        zeros = n - np.bincount(X.indices, minlength=X.shape[1])  # entries that are not stored, by column
        stored = float(np.square(X.data - center[X.indices]).sum())
        return Moments(n, center, stored + float(zeros @ np.square(center)))
    mean: FloatArray = X.mean(axis=0)
    # Adding many rows up rounds; what is left of them beside that mean is small, and so is its own rounding.
    mean += sum(((X[rows] - mean).sum(axis=0) for rows in row_blocks(len(X))), np.zeros_like(mean)) / len(X)
    scatter = sum(float(np.square(X[rows] - mean).sum()) for rows in row_blocks(len(X)))
    return Moments(len(X), mean, scatter)


def fk_gamma(rows: int, mean: FloatArray, scatter: float) -> float:
    """Compute gamma = N^2 / (2 sum_ij ||x_i - x_j||^2) from the moments of N rows.

    The width of the federated kernel k-means paper (2021): sum_ij ||x_i - x_j||^2 = 2 N S, where the scatter S is the
    sum of squared distances to the mean. That adds up over clients, once they know the mean of all: no difference of
    large numbers, as sums and sums of squares would give for rows far from the origin.

    Parameters
    ----------
    rows : int
        N.
    mean : ndarray of shape (d,)
        Of all rows.
    scatter : float
        S.

    Raises
    ------
    InputError
        If the rows are the same up to rounding.
    """
    # The mean is rounded: constant columns of size a leave squares of about eps a.
    if not scatter > rows * (100 * EPS) ** 2 * float(np.square(mean).sum()):
        raise InputError(f"the {rows} rows do not differ from each other, which gives no width; give gamma")
    return rows / (4 * scatter)


def dimension_sigma(d: int) -> float:
    """Compute sigma = sqrt(d) / 3 for d columns: the width of the DKPCA letter (He et al., 2021), section IV."""
    if d < 1:
        raise InputError(f"d = {d} is not allowed; it must be at least 1")
    return float(np.sqrt(d) / 3)


WIDTHS: dict[str, Callable[[Rows], dict[str, float]]] = {
    "median": lambda X: {"sigma": median_sigma(X)},
    "mean": lambda X: {"gamma": fk_gamma(*moments(X))},
    "dimension": lambda X: {"sigma": dimension_sigma(X.shape[1])},
}
"""Rules by name: the median pairwise distance, the mean one (federated kernel k-means), sqrt(d)/3 (DKPCA)."""


def with_width(kernel: Mapping[str, Any], X: Rows) -> dict[str, Any]:
    """Return a kernel's table with its rule, and factor, replaced by the number that they give on the rows X (n, d)."""
    table = dict(kernel)
    if (rule := table.pop("width", None)) is None:
        if "factor" in table:
            raise InputError("kernel.factor is for a kernel.width by rule; without it, give sigma or gamma itself")
        return table
    factor = table.pop("factor", 1.0)
    if "type" not in table:
        raise InputError("kernel.type is required: kernel.width is for rbf and laplacian kernels")
    if table["type"] not in ("rbf", "laplacian"):
        raise InputError(f"kernel.width is for rbf and laplacian kernels, not for type = {table['type']!r}")
    if not isinstance(rule, str) or rule not in WIDTHS:
        raise InputError(f"kernel.width = {rule!r}, but must be one of {', '.join(WIDTHS)}")
    if explicit := {"gamma", "sigma"} & set(table):
        raise InputError(f"kernel.width and kernel.{min(explicit)} are the same thing; give only one of them")
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < math.inf:
        raise InputError(f"kernel.factor = {factor!r}, but must be a number above 0")
    width = {name: value * factor if name == "sigma" else value / factor**2 for name, value in WIDTHS[rule](X).items()}
    if table["type"] == "laplacian" and "sigma" in width:
        # exp(-||x - y||_1 / sigma): the Laplacian's own reading of a width.
        width = {"gamma": 1.0 / width["sigma"]}
    return {**table, **width}
