"""Quality of clusters without known classes, and their agreement with sites and other clusters."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist

from fedkernel.ground import FloatArray, row_blocks
from fedkernel.numerics.clustering import IntArray, WeightedPoints, assign

MOST_POINTS = 20_000  # most points for a silhouette, which takes all distances between them
LEAST_INDEX = -0.5  # least possible index (Chacon, Rastrojo: Minimum adjusted Rand index, 2022)


class Silhouette(NamedTuple):
    """Mean silhouette of weighted points, and its standard error if they were drawn independently."""

    mean: float
    error: float


def silhouette(coreset: WeightedPoints, labels: IntArray) -> Silhouette | None:
    """Return the mean silhouette of weighted points: (b - a) / max(a, b), each point counting by its weight.

    a is the weighted mean distance to the others of the point's cluster (`labels` (c,)), b that to the points of the
    nearest other cluster; a cluster of one point counts 0. The rows that a point represents are not among its
    neighbours, since those of a coreset's centre are not at one place. Takes c^2 distances, by blocks of rows. None for
    fewer than two clusters of positive weight or more than 20,000 points.
    Source: Rousseeuw, Silhouettes: a graphical aid to the interpretation and validation of cluster analysis, 1987.
    """
    points, weights, clusters = _weighted_points(coreset, labels)
    sizes = np.bincount(clusters, weights=weights)
    if sizes.size < 2 or len(points) > MOST_POINTS:
        return None
    counts, masses = np.bincount(clusters), weights[:, None] * np.eye(sizes.size)[clusters]
    values = np.empty(len(points))
    for rows in row_blocks(len(points)):
        sums = cdist(points[rows], points) @ masses
        own, place = clusters[rows], np.arange(len(sums))
        alone = counts[own] == 1
        others = np.where(alone, 1.0, sizes[own] - weights[rows])
        a = sums[place, own] / others
        means = sums / sizes
        means[place, own] = np.inf
        b = means.min(axis=1)
        larger = np.maximum(a, b)
        values[rows] = np.divide(b - a, larger, out=np.zeros(len(own)), where=(larger > 0) & ~alone)
    shares = weights / weights.sum()
    mean = float(shares @ values)
    return Silhouette(mean, float(np.linalg.norm(shares * (values - mean))))


def simplified_silhouettes(points: FloatArray, centers: FloatArray) -> FloatArray:
    """Return the simplified silhouette 1 - a / b of each point. Its nearest centre is at distance a, the second at b.

    From 0 to 1; 0 with one centre, or where both are at the point. About the silhouette's value where clusters are far
    apart, else larger. Takes n k distances, and none between points.
    Source: Hruschka, Campello, de Castro: Evolving clusters in gene-expression data, Information Sciences 2006.
    """
    values = np.zeros(len(points))
    for rows in row_blocks(len(points)) if len(centers) > 1 else ():
        nearest, second = np.partition(cdist(points[rows], centers), 1, axis=1)[:, :2].T
        np.divide(second - nearest, second, out=values[rows], where=second > 0)
    return values


def ratio_of_variances(between: float, within: float, clusters: int, rows: float) -> float | None:
    """Return the Calinski-Harabasz index (between / (k - 1)) / (within / (n - k)), or None if not finite.

    Source: Calinski, Harabasz, A dendrite method for cluster analysis, 1974.
    """
    if clusters < 2 or rows <= clusters or within <= 0:
        return None
    return (between / (clusters - 1)) / (within / (rows - clusters))


class ScoredCenters(NamedTuple):
    """Centres (k, s) of weighted points, and the mean silhouette of their clusters."""

    centers: FloatArray
    silhouette: Silhouette | None


def score(coreset: WeightedPoints, centers: FloatArray) -> ScoredCenters:
    """Return centres with the mean silhouette of the clusters that they form of weighted points."""
    return ScoredCenters(centers, silhouette(coreset, assign(coreset.points, centers)[0]))


def site_agreement(counts: npt.ArrayLike) -> float:
    """Return the normalised mutual information of clusters and sites from a table of counts (M, k).

    0 if a row's site is independent of its cluster, or for one site or one cluster only; 1 if either determines the
    other. Normalised by the mean of the entropies, as in scikit-learn.
    """
    table = np.asarray(counts, dtype=np.float64)
    total = table.sum()
    if total <= 0:
        return 0.0
    entropies = [_entropy(table.sum(axis=axis) / total) for axis in (0, 1)]
    mean = float(np.mean(entropies))
    if min(entropies) <= 0:
        return 0.0
    from sklearn.metrics import mutual_info_score  # noqa: PLC0415 - takes a second to import

    return float(max(mutual_info_score(None, None, contingency=table), 0.0)) / mean


def _entropy(shares: FloatArray) -> float:
    shares = shares[shares > 0]
    return float(-(shares * np.log(shares)).sum())


def _weighted_points(coreset: WeightedPoints, labels: IntArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """Drop points of weight 0, and renumber the remaining clusters from 0."""
    positive = coreset.weights > 0
    _, clusters = np.unique(labels[positive], return_inverse=True)
    return coreset.points[positive], coreset.weights[positive], clusters


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

    `table` (k_a, k_b): T, the least number of rows in each pair of clusters. `missing`: R, the rows missing in it.
    `slack`: most missing rows of a cell. The estimate is the index of a likely table: each nonzero cell lacks half of
    the slack, the mean loss by rounding, and the other missing rows are spread over the remaining room. The error is a
    bound for any cells of the R missing rows. In D above, a row in cell (i, j) adds T_i + T_j - 2 T_ij in pairs with
    known rows; the sum over R rows, at most `slack` in a cell, is extremal if cells are filled in order. Pairs of
    missing rows add from 0 to R (R - 1) / 2. The pairs together in one clustering are bounded likewise, and E, linear
    in both, is extremal at their bounds.
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
    """Return the least and greatest total weight of `number` items in weighted places that hold `room` each."""
    ordered = np.sort(weights)
    amounts = np.clip(number - room * np.arange(len(ordered)), 0, room)
    return float(ordered @ amounts), float(ordered[::-1] @ amounts)


def _likely_missing(table: FloatArray, missing: float, slack: float) -> FloatArray:
    """Estimate the number of missing rows in each pair of clusters, (k_a, k_b)."""
    half = np.where(table > 0, slack / 2, 0.0)
    half *= min(1.0, missing / max(float(half.sum()), 1.0))
    room = slack - half
    room[table.sum(axis=1) == 0] = room[:, table.sum(axis=0) == 0] = 0.0  # small or empty clusters
    if not room.any():
        room = np.ones_like(table)
    return np.asarray(half + room * (missing - half.sum()) / room.sum())
