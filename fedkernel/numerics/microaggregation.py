"""Microaggregation: means of groups of neighbouring rows, to use where no single row may be disclosed."""

from collections.abc import Iterator

import numpy as np
from scipy import sparse

from fedkernel.ground import BLOCK_ROWS, FloatArray, Positions, Rows

MOST_ENTRIES = 20_000_000
"""Most entries of rows that are put into groups together."""

TOGETHER = 1_000_000
"""Entries of rows that are sorted together: few enough for a processor's cache."""

MOST_LEAST = 100
"""Largest `least` up to which the groups of one are unions of those of a smaller one."""


def grouped_together(n: int, d: int, least: int) -> Iterator[slice]:
    """Cut n rows with d columns into parts of nearly equal sizes, each for one call of `group_averages`.

    They do not depend on `least` up to `MOST_LEAST`: requests with several would else show rows by their differences. A
    part has at most `BLOCK_ROWS` rows and `MOST_ENTRIES` entries, but enough for a group at any width.
    """
    fewest = 2 * max(least, MOST_LEAST)
    parts = -(-n // max(fewest, min(BLOCK_ROWS, MOST_ENTRIES // d)))
    for part in range(parts):
        yield slice(part * n // parts, (part + 1) * n // parts)


def group_averages(X: Rows, least: int) -> sparse.csr_array:
    """Return a matrix (g, n) that averages X (n, d) over groups of `least` rows or more. Times X it gives the means.

    Fewer than `least` rows have no group. Each row of the array has as many entries as the group has rows.

    Source: `row_groups`; the idea is Domingo-Ferrer, Mateo-Sanz: Practical data-oriented microaggregation, TKDE 2002.
    """
    if X.shape[0] < least:
        return sparse.csr_array((0, X.shape[0]))
    order, bounds = _cut(X if isinstance(X, np.ndarray) else X.toarray(), least)
    sizes = np.diff(bounds)
    weights = np.repeat(1.0 / sizes, sizes)
    return sparse.csr_array((weights, order, bounds), shape=(len(sizes), X.shape[0]))


def row_groups(X: FloatArray, least: int) -> list[Positions]:
    """Cut rows X (n, d) into groups of `least` to ``2 * least - 1`` neighbours. Returns each group's row positions.

    Rows are halved repeatedly, along the direction of their largest spread. Fewer than ``2 * least`` are one group, so
    that groups are unions of those for any smaller `least`.
    """
    order, bounds = _cut(X, least)
    return np.split(order, bounds[1:-1])


def _cut(X: FloatArray, least: int) -> tuple[Positions, Positions]:
    """Return the row positions (n,), group after group, and the bounds (g + 1,) of the groups among them."""
    n, d = X.shape
    order, bounds = np.arange(n), np.array([0, n])
    while (halved := (sizes := np.diff(bounds)) >= 2 * least).any():
        for size in np.unique(sizes[halved]):
            starts = bounds[:-1][sizes == size]
            together = max(1, TOGETHER // (size * d))
            for first in range(0, len(starts), together):
                places = starts[first : first + together, np.newaxis] + np.arange(size)
                order[places] = _along_spread(X, order[places])
        bounds = np.sort(np.concatenate([bounds, bounds[:-1][halved] + sizes[halved] // 2]))
    return order, bounds


def _along_spread(X: FloatArray, rows: Positions) -> Positions:
    """Return the positions (g, m) of g sets of m rows, each sorted along the set's direction of largest spread."""
    g, m = rows.shape
    Z = X.take(rows.ravel(), axis=0, mode="clip").reshape(g, m, -1)  # which leaves the interpreter to other threads
    Z -= np.full((1, m), 1 / m) @ Z
    largest = np.maximum(Z.max(axis=(1, 2), keepdims=True), -Z.min(axis=(1, 2), keepdims=True))
    Z /= np.where(largest > 0, largest, 1.0)  # so that squares are in range
    transposed, is_wide = Z.transpose(0, 2, 1), m <= Z.shape[2]
    products = Z @ transposed if is_wide else transposed @ Z
    squares = np.diagonal(products, axis1=1, axis2=2) if is_wide else np.einsum("gmd,gmd->gm", Z, Z)
    direction = (products if is_wide else Z)[np.arange(g), np.argmax(squares, axis=1), :, np.newaxis]
    for _ in range(10):  # power method from the farthest row: a rough leading direction is enough
        size = np.abs(direction).max(axis=1, keepdims=True)
        direction = products @ (direction / np.where(size > 0, size, 1.0))
    along = direction if is_wide else Z @ direction  # a wide set's directions are those of products with its rows
    order: Positions = np.argsort(along[:, :, 0], axis=1, kind="stable") + m * np.arange(g)[:, np.newaxis]
    return rows.take(order)
