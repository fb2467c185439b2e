"""Kernel widths by rule: the table of a kernel may say ``width = "median"`` in place of a number."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist

from fedkernel.arrays import EPS, FloatArray
from fedkernel.data import check_matrix
from fedkernel.errors import InputError


def median_sigma(X: FloatArray, max_rows: int = 1000, seed: int = 0) -> float:
    """Median Euclidean distance between rows: the median heuristic for `RBF(sigma=...)`.

    Source: Gretton et al., A Kernel Two-Sample Test, JMLR 13 (2012), section 8; disKPCA's experiments (Balcan et al.,
    2016) take 0.2 times it.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    max_rows : int, default=1000
        At least 2. With more rows than this, the median over that many, drawn without replacement.
    seed : int, default=0
        Of that draw.

    Raises
    ------
    InputError
        If there are fewer than two rows, or at least half of the distances are zero.
    """
    X = check_matrix(X, "X")
    if max_rows < 2 or len(X) < 2:
        raise InputError(f"a median distance needs two rows; there are {len(X)}, of which max_rows = {max_rows} count")
    if len(X) > max_rows:
        X = X[np.random.default_rng(seed).choice(len(X), max_rows, replace=False)]
    sigma = float(np.median(pdist(X)))
    if sigma == 0.0:
        raise InputError("the median distance between rows is 0, which is no width; most rows are the same")
    return sigma


def fk_gamma(n: int, sum_x: FloatArray, sum_squared_norms: float) -> float:
    """Compute gamma = n^2 / (2 sum_ij ||x_i - x_j||^2) from sums that clients can send.

    The width of the federated kernel k-means paper (2021); sum_ij ||x_i - x_j||^2 = 2 n sum ||x||^2 - 2 ||sum x||^2.

    Parameters
    ----------
    n : int
        Number of rows of all clients.
    sum_x : ndarray of shape (d,)
        Sum of the rows.
    sum_squared_norms : float
        Sum of the rows' squared norms.

    Raises
    ------
    InputError
        If the rows are the same up to the rounding of the sums.
    """
    total = n * float(sum_squared_norms)
    spread = 2 * (total - float(np.dot(sum_x, sum_x)))
    # n additions may each have rounded by eps: a smaller difference says nothing.
    if not spread > n * EPS * total:
        raise InputError(f"the {n} rows do not differ from each other, which gives no width; give gamma")
    return n * n / (2 * spread)


def dimension_sigma(d: int) -> float:
    """Compute sigma = sqrt(d) / 3 for d columns: the width of the DKPCA letter (He et al., 2021), section IV."""
    if d < 1:
        raise InputError(f"d = {d} is not allowed; it must be at least 1")
    return float(np.sqrt(d) / 3)


WIDTHS: dict[str, Callable[[FloatArray], dict[str, float]]] = {
    "median": lambda X: {"sigma": median_sigma(X)},
    "mean": lambda X: {"gamma": fk_gamma(len(X), X.sum(axis=0), float((X * X).sum()))},
    "dimension": lambda X: {"sigma": dimension_sigma(X.shape[1])},
}
"""Rules by name: the median pairwise distance, the mean one (federated kernel k-means), sqrt(d)/3 (DKPCA)."""


def with_width(kernel: Mapping[str, Any], X: FloatArray) -> dict[str, Any]:
    """Return a kernel's table with its rule replaced by the number that the rule gives on the rows X (n, d)."""
    table = dict(kernel)
    if (rule := table.pop("width", None)) is None:
        return table
    if "type" not in table:
        raise InputError("kernel.type is required: kernel.width is for rbf and laplacian kernels")
    if table["type"] not in ("rbf", "laplacian"):
        raise InputError(f"kernel.width is for rbf and laplacian kernels, not for type = {table['type']!r}")
    if not isinstance(rule, str) or rule not in WIDTHS:
        raise InputError(f"kernel.width = {rule!r}, but must be one of {', '.join(WIDTHS)}")
    if given := {"gamma", "sigma"} & set(table):
        raise InputError(f"kernel.width and kernel.{min(given)} are the same thing; give only one of them")
    width = WIDTHS[rule](X)
    if table["type"] == "laplacian" and "sigma" in width:
        # exp(-||x - y||_1 / sigma): the Laplacian's own reading of a width.
        width = {"gamma": 1.0 / width["sigma"]}
    return {**table, **width}
