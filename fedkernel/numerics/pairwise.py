"""Inner products, distances and angles of rows for kernels, and symmetric matrices from one triangle."""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse
from scipy.spatial.distance import cdist

from fedkernel.ground import FloatArray, InputError, Rows, for_each

RowFunction: TypeAlias = Callable[[Rows], FloatArray]

_CACHE = 2**20  # bytes of a core's own cache
_SHARED_CACHE = 2**23  # bytes that stay in the shared cache during random access by CSR rows
_NEARLY_PARALLEL = 1e-3
_BLOCK = 256
_BELOW = np.tri(_BLOCK, k=-1, dtype=bool)


def float_type(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Return float32 or float64 as a dtype; refuse any other."""
    float_dtype = np.dtype(dtype)
    if float_dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise InputError(f"dtype = {float_dtype}, but must be float32 or float64")
    return float_dtype


def cached_blocks(n: int, width: int, dtype: npt.DTypeLike) -> Iterator[slice]:
    """Cut n rows into blocks whose results, `width` columns wide, fit a core's cache (1 MB)."""
    step = max(8, _CACHE // (width * np.dtype(dtype).itemsize))
    for first in range(0, n, step):
        yield slice(first, min(first + step, n))


def squared_norms(X: Rows) -> FloatArray:
    """Compute the squared lengths (n,) of the rows of X (n, d), summed and returned in float64."""
    if scipy.sparse.issparse(X):
        from sklearn.utils.extmath import row_norms  # noqa: PLC0415 - takes a second to import, for sparse rows only

        return np.asarray(row_norms(X, squared=True), dtype=np.float64)
    return np.asarray(np.einsum("ij,ij->i", X, X, dtype=np.float64))


def inner_products(X: Rows, Y: Rows) -> FloatArray:
    """Compute the inner products of the rows of X (n, d) and Y (m, d): shape (n, m)."""
    if scipy.sparse.issparse(X) and scipy.sparse.issparse(Y):
        from sklearn.metrics import pairwise  # noqa: PLC0415 - takes a second to import, for sparse rows only

        return np.asarray(pairwise.linear_kernel(X, Y))
    return np.asarray(X @ Y.T)


def squared_distances(X: Rows, Y: Rows) -> FloatArray:
    """Compute the squared distances (n, m) between rows of X and Y from inner products.

    They are those of scikit-learn's ``euclidean_distances``, to the bit; those between equal rows of one X are 0.
    """
    if not (isinstance(X, np.ndarray) and isinstance(Y, np.ndarray) and X.dtype == Y.dtype == np.float64):
        from sklearn.metrics import pairwise  # noqa: PLC0415 - takes a second to import, rarely needed

        return np.asarray(pairwise.euclidean_distances(X, Y, squared=True))
    norms = squared_norms(X)
    others = norms if Y is X else squared_norms(Y)
    distances: FloatArray = X @ Y.T

    def finish(rows: slice) -> None:  # four passes over a block in cache
        block = distances[rows]
        block *= -2
        block += norms[rows, np.newaxis]
        block += others
        np.maximum(block, 0, out=block)

    for_each(finish, cached_blocks(len(norms), len(others), np.float64))
    if Y is X:
        np.fill_diagonal(distances, 0)
    return distances


def city_block_distances(X: Rows, Y: Rows) -> FloatArray:
    """Compute the sums of absolute differences between the rows of X (n, d) and Y (m, d): shape (n, m)."""
    if scipy.sparse.issparse(X) or scipy.sparse.issparse(Y):
        from sklearn.metrics import pairwise  # noqa: PLC0415 - takes a second to import, for sparse rows only

        return np.asarray(pairwise.manhattan_distances(X, Y))
    return cdist(X, Y, "cityblock")


def products_with(Y: Rows, dtype: npt.DTypeLike) -> RowFunction:
    """Return a function that computes the inner products (n, m) of blocks X (n, d) with all rows of Y.

    Y is made dense and transposed once, unless it is sparse and its dense form would not stay in cache. X stays sparse.
    """
    if scipy.sparse.issparse(Y) and Y.shape[0] * Y.shape[1] * np.dtype(dtype).itemsize > _SHARED_CACHE:
        sparse = in_dtype(Y.T, dtype)

        def product(X: Any) -> FloatArray:
            values: Any = X @ sparse
            return values.toarray() if isinstance(values, scipy.sparse.csr_array) else values

        return product
    columns = np.ascontiguousarray(dense_copy(Y, dtype).T)
    return lambda X: X @ columns


def multiplication_by(W: FloatArray) -> Callable[[Rows, FloatArray], None]:
    """Return a function that writes X W (n, m) into an array. W (d, m) is kept in stripes that stay in cache."""
    d, m = W.shape
    width = max(32, _SHARED_CACHE // (d * W.itemsize))
    stripes = [(slice(first, first + width), W[:, first : first + width].copy()) for first in range(0, m, width)]

    def into(X: Rows, out: FloatArray) -> None:
        for columns, stripe in stripes:
            if scipy.sparse.issparse(X):
                out[:, columns] = X @ stripe
            else:
                np.matmul(X, stripe, out=out[:, columns])

    return into


def in_dtype(X: Any, dtype: npt.DTypeLike) -> Any:
    """Convert rows to an array or CSR array of this dtype, without a copy if unchanged."""
    if isinstance(X, scipy.sparse.csr_array) and X.dtype == dtype:
        return X
    convert: Any = scipy.sparse.csr_array if scipy.sparse.issparse(X) else np.asarray
    return convert(X, dtype=dtype)


def dense_copy(X: Any, dtype: npt.DTypeLike) -> FloatArray:
    """Return a dense copy of rows in this dtype."""
    return X.astype(dtype).toarray() if isinstance(X, scipy.sparse.csr_array) else np.array(X, dtype=dtype)


def unit_rows(X: Rows, dtype: npt.DTypeLike) -> tuple[Rows, FloatArray]:
    """Return the rows of X (n, d) scaled to length 1, and their lengths (n,); zero rows stay."""
    X = in_dtype(X, dtype)
    lengths = np.sqrt(squared_norms(X)).astype(dtype)
    factors = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    if scipy.sparse.issparse(X):
        data = X.data * np.repeat(factors, np.diff(X.indptr))
        return scipy.sparse.csr_array((data, X.indices, X.indptr), shape=X.shape), lengths
    return X * factors[:, None], lengths


def angles(C: FloatArray, U: Rows, V: Rows) -> FloatArray:
    """Compute the angles (n, m) in radians between unit rows U and V from cosines C = U V^T.

    For nearly parallel rows a cosine holds only half of the angle's digits. There the angle comes from the difference
    of the rows instead, exact to some units in the last place of C's numbers, and 0 for equal rows.
    """
    radians: FloatArray = np.arccos(C)
    step = max(1, _CACHE // (8 * U.shape[1]))
    for opposite in (False, True):
        rows, others = np.nonzero(C < _NEARLY_PARALLEL - 1 if opposite else C > 1 - _NEARLY_PARALLEL)
        for first in range(0, len(rows), step):
            i, j = rows[first : first + step], others[first : first + step]
            squared = squared_norms(U[i] + V[j] if opposite else U[i] - V[j])
            angle = 2 * np.arcsin(np.minimum(np.sqrt(squared) / 2, 1))
            radians[i, j] = np.pi - angle if opposite else angle
    return radians


def mirrored(K: FloatArray) -> FloatArray:
    """Copy the upper triangle of a matrix (n, n) to the lower one, in place, for exact symmetry."""

    def mirror(first: int) -> None:
        last = first + _BLOCK
        corner = K[first:last, first:last]
        np.copyto(corner, corner.T, where=_BELOW[: len(corner), : len(corner)])
        K[last:, first:last] = K[first:last, last:].T

    for_each(mirror, range(0, len(K), _BLOCK))
    return K


def symmetric_by_rows(n: int, upper: Callable[[slice, slice], FloatArray]) -> FloatArray:
    """Build the symmetric matrix (n, n) whose upper triangle a function computes by blocks.

    Besides the matrix memory holds at most one block of 256 rows, or with several idle cores a quarter of the matrix.
    `upper` takes some rows, and the columns from the first of these rows on, and returns these entries. Raises
    InputError if a block has another shape.
    """
    K = np.empty((n, n))

    def compute(first: int) -> None:
        rows, columns = slice(first, min(first + _BLOCK, n)), slice(first, n)
        block = upper(rows, columns)
        if block.shape != (rows.stop - first, n - first):
            raise InputError(f"a block of shape {block.shape} is not that of rows {first} to {rows.stop} of {n}")
        K[rows, columns] = block

    for_each(compute, range(0, n, _BLOCK), most=max(1, n // (4 * _BLOCK)))
    return mirrored(K)
