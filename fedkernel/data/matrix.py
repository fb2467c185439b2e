"""Validation of numeric tables, dense or sparse."""

from typing import Any

import numpy as np
from scipy import sparse

from fedkernel.ground import AnyArray, FloatArray, InputError, Rows

INT32 = int(np.iinfo(np.int32).max)


def check_matrix(X: Any, name: str) -> FloatArray:
    """Check that `X` (N, d) is a dense table of finite numbers; return it as C-contiguous float64.

    `name`: its name in error texts. A valid `X` is returned itself, else a copy. Raises InputError with the position of
    the first NaN or infinity; other values are never quoted.
    """
    if sparse.issparse(X):
        raise InputError(f"{name} is a sparse matrix; allowed: a dense array of numbers (X.toarray() makes it one)")
    numbers = np.ascontiguousarray(as_array(X, name), dtype=np.float64)
    if (place := first_not_finite(numbers)) is not None:
        raise not_finite(name, *place, numbers[place])
    return numbers


def check_rows(X: Any, name: str) -> Rows:
    """Check that `X` (N, d) is a table of finite numbers, dense or sparse, without changing it.

    Dense tables are returned as by `check_matrix`. Sparse tables become CSR of float64 without duplicates or stored
    zeros, with sorted columns and 32-bit indices where they fit; the result shares memory with a valid `X`. Raises
    InputError as `check_matrix` does.
    """
    if not sparse.issparse(X):
        return check_matrix(X, name)
    _check_numbers(X, name)
    try:
        source: Any = X.tocsr()  # type: ignore[attr-defined]
        # a new object around the same arrays: the caller's flags on sorted indices are not trusted
        matrix = sparse.csr_array((source.data, source.indices, source.indptr), shape=source.shape)
        matrix.check_format(full_check=True)
        matrix = csr(matrix.data, matrix.indices, matrix.indptr, source.shape)
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()
    except ValueError as error:
        raise InputError(f"{name} is a damaged sparse matrix ({error}); allowed: valid indices") from None
    if not matrix.data.all():
        matrix = matrix.copy()
        matrix.eliminate_zeros()
    if matrix.dtype != np.float64:
        matrix = matrix.astype(np.float64)
    if (place := first_not_finite(matrix)) is not None:
        raise not_finite(name, *place, matrix[place])
    return matrix


def first_not_finite(X: Rows) -> tuple[int, int] | None:
    """Return the position of a table's first NaN or infinity, or None. A sparse table must be canonical CSR."""
    finite = np.isfinite(X if isinstance(X, np.ndarray) else X.data)
    if finite.all():
        return None
    place = int(finite.argmin())  # the first False
    if isinstance(X, np.ndarray):
        return place // X.shape[1], place % X.shape[1]
    return int(np.searchsorted(X.indptr, place, side="right")) - 1, int(X.indices[place])


def csr(data: AnyArray, indices: AnyArray, indptr: AnyArray, shape: tuple[int, int]) -> sparse.csr_array:
    """Build a CSR table from its arrays, with 32-bit indices where they fit, which scipy handles faster."""
    if max(*shape, len(data)) <= INT32:
        indices, indptr = indices.astype(np.int32, copy=False), indptr.astype(np.int32, copy=False)
    return sparse.csr_array((data, indices, indptr), shape=shape)


def as_array(X: Any, name: str) -> AnyArray:
    """Return `X` as a two-dimensional array of real numbers, with its dtype and layout unchanged."""
    try:
        array = np.asarray(X)
    except InputError as error:  # raised by a Table, with the place in its source
        raise InputError(f"{name}: {error}") from None
    except ValueError:
        raise InputError(f"{name} has rows of different lengths; allowed: a table of shape (rows, columns)") from None
    _check_numbers(array, name)
    return array


def not_finite(name: str, row: int, column: int, value: Any) -> InputError:
    """Return the error for a NaN or infinite entry of a table, with its position."""
    position = f"row {row}, column {column} (counted from 0)"
    return InputError(f"{name}: the value in {position} is {value}; allowed: finite numbers only")


def _check_numbers(X: Any, name: str) -> None:
    if X.dtype.kind not in "fiub":
        raise InputError(f"{name} holds values of type {X.dtype}; allowed: real numbers only")
    if X.ndim != 2 or 0 in X.shape:
        raise InputError(f"{name} has shape {X.shape}; allowed: (rows, columns) with at least 1 x 1")
