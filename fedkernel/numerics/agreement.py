"""The adjusted Rand index of two divisions of the same rows, of which only a table of rounded overlaps is known."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedkernel.ground import FloatArray

LEAST = -0.5
"""No two divisions of the same rows have a smaller index (Chacon, Rastrojo: Minimum adjusted Rand index, 2022)."""


class Agreement(NamedTuple):
    """An adjusted Rand index as far as it is known, and the most that it may be off either way."""

    estimate: float
    error: float


def adjusted_rand(table: FloatArray) -> float:
    """Return the adjusted Rand index of two divisions, from the sizes of their overlaps, a table (k_a, k_b).

    It is 1 - D / E: D the pairs of rows that are together in one of the divisions only, E how many these would be of
    divisions with such clusters by chance.
    """
    pairs, a, b = _pairs(table.sum()), _pairs(table.sum(axis=1)), _pairs(table.sum(axis=0))
    apart = a + b - 2 * _pairs(table)
    return 1.0 if apart <= 0 else 1 - apart / _by_chance(a, b, pairs)


def adjusted_rand_within(table: FloatArray, missing: float, slack: float) -> Agreement:
    """Return the adjusted Rand index of two divisions whose overlaps were rounded down, and how far off it may be.

    The index is that of a likely table: cells that are not 0 lack half of the slack, which is what rounding takes in
    the mean, and what is still missing is spread over the room that there is. Not of the table as it is, in which the
    few rows are gone that changed sides: the index of that is too large, by 0.1 and more where sites are small.

    The error is a bound, whatever cells the R missing rows are in. Of D above, a row in cell (i, j) adds
    T_i + T_j - 2 T_ij in pairs with known rows; the sum of that over R rows, `slack` in a cell at most, is least and
    most where the cells are filled in order. Pairs of missing rows add from 0 to R (R - 1) / 2. So it is with the pairs
    that are together in one division, and E, which is linear in these of each, is least and most at their bounds.

    Parameters
    ----------
    table : ndarray of shape (k_a, k_b)
        T: how many rows are in each pair of clusters, at least.
    missing : float
        R: rows that are in none of them.
    slack : float
        How many of these are in a cell at most.
    """
    if missing <= 0 or table.size == 1:
        return Agreement(adjusted_rand(table), 0.0)
    a, b = table.sum(axis=1), table.sum(axis=0)
    N, unknown = table.sum() + missing, _pairs(np.array(missing))
    together = []
    for own, others in ((a, table.shape[1]), (b, table.shape[0])):
        least, most = _filled(own, missing, slack * others)
        together.append((_pairs(own) + least, _pairs(own) + most + unknown))
    chances = [_by_chance(p, q, _pairs(N)) for p in together[0] for q in together[1]]
    apart = _pairs(a) + _pairs(b) - 2 * _pairs(table)
    least, most = _filled((a[:, None] + b - 2 * table).ravel(), missing, slack)
    low = 1 - (apart + most + unknown) / min(chances) if min(chances) > 0 else LEAST
    high = 1 - (apart + least) / max(chances) if max(chances) > 0 else 1.0
    estimate = adjusted_rand(table + _likely(table, missing, slack))
    return Agreement(estimate, max(estimate - max(low, LEAST), min(high, 1.0) - estimate, 0.0))


def _pairs(sizes: npt.NDArray[np.float64]) -> float:
    return float((sizes * (sizes - 1)).sum()) / 2


def _by_chance(a: float, b: float, pairs: float) -> float:
    return a + b - 2 * a * b / pairs if pairs > 0 else 0.0


def _filled(weights: FloatArray, number: float, room: float) -> tuple[float, float]:
    """Return the least and the most that so many can weigh together, where each place has room for so many."""
    ordered = np.sort(weights)
    amounts = np.clip(number - room * np.arange(len(ordered)), 0, room)
    return float(ordered @ amounts), float(ordered[::-1] @ amounts)


def _likely(table: FloatArray, missing: float, slack: float) -> FloatArray:
    """Return how many rows each cell probably lacks, (k_a, k_b)."""
    half = np.where(table > 0, slack / 2, 0.0)
    half *= min(1.0, missing / max(float(half.sum()), 1.0))
    room = slack - half
    room[table.sum(axis=1) == 0] = room[:, table.sum(axis=0) == 0] = 0.0  # clusters that are small, or none
    if not room.any():
        room = np.ones_like(table)
    likely: FloatArray = half + room * (missing - half.sum()) / room.sum()
    return likely
