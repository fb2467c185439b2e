"""Adjusted Rand index of two clusterings of the same rows, from rounded overlap counts."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedkernel.ground import FloatArray

LEAST_INDEX = -0.5
"""Least possible index (Chacon, Rastrojo: Minimum adjusted Rand index, 2022)."""


class Agreement(NamedTuple):
    """Estimate of an adjusted Rand index, with its largest possible error."""

    estimate: float
    error: float


def adjusted_rand(table: FloatArray) -> float:
    """Return the adjusted Rand index of two clusterings from their overlap counts (k_a, k_b).

    The index is 1 - D / E: D pairs of rows are together in one clustering only, E is the expected D of random
    clusterings with the same cluster sizes.
    """
    pairs, a, b = _pairs(table.sum()), _pairs(table.sum(axis=1)), _pairs(table.sum(axis=0))
    disagreeing = a + b - 2 * _pairs(table)
    return 1.0 if disagreeing <= 0 else 1 - disagreeing / _by_chance(a, b, pairs)


def adjusted_rand_within(table: FloatArray, missing: float, slack: float) -> Agreement:
    """Estimate the adjusted Rand index of two clusterings from rounded-down overlap counts, with an error bound.

    The estimate is the index of a likely table: each nonzero cell lacks half of the slack, the mean loss by rounding,
    and the other missing rows are spread over the remaining room. The rounded table itself lacks the few rows that
    changed clusters, so its index is too large, by 0.1 and more at small sites. The error is a bound for any cells of
    the R missing rows. In D above, a row in cell (i, j) adds T_i + T_j - 2 T_ij in pairs with known rows; the sum over
    R rows, at most `slack` in a cell, is extremal if cells are filled in order. Pairs of missing rows add from 0 to R
    (R - 1) / 2. The pairs together in one clustering are bounded likewise, and E, linear in both, is extremal at their
    bounds.

    `table` (k_a, k_b): T, the least number of rows in each pair of clusters. `missing`: R, the rows missing in the
    table. `slack`: most missing rows of a cell.
    """
    if missing <= 0 or table.size == 1:
        return Agreement(adjusted_rand(table), 0.0)
    a, b = table.sum(axis=1), table.sum(axis=0)
    N, unknown = table.sum() + missing, _pairs(np.array(missing))
    together = []
    for own, others in ((a, table.shape[1]), (b, table.shape[0])):
        least, most = _extreme_weights(own, missing, slack * others)
        together.append((_pairs(own) + least, _pairs(own) + most + unknown))
    chances = [_by_chance(p, q, _pairs(N)) for p in together[0] for q in together[1]]
    disagreeing = _pairs(a) + _pairs(b) - 2 * _pairs(table)
    least, most = _extreme_weights((a[:, None] + b - 2 * table).ravel(), missing, slack)
    low = 1 - (disagreeing + most + unknown) / min(chances) if min(chances) > 0 else LEAST_INDEX
    high = 1 - (disagreeing + least) / max(chances) if max(chances) > 0 else 1.0
    estimate = adjusted_rand(table + _likely_missing(table, missing, slack))
    return Agreement(estimate, max(estimate - max(low, LEAST_INDEX), min(high, 1.0) - estimate, 0.0))


def _pairs(sizes: npt.NDArray[np.float64]) -> float:
    return float((sizes * (sizes - 1)).sum()) / 2


def _by_chance(a: float, b: float, pairs: float) -> float:
    return a + b - 2 * a * b / pairs if pairs > 0 else 0.0


def _extreme_weights(weights: FloatArray, number: float, room: float) -> tuple[float, float]:
    """Return the least and greatest total weight of `number` items, at most `room` per place."""
    ordered = np.sort(weights)
    amounts = np.clip(number - room * np.arange(len(ordered)), 0, room)
    return float(ordered @ amounts), float(ordered[::-1] @ amounts)


def _likely_missing(table: FloatArray, missing: float, slack: float) -> FloatArray:
    """Estimate the number of rows missing in each cell, (k_a, k_b)."""
    half = np.where(table > 0, slack / 2, 0.0)
    half *= min(1.0, missing / max(float(half.sum()), 1.0))
    room = slack - half
    room[table.sum(axis=1) == 0] = room[:, table.sum(axis=0) == 0] = 0.0  # small or empty clusters
    if not room.any():
        room = np.ones_like(table)
    likely: FloatArray = half + room * (missing - half.sum()) / room.sum()
    return likely
