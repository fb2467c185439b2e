"""Centroid k-means: kernel k-means of horizontally partitioned data by k-means centres of all clients' rows.

Source: the landmarks are those of `fedkernel.strategies.centroid_kpca`; Wang, Gittens, Mahoney: Scalable Kernel K-Means
Clustering with Nyström Approximation, JMLR 20 (2019), algorithm 1, with these landmarks.

Departure from the paper: clusters and dimensions are those of the landmarks, each weighed by its rows, and not of all
rows. All dimensions in place of 5 k, or rounds of Lloyd's algorithm over the clients thereafter, changed little.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedkernel.clients.cell_sums import LEAST_ROWS, Least
from fedkernel.clients.centroid_kmeans import CentroidKMeansClient
from fedkernel.clients.kmeans_base import LabelRows
from fedkernel.clients.landmark_base import TakeComponents, TakeLandmarks
from fedkernel.ground import BLOCK_ROWS, InputError, Precision, Rows, check_at_most, value_object
from fedkernel.models import KernelKMeans, Landmarks
from fedkernel.numerics import (
    RBF,
    Embeddable,
    WeightedPoints,
    is_bounded,
    leading_eigenpairs,
    mean_of_points,
    whitening,
)
from fedkernel.protocol import FLOAT, Forecast, Member, Plan, Protocol, Run, once, to_all
from fedkernel.strategies.centroid_landmarks import CentroidLandmarks
from fedkernel.strategies.cluster_count import MostClusters, NumberOfClusters
from fedkernel.strategies.kmeans_base import ClusteringStrategy, cluster_points
from fedkernel.strategies.landmark_base import components_plan, low_rank_step
from fedkernel.strategy import Tags

LANDMARKS_PER_CLUSTER = {"shared": 5, "local": 15}
"""Landmarks for each cluster, by default: local ones cost less, and several sites may have centres in one place."""


DIMENSIONS_PER_CLUSTER = 5
"""Most dimensions of the coordinates for each cluster."""


@value_object()
class CentroidKMeans(CentroidLandmarks, ClusteringStrategy):
    """Kernel k-means by k-means centres of all clients' rows, each of its number of rows, by sums alone.

    No row leaves. The coordinator clusters the centres, by their coordinates along the 5 k leading directions of their
    own images in feature space, and the clients label their rows by the clusters' centres.

    Parameters
    ----------
    n_clusters : int or "auto"
        k; "auto": of 2 to ``max_clusters``, by the silhouette of the landmarks; the result's ``findings`` give the
        reason. ``max_clusters`` is by default 10, and no more than the root of the fewest rows of a client.
    kernel : Linear, RBF, Laplacian, Polynomial or ArcCosine
    n_landmarks : int, optional
        |Y|, the most centres; those without rows are left out. By default 5 k, of local ones 15 k, but no more than
        keep the numbers that leave a site at half of its table's entries; at least k + 1. If there are fewer than that,
        ``findings`` say so.
    centroids : {"shared", "local"}
        "shared": of all rows, by sums over all clients. "local": each client finds its own, by its share of the rows,
        and sends them with their numbers of rows in one round: for fewer floats, but not sums.
    rounds : int, optional
        T, of Lloyd's algorithm for shared centres; by default 3, or 2 if the entries do not allow 2 k centres.
    least : int
        Fewest rows of a group; a client's guards may ask for more.
    dtype, tol
        As for `DisKPCA`.

    Notes
    -----
    Costs, with M clients and rows of d floats: T + 4 rounds, with local centres 4. Floats: up M (2 d + T |Y| (d + 2)),
    with local centres |Y| (d + 1); down M (|Y| (T d + d + s) + k s), s at most 5 k. No cost grows with the number
    of rows.

    Time: a client puts its rows into groups once, as `CentroidKPCA`, and computes n_m |Y| kernel values. Memory: a
    client its groups' means, some n_m d / 7 floats, and its rows' coordinates, n_m s floats; the coordinator |Y|^2.
    """

    n_clusters: NumberOfClusters
    kernel: Embeddable = RBF()
    n_landmarks: Annotated[int, Field(ge=1)] | None = None
    centroids: Literal["shared", "local"] = "shared"
    rounds: Annotated[int, Field(ge=1)] | None = None
    least: Least = LEAST_ROWS
    dtype: Precision = "float64"
    tol: Annotated[float, Field(gt=0, lt=1)] | None = None
    max_clusters: MostClusters = None

    client: ClassVar = CentroidKMeansClient
    counted: ClassVar = True
    distribution_phases: ClassVar[tuple[str, ...]] = tuple(
        kind.__name__ for kind in (TakeLandmarks, TakeComponents, LabelRows)
    )
    central_fields: ClassVar[tuple[str, ...]] = ("n_clusters", "most_clusters", "dimensions", "kernel")
    tags: ClassVar = Tags("embedding", pooled=False, error="recover_error")

    def __post_init__(self) -> None:
        self.check_clusters()
        self.check_centroids()
        name = "n_clusters" if self.max_clusters is None else "max_clusters"
        check_at_most(name, self.most_clusters, self.most_landmarks, "the number of landmarks, n_landmarks = ")

    @property
    def wanted(self) -> tuple[int, str]:
        """Number of clusters."""
        return self.most_clusters, "clusters"

    @property
    def landmarks_for_each(self) -> int:
        """Usual number of landmarks for each cluster."""
        return LANDMARKS_PER_CLUSTER[self.centroids]

    @property
    def dimensions(self) -> int:
        """Largest number s of coordinates."""
        return min(self.most_landmarks, DIMENSIONS_PER_CLUSTER * self.most_clusters)

    def other_floats(self, cohort: Sequence[Member], landmarks: int) -> int:
        """Return the uploaded floats for measuring the clusters, and for comparing them with an earlier run's."""
        k = self.most_clusters
        return len(cohort) * (min(landmarks, self.dimensions) + 4 + k + 1 + k * k + 1)

    def check_cohort(self, cohort: Sequence[Member]) -> None:
        """Check also that all clients together have enough rows."""
        super().check_cohort(cohort)
        check_at_most("n_clusters", self.most_clusters_of(cohort), sum(member.rows for member in cohort))

    def forecast(self, cohort: Sequence[Member]) -> Forecast:
        """Return the costs of finding the centres, and of labelling by them. Fewer centres may be found."""
        M, n, d, k = len(cohort), max(member.rows for member in cohort), cohort[0].columns, self.most_clusters
        Y, T, *_ = self.sizes(cohort)
        s = min(Y, self.dimensions)
        memory = FLOAT * (Y * (d + s) + 3 * n * s) + np.dtype(self.dtype).itemsize * min(n, BLOCK_ROWS) * (d + Y)
        return self._centers_forecast(cohort, Y, T) + Forecast(3, 0, M * (Y * (d + s) + k * s), memory, "at most")

    def plan(self, clients: int, seed: int) -> Plan:
        """Return the requests for the centres, and those that send the landmarks and the clusters."""
        step, Y = low_rank_step(self.kernel, self.dtype, self.tol), self.most_landmarks
        labels = once(LabelRows, {"k": self.most_clusters, "s": self.dimensions})
        return (
            *self._centers_plan(),
            step.plan(TakeLandmarks, Y),
            components_plan(step, Y, self.dimensions, embed=True),
            labels,
        )

    def protocol(self, run: Run) -> Protocol[KernelKMeans]:
        """Find the centres, cluster them, and label the rows."""
        step, sizes = (
            low_rank_step(self.kernel.settled(run.columns), self.dtype, self.tol),
            self.sizes(run.members, run.privacy),
        )
        Y, counts, left_out = yield from self._find_centers(run, step.kernel, sizes)
        # A basis phi(Y) R of the landmarks' span, and its leading directions by the landmarks' weighted coordinates
        K = step.kernel.gram(Y)
        R = whitening(K, step.tol)
        if R.shape[1] == 0:
            raise InputError("the kernel is zero on all landmarks, so that there are no clusters")
        H, least = K @ R, min(self.most_clusters, run.columns, len(Y))
        flat = f"the landmarks span {R.shape[1]} dimensions, so that clusters may be hidden; prepare tables far from 0"
        pairs = leading_eigenpairs(H.T @ (counts[:, np.newaxis] * H), min(self.dimensions, R.shape[1]))
        embedding = Landmarks(step.kernel, Y, R @ pairs.vectors)
        points, most = WeightedPoints(embedding(Y), counts), self.most_clusters_of(run.members)
        clustering = cluster_points(run, points, most, choose=self.n_clusters == "auto", name="the landmarks")
        yield from to_all(TakeLandmarks(**step.handed(Y)))
        yield from to_all(step.components(embedding.coefficients, embed=True))
        yield from to_all(LabelRows(centers=clustering.centers))
        mean = mean_of_points(*points) if is_bounded(step.kernel) else None
        return KernelKMeans(
            clustering.centers,
            embedding,
            pairs.values,
            choice_=clustering.choice,
            findings_=(*sizes.findings, *left_out, *((flat,) if R.shape[1] < least else ()), *clustering.findings),
            kernel_mean_=mean,
        )

    def central(self, shards: Sequence[Rows]) -> KernelKMeans:
        """Return exact kernel k-means of all rows in one place, which takes two (N, N) arrays."""
        return self._central(shards, self.kernel, min(self.dimensions, sum(shard.shape[0] for shard in shards)))
