"""Construction of symmetric matrices from one triangle, by blocks of rows."""

from collections.abc import Callable

import numpy as np

from fedkernel.ground import FloatArray, InputError, for_each

_BLOCK = 256
_BELOW = np.tri(_BLOCK, k=-1, dtype=bool)


def mirrored(K: FloatArray) -> FloatArray:
    """Copy the upper triangle of (n, n) to the lower one, in place, for exact symmetry."""

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

    - `upper`: takes some rows, and the columns from the first of these rows on; returns these entries.

    Raises InputError if a block has another shape.
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
