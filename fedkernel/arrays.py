"""Names that everything numerical shares."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
EPS = float(np.finfo(np.float64).eps)


def sum_in_order(terms: Sequence[FloatArray]) -> FloatArray:
    """Add arrays up in their order, so that the last bits are always the same."""
    total = terms[0].copy()
    for term in terms[1:]:
        total += term
    return total


ROWS = 2048
"""Rows of a table that are worked on at a time: with 100 columns they take 1.6 MB, which stays in cache."""


def row_blocks(n: int) -> Iterator[slice]:
    """Cut n rows into blocks of `ROWS` or fewer."""
    for first in range(0, n, ROWS):
        yield slice(first, min(first + ROWS, n))
