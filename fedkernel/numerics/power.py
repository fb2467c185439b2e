"""The power method, with products of the matrix or, where its rank is small, in coordinates of its own."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedkernel.ground import FloatArray, InputError, all_finite
from fedkernel.numerics.linalg import Eigenpairs, check_matrix, leading_eigenpairs, transposed_product
from fedkernel.numerics.subspaces import orthonormal_basis

# Of a factor's squared singular values: what the coordinates leave out beside the largest, and how much more the last
# that is asked for must be, so that neither that nor the rounding of F^T F shows (1e-14 divided by it, about); and from
# how many products on.
_LEFT_OUT, _SHOWN, _LEAST_ITERATIONS = 1e-10, 1e-2, 3
# The least sum of squares that has all its digits.
_SMALLEST = 1e-280
# Where F^T F and its eigenvectors take less than the iterations: rows for each column, columns for each product.
_ROWS, _COLUMNS = 12, 8

Apply = Callable[[FloatArray], FloatArray]


class LowRank(NamedTuple):
    """A symmetric (n, n) matrix ``A = B C B^T``, its orthonormal columns B, (n, m), perhaps not formed.

    Attributes
    ----------
    core : ndarray of shape (m, m)
        C, symmetric.
    coordinates : callable
        Gives B^T V of vectors V, (n, k).
    vectors : callable
        Gives B S of coordinates S, (m, k).
    """

    core: FloatArray
    coordinates: Apply
    vectors: Apply

    def product(self, V: FloatArray) -> FloatArray:
        """Return A V."""
        return self.vectors(self.core @ self.coordinates(V))


def power_iteration(A: Apply | LowRank, start: FloatArray, iterations: int) -> Eigenpairs:
    """Run the power method (one column) or orthogonal iteration (several) for a symmetric operator.

    `iterations` products move the vectors, one more gives their Rayleigh quotients (several columns: and their
    Rayleigh-Ritz rotation). A zero operator gives eigenvalue 0 and the start, normalised. The sign of a single vector
    follows from the start. After the first product all vectors are in the span of a `LowRank` matrix' B: what follows
    is done with its core alone, and has the same result but for rounding.

    Parameters
    ----------
    A : callable or LowRank
        The callable gives the product with an array of shape (n, k).
    start : ndarray of shape (n, k)
        Not zero; several columns are orthonormalised first.
    iterations : int
        At least 0.
    """
    check_matrix(start, "start")
    if iterations < 0:
        raise InputError(f"iterations = {iterations} is not allowed; it must be at least 0")
    if not start.any() or start.shape[1] > start.shape[0]:
        raise InputError(f"start of shape {start.shape} must not be zero, nor have more columns than rows")
    if isinstance(A, LowRank):
        first = A.core @ A.coordinates(np.ascontiguousarray(start))  # the layout has no vote in the last bits
        if iterations and first.any() and first.shape[1] <= first.shape[0]:
            pairs = power_iteration(lambda S: A.core @ S, first, iterations - 1)
            return Eigenpairs(pairs.values, A.vectors(pairs.vectors))
    apply = A.product if isinstance(A, LowRank) else A
    Q = orthonormal_basis(start)
    for _ in range(iterations):
        product = apply(Q)
        if not product.any():
            break
        Q = orthonormal_basis(product)
    T = transposed_product(Q, apply(Q))
    pairs = leading_eigenpairs((T + T.T) / 2, Q.shape[1])
    return Eigenpairs(pairs.values, Q @ pairs.vectors)


def shortens(shape: tuple[int, int], k: int, iterations: int) -> bool:
    """Tell whether iterating k vectors with F F^T, F of a shape (n, d), takes longer than `low_rank` of F^T F."""
    n, d = shape
    return iterations >= _LEAST_ITERATIONS and _ROWS * d <= n and k <= d <= _COLUMNS * k * iterations


def low_rank(gram: FloatArray, k: int, product: Apply, transposed_product: Apply) -> LowRank | None:
    """Return F F^T by its eigenvectors, which take the eigenvectors of F^T F and one product with F.

    Parameters
    ----------
    gram : ndarray of shape (d, d)
        F^T F.
    k : int
        How many leading eigenvectors of F F^T power iterations, at least three, are to find.
    product, transposed_product : callable
        Give F S and F^T V.

    Returns
    -------
    LowRank or None
        None where the k-th eigenvalue is so small beside the first that F^T F has lost digits of it.
    """
    if not all_finite(gram):
        return None
    values, E = leading_eigenpairs(gram, len(gram))
    if k > len(values) or values[0] < _SMALLEST or values[k - 1] < _SHOWN * values[0]:
        return None
    m = int(np.count_nonzero(values > _LEFT_OUT * values[0]))
    values, scaled = values[:m], E[:, :m] / np.sqrt(values[:m])
    return LowRank(np.diag(values), lambda V: scaled.T @ transposed_product(V), lambda S: product(scaled @ S))
