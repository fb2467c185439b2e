"""k-means of embedded rows, and the steps of its distributed form: local solutions, allotted sampling, coresets.

Source of the distributed form: Balcan, Ehrlich, Liang: Distributed k-Means and k-Median Clustering on General
Topologies, NIPS 2013, algorithm 1 (distributed coreset construction).
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedkernel.ground import FloatArray, InputError, openmp_threads

IntArray = npt.NDArray[np.int64]

_SAME = 1e-6
"""Points nearer than this share of the largest distance are one point here: scikit-learn cannot tell them from 1e-8."""
_ROUNDING = 1e-12
"""So are points nearer than this share of their distance from the origin."""


class WeightedPoints(NamedTuple):
    """Points of shape (c, s), and what each stands for: weights of shape (c,), at least 0."""

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
    """Cluster points by Lloyd's iterations from k-means++ starts: scikit-learn's KMeans.

    Parameters
    ----------
    points : ndarray of shape (n, s)
    n_clusters : int
        k.
    rng : Generator
        Of the starts.
    weights : ndarray of shape (n,), optional
    restarts : int
        The best of so many.

    Returns
    -------
    ndarray of shape (k, s)
        The centres; fewer where there are fewer than k distinct points (of positive weight).
    """
    if n_clusters < 1:
        raise InputError(f"n_clusters = {n_clusters}, but must be at least 1")
    if weights is not None:
        points, weights = points[weights > 0], weights[weights > 0]
    if len(points) == 0:
        raise InputError("points must hold at least one point, of a weight above 0")
    from sklearn.cluster import KMeans  # noqa: PLC0415 - a second to import, for those who need it

    distinct = _count_distinct(points, n_clusters)
    state = int(rng.integers(2**31))
    with openmp_threads(1):
        solver = KMeans(distinct, n_init=restarts, random_state=state).fit(points, sample_weight=weights)
    return np.asarray(solver.cluster_centers_, dtype=np.float64)


def assign(points: FloatArray, centers: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return each point's nearest centre, and its squared distance to it: both of shape (n,)."""
    from sklearn.metrics import pairwise_distances_argmin_min  # noqa: PLC0415 - a second to import, for those who need it

    labels, distances = pairwise_distances_argmin_min(points, centers, metric="sqeuclidean")
    return labels.astype(np.int64), np.asarray(distances, dtype=np.float64)


def allot(costs: FloatArray, samples: int, most: IntArray | None = None) -> IntArray:
    """Divide a number of samples in proportion to the clients' costs, by largest remainders.

    Parameters
    ----------
    costs : ndarray of shape (M,)
        At least 0. If all are 0, nobody samples: the centres tell all.
    samples : int
    most : ndarray of shape (M,), optional
        How many each client takes at most; what is over goes to the others, by their costs.

    Returns
    -------
    ndarray of shape (M,)
        Whole numbers that add up to `samples`, where those with a cost take as many.
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
        counts[~over] = allot(costs[~over], samples - int(counts[over].sum()), most[~over])
    return counts


def coreset(points: FloatArray, centers: FloatArray, samples: int, rng: np.random.Generator) -> WeightedPoints:
    """Sample points by their cost, and add the centres for what the samples do not stand for.

    With m_q the squared distance of q to its centre: q is drawn with a probability proportional to m_q, with
    replacement, and weighs sum(m) / (samples m_q); a centre weighs the number of its points less the weights of those
    of them that were drawn. So costs are estimated without bias. What is left for a centre is 0 on average; where it is
    negative, which no weighted k-means takes, the centre weighs nothing, and those points share its number, in
    proportion: whatever was drawn, the weights near a centre add up to the number of its points. With as many samples
    as points or more, the points themselves come back, each of weight 1.

    Parameters
    ----------
    points : ndarray of shape (n, s)
    centers : ndarray of shape (k, s)
    samples : int
    rng : Generator

    Returns
    -------
    WeightedPoints
        `samples` points and then the k centres; or the n points.
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
    return WeightedPoints(
        np.vstack([points[drawn], centers]), np.concatenate([weights, np.maximum(counts - sampled, 0.0)])
    )


def _count_distinct(points: FloatArray, enough: int) -> int:
    """Count points that are apart from each other, up to `enough`, each time taking the farthest from those taken.

    scikit-learn warns where it is asked for more clusters than it finds distinct points, and a filter of warnings
    would be the whole process's, whose threads serve other clients.
    """
    distances = np.square(points - points[0]).sum(axis=1)
    floor = max(_SAME**2 * float(distances.max()), _ROUNDING**2 * float(np.square(points).sum(axis=1).max()))
    count = 1
    while count < enough and distances.max() > floor:
        farthest = points[int(distances.argmax())]
        np.minimum(distances, np.square(points - farthest).sum(axis=1), out=distances)
        count += 1
    return count
