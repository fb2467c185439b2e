"""Power method and orthogonal iteration for a symmetric matrix, given by its products or as low-rank factors."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedkernel.ground import FloatArray, InputError, all_finite
from fedkernel.numerics.eigenpairs import Eigenpairs, leading_eigenpairs
from fedkernel.numerics.matrix_products import check_matrix, transposed_product
from fedkernel.numerics.subspaces import orthonormal_basis

# Of a factor's squared singular values, relative to the largest: those that the coordinates omit, and the last
# wanted one's least, so that neither the omission nor the rounding of F^T F shows (about 1e-14 divided by it); and
# the least number of products.
_OMITTED, _LEAST_RATIO, _LEAST_ITERATIONS = 1e-10, 1e-2, 3
# Least sum of squares with full precision.
_SMALLEST = 1e-280
# F^T F and its eigenvectors pay from so many rows for each column, and up to so many columns for each product.
_ROWS, _COLUMNS = 12, 8

Apply = Callable[[FloatArray], FloatArray]


class LowRank(NamedTuple):
    """Symmetric (n, n) matrix ``A = B C B^T`` in low-rank form. The orthonormal columns B (n, m) need not be formed.

    `core` (m, m): C. `coordinates`: returns B^T V of V (n, k). `vectors`: returns B S of S (m, k).
    """

    core: FloatArray
    coordinates: Apply
    vectors: Apply

    def product(self, V: FloatArray) -> FloatArray:
        """Return the product A V with vectors V (n, k)."""
        return self.vectors(self.core @ self.coordinates(V))


def power_iteration(A: Apply | LowRank, start: FloatArray, iterations: int) -> Eigenpairs:
    """Run the power method (one column) or orthogonal iteration (several) for a symmetric operator.

    After `iterations` products one more gives the Rayleigh quotients (several columns: and their Rayleigh-Ritz
    rotation). A zero operator gives eigenvalue 0 and the start, normalised. The sign of a single vector follows from
    the start. After the first product all vectors are in the span of a `LowRank` matrix' B: the rest uses its core
    alone, with the same result up to rounding. `A`: a callable returns the product with an array of shape (n, k).
    `start` (n, k): not zero; several columns are orthonormalised first.
    """
    check_matrix(start, "start")
    if iterations < 0:
        raise InputError(f"iterations = {iterations} is not allowed; it must be at least 0")
    if not start.any() or start.shape[1] > start.shape[0]:
        raise InputError(f"start of shape {start.shape} must not be zero, nor have more columns than rows")
    if isinstance(A, LowRank):
        first = A.core @ A.coordinates(np.ascontiguousarray(start))  # the last bits must not depend on the layout
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


def low_rank_pays(shape: tuple[int, int], k: int, iterations: int) -> bool:
    """Return whether power iterations are faster in `low_rank` form than by products with a factor F of this shape."""
    n, d = shape
    return iterations >= _LEAST_ITERATIONS and _ROWS * d <= n and k <= d <= _COLUMNS * k * iterations


def low_rank(gram: FloatArray, k: int, product: Apply, transposed_product: Apply) -> LowRank | None:
    """Return F F^T in low-rank form, from the eigenpairs of `gram`, which is F^T F (d, d).

    `k`: number of leading eigenvectors of F F^T wanted from at least three power iterations. `product`,
    `transposed_product`: return F S and F^T V. Returns None if the k-th eigenvalue is so small beside the first that
    F^T F has lost its digits.
    """
    if not all_finite(gram):
        return None
    values, E = leading_eigenpairs(gram, len(gram))
    if k > len(values) or values[0] < _SMALLEST or values[k - 1] < _LEAST_RATIO * values[0]:
        return None
    m = int(np.count_nonzero(values > _OMITTED * values[0]))
    values, scaled = values[:m], E[:, :m] / np.sqrt(values[:m])
    return LowRank(np.diag(values), lambda V: scaled.T @ transposed_product(V), lambda S: product(scaled @ S))
