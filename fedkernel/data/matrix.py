"""The table of numbers that everything starts from: its type, its check, and the seeds of what is drawn from it."""

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fedkernel.arrays import FloatArray
from fedkernel.errors import InputError

AnyArray = npt.NDArray[Any]


def check_matrix(X: Any, what: str) -> FloatArray:
    """Check that `X` is a table of finite numbers and return it as float64, row after row in memory.

    Parameters
    ----------
    X : array-like of shape (N, d), N >= 1, d >= 1
    what : str
        How error texts call it.

    Returns
    -------
    ndarray of shape (N, d)
        `X` itself where it already is as it must be, else a copy.

    Raises
    ------
    InputError
        Names `what` and what is allowed, and for NaN or infinity the position of the first; never quotes other values.
    """
    if sparse.issparse(X):
        raise InputError(f"{what} is a sparse matrix; allowed: a dense array of numbers (X.toarray() makes it one)")
    try:
        array = np.asarray(X)
    except ValueError:
        raise InputError(f"{what} has rows of different lengths; allowed: a table of shape (rows, columns)") from None
    if array.dtype.kind not in "fiub":
        raise InputError(f"{what} holds values of type {array.dtype}; allowed: real numbers only")
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(f"{what} has shape {array.shape}; allowed: (rows, columns) with at least 1 x 1")
    numbers = np.ascontiguousarray(array, dtype=np.float64)
    finite = np.isfinite(numbers)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise InputError(
            f"{what}: the value in row {row}, column {column} (counted from 0) is {numbers[row, column]}; "
            "allowed: finite numbers only"
        )
    return numbers


def seeded(seed: int, purpose: str) -> np.random.Generator:
    """Return the generator for one purpose: other purposes under the same seed draw independent numbers."""
    return np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(purpose.encode())]))
