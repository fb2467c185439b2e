"""What is made of a table's rows a block at a time, so that memory does not grow with the table."""

from collections.abc import Callable

import numpy as np

from fedkernel.ground import FloatArray, Positions
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
    rng : Generator, optional
        Of the signs and sums, for a sketch; the numbers depend on the blocks' sizes too. Who knows its seed knows the
        signs: they keep the mean of F F^T right, and hide nothing.
    """

    def __init__(self, rows: int, columns: int | None, rng: np.random.Generator | None = None) -> None:
        self._drawn: tuple[int, np.random.Generator] | None = None
        if columns is not None and rng is not None and is_sketched(rows, columns):
            self._drawn = columns, rng
        self._sum: FloatArray | None = None

    def add(self, B: FloatArray) -> None:
        """Take up the next block."""
        left = B.T if self._drawn is None else count_sketch(len(B), *self._drawn).astype(B.dtype)
        part = left @ B
        if self._sum is None:
            self._sum = np.zeros(part.shape)
        self._sum += part  # in float64, whatever the blocks are

    @property
    def factor(self) -> FloatArray | None:
        """F, or None without a sketch."""
        return None if self._drawn is None or self._sum is None else np.ascontiguousarray(self._sum.T)

    @property
    def product(self) -> FloatArray | None:
        """B^T B, (c, c), without a sketch; else None."""
        return self._sum if self._drawn is None else None


def is_sketched(rows: int, columns: int) -> bool:
    """Return whether so many columns stand for so many rows: there must be two rows for each."""
    return 2 * columns <= rows


def draw_distinct(
    sums: FloatArray, samples: int, weigh: Callable[[int], FloatArray], rng: np.random.Generator
) -> dict[int, Positions]:
    """Draw different rows one after the other, each in proportion to the weights of the rows that are left.

    So they are distributed as the rows with the largest keys log(u) / w, u uniform (Efraimidis and Spirakis, Weighted
    Random Sampling with a Reservoir, 2006), for which all rows would have to be weighed. Here they are drawn with
    replacement, first a block and then a row of it, until there are enough different ones: that weighs only the rows
    of blocks that have one.

    Parameters
    ----------
    sums : ndarray of shape (b,)
        Of the weights of each block's rows: at least 0, not all 0.
    samples : int
    weigh : callable
        Returns the weights of the rows of the block of this number, at least 0; it is called once for a block.
    rng : Generator

    Returns
    -------
    dict of int to ndarray
        By block the positions of its rows that are drawn, in order; fewer in all where fewer have a weight.
    """
    left, weights, missing = np.array(sums), dict[int, FloatArray](), samples
    drawn: dict[int, Positions] = {}
    while missing and left.any():
        counts = rng.multinomial(missing, left / left.sum())
        for number in np.flatnonzero(counts).tolist():
            if number not in weights:
                weights[number] = np.array(weigh(number), dtype=np.float64)
                drawn[number] = np.empty(0, dtype=np.int64)
            within = weights[number]
            if total := within.sum():
                rows = np.unique(rng.choice(len(within), counts[number], p=within / total))
                within[rows] = 0.0
                drawn[number] = np.union1d(drawn[number], rows)
                missing -= len(rows)
            left[number] = within.sum()
    return drawn
