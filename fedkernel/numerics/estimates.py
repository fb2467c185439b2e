"""What eigenpairs tell of the estimates of a kernel matrix, without a row of it: moves, errors, the eigengap."""

from collections.abc import Sequence

import numpy as np

from fedkernel.ground import EPS, FloatArray
from fedkernel.numerics.linalg import above_rounding


def squared_move(before: FloatArray, after: FloatArray, values: FloatArray, coefficients: FloatArray) -> float:
    """Return ||Z' - Z||_F^2 of Z = B B^T and Z' = U diag(after) U^T.

    Parameters
    ----------
    before : ndarray of shape (r,)
        The eigenvalues of Z: the columns of B, (N, r), are orthogonal, of these squared lengths.
    after : ndarray of shape (r',)
        Those of Z'.
    values : ndarray of shape (r',)
        Eigenvalues l of W^T W for some W = [A, b B]; of its eigenvectors v, U has the columns W v / sqrt(l).
    coefficients : ndarray of shape (r, r')
        The entries of the v for the columns b B, divided by b. Since b B^T W v = l v there, B^T U is sqrt(l) times
        these, and with it Z^T Z' is known.
    """
    common = float(np.sum(np.square(coefficients) * (values * after)))
    return max(float(before @ before + after @ after) - 2 * common, 0.0)


def mean_error(moves: Sequence[float]) -> float:
    """Return about the squared error of the mean of t independent estimates from how far it has moved.

    The mean Z_{t+1} of t estimates xi moves by (xi_t - Z_t) / t, whose square is sigma^2 / (t (t - 1)) on average, and
    its own error has the square sigma^2 / t, where sigma^2 is the variance of xi.

    Parameters
    ----------
    moves : sequence of float
        ||Z_{t+1} - Z_t||_F^2 for t = 2, 3, ...; at least one.
    """
    return float(np.mean([t * (t - 1) * move for t, move in enumerate(moves, start=2)])) / (len(moves) + 1)


def eigengap(values: FloatArray, least: int, most: int) -> int:
    """Return after how many eigenvalues the next is smallest beside the last: the s with the largest l_s / l_{s+1}.

    Parameters
    ----------
    values : ndarray
        Not increasing. Where there are fewer than `most` + 1, those that are missing are 0, as is what is rounding.
    least, most : int
        s is from `least` to `most`; of equal ratios the first counts.
    """
    padded = np.zeros(most + 1)
    padded[: values.size] = values[: most + 1]
    padded[padded <= EPS * max(most, values.size) * padded[0]] = 0.0
    last, following = padded[least - 1 : most], padded[least:]
    ratios = np.divide(last, following, out=np.full(last.size, np.inf), where=following > 0)
    return least + int(np.argmax(np.where(last > 0, ratios, 0.0)))


def falls(values: FloatArray, most: int, rows: int, omitted: float = 0.0) -> FloatArray:
    """Return by which factor at least eigenvalues fall after each that may be the last component's, of shape (c,).

    Eigenvalues end where columns end, or landmarks: that they fall to 0 is no gap, and the last above rounding is told
    from nothing. Where clients sent the leading part of a spectrum, the next may be as large as what they left out.

    Parameters
    ----------
    values : ndarray
        The largest eigenvalues of a matrix, not increasing; `most` + 1, where there are so many.
    most : int
    rows : int
        Of the matrix, by which rounding is told.
    omitted : float
        By how much each may be larger than is known.
    """
    above = values[above_rounding(values, rows)]
    candidates = min(most, above.size - 1)
    return above[:candidates] / (above[1 : candidates + 1] + omitted) if candidates > 0 else np.ones(1)


def components_by_gap(values: FloatArray, most: int, rows: int) -> tuple[int, int]:
    """Return how many components to take, after which eigenvalues fall the most, and of how many at most that is.

    Parameters are those of `falls`; of equal falls the first counts.
    """
    ratios = falls(values, most, rows)
    return 1 + int(np.argmax(ratios)), ratios.size
