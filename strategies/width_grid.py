"""Distributed k-means at several widths of a kernel at once, and which width a run takes of them."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from clients.width_grid import EmbedAtWidths, LabelAtWidth, SampleAtWidths, SolveAtWidths
from fedkernel.models import Choice
from fedkernel.numerics import AnyKernel, RandomFeatures, WeightedPoints, allot, scored
from fedkernel.protocol import (
    FLOAT,
    AtMost,
    Forecast,
    Member,
    Plan,
    Protocol,
    Run,
    once,
    to_all,
    to_each,
)
from strategies.choosing import WEAK, Clustered
from strategies.kmeans import CORESET, division, kmeans_forecast, shares


def kmeans_at_widths(
    run: Run,
    features: RandomFeatures,
    factors: Sequence[float],
    n_clusters: int,
    coreset_size: int | None,
    *,
    choose: bool = False,
) -> Protocol[tuple[RandomFeatures, Clustered, Choice | None]]:
    """Cluster all clients' rows, embedded at G widths of the same draw of features, and take one of them.

    A sub-protocol: `EmbedRows` and `strategies.kmeans.distributed_kmeans` for each width, in the same four rounds as
    for one. At each width the coordinator finds what it would find of that alone. Up: G M floats, then
    G (C + M k)(D + 1); down k D to each client. Memory: the coordinator the coresets, a client its rows embedded at
    all widths.

    Parameters
    ----------
    run : Run
    features : RandomFeatures
        Those at factor 1.
    factors : sequence of G floats
    n_clusters, coreset_size, choose
        As for `distributed_kmeans`, of each width: what a client lets be sampled of its rows, and by default a quarter
        of them, is shared by the G coresets.

    Returns
    -------
    features : RandomFeatures
        At the width that was taken.
    clustered : Clustered
    choice : Choice or None
        Which width, and why; None where there was but one.
    """
    G = len(factors)
    # Round 1: every client embeds its rows, at all widths from one product with the frequencies
    yield from to_all(EmbedAtWidths(features=features, factors=tuple(factors)))
    # Round 2: it clusters its own, and replies how well that went at each
    solved = yield from to_all(SolveAtWidths(n_clusters=n_clusters))
    # Round 3: at each width, clients whose rows are far from their centres sample more of them
    size, most = shares(run.members, coreset_size, G)
    counts = np.array([allot(costs, size, most) for costs in np.array([reply.costs for reply in solved]).T])
    replies = yield from to_each(
        {
            client: SampleAtWidths(samples=int(own.sum()), each=tuple(own.tolist()))
            for client, own in enumerate(counts.T)
        }
    )
    unions = [
        WeightedPoints(np.vstack([own.points for own in parts]), np.concatenate([own.weights for own in parts]))
        for parts in zip(*(reply.coresets for reply in replies), strict=True)
    ]
    # Round 4: the centres at the width that divides its coreset best, by which the clients label their rows
    divisions = [division(run, union, n_clusters, choose=choose) for union in unions]
    silhouettes = [scored(own.coreset, own.centers).silhouette for own in divisions]
    worth = [None if own is None else own.mean for own in silhouettes]
    chosen, choice = best_width([features.at_width(factor).kernel for factor in factors], factors, worth)
    yield from to_all(LabelAtWidth(chosen=chosen, centers=divisions[chosen].centers))
    return features.at_width(factors[chosen]), divisions[chosen], choice


def best_width(
    kernels: Sequence[AnyKernel], factors: Sequence[float], worth: Sequence[float | None]
) -> tuple[int, Choice | None]:
    """Return which of the widths has the largest mean silhouette, as a sweep over them would recommend, and why.

    It compares across widths, where the k-means objective is smaller for every wider kernel. But it is of distances in
    feature space, which look at compact clusters: of rings and half moons it is largest for the widest kernel, which
    does not part them. So the choice says where it is at an end of the grid.
    """
    values = [-math.inf if own is None else own for own in worth]
    place = int(np.argmax(values)) if max(values) > -math.inf else int(np.argmin(np.abs(np.log(factors))))
    if len(factors) == 1:
        return place, None
    factor = factors[place]
    begin = f"width_factor = {factor:g} (gamma = {kernels[place].gamma:.3g})"
    if values[place] == -math.inf:
        return place, Choice(NAME, factor, f"{begin} is nearest to 1: at no width the coreset has a silhouette")
    ordered = sorted(zip(factors, values, strict=True))
    listed = ", ".join(f"{own:g}: {value:.3f}" for own, value in ordered if value > -math.inf)
    why = f"{begin} has the largest mean silhouette on the coreset of {len(factors)} widths ({listed})"
    if factor == max(factors):
        why += "; it is the widest: wider ones may have a larger one, but clusters that are not compact need narrower"
    elif factor == min(factors):
        why += "; it is the narrowest: narrower ones may have a larger one"
    if values[place] < WEAK:
        why += f"; below {WEAK} there may be no clusters at all"
    return place, Choice(NAME, factor, why)


NAME = "width_factor"
"""What a choice and a metric are called."""


def widths_forecast(
    cohort: Sequence[Member], n_clusters: int, coreset_size: int | None, dimensions: int, widths: int
) -> Forecast:
    """Return what `kmeans_at_widths` takes at most."""
    single = kmeans_forecast(cohort, n_clusters, coreset_size, dimensions, widths)
    memory = single.memory + 2 * FLOAT * (widths - 1) * max(member.rows for member in cohort) * dimensions
    return Forecast(4, widths * single.floats_up, single.floats_down, memory, single.meaning)


def widths_plan(
    features: dict[str, Any],
    factors: Sequence[float],
    n_clusters: int,
    coreset_size: int | None,
    dimensions: int,
    *,
    choose: bool,
) -> Plan:
    """Return what `kmeans_at_widths` asks; where it may `choose`, at most."""
    return (
        once(EmbedAtWidths, features=features, factors=tuple(factors)),
        once(SolveAtWidths, n_clusters=AtMost(n_clusters) if choose else n_clusters),
        once(SampleAtWidths, samples=AtMost(len(factors) * (coreset_size or CORESET))),
        once(LabelAtWidth, {"k": n_clusters, "s": dimensions}),
    )
