"""Sub-protocols for shared centroids: k-means centres of all clients' rows, or embedded rows, by sums alone.

Source: the paper of `fedkernel.clients.centroid_kpca`, and `fedkernel.clients.cell_sums`; Lloyd's algorithm over sites
by sums.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fedkernel.clients.cell_sums import LEAST_ROWS, CellRequest, SumCells, SumEmbeddedCells
from fedkernel.clients.centroid_kpca import SumMoments
from fedkernel.ground import EPS, FloatArray, InputError
from fedkernel.protocol import MAX_ENTRY, Member, Plan, Privacy, Protocol, Run, Step, ask, once, repeated, to_sum

ASIDE = 0.1
"""Distance of a new centre from the one that it is set beside, as a share of the cell's standard deviation."""

MOST_ROUNDS, FEWEST_ROUNDS = 3, 2
"""Default rounds of Lloyd's algorithm, and those where floats are short: more centres are worth more then."""


NOISE_SHARE = 0.2
"""Largest share of the radius that noise moves a centre by, if fewer centres allow that."""


AGREEMENT_LOST = {0.15: "up to a tenth", 0.25: "up to a quarter", 0.5: "up to a half", math.inf: "up to three quarters"}
"""Share of the agreement with classes that noise takes, by the share that it moves: ``benchmarks/privacy.toml``."""


class Centroids(NamedTuple):
    """Centres (c, d) of all clients' rows, each with its number of rows (c,), and findings."""

    centers: FloatArray
    counts: FloatArray
    findings: tuple[str, ...] = ()


def shared_centroids(run: Run, number: int, rounds: int, least: int) -> Protocol[Centroids]:
    """Find at most `number` centres of all clients' rows by Lloyd's algorithm; a sub-protocol.

    One round for the columns' moments, and `rounds` for the cells. Floats: up M 2 d, and M c (d + 2) in each; down M c
    d in each.
    """
    moments = yield from to_sum(SumMoments())
    mean, square = moments.sums / run.rows, moments.squares / run.rows
    variance = square - np.square(mean)
    variance[variance <= run.tolerance(100 * EPS) * square] = 0.0  # but for rounding, the column is constant
    return (yield from _lloyd(run, partial(SumCells, least=least), mean, variance, number=number, rounds=rounds))


def embedded_centroids(run: Run, number: int, squares: FloatArray) -> Protocol[Centroids]:
    """Find at most `number` centres of all clients' embedded rows; a sub-protocol.

    As `shared_centroids`, but for one cell of all rows in place of the moments. `squares` (s,): the coordinates' mean
    squares, perhaps times a factor.
    """
    whole = yield from to_sum(SumEmbeddedCells(centers=np.zeros((1, len(squares)))))
    if run.privacy is None and not whole.counts[0]:
        few = f"{len(squares)} coordinates of a row, but every client has too few rows for a group of {LEAST_ROWS}"
        raise InputError(f"{few} with twice as many entries; allowed: fewer coordinates, or more rows")
    rows = np.maximum(whole.counts, 1.0)
    if run.privacy is None:  # else the clients leave the costs out
        squares = squares * (whole.costs / rows / max(float(squares.sum()), EPS))
    mean = whole.sums[0] / rows
    variance = np.maximum(squares - mean**2, 0.0)
    return (yield from _lloyd(run, SumEmbeddedCells, mean, variance, number=number, rounds=MOST_ROUNDS))


def _lloyd(
    run: Run,
    request_of: Callable[..., CellRequest[Any]],
    mean: FloatArray,
    variance: FloatArray,
    *,
    number: int,
    rounds: int,
) -> Protocol[Centroids]:
    """Move centres by Lloyd's algorithm.

    They start from independent normal draws with the columns' means and variances. A centre without rows is set beside
    the centre of the cell with the largest sum of squared distances, which counts half once it is shared by two, and so
    on; centres that are empty at the end are left out.
    """
    rng = run.rng("centroids")
    centers = mean + np.sqrt(variance) * rng.standard_normal((number, len(mean)))
    for left in reversed(range(rounds)):
        centers = np.clip(centers, -MAX_ENTRY, MAX_ENTRY)  # a site's lie about its costs may be larger
        cells = yield from to_sum(request := request_of(centers=centers))
        filled, counts = cells.counts > _fewest(run, request), np.maximum(cells.counts, 1.0)
        if not filled.any() and run.privacy is not None:
            text = f"privacy.epsilon = {run.privacy.epsilon:g} makes noise larger than any centre's number of rows"
            raise InputError(f"{text}; allowed: a larger one, or more rows")
        if not filled.any():
            text = f"least = {request.least}, but no client has so many rows"
            raise InputError(f"{text}; allowed: at most the rows of a client")
        moved = np.where(filled[:, np.newaxis], cells.sums / counts[:, np.newaxis], centers)
        if left and not filled.all():
            costs = np.maximum(cells.costs - counts * np.square(moved - centers).sum(axis=1), 0.0) * filled
            if run.privacy is not None:  # the clients leave the costs out
                costs = counts * filled * variance.sum() / len(counts)
            beside = _shared_out(costs, int(np.count_nonzero(~filled)))
            spread = np.sqrt(costs[beside] / counts[beside] / len(mean))[:, np.newaxis]
            moved[~filled] = moved[beside] + ASIDE * spread * rng.standard_normal((len(beside), len(mean)))
        centers = moved
    others = 0.0 if run.privacy is not None else run.rows - float(cells.counts.sum())
    without = f"{others:,.0f} of {run.rows:,} rows have no part in the centres: their clients have too few for a group"
    return Centroids(centers[filled], cells.counts[filled], (without,) if others else ())


def _fewest(run: Run, request: CellRequest[Any]) -> float:
    """Return the number of rows that a cell must exceed. With noise, this is twice the noise's standard deviation."""
    if run.privacy is None:
        return 0.0
    sizes = {"sums": request.centers.size, "counts": len(request.centers)}
    return 2 * run.privacy.scales(request.sensitivity(run.privacy.radius), sizes)["counts"]


def _shared_out(costs: FloatArray, number: int) -> list[int]:
    """Return the cells of further centres, chosen one after the other where the cost per centre is largest."""
    chosen: list[int] = []
    shares, sharers = costs.copy(), np.ones(len(costs))
    for _ in range(number):
        chosen.append(cell := int(np.argmax(shares)))
        sharers[cell] += 1
        shares[cell] = costs[cell] / sharers[cell]
    return chosen


def centroids_plan(number: int, rounds: int, least: int) -> Plan:
    """Return the plan of `shared_centroids`, with at most `number` centres and `rounds` rounds."""
    return once(SumMoments), repeated(rounds, ask(SumCells, {"c": number}, least=least))


def number_with_noise(privacy: Privacy, number: int, fewest: int, width: int, rows: int) -> tuple[int, float]:
    """Return the number of centres, fewer with much noise. Add a centre's move by noise, as a share of the radius."""
    # one centre's error by noise of length z radius sqrt(d) is that over its number of rows, some N / |Y|
    share = privacy.multiplier * math.sqrt(width) / rows
    number = min(number, max(fewest, int(NOISE_SHARE / share)))
    return number, share * number


def agreement_lost(moved: str, share: float, of: str) -> str:
    """Return the finding that noise moves something by a share, with the loss of agreement with classes."""
    lost = next(text for most, text in AGREEMENT_LOST.items() if share <= most)
    noise = f"noise moves {moved} by some {share:.1g} of {of}: of clusters' agreement with classes"
    return f"{noise} {lost} is lost, as measured on four data sets"


def embedded_plan(number: int, dimensions: int) -> Step:
    """Return the plan of `embedded_centroids`, with at most `number` centres of `dimensions` coordinates."""
    return repeated(MOST_ROUNDS + 1, ask(SumEmbeddedCells, {"c": number, "s": dimensions}, least=LEAST_ROWS))


def embedded_floats(number: int, dimensions: int) -> tuple[int, int]:
    """Return the uploaded and downloaded floats of `embedded_centroids`, for a client."""
    points = MOST_ROUNDS * number + 1
    return points * (dimensions + 2), points * dimensions


def centroid_floats(cohort: Sequence[Member], number: int, rounds: int) -> tuple[int, int]:
    """Return the uploaded and downloaded floats of `shared_centroids`, for all clients."""
    M, d = len(cohort), cohort[0].columns
    return M * (2 * d + rounds * number * (d + 2)), M * rounds * number * d
