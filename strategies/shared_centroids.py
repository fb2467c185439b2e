"""Shared centroids: k-means centres of all clients' rows, found by sums alone; a sub-protocol.

Source: the paper of `clients.centroid_kpca`; Lloyd's algorithm over sites by sums.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from clients.centroid_kpca import SumCells, SumMoments
from fedkernel.ground import EPS, FloatArray, InputError
from fedkernel.protocol import Member, Plan, Protocol, Run, ask, once, repeated, to_sum

ASIDE = 0.1
"""Distance between a large cell's centre and a new one beside it, as a share of the centres' standard deviation."""

MOST_ROUNDS, FEW_ROUNDS, FEWEST_ROUNDS = 5, 3, 2
"""Default rounds of Lloyd's algorithm, and the fewer where floats are short: more centres are worth more then."""


class Centroids(NamedTuple):
    """Centres (c, d) of all clients' rows, each with its number of rows (c,)."""

    centers: FloatArray
    counts: FloatArray


def shared_centroids(run: Run, number: int, rounds: int, least: int) -> Protocol[Centroids]:
    """Find at most `number` centres of all clients' rows by Lloyd's algorithm; a sub-protocol.

    One round for the columns' moments, and `rounds` for the cells. Floats: up M 2 d, and M c (d + 1) in each; down M c
    d in each.

    The centres start from independent normal draws with the columns' means and variances. A centre without rows is set
    beside the centre with the most, by `ASIDE`; those that are empty at the end are left out.
    """
    moments = yield from to_sum(SumMoments())
    mean = moments.sums / run.rows
    square = moments.squares / run.rows
    variance = square - np.square(mean)
    variance[variance <= 100 * EPS * square] = 0.0  # but for rounding, the column is constant
    rng = run.rng("centroids")
    centers = mean + np.sqrt(variance) * rng.standard_normal((number, len(mean)))
    for left in reversed(range(rounds)):
        cells = yield from to_sum(SumCells(centers=centers, least=least))
        filled = cells.counts > 0
        if not filled.any():
            raise InputError(f"least = {least}, but no client has so many rows; allowed: at most the rows of a client")
        centers, counts = centers.copy(), cells.counts
        centers[filled] = cells.sums[filled] / counts[filled, np.newaxis]
        if left:
            empty = np.flatnonzero(~filled)[: np.count_nonzero(filled)]
            largest = np.argsort(-counts, kind="stable")[: len(empty)]
            aside = ASIDE * centers[filled].std(axis=0)
            centers[empty] = centers[largest] + aside * rng.standard_normal((len(empty), len(mean)))
    return Centroids(centers[filled], counts[filled])


def centroids_plan(number: int, rounds: int, least: int) -> Plan:
    """Return the plan of `shared_centroids`, with at most so many centres and rounds."""
    return once(SumMoments), repeated(rounds, ask(SumCells, {"c": number}, least=least))


def centroid_floats(cohort: Sequence[Member], number: int, rounds: int) -> tuple[int, int]:
    """Return the floats up and down of `shared_centroids`."""
    M, d = len(cohort), cohort[0].columns
    return M * (2 * d + rounds * number * (d + 1)), M * rounds * number * d
