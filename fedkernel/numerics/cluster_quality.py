"""Quality of clusters without known classes (silhouette, Calinski-Harabasz), and their agreement with sites."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist

from fedkernel.ground import FloatArray, row_blocks
from fedkernel.numerics.clustering import IntArray, WeightedPoints, assign

MOST_POINTS = 20_000
"""Most points for a silhouette, which takes all distances between them."""


class Silhouette(NamedTuple):
    """Mean silhouette of weighted points, and its standard error if they were drawn independently."""

    mean: float
    error: float


def silhouette(coreset: WeightedPoints, labels: IntArray) -> Silhouette | None:
    """Return the mean silhouette of weighted points: (b - a) / max(a, b), each point counting by its weight.

    a is the weighted mean distance to the others of the point's cluster, b that to the points of the nearest other
    cluster; a cluster of one point counts 0. The rows that a point represents are not among its neighbours: those of a
    coreset's centre are not at one place, and to count them there would favour as many clusters as local centres. So
    the result is the silhouette of all rows if these are the coreset, else an estimate. Takes c^2 distances, by blocks
    of rows.
    Source: Rousseeuw, Silhouettes: a graphical aid to the interpretation and validation of cluster analysis, 1987.

    - `labels` (c,).

    Returns a mean from -1 to 1, or None for fewer than two clusters of positive weight or more than 20,000 points.
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


def ratio_of_variances(between: float, within: float, clusters: int, rows: float) -> float | None:
    """Return the Calinski-Harabasz index (B / (k - 1)) / (W / (n - k)); None if not finite.

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
    """Return centres with the mean silhouette of their clusters of weighted points."""
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
