"""Products of tall and symmetric matrices on idle cores, packed symmetric matrices, and centring of Gram matrices."""

import math
from collections.abc import Callable

import numpy as np

from fedkernel.ground import FloatArray, InputError, check_finite, for_each, map_in_order
from fedkernel.numerics.pairwise import cached_blocks

_TALL = 1024
# Entries of one thread's columns in a product, about 5 ms with 16 rows, and their least number.
_STRIPE, _LEAST_COLUMNS = 2**22, 128
_AHEAD = 16
# Multiplications of a tall product below which one thread is as fast as two: about 0.2 ms.
_ALONE = 2**21


def transposed_product(A: FloatArray, B: FloatArray) -> FloatArray:
    """Compute A^T B of tall arrays, (n, p) and (n, q), by blocks of rows that stay in cache."""
    total = np.zeros((A.shape[1], B.shape[1]))
    blocks = (slice(first, first + _TALL) for first in range(0, len(A), _TALL))
    most = None if A.size * B.shape[1] > _ALONE else 1
    for part in map_in_order(lambda rows: A[rows].T @ B[rows], blocks, ahead=_AHEAD, most=most):
        total += part
    return total


def tall_product(A: FloatArray, B: FloatArray) -> FloatArray:
    """Compute the product A B of a tall array (n, p) and a small one (p, q), on idle cores."""
    out = np.empty((len(A), B.shape[1]))
    step = max(_TALL, _STRIPE // max(1, A.shape[1]) // 16)
    blocks = [slice(first, first + step) for first in range(0, len(A), step)]
    for_each(lambda rows: np.matmul(A[rows], B, out=out[rows]), blocks)
    return out


def symmetric_product(A: FloatArray, V: FloatArray) -> FloatArray:
    """Compute A V of a symmetric (n, n) array as (V^T A)^T, in two thirds of the time."""
    return by_columns(A)(V.T).T


def pack_symmetric(A: FloatArray) -> FloatArray:
    """Return the upper triangle of a symmetric matrix, row by row: (n, n) to (n (n + 1) / 2,)."""
    return A[np.triu_indices(len(A))]


def unpack_symmetric(upper: FloatArray) -> FloatArray:
    """Rebuild a symmetric matrix, the inverse of `pack_symmetric`."""
    n = (math.isqrt(8 * upper.size + 1) - 1) // 2
    if upper.ndim != 1 or n * (n + 1) // 2 != upper.size:
        raise InputError(f"upper of shape {upper.shape} is not allowed; it must have n (n + 1) / 2 entries for some n")
    A = np.zeros((n, n))
    A[np.triu_indices(n)] = upper
    return np.asarray(A + np.triu(A, 1).T)


def center_gram(K: FloatArray) -> tuple[FloatArray, float]:
    """Centre a symmetric Gram matrix (n, n) in feature space, in place. It becomes K - JK - KJ + JKJ, J all 1 / n.

    Returns the original matrix' column means (n,) and mean, which `center_rows` needs for new rows.
    """
    column_means = K.mean(axis=1)  # row means: the same, but summed more accurately
    mean = float(column_means.mean())

    def shift(rows: slice) -> None:
        # One sum, symmetric in both means, so that K stays exactly symmetric.
        K[rows] -= np.add.outer(column_means[rows], column_means) - mean

    for_each(shift, cached_blocks(len(K), len(K), K.dtype))
    return column_means, mean


def center_rows(K_new: FloatArray, column_means: FloatArray, mean: float) -> None:
    """Centre, in place, kernel values (m, n) between new rows and the rows of the matrix given to `center_gram`."""
    shifts = mean - K_new.mean(axis=1)
    K_new -= column_means
    K_new += shifts[:, None]


def frobenius_norm(X: FloatArray) -> float:
    """Return the Frobenius norm, without overflow or underflow of squares."""
    largest = float(np.abs(X).max(initial=0.0))
    return largest * float(np.linalg.norm(X / largest)) if largest > 0 else 0.0


def by_columns(A: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """Return a function that multiplies rows (b, n) by A (n, m), in blocks of columns on idle cores."""
    width = max(_LEAST_COLUMNS, _STRIPE // max(1, len(A)) // _LEAST_COLUMNS * _LEAST_COLUMNS)
    stripes = [slice(first, first + width) for first in range(0, A.shape[1], width)]
    if len(stripes) == 1:
        return lambda rows: rows @ A

    def product(rows: FloatArray) -> FloatArray:
        out = np.empty((len(rows), A.shape[1]))
        for_each(lambda columns: np.matmul(rows, A[:, columns], out=out[:, columns]), stripes)
        return out

    return product


def check_matrix(A: FloatArray, name: str) -> None:
    """Raise an `InputError` unless A has two dimensions and finite entries."""
    if A.ndim != 2:
        raise InputError(f"{name} of shape {A.shape} is not allowed; it must have two dimensions")
    check_finite(A, f"{name} of shape {A.shape}")
