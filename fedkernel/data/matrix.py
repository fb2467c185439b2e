"""The table of numbers that everything starts from: its type and its check."""

from typing import Any

import numpy as np
from scipy import sparse

from fedkernel.ground import AnyArray, FloatArray, InputError, Rows

INT32 = int(np.iinfo(np.int32).max)


def check_matrix(X: Any, what: str) -> FloatArray:
    """Check that `X` is a table of finite numbers and return it as float64, row after row in memory.

    `X` (N, d). `what`: how error texts call it. Returns (N, d): `X` itself where it already is as it must be, else a
    copy. Raises InputError: names `what` and what is allowed, and for NaN or infinity the position of the first; never
    quotes other values.
    """
    if sparse.issparse(X):
        raise InputError(f"{what} is a sparse matrix; allowed: a dense array of numbers (X.toarray() makes it one)")
    numbers = np.ascontiguousarray(as_array(X, what), dtype=np.float64)
    if (place := first_not_finite(numbers)) is not None:
        raise not_finite(what, *place, numbers[place])
    return numbers


def check_rows(X: Any, what: str) -> Rows:
    """Check that `X` is a table of finite numbers, dense or sparse.

    `X` (N, d): never changed. `what`: how error texts call it. Returns (N, d): dense: as from `check_matrix`. Sparse:
    CSR of float64 without duplicates or stored zeros, the columns of each row in order, 32-bit indices where they fit;
    it shares memory with `X` where that is already so. Raises InputError: as from `check_matrix`.
    """
    if not sparse.issparse(X):
        return check_matrix(X, what)
    _check_numbers(X, what)
    try:
        source: Any = X.tocsr()  # type: ignore[attr-defined]
        # an object of our own around the same arrays: what is known of its order is not taken from the caller's
        matrix = sparse.csr_array((source.data, source.indices, source.indptr), shape=source.shape)
        matrix.check_format(full_check=True)
        matrix = csr(matrix.data, matrix.indices, matrix.indptr, source.shape)
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()
    except ValueError as error:
        raise InputError(f"{what} is a damaged sparse matrix ({error}); allowed: valid indices") from None
    if not matrix.data.all():
        matrix = matrix.copy()
        matrix.eliminate_zeros()
    if matrix.dtype != np.float64:
        matrix = matrix.astype(np.float64)
    if (place := first_not_finite(matrix)) is not None:
        raise not_finite(what, *place, matrix[place])
    return matrix


def first_not_finite(X: Rows) -> tuple[int, int] | None:
    """Return row and column of the first NaN or infinity of a table, dense or CSR in canonical format."""
    finite = np.isfinite(X if isinstance(X, np.ndarray) else X.data)
    if finite.all():
        return None
    place = int(finite.argmin())  # the first that is False
    if isinstance(X, np.ndarray):
        return place // X.shape[1], place % X.shape[1]
    return int(np.searchsorted(X.indptr, place, side="right")) - 1, int(X.indices[place])


def csr(data: AnyArray, indices: AnyArray, indptr: AnyArray, shape: tuple[int, int]) -> sparse.csr_array:
    """Build a CSR table around the arrays, with 32-bit indices where they fit; scipy's functions are faster on them."""
    if max(*shape, len(data)) <= INT32:
        indices, indptr = indices.astype(np.int32, copy=False), indptr.astype(np.int32, copy=False)
    return sparse.csr_array((data, indices, indptr), shape=shape)


def as_array(X: Any, what: str) -> AnyArray:
    """Return `X` as an array of real numbers with rows and columns, of whatever dtype and layout it has."""
    try:
        array = np.asarray(X)
    except InputError as error:  # a Table's, which names the place in its own source
        raise InputError(f"{what}: {error}") from None
    except ValueError:
        raise InputError(f"{what} has rows of different lengths; allowed: a table of shape (rows, columns)") from None
    _check_numbers(array, what)
    return array


def not_finite(what: str, row: int, column: int, value: Any) -> InputError:
    """Return the error for a NaN or an infinity."""
    return InputError(
        f"{what}: the value in row {row}, column {column} (counted from 0) is {value}; allowed: finite numbers only"
    )


def _check_numbers(X: Any, what: str) -> None:
    if X.dtype.kind not in "fiub":
        raise InputError(f"{what} holds values of type {X.dtype}; allowed: real numbers only")
    if X.ndim != 2 or 0 in X.shape:
        raise InputError(f"{what} has shape {X.shape}; allowed: (rows, columns) with at least 1 x 1")
