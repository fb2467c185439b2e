"""k-means of embedded rows, and the steps of its distributed form: local solutions, allotted sampling, coresets.

Source of the distributed form: Balcan, Ehrlich, Liang: Distributed k-Means and k-Median Clustering on General
Topologies, NIPS 2013, algorithm 1 (distributed coreset construction).
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist

from fedkernel.ground import FloatArray, InputError, openmp_threads, row_blocks

IntArray = npt.NDArray[np.int64]

_EQUAL_DISTANCE = 1e-6
"""Relative distance, to the largest one, below which points count as equal; scikit-learn's limit is about 1e-8."""
_STARTED_FROM, _LANDMARK_STEPS = 10, 5  # points for each landmark among which it starts, and iterations
_ROUNDING = 1e-12  # distance relative to the origin's below which points count as equal


class WeightedPoints(NamedTuple):
    """Points of shape (c, s) with weights of shape (c,), at least 0."""

    points: FloatArray
    weights: FloatArray


def k_means(
    points: FloatArray,
    n_clusters: int,
    rng: np.random.Generator,
    *,
    weights: FloatArray | None = None,
    restarts: int = 1,
) -> FloatArray:
    """Cluster points (n, s) by scikit-learn's KMeans, with Lloyd's iterations from k-means++ starts.

    `weights` (n,). The best of `restarts` starts is kept. Returns (k, s): the centres; fewer if there are fewer than k
    distinct points (of positive weight).
    """
    if n_clusters < 1:
        raise InputError(f"n_clusters = {n_clusters}, but must be at least 1")
    if weights is not None:
        points, weights = points[weights > 0], weights[weights > 0]
    if len(points) == 0:
        raise InputError("points must hold at least one point, of a weight above 0")
    from sklearn.cluster import KMeans  # noqa: PLC0415 - takes a second to import

    distinct = _count_distinct(points, n_clusters)
    state = int(rng.integers(2**31))
    with openmp_threads(1):
        solver = KMeans(distinct, n_init=restarts, random_state=state).fit(points, sample_weight=weights)
    return np.asarray(solver.cluster_centers_, dtype=np.float64)


def landmark_centers(points: FloatArray, number: int, rng: np.random.Generator) -> FloatArray:
    """Find centres (number, d) of points (n, d) as landmarks, by few of Lloyd's iterations, started among few points.

    Kernel PCA in their span is as good as with `k_means`, for half the time or less. Fewer if there are fewer distinct
    points than `number`.
    """
    few = points[np.sort(rng.choice(len(points), min(len(points), _STARTED_FROM * number), replace=False))]
    if _count_distinct(few, number) < number:
        return k_means(points, number, rng)
    from sklearn.cluster import KMeans, kmeans_plusplus  # noqa: PLC0415 - takes a second to import

    with openmp_threads(1):
        start, _ = kmeans_plusplus(few, number, random_state=int(rng.integers(2**31)))
        solver = KMeans(number, init=start, n_init=1, max_iter=_LANDMARK_STEPS).fit(points)
    return np.asarray(solver.cluster_centers_, dtype=np.float64)


def assign(points: FloatArray, centers: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the number of each point's nearest centre and the squared distance to it, both of shape (n,)."""
    labels, distances = np.empty(len(points), dtype=np.int64), np.empty(len(points))
    # by differences: inner products would lose those of points far from the origin
    for rows in row_blocks(len(points)):
        squares = cdist(points[rows], centers, "sqeuclidean")
        labels[rows], distances[rows] = squares.argmin(axis=1), squares.min(axis=1)
    return labels, distances


def allot_samples(costs: FloatArray, samples: int, most: IntArray | None = None) -> IntArray:
    """Divide a number of samples among clients in proportion to their costs (M,), by largest remainders.

    If all costs are 0, no client samples: the centres are exact. `most` (M,): each client's limit; the excess goes to
    the others, by their costs. Returns integers (M,) that sum to `samples`, if the limits of clients with a cost allow.
    """
    total = float(costs.sum())
    if total <= 0:
        return np.zeros(len(costs), dtype=np.int64)
    shares = samples * (costs / total)
    counts = np.floor(shares).astype(np.int64)
    order = np.argsort(counts - shares, kind="stable")
    counts[order[: samples - int(counts.sum())]] += 1
    if most is not None and (over := counts > most).any():
        counts[over] = most[over]
        counts[~over] = allot_samples(costs[~over], samples - int(counts[over].sum()), most[~over])
    return counts


def coreset(points: FloatArray, centers: FloatArray, samples: int, rng: np.random.Generator) -> WeightedPoints:
    """Sample points by their squared distances to the nearest centre, and add the centres with the remaining weight.

    With m_q the squared distance of q to its centre: q is drawn with a probability proportional to m_q, with
    replacement, and weighs sum(m) / (samples m_q); a centre weighs the number of its points less the weights of its
    drawn points, or 0, and then these are scaled down: the weights near a centre sum to the number of its points.
    Returns `samples` of the points (n, s) and then the k centres; or, with as many samples as points or more, all
    points, each of weight 1.
    """
    n = len(points)
    if samples >= n:
        return WeightedPoints(points, np.ones(n))
    labels, costs = assign(points, centers)
    counts = np.bincount(labels, minlength=len(centers)).astype(np.float64)
    total = float(costs.sum())
    if samples == 0 or total <= 0:
        return WeightedPoints(centers, counts)
    drawn = rng.choice(n, size=samples, p=costs / total)
    weights, near = total / (samples * costs[drawn]), labels[drawn]
    sampled = np.bincount(near, weights=weights, minlength=len(centers))
    weights *= np.minimum(1.0, counts[near] / sampled[near])
    rest = np.maximum(counts - sampled, 0.0)
    return WeightedPoints(np.vstack([points[drawn], centers]), np.concatenate([weights, rest]))


def _count_distinct(points: FloatArray, enough: int) -> int:
    """Count distinct points up to `enough`. With fewer of them than clusters, scikit-learn would warn."""
    distances = np.square(points - points[0]).sum(axis=1)
    floor = max(_EQUAL_DISTANCE**2 * float(distances.max()), _ROUNDING**2 * float(np.square(points).sum(axis=1).max()))
    # Points farther apart than twice the limit along one column are that many, which needs no pass for each
    column = np.sort(points[:, int(np.ptp(points, axis=0).argmax())])
    if 1 + np.count_nonzero(np.square(np.diff(column)) > 4 * floor) >= enough:  # squares below 1e-324 are equal
        return enough
    count = 1
    while count < enough and distances.max() > floor:
        farthest = points[int(distances.argmax())]
        np.minimum(distances, np.square(points - farthest).sum(axis=1), out=distances)
        count += 1
    return count
