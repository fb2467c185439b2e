"""Sub-protocols of disKPCA that score the clients' rows by leverage, and draw landmarks by leverage and distance.

Source: the paper of `fedkernel.strategies.diskpca`, algorithms 1 (disLS) and 2 (RepSample).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedkernel.clients.diskpca import (
    DrawByDistance,
    DrawByLeverage,
    MeasureDistances,
    MultiplyPoints,
    ScoreRows,
    SketchPoints,
)
from fedkernel.ground import FloatArray, InputError, Positions, Precision, Rows, stack_rows, sum_in_order
from fedkernel.numerics import SubspaceEmbedding, whitening
from fedkernel.protocol import AtMost, Plan, Protocol, Run, once, to_all, to_each, to_sum
from fedkernel.strategies.drawn_landmarks import DrawnLandmarks
from fedkernel.strategies.landmark_base import LowRankStep, SketchSize


def score_by_leverage(
    run: Run, embedding: SubspaceEmbedding, precision: Precision, columns: SketchSize
) -> Protocol[FloatArray]:
    """Let the clients score their rows by leverage; a sub-protocol (algorithm 1, disLS).

    Two rounds. Up: M t (t + 1) / 2 floats, or of sketches t p from each client with 2 p rows or more, and M sums; down:
    M t r, where r <= t are the directions whose squared singular value is above eps^(3/4) of the largest: along the
    others the scores, which clients sum per block of rows by its products, would be rounding errors.

    Returns the sums of the clients' scores, (M,); the scores stay with the clients. ``columns`` is p; with "exact"
    clients send the products of their embedded rows.
    """
    # Step 1: every client embeds its rows and sketches the embedded points
    if columns == "exact":
        total = yield from to_sum(MultiplyPoints(embedding=embedding, precision=precision))
        product = total.product
    else:
        sketched = yield from to_all(SketchPoints(embedding=embedding, columns=columns, precision=precision))
        product = sum_in_order([reply.product for reply in sketched])
    # Step 2: U Z; Z turns the sketched points into an orthonormal basis
    Z = whitening(product, run.tolerance(float(np.finfo(precision).eps ** 0.75)))
    # Step 3: the squared lengths of E_m Z^-1
    scored = yield from to_all(ScoreRows(whitening=Z))
    return np.array([reply.total for reply in scored])


def leverage_plan(embedding: Mapping[str, Any], t: int, precision: Precision, columns: SketchSize) -> Plan:
    """Return the plan of `score_by_leverage`. The embedding is given as JSON, with at most t coordinates."""
    common: dict[str, Any] = {"embedding": embedding, "precision": precision}
    points = once(MultiplyPoints, **common) if columns == "exact" else once(SketchPoints, **common, columns=columns)
    return points, once(ScoreRows, {"t": t, "r": t})


def representative_points(
    embedding: SubspaceEmbedding,
    step: LowRankStep,
    totals: FloatArray,
    sizes: Positions,
    rng: np.random.Generator,
    *,
    by_leverage: int,
    by_distance: int,
) -> Protocol[tuple[Rows, DrawnLandmarks]]:
    """Draw rows by leverage, then by distance to their span; a sub-protocol (algorithm 2, RepSample).

    Three rounds, or one without the second draw. Each row is d floats (of sparse rows the entries that are not zero),
    once up from its owner, and once down to each of the other clients; besides, M sums up. ``totals``, the sums of the
    clients' scores, `sizes`, the most rows that each draws, and the generator settle each client's number of rows:
    different rows, if so many have a weight. Returns the rows of both draws, and of the last, known to owners only.
    """
    # Step 1: P, by leverage
    draws = {
        client: DrawByLeverage(samples=count, embedding=embedding, precision=step.precision)
        for client, count in _samples_per_client(by_leverage, totals, sizes, rng)
    }
    if not draws:
        raise InputError("the kernel is zero on all rows, so that none can be drawn by leverage")
    replies = yield from to_each(draws)
    first = DrawnLandmarks.of(dict(zip(draws, replies, strict=True)), len(totals), step.kernel)
    if by_distance == 0:
        return first.rows, first
    # Step 2: every client gets P, and replies its rows' distance from the span
    handed = {client: MeasureDistances(**own) for client, own in first.handed(step).items()}
    measured = yield from to_each(handed)
    distances = np.array([reply.total for reply in measured])
    # Step 3: the rows of the second draw, by distance; none where the span holds all rows
    requests = {
        client: DrawByDistance(samples=count, **vars(step))
        for client, count in _samples_per_client(by_distance, distances, sizes - np.array(first.counts), rng)
    }
    replies = (yield from to_each(requests)) if requests else []
    second = DrawnLandmarks.of(dict(zip(requests, replies, strict=True)), len(totals), step.kernel, like=first.rows)
    return stack_rows([first.rows, second.rows]), second


def points_plan(embedding: Mapping[str, Any], step: LowRankStep, *, by_leverage: int, by_distance: int) -> Plan:
    """Return the plan of `representative_points`, with an embedding as JSON."""
    most = AtMost(by_leverage)
    first = once(DrawByLeverage, samples=most, embedding=embedding, precision=step.precision)
    if by_distance == 0:
        return (first,)
    second = once(DrawByDistance, samples=AtMost(by_distance), **step.planned_fields())
    return first, step.plan(MeasureDistances, by_leverage), second


def _samples_per_client(
    samples: int, totals: FloatArray, rows: Positions, rng: np.random.Generator
) -> list[tuple[int, int]]:
    """Draw each client's number of samples, in proportion to the totals. Clients without samples are left out.

    No client gets more than its rows: the rest falls to the others, again in proportion.
    """
    counts, most = np.zeros(len(totals), dtype=np.int64), np.where(totals > 0, rows, 0)
    while missing := min(samples, most.sum()) - counts.sum():
        open_totals = np.where(counts < most, totals, 0.0)
        counts = np.minimum(counts + rng.multinomial(missing, open_totals / open_totals.sum()), most)
    return [(client, int(count)) for client, count in enumerate(counts) if count]
