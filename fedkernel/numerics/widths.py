"""Rules that compute a kernel's width from rows in one place. For rows at sites, `fedkernel.kernel_width` has them.

| rule | RBF, polynomial and sigmoid | Laplacian |
|---|---|---|
| `mean` | gamma = N^2 / (2 sum_ij ||x_i - x_j||^2), of the FK k-means paper | N / (sqrt(2) sum_i ||x_i - mean||_1) |
| `median` | sigma, the median Euclidean distance between rows | gamma = 1 / sigma |
| `scale` | gamma = 1 / (d Var(X)), the variance of all entries: scikit-learn's ``gamma="scale"`` | that gamma |
| `dimension` | sigma = sqrt(d) / 3, of the DKPCA letter | gamma = 1 / sigma |
| `columns` | gamma = 1 / d, scikit-learn's ``gamma="auto"``; of divided columns 1 / d_m of each part | that gamma |

RBF and Laplacian kernels have `mean` by default, with a mean of their values of at least exp(-1/2) and exp(-sqrt(2));
polynomial and sigmoid ones `scale`. `columns` suits standardised columns only: for raw ones it makes the kernel matrix
the identity. ``factor`` multiplies the width sigma, so that a gamma is divided by its square: disKPCA's experiments
take 0.2 medians. A Laplacian's sums of differences are 1 to sqrt(d) times the Euclidean distances of `median` and
`dimension`; and the gamma of `scale`, from squared distances, suits standardised columns only.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, overload

import numpy as np
from scipy import sparse
from scipy.spatial.distance import pdist

from fedkernel.data import check_rows
from fedkernel.ground import EPS, FloatArray, InputError, Rows, row_blocks
from fedkernel.numerics.kernels import RBF, Kernel, Laplacian, Sigmoid, kernel_from
from fedkernel.numerics.pairwise import squared_norms


def median_sigma(X: Rows, max_rows: int = 1000, seed: int = 0) -> float:
    """Return the median Euclidean distance between rows (n, d): the median heuristic for `RBF(sigma=...)`.

    Source: Gretton et al., A Kernel Two-Sample Test, JMLR 13 (2012), section 8; disKPCA's experiments (Balcan et al.,
    2016) take 0.2 times it. Of more than `max_rows`, at least 2, so many are drawn without replacement. Raises
    InputError if there are fewer than two rows, or at least half of the distances are zero.
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
    squares = squared_norms(X)
    pairs = np.triu_indices(X.shape[0], 1)
    sums = squares[pairs[0]] + squares[pairs[1]]
    distances = sums - 2 * (X @ X.T).toarray()[pairs]
    # equal rows must not get a distance by rounding
    return np.sqrt(np.where(distances > 16 * EPS * sums, distances, 0.0))


class Moments(NamedTuple):
    """Moments of rows: mean (d,) and scatter, the sum of squared distances to the mean."""

    rows: int
    mean: FloatArray
    scatter: float


def moments(X: Rows) -> Moments:
    """Compute mean and scatter of rows X (n, d), by blocks of rows."""
    n = X.shape[0]
    if not isinstance(X, np.ndarray):
        center = np.bincount(X.indices, weights=X.data, minlength=X.shape[1]) / n
        zeros = n - np.bincount(X.indices, minlength=X.shape[1])  # entries that are not stored, by column
        stored = float(np.square(X.data - center[X.indices]).sum())
        return Moments(n, center, stored + float(zeros @ np.square(center)))
    mean: FloatArray = X.mean(axis=0)
    # Summing many rows rounds; their small differences from that mean correct it, with little rounding of their own.
    mean += sum(((X[rows] - mean).sum(axis=0) for rows in row_blocks(n)), np.zeros_like(mean)) / n
    return Moments(n, mean, sum(float(np.square(X[rows] - mean).sum()) for rows in row_blocks(n)))


def moments_of_blocks(blocks: Iterable[Rows], columns: int) -> Moments:
    """Compute mean and scatter of all rows of a table from its blocks."""
    rows, mean, scatter = 0, np.zeros(columns), 0.0
    for block in blocks:
        part = moments(block)
        difference, earlier_rows = part.mean - mean, rows
        rows += part.rows
        scatter += part.scatter + earlier_rows * part.rows / rows * float(difference @ difference)
        mean += part.rows / rows * difference
    return Moments(rows, mean, scatter)


def fk_gamma(rows: int, mean: FloatArray, scatter: float) -> float:
    """Compute gamma = N^2 / (2 sum_ij ||x_i - x_j||^2) from the moments of N rows.

    The width of the federated kernel k-means paper (2021): sum_ij ||x_i - x_j||^2 = 2 N S, where the scatter S is the
    sum of squared distances to the mean (d,). Raises InputError if the rows are the same up to rounding.
    """
    # The mean is rounded: constant columns of size a leave squares of about eps a.
    if not scatter > rows * (100 * EPS) ** 2 * float(np.square(mean).sum()):
        raise InputError(f"the {rows} rows do not differ from each other, which gives no width; give gamma")
    return rows / (4 * scatter)


def deviations(X: Rows, mean: FloatArray) -> float:
    """Return the sum of ||x - mean||_1 over all rows of X (n, d), for a mean (d,)."""
    if isinstance(X, np.ndarray):
        return sum(float(np.abs(X[rows] - mean).sum()) for rows in row_blocks(len(X)))
    zeros = X.shape[0] - np.bincount(X.indices, minlength=X.shape[1])
    return float(np.abs(X.data - mean[X.indices]).sum() + zeros @ np.abs(mean))


def difference_sigma(rows: int, mean: FloatArray, total: float) -> float:
    """Compute sigma = sqrt(2) A from the mean 1-norm A of N rows' deviations from their mean (d,).

    The mean of ||x_i - x_j||_1 over all pairs is at least A (Jensen) and at most 2 A (triangle inequality).
    `total`: N A, from `deviations`. Raises InputError if the rows are the same up to rounding.
    """
    if not total > rows * 100 * EPS * float(np.abs(mean).sum()):
        raise InputError(f"the {rows} rows do not differ from each other, which gives no width; give gamma")
    return math.sqrt(2) * total / rows


def dimension_sigma(d: int) -> float:
    """Compute sigma = sqrt(d) / 3 for d columns. Source: the DKPCA letter (He et al., 2021), section IV."""
    if d < 1:
        raise InputError(f"d = {d} is not allowed; it must be at least 1")
    return float(np.sqrt(d) / 3)


def scale_gamma(rows: int, scatter: float, mean_squares: float) -> float:
    """Compute gamma = 1 / (d Var(X)) = N / S, scikit-learn's ``gamma="scale"``.

    S: the sum of all entries' squared distances to their mean. `mean_squares`: d times the squared mean of all entries,
    for the rounding level of S. Raises InputError if all entries are equal.
    """
    if not scatter > rows * (100 * EPS) ** 2 * mean_squares:
        raise InputError(f"the entries of the {rows} rows do not differ from each other, which gives no width")
    return rows / scatter


def _pooled_difference(X: Rows) -> float:
    n, mean, _ = moments(X)
    return difference_sigma(n, mean, deviations(X, mean))


def _pooled_scale(X: Rows) -> float:
    n, mean, scatter = moments(X)
    center = float(mean.mean())
    return scale_gamma(n, scatter + n * float(np.square(mean - center).sum()), X.shape[1] * center**2)


WIDTHS: dict[str, Callable[[Rows], dict[str, float]]] = {
    "median": lambda X: {"sigma": median_sigma(X)},
    "mean": lambda X: {"gamma": fk_gamma(*moments(X))},
    "dimension": lambda X: {"sigma": dimension_sigma(X.shape[1])},
    "scale": lambda X: {"gamma": _pooled_scale(X)},
}
"""Rules by name, for rows in one place; a Laplacian has a "mean" of its own."""


def rule_name(kernel: Kernel) -> str:
    """Return the name of the rule that will compute a kernel's width. A Laplacian's "mean" is "mean difference"."""
    return "mean difference" if kernel.rule == "mean" and isinstance(kernel, Laplacian) else str(kernel.rule)


def width_from_rule(kind: str, width: Mapping[str, float], factor: float) -> dict[str, float]:
    """Return the sigma or gamma of a kernel type from a rule's number and a factor."""
    table = {name: value * factor if name == "sigma" else value / factor**2 for name, value in width.items()}
    if kind == "rbf" or "gamma" in table:
        return table
    # exp(-||x - y||_1 / sigma): the Laplacian's own reading of a width.
    return {"gamma": 1.0 / table["sigma"] if kind == "laplacian" else 0.5 / table["sigma"] ** 2}


def with_rule_value(kernel: Kernel, width: Mapping[str, float]) -> Kernel:
    """Return a kernel with its width rule replaced by the number that the rule gave, a sigma or gamma."""
    table = width_from_rule(str(getattr(kernel, "type", "")), width, float(getattr(kernel, "factor", 1.0)))
    gamma = table["gamma"] if "gamma" in table else 0.5 / table["sigma"] / table["sigma"]
    if not 0 < gamma < math.inf:
        raise InputError(f"{kernel!r} gives gamma = {gamma:g}, which is not a positive number")
    return kernel.with_gamma(gamma)


@overload
def with_width(kernel: Kernel, X: Rows) -> Kernel: ...
@overload
def with_width(kernel: Mapping[str, Any], X: Rows) -> dict[str, Any]: ...
def with_width(kernel: Mapping[str, Any] | Kernel, X: Rows) -> dict[str, Any] | Kernel:
    """Replace any width rule of a kernel by the number for rows X (n, d). Takes and returns a kernel or its table."""
    ruled = kernel if isinstance(kernel, Kernel) else kernel_from(kernel)
    if ruled.rule is None:
        return kernel if isinstance(kernel, Kernel) else dict(kernel)
    difference = rule_name(ruled) != ruled.rule
    width = {"sigma": _pooled_difference(X)} if difference else WIDTHS[ruled.rule](X)
    if isinstance(kernel, Kernel):
        return with_rule_value(kernel, width)
    own = {name: value for name, value in kernel.items() if name not in ("width", "factor")}
    return own | width_from_rule(str(own["type"]), width, kernel.get("factor", 1.0))


NARROW_MEAN, WIDE_MEAN = 0.01, 0.99
"""Limits of a kernel's mean value between different rows: below, none are alike; above, all are."""


def is_bounded(kernel: Kernel | None) -> bool:
    """Return whether a kernel's values are bounded, so that a wrong width makes all rows alike or unlike."""
    return isinstance(kernel, RBF | Laplacian | Sigmoid)


def mean_value(total: float, own: float, rows: float) -> float | None:
    """Return a kernel's mean value between different rows. `total`: sum over all pairs. `own`: sum of k(x, x)."""
    return (total - own) / (rows * (rows - 1)) if rows > 1 else None


def mean_of_points(points: FloatArray, weights: FloatArray) -> float | None:
    """Estimate a kernel's mean value between rows from weighted points (c, s) in its feature space.

    Points may be means of rows in common: a row's product with itself then adds 1 / rows, which is subtracted.
    """
    rows = float(weights.sum())
    pairs = rows**2 - float(np.square(weights).sum())
    total = np.square(weights @ points).sum() - np.square(weights[:, None] * points).sum()
    return (float(total) / pairs * rows - 1) / (rows - 1) if pairs > 0 else None


def mean_of_landmarks(K: FloatArray, squares: FloatArray) -> float | None:
    """Estimate a kernel's mean value over all rows from the kernel matrix K (n, n) of landmarks. Each k(y, y) is 1.

    Landmarks need not be drawn uniformly: distant rows are drawn more often. Each represents a number w of rows such
    that sum_y' w_y' k(y, y')^2 is about sum_x k(y, x)^2, the `squares` (n,): computed by the expectation maximisation
    of Richardson and Lucy, which keeps w above 0.
    """
    B, q = np.square(K), np.maximum(squares, 1.0)
    w = q / B.sum(axis=1)
    for _ in range(50):
        w *= (B @ (q / (B @ w))) / B.sum(axis=1)
    return mean_value(float(w @ K @ w), float(w.sum()), float(w.sum()))


def width_warning(kernel: Kernel, mean: float | None) -> str | None:
    """Return a warning if a kernel's mean value between different rows shows a wrong width, else None."""
    if mean is None or not is_bounded(kernel):
        return None
    if mean <= WIDE_MEAN and (mean >= NARROW_MEAN or isinstance(kernel, Sigmoid)):
        return None
    too_wide = "hardly differ", "wide, and results are a linear kernel's at best", "larger"
    too_narrow = "have nothing in common", "narrow, and results mean little", "smaller"
    alike, wrong, mend = too_wide if mean > WIDE_MEAN else too_narrow
    width = 'width = "scale"' if isinstance(kernel, Sigmoid) else 'width = "mean" or "median"'
    values = f"its values between different rows are about {max(mean, 0.0):.3g} in the mean"
    return (
        f"for this kernel, {kernel!r}, the rows {alike}, since {values}: it is too {wrong}; "
        f"take a {mend} gamma, or {width}"
    )
