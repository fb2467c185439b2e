"""Errors of low-rank kernel matrix estimates, and the number of components by the eigengap."""

from collections.abc import Sequence

import numpy as np

from fedkernel.ground import EPS, FloatArray
from fedkernel.numerics.eigenpairs import above_rounding


def squared_move(before: FloatArray, after: FloatArray, values: FloatArray, coefficients: FloatArray) -> float:
    """Return ||Z' - Z||_F^2 for two consecutive estimates Z = B B^T and Z' = U diag(after) U^T.

    `before` (r,), `after` (r',): the eigenvalues of Z, whose B (N, r) has orthogonal columns of these squared lengths,
    and of Z'. `values` (r',): eigenvalues l of W^T W for some W = [A, b B]; of its eigenvectors v, U has the columns W
    v / sqrt(l). `coefficients` (r, r'): the entries of the v for the columns b B, divided by b. Since b B^T W v = l v
    there, B^T U is sqrt(l) times these, and with it Z^T Z' is known.
    """
    common = float(np.sum(np.square(coefficients) * (values * after)))
    return max(float(before @ before + after @ after) - 2 * common, 0.0)


def mean_error(moves: Sequence[float]) -> float:
    """Estimate the squared error of the mean of t independent estimates from its past moves.

    The mean Z_{t+1} of t estimates xi moves by (xi_t - Z_t) / t, whose square is sigma^2 / (t (t - 1)) on average, and
    its own error has the square sigma^2 / t, where sigma^2 is the variance of xi. `moves`: ||Z_{t+1} - Z_t||_F^2 for t
    = 2, 3, ...; at least one.
    """
    return float(np.mean([t * (t - 1) * move for t, move in enumerate(moves, start=2)])) / (len(moves) + 1)


def eigengap(values: FloatArray, least: int, most: int) -> int:
    """Return the number s of components with the largest eigenvalue ratio l_s / l_{s+1}.

    `values`: in non-increasing order. Missing ones, up to `most` + 1, and those at rounding level count as 0. `least`,
    `most`: range of s; of equal ratios the first counts.
    """
    padded = np.zeros(most + 1)
    padded[: values.size] = values[: most + 1]
    padded[padded <= EPS * max(most, values.size) * padded[0]] = 0.0
    last, following = padded[least - 1 : most], padded[least:]
    ratios = np.divide(last, following, out=np.full(last.size, np.inf), where=following > 0)
    return least + int(np.argmax(np.where(last > 0, ratios, 0.0)))


def value_ratios(values: FloatArray, most: int, rows: int, omitted: float = 0.0) -> FloatArray:
    """Return lower bounds on the ratios of consecutive eigenvalues, for each candidate number of components, (c,).

    The fall to rounding level at the end of columns or landmarks is no gap, so the last eigenvalue above it is no
    candidate. If clients sent only the leading part of a spectrum, each eigenvalue may be larger by their omission.

    `values`: the matrix' largest eigenvalues in non-increasing order; `most` + 1 if there are enough. `rows`: size of
    the matrix, for its rounding level. `omitted`: largest possible excess of a true eigenvalue.
    """
    above = values[above_rounding(values, rows)]
    candidates = min(most, above.size - 1)
    return above[:candidates] / (above[1 : candidates + 1] + omitted) if candidates > 0 else np.ones(1)


def components_by_gap(values: FloatArray, most: int, rows: int) -> tuple[int, int]:
    """Return the number of components before the largest fall of eigenvalues, and the number of candidates.

    Parameters are those of `value_ratios`; of equal falls the first counts.
    """
    ratios = value_ratios(values, most, rows)
    return 1 + int(np.argmax(ratios)), ratios.size
