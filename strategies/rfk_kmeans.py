"""RFK k-means: distributed k-means of random Fourier features, a baseline in the federated kernel k-means paper.

Source: Chitta, Jin, Jain: Efficient Kernel Clustering Using Random Fourier Features, ICDM 2012, with the distributed
k-means of Balcan, Ehrlich, Liang, NIPS 2013.
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedkernel.clients.fk_kmeans import EmbedRows, FKKMeansClient
from fedkernel.ground import value_object
from fedkernel.models import FeatureChain, KernelKMeans
from fedkernel.numerics import RBF, AnyKernel, Frequencies, RandomFeatures, ShiftInvariant, mean_of_points
from fedkernel.protocol import Forecast, Member, Plan, Privacy, Protocol, Run, any_width, once, to_all
from fedkernel.strategies.cluster_count import MostClusters, NumberOfClusters
from fedkernel.strategies.kmeans_base import Clusters, KMeansStrategy
from fedkernel.strategies.shared_centroids import agreement_lost, number_with_noise


@value_object()
class RFKKMeans(KMeansStrategy):
    """Distributed k-means of random features, which every client computes of its rows from a common seed.

    - `n_clusters`: k; "auto": by the largest silhouette on the coreset, see `FKKMeans`.
    - `n_features`: D, also the dimensions of the clustered points.
    - `kernel`, `coreset_size`, `features`, `frequencies`, `max_clusters`, `clusters`, `n_centers`: as for `FKKMeans`.

    Costs: those of the width (`fedkernel.kernel_width.width_rounds`), 1 round for the features, 3 for the k-means, 5 by
    sums, whose floats are those of D dimensions. Memory: a client needs n_m D floats.
    """

    n_clusters: NumberOfClusters
    n_features: Annotated[int, Field(ge=1)] = 200
    kernel: ShiftInvariant = RBF()
    coreset_size: Annotated[int, Field(ge=1)] | None = None
    features: Literal["pairs", "cosine"] = "pairs"
    frequencies: Frequencies = "orthogonal"
    max_clusters: MostClusters = None
    clusters: Clusters = "coreset"
    n_centers: Annotated[int, Field(ge=1)] | None = None

    client: ClassVar = FKKMeansClient
    tags: ClassVar = dataclasses.replace(KMeansStrategy.tags, orthonormal=False)

    def __post_init__(self) -> None:
        self._features(RBF(gamma=1.0))
        self.check_clusters()

    @property
    def dimensions(self) -> int:
        """Dimensions k of the central counterpart's embedding."""
        return self.most_clusters

    def _features(self, kernel: AnyKernel, seed: int = 0) -> RandomFeatures:
        return RandomFeatures(kernel, self.n_features, self.features, seed, self.frequencies)  # type: ignore[arg-type]

    def forecast(self, cohort: Sequence[Member]) -> Forecast:
        """Return the costs of one draw and the k-means. Coresets may be smaller."""
        return Forecast(1) + self.clusters_forecast(cohort, self.n_features)

    def noise_finding(self, cohort: Sequence[Member], privacy: Privacy) -> str:
        """Return a finding: noise moves a centre by a share of a row's length, and agreement with classes is lost."""
        rows, fewest = sum(member.rows for member in cohort), 2 * self.most_clusters
        _, moved = number_with_noise(privacy, self.most_centers, fewest, self.n_features, rows)
        return agreement_lost("a centre", moved, "a row's length")

    def plan(self, clients: int, seed: int) -> Plan:
        """Return the requests for one draw of features, and the k-means plan."""
        features = any_width(self.kernel, lambda kernel: self._features(kernel, seed))
        embed = once(EmbedRows, {"r": 0}, precision="float64", features=features, t=1)
        return (embed, *self.clusters_plan(self.n_features))

    def protocol(self, run: Run) -> Protocol[KernelKMeans]:
        """Run one draw of features, then distributed k-means."""
        features = self._features(self.kernel.settled(run.columns), run.seed)
        yield from to_all(EmbedRows(features=features, t=1))
        clustered = yield from self.cluster_rows(run, np.full(self.n_features, 1 / self.n_features))
        mean = mean_of_points(*clustered.coreset)
        return clustered.model(FeatureChain(features, run.columns), kernel_mean_=mean)
