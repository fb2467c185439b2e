"""Shared centroids: k-means centres of all clients' rows, found by sums alone; a sub-protocol.

Source: the paper of `fedkernel.clients.centroid_kpca`; Lloyd's algorithm over sites by sums.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedkernel.clients.centroid_kpca import SumCells, SumMoments
from fedkernel.ground import EPS, FloatArray, InputError
from fedkernel.protocol import Member, Plan, Protocol, Run, ask, once, repeated, to_sum

ASIDE = 0.1
"""Distance of a new centre from the one that it is set beside, as a share of the cell's standard deviation."""

MOST_ROUNDS, FEWEST_ROUNDS = 3, 2
"""Default rounds of Lloyd's algorithm, and those where floats are short: more centres are worth more then."""


class Centroids(NamedTuple):
    """Centres (c, d) of all clients' rows, each with its number of rows (c,)."""

    centers: FloatArray
    counts: FloatArray


def shared_centroids(run: Run, number: int, rounds: int, least: int) -> Protocol[Centroids]:
    """Find at most `number` centres of all clients' rows by Lloyd's algorithm; a sub-protocol.

    One round for the columns' moments, and `rounds` for the cells. Floats: up M 2 d, and M c (d + 2) in each; down M c
    d in each.

    The centres start from independent normal draws with the columns' means and variances. A centre without rows is set
    beside the centre of the cell with the largest sum of squared distances, which counts half once it is shared by two,
    and so on; centres that are empty at the end are left out.
    """
    moments = yield from to_sum(SumMoments())
    mean, square = moments.sums / run.rows, moments.squares / run.rows
    variance = square - np.square(mean)
    variance[variance <= 100 * EPS * square] = 0.0  # but for rounding, the column is constant
    rng = run.rng("centroids")
    centers = mean + np.sqrt(variance) * rng.standard_normal((number, len(mean)))
    for left in reversed(range(rounds)):
        cells = yield from to_sum(request := SumCells(centers=centers, least=least))
        filled, counts = cells.counts > _fewest(run, request), np.maximum(cells.counts, 1.0)
        if not filled.any() and run.privacy is not None:
            text = f"privacy.epsilon = {run.privacy.epsilon:g} makes noise larger than any centre's number of rows"
            raise InputError(f"{text}; allowed: a larger one, or more rows")
        if not filled.any():
            raise InputError(f"least = {least}, but no client has so many rows; allowed: at most the rows of a client")
        moved = np.where(filled[:, np.newaxis], cells.sums / counts[:, np.newaxis], centers)
        if left and not filled.all():
            costs = np.maximum(cells.costs - counts * np.square(moved - centers).sum(axis=1), 0.0) * filled
            if run.privacy is not None:  # the clients leave the costs out
                costs = counts * filled * variance.sum() / len(counts)
            beside = _shared_out(costs, int(np.count_nonzero(~filled)))
            spread = np.sqrt(costs[beside] / counts[beside] / len(mean))[:, np.newaxis]
            moved[~filled] = moved[beside] + ASIDE * spread * rng.standard_normal((len(beside), len(mean)))
        centers = moved
    return Centroids(centers[filled], cells.counts[filled])


def _fewest(run: Run, request: SumCells) -> float:
    """Return the number of rows that a cell must exceed: with noise, twice its standard deviation."""
    if run.privacy is None:
        return 0.0
    sizes = {"sums": request.centers.size, "counts": len(request.centers)}
    return 2 * run.privacy.scales(request.sensitivity(run.privacy.radius), sizes)["counts"]


def _shared_out(costs: FloatArray, number: int) -> list[int]:
    """Return the cells that so many further centres are set beside, one after the other where the cost is largest."""
    chosen: list[int] = []
    shares, sharers = costs.copy(), np.ones(len(costs))
    for _ in range(number):
        chosen.append(cell := int(np.argmax(shares)))
        sharers[cell] += 1
        shares[cell] = costs[cell] / sharers[cell]
    return chosen


def centroids_plan(number: int, rounds: int, least: int) -> Plan:
    """Return the plan of `shared_centroids`, with at most so many centres and rounds."""
    return once(SumMoments), repeated(rounds, ask(SumCells, {"c": number}, least=least))


def centroid_floats(cohort: Sequence[Member], number: int, rounds: int) -> tuple[int, int]:
    """Return the floats up and down of `shared_centroids`."""
    M, d = len(cohort), cohort[0].columns
    return M * (2 * d + rounds * number * (d + 2)), M * rounds * number * d
