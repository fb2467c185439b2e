"""What kernels compute of rows: inner products, squared lengths, angles. Dense and CSR, float32 and float64."""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse
from scipy.spatial.distance import cdist

from fedkernel.ground import FloatArray, InputError, Rows, each

OfRows: TypeAlias = Callable[[Rows], FloatArray]

_CACHE = 2**20
"""Bytes that a core's own cache holds."""
_SHARED = 2**23
"""Bytes that stay in the cache of all cores while CSR rows pick from them."""
_NEAR = 1e-3


def float_type(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Return float32 or float64 as a dtype; refuse any other."""
    float_dtype = np.dtype(dtype)
    if float_dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise InputError(f"dtype = {float_dtype}, but must be float32 or float64")
    return float_dtype


def cached_blocks(n: int, width: int, dtype: npt.DTypeLike) -> Iterator[slice]:
    """Cut n rows into blocks whose results, of so many columns, stay in a core's own cache (1 MB)."""
    step = max(8, _CACHE // (width * np.dtype(dtype).itemsize))
    for first in range(0, n, step):
        yield slice(first, min(first + step, n))


def squared_norms(X: Rows) -> FloatArray:
    """Compute ||x||^2 of the rows of X (n, d): float64 of shape (n,), summed in float64."""
    if scipy.sparse.issparse(X):
        from sklearn.utils.extmath import row_norms  # noqa: PLC0415 - a second to import, for sparse rows alone

        return np.asarray(row_norms(X, squared=True), dtype=np.float64)
    squares: FloatArray = np.einsum("ij,ij->i", X, X, dtype=np.float64)
    return squares


def inner_products(X: Rows, Y: Rows) -> FloatArray:
    """Compute the inner products of the rows of X (n, d) and Y (m, d): shape (n, m)."""
    if scipy.sparse.issparse(X) and scipy.sparse.issparse(Y):
        from sklearn.metrics import pairwise  # noqa: PLC0415 - a second to import, for sparse rows alone

        return np.asarray(pairwise.linear_kernel(X, Y))
    return np.asarray(X @ Y.T)


def squared_distances(X: Rows, Y: Rows) -> FloatArray:
    """Compute the squared distances between the rows of X (n, d) and Y (m, d) from inner products: shape (n, m).

    They are those of scikit-learn's ``euclidean_distances``, to the bit; those between equal rows of one X are 0.
    """
    if not (isinstance(X, np.ndarray) and isinstance(Y, np.ndarray) and X.dtype == Y.dtype == np.float64):
        from sklearn.metrics import pairwise  # noqa: PLC0415 - a second to import, for rows of other forms alone

        return np.asarray(pairwise.euclidean_distances(X, Y, squared=True))
    norms = squared_norms(X)
    others = norms if Y is X else squared_norms(Y)
    distances: FloatArray = X @ Y.T

    def finish(rows: slice) -> None:  # four passes over a block, not over all of memory
        block = distances[rows]
        block *= -2
        block += norms[rows, np.newaxis]
        block += others
        np.maximum(block, 0, out=block)

    each(finish, cached_blocks(len(norms), len(others), np.float64))
    if Y is X:
        np.fill_diagonal(distances, 0)
    return distances


def city_block_distances(X: Rows, Y: Rows) -> FloatArray:
    """Compute the sums of absolute differences between the rows of X (n, d) and Y (m, d): shape (n, m)."""
    if scipy.sparse.issparse(X) or scipy.sparse.issparse(Y):
        from sklearn.metrics import pairwise  # noqa: PLC0415 - a second to import, for sparse rows alone

        return np.asarray(pairwise.manhattan_distances(X, Y))
    return cdist(X, Y, "cityblock")


def products_with(Y: Rows, dtype: npt.DTypeLike) -> OfRows:
    """Return the function that computes x^T y for a block of rows X (n, d) and all of Y (m, d): (n, m).

    Y becomes dense, transposed once, unless it is sparse and its dense form would not stay in cache. X does not.
    """
    if scipy.sparse.issparse(Y) and Y.shape[0] * Y.shape[1] * np.dtype(dtype).itemsize > _SHARED:
        sparse = in_dtype(Y.T, dtype)

        def product(X: Any) -> FloatArray:
            values: Any = X @ sparse
            return values.toarray() if isinstance(values, scipy.sparse.csr_array) else values

        return product
    columns = np.ascontiguousarray(dense_copy(Y, dtype).T)
    return lambda X: X @ columns


def times(W: FloatArray) -> Callable[[Rows, FloatArray], None]:
    """Return the function that computes X W, (n, m), for rows X (n, d) into an array, with W (d, m).

    W is kept in stripes of columns that stay in cache, so that CSR rows with 20000 columns take half the time.
    """
    d, m = W.shape
    width = max(32, _SHARED // (d * W.itemsize))
    stripes = [(slice(first, first + width), W[:, first : first + width].copy()) for first in range(0, m, width)]

    def into(X: Rows, out: FloatArray) -> None:
        for columns, stripe in stripes:
            if scipy.sparse.issparse(X):
                out[:, columns] = X @ stripe
            else:
                np.matmul(X, stripe, out=out[:, columns])

    return into


def in_dtype(X: Any, dtype: npt.DTypeLike) -> Any:
    """Return rows as a CSR array or an array of this type of number, themselves if they are."""
    if isinstance(X, scipy.sparse.csr_array) and X.dtype == dtype:
        return X
    convert: Any = scipy.sparse.csr_array if scipy.sparse.issparse(X) else np.asarray
    return convert(X, dtype=dtype)


def dense_copy(X: Any, dtype: npt.DTypeLike) -> FloatArray:
    """Return rows as an array of their own of this type of number."""
    return X.astype(dtype).toarray() if isinstance(X, scipy.sparse.csr_array) else np.array(X, dtype=dtype)


def unit_rows(X: Rows, dtype: npt.DTypeLike) -> tuple[Rows, FloatArray]:
    """Return the rows of X (n, d) scaled to length 1, and their lengths (n,); rows that are zero stay."""
    X = in_dtype(X, dtype)
    lengths = np.sqrt(squared_norms(X)).astype(dtype)
    factors = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    if scipy.sparse.issparse(X):
        data = X.data * np.repeat(factors, np.diff(X.indptr))
        return scipy.sparse.csr_array((data, X.indices, X.indptr), shape=X.shape), lengths
    return X * factors[:, None], lengths


def angles(C: FloatArray, U: Rows, V: Rows) -> FloatArray:
    """Compute the angles in radians between unit rows U (n, d) and V (m, d) from their cosines C = U V^T: (n, m).

    Where rows are nearly parallel, a cosine holds half of the digits of the angle only. There the angle comes from the
    difference of the rows instead, so that it is exact to some units in the last place of C's numbers, and 0 for equal
    rows. That costs as much as n m d numbers where all rows are nearly parallel, and nothing where none are.
    """
    radians: FloatArray = np.arccos(C)
    step = max(1, _CACHE // (8 * U.shape[1]))
    for opposite in (False, True):
        rows, others = np.nonzero(C < _NEAR - 1 if opposite else C > 1 - _NEAR)
        for first in range(0, len(rows), step):
            i, j = rows[first : first + step], others[first : first + step]
            apart = squared_norms(U[i] + V[j] if opposite else U[i] - V[j])
            angle = 2 * np.arcsin(np.minimum(np.sqrt(apart) / 2, 1))
            radians[i, j] = np.pi - angle if opposite else angle
    return radians
