"""Microaggregation: rows in groups of neighbours, whose means stand for them where no single row may show."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fedkernel.ground import BLOCK_ROWS, FloatArray, Rows

MOST_ENTRIES = 20_000_000
"""Most entries of rows that are put into groups together."""

MOST_LEAST = 100
"""Largest `least` up to which the groups of one are unions of those of a smaller one."""


def grouped_together(n: int, d: int, least: int) -> Iterator[slice]:
    """Yield the parts of n rows with d columns that `group_averages` takes one by one, of nearly equal sizes.

    They do not depend on `least` up to `MOST_LEAST`: requests with several would else show rows by their differences. A
    part has at most `BLOCK_ROWS` rows and `MOST_ENTRIES` entries, but enough for a group at any width.
    """
    fewest = 2 * max(least, MOST_LEAST)
    parts = -(-n // max(fewest, min(BLOCK_ROWS, MOST_ENTRIES // d)))
    for part in range(parts):
        yield slice(part * n // parts, (part + 1) * n // parts)


def group_averages(X: Rows, least: int) -> sparse.csr_array:
    """Return the averages (g, n) over groups of at least `least` rows X (n, d): times X, the groups' means.

    Fewer than `least` rows have no group. Each row of the array has as many entries as the group has rows.

    Source: `row_groups`; the idea is Domingo-Ferrer, Mateo-Sanz: Practical data-oriented microaggregation, TKDE 2002.
    """
    if X.shape[0] < least:
        return sparse.csr_array((0, X.shape[0]))
    groups = row_groups(X if isinstance(X, np.ndarray) else X.toarray(), least)
    sizes = np.array([len(group) for group in groups])
    starts = np.concatenate([[0], np.cumsum(sizes)])
    weights = np.repeat(1.0 / sizes, sizes)
    return sparse.csr_array((weights, np.concatenate(groups), starts), shape=(len(groups), X.shape[0]))


def row_groups(X: FloatArray, least: int) -> list[npt.NDArray[np.int64]]:
    """Cut rows X (n, d) into groups of `least` to ``2 * least - 1`` neighbours; return their row positions.

    Rows are halved repeatedly, along the direction of their largest spread. Fewer than ``2 * least`` are one group, so
    that groups are unions of those for any smaller `least`.
    """
    pending, groups = [np.arange(len(X))], []
    while pending:
        rows = pending.pop()
        if len(rows) < 2 * least:
            groups.append(rows)
            continue
        Z = X[rows] - X[rows].mean(axis=0)
        Z /= float(np.abs(Z).max()) or 1.0  # so that squares are in range
        direction = Z[np.argmax(np.square(Z).sum(axis=1))]
        for _ in range(10):  # power method: a rough leading direction is enough
            direction = Z.T @ (Z @ (direction / max(np.linalg.norm(direction), np.finfo(np.float64).tiny)))
        ordered = rows[np.argsort(Z @ direction, kind="stable")]
        pending += [ordered[len(rows) // 2 :], ordered[: len(rows) // 2]]
    return groups
