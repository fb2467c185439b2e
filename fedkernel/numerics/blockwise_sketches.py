"""Row sketches (B^T B or a CountSketch of it) and distinct row samples, accumulated block by block."""

from collections.abc import Callable

import numpy as np

from fedkernel.ground import FloatArray, Positions
from fedkernel.numerics.subspace_embedding import count_sketch


class RowSketch:
    """Product B^T B of a tall matrix B (n, c), or its CountSketch, accumulated by blocks of rows.

    - `columns`, q, at most n / 2: F, of shape (c, q), with F F^T near B^T B: the CountSketch (S B)^T, where S, (q, n),
      adds every row with a sign to one of q sums.
    - q larger, or None: the exact product B^T B, since each sum would hold about a single row.

    `rows`: n. `rng`: of a sketch's signs and sums, which depend on the blocks' sizes, too, and protect nothing.
    """

    def __init__(self, rows: int, columns: int | None, rng: np.random.Generator | None = None) -> None:
        self._drawn: tuple[int, np.random.Generator] | None = None
        if columns is not None and rng is not None and is_sketched(rows, columns):
            self._drawn = columns, rng
        self._sum: FloatArray | None = None

    def add(self, B: FloatArray) -> None:
        """Add the next block of rows."""
        left = B.T if self._drawn is None else count_sketch(len(B), *self._drawn).astype(B.dtype)
        part = left @ B
        if self._sum is None:
            self._sum = np.zeros(part.shape)
        self._sum += part  # in float64 for blocks of any dtype

    @property
    def factor(self) -> FloatArray | None:
        """Sketch F (c, q), or None without a sketch."""
        return None if self._drawn is None or self._sum is None else np.ascontiguousarray(self._sum.T)

    @property
    def product(self) -> FloatArray | None:
        """Product B^T B (c, c), or None with a sketch."""
        return self._sum if self._drawn is None else None


def is_sketched(rows: int, columns: int) -> bool:
    """Return whether sketching pays: with at least two rows per column of the sketch."""
    return 2 * columns <= rows


def draw_distinct(
    sums: FloatArray, samples: int, weigh: Callable[[int], FloatArray], rng: np.random.Generator
) -> dict[int, Positions]:
    """Draw distinct rows one by one, each in proportion to the weights of the remaining rows.

    The distribution is that of the rows with the largest keys log(u) / w, u uniform (Efraimidis and Spirakis, Weighted
    Random Sampling with a Reservoir, 2006), which needs the weights of all rows. Here a block and then a row of it are
    drawn with replacement until enough are distinct, so that only blocks with drawn rows are weighed. `sums` (b,): sum
    of the weights of each block's rows: at least 0, not all 0. `weigh`: returns these weights by the block's number.
    Returns the sorted positions of the drawn rows, by block; fewer than `samples` if fewer rows have a weight.
    """
    remaining, weights, missing = np.array(sums), dict[int, FloatArray](), samples
    drawn: dict[int, Positions] = {}
    while missing and remaining.any():
        counts = rng.multinomial(missing, remaining / remaining.sum())
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
            remaining[number] = within.sum()
    return drawn
