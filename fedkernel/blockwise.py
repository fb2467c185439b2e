"""What is made of a table's rows a block at a time, so that memory does not grow with the table."""

import numpy as np

from fedkernel.arrays import FloatArray
from fedkernel.sketch import count_sketch


class RowSketch:
    """F, of shape (c, q), with F F^T near B^T B, where B (n, c) comes in blocks of rows.

    - q given: the CountSketch (S B)^T, where S, (q, n), adds every row with a random sign to one of q sums. B^T itself
      where n <= q, which is smaller, and exact.
    - q None: no sketch; the product B^T B itself.

    Parameters
    ----------
    rows : int
        n.
    columns : int or None
        q.
    rng : Generator
        Of the signs and sums; the numbers depend on the blocks' sizes too.
    """

    def __init__(self, rows: int, columns: int | None, rng: np.random.Generator) -> None:
        self._columns, self._rng = columns, rng
        self._whole = columns is not None and rows <= columns
        self._blocks: list[FloatArray] = []
        self._sum: FloatArray | None = None

    def add(self, B: FloatArray) -> None:
        """Take up the next block."""
        if self._whole:
            self._blocks.append(B.astype(np.float64))
            return
        left = B.T if self._columns is None else count_sketch(len(B), self._columns, self._rng).astype(B.dtype)
        part = left @ B
        if self._sum is None:
            self._sum = np.zeros(part.shape)
        self._sum += part  # in float64, whatever the blocks are

    @property
    def factor(self) -> FloatArray | None:
        """F, or None without a sketch."""
        if self._whole:
            return np.ascontiguousarray(np.vstack(self._blocks).T)
        return None if self._columns is None or self._sum is None else np.ascontiguousarray(self._sum.T)

    @property
    def product(self) -> FloatArray | None:
        """B^T B, (c, c), without a sketch; else None."""
        return self._sum if self._columns is None else None


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
