"""What is made of a table's rows a block at a time, so that memory does not grow with the table."""

import numpy as np

from fedkernel.arrays import FloatArray
from fedkernel.numerics.sketch import count_sketch


class RowSketch:
    """What stands for the rows of B (n, c), which come in blocks: sums of them, never a row.

    - q at most n / 2: F, of shape (c, q), with F F^T near B^T B: the CountSketch (S B)^T, where S, (q, n), adds every
      row with a sign to one of q sums.
    - q larger, or None: no sketch; the product B^T B itself, which is exact. So many sums would be of one row each.

    Parameters
    ----------
    rows : int
        n.
    columns : int or None
        q.
    rng : Generator
        Of the signs and sums; the numbers depend on the blocks' sizes too. Who knows its seed knows the signs: they
        keep the mean of F F^T right, and hide nothing.
    """

    def __init__(self, rows: int, columns: int | None, rng: np.random.Generator) -> None:
        self._columns = None if columns is None or not is_sketched(rows, columns) else columns
        self._rng = rng
        self._sum: FloatArray | None = None

    def add(self, B: FloatArray) -> None:
        """Take up the next block."""
        left = B.T if self._columns is None else count_sketch(len(B), self._columns, self._rng).astype(B.dtype)
        part = left @ B
        if self._sum is None:
            self._sum = np.zeros(part.shape)
        self._sum += part  # in float64, whatever the blocks are

    @property
    def factor(self) -> FloatArray | None:
        """F, or None without a sketch."""
        return None if self._columns is None or self._sum is None else np.ascontiguousarray(self._sum.T)

    @property
    def product(self) -> FloatArray | None:
        """B^T B, (c, c), without a sketch; else None."""
        return self._sum if self._columns is None else None


def is_sketched(rows: int, columns: int) -> bool:
    """Return whether so many columns stand for so many rows: there must be two rows for each."""
    return 2 * columns <= rows


def draw_blocks(sums: FloatArray, samples: int, rng: np.random.Generator) -> dict[int, int]:
    """Draw how many of some samples fall into each block, in proportion to the blocks' sums of weights.

    Parameters
    ----------
    sums : ndarray of shape (b,)
        At least 0, not all 0.
    samples : int
    rng : Generator

    Returns
    -------
    dict of int to int
        The blocks' numbers and counts, without the blocks that have none.
    """
    counts = rng.multinomial(samples, sums / sums.sum())
    return {int(number): int(counts[number]) for number in np.flatnonzero(counts)}
