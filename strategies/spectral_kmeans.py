"""Spectral clustering: distributed k-means of coordinates along kernel principal components in the span of some rows.

Source: Balcan, Liang, Song, Woodruff, Xie: Communication Efficient Distributed Kernel Principal Component Analysis,
KDD 2016, section 6; with disKPCA's components this is CE PCA, a rival in the federated kernel k-means paper (2021).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Discriminator, Field, Tag

from fedkernel.clients.spectral_kmeans import SpectralKMeansClient
from fedkernel.ground import InputError, Rows, value_object
from fedkernel.models import KernelKMeans
from fedkernel.protocol import Forecast, Member, Plan, Protocol, Run
from fedkernel.strategies.cluster_count import MostClusters, NumberOfClusters
from fedkernel.strategies.cluster_measures import measuring_plan
from fedkernel.strategies.diskpca import DisKPCA
from fedkernel.strategies.kmeans_base import Clusters, CoresetStrategy
from fedkernel.strategies.uniform_kpca import UniformKPCA


def _components_class(components: Any) -> str:
    """Return the name of the strategy class that a configuration's `components` table describes. Its fields decide."""
    fields = components if isinstance(components, Mapping) else getattr(components, "__dict__", ())
    return "UniformKPCA" if {"n_samples", "solver"} & set(fields) else "DisKPCA"


Components = Annotated[
    Annotated[DisKPCA, Tag("DisKPCA")] | Annotated[UniformKPCA, Tag("UniformKPCA")], Discriminator(_components_class)
]


@value_object()
class SpectralKMeans(CoresetStrategy):
    """Spectral clustering: distributed k-means of the rows' coordinates along kernel principal components.

    - `n_clusters`, `max_clusters`, `coreset_size`, `clusters`, `n_centers`: as for `FKKMeans`.
    - `components`: strategy of the components, DisKPCA or UniformKPCA; in a configuration a table, in which `n_samples`
      or `solver` selects UniformKPCA.

    Costs: the rounds, floats and memory of `components`, then those of `distributed_kmeans` or `summed_kmeans`. Clients
    keep their rows' coordinates, n_m k floats.
    """

    n_clusters: NumberOfClusters
    components: Components = dataclasses.field(default_factory=DisKPCA)
    coreset_size: Annotated[int, Field(ge=1)] | None = None
    max_clusters: MostClusters = None
    clusters: Clusters = "coreset"
    n_centers: Annotated[int, Field(ge=1)] | None = None

    client: ClassVar = SpectralKMeansClient
    central_fields: ClassVar[tuple[str, ...]] = (
        "n_clusters",
        "most_clusters",
        "components.n_components",
        "components.max_components",
        "components.kernel",
    )
    tags: ClassVar = dataclasses.replace(DisKPCA.tags, error="recover_error")

    def __post_init__(self) -> None:
        self.check_clusters()
        if self.components.n_components == "auto":
            raise InputError(
                'components.n_components = "auto" is not available for SpectralKMeans, which clusters by that many '
                "coordinates; give a number, such as the choice of a run of the components alone"
            )

    def check_cohort(self, cohort: Sequence[Member]) -> None:
        """Check also the components' conditions."""
        self.components.check_cohort(cohort)
        super().check_cohort(cohort)

    def forecast(self, cohort: Sequence[Member]) -> Forecast:
        """Return the costs of the components, and of clustering their coordinates."""
        dimensions = self.components.most_components
        return self._embedding.forecast(cohort) + self.clusters_forecast(cohort, dimensions)

    def plan(self, clients: int, seed: int) -> Plan:
        """Return the components' plan, and the k-means plan."""
        return *self._embedding.plan(clients, seed), *self.clusters_plan(self.components.most_components)

    @property
    def _embedding(self) -> DisKPCA | UniformKPCA:
        """Strategy of the components, with ``embed`` set, since the clients cluster the coordinates."""
        return dataclasses.replace(self.components, embed=True)

    def protocol(self, run: Run) -> Protocol[KernelKMeans]:
        """Run the components' protocol, then the clustering."""
        spanned = yield from self._embedding.protocol(run)
        clustered = yield from self.cluster_rows(run, spanned.eigenvalues_)
        findings, mean = spanned.findings_, spanned.kernel_mean_
        return clustered.model(spanned.embedding, spanned.eigenvalues_, findings, kernel_mean_=mean)

    def evaluation_plan(self) -> Plan:
        """Return the requests for the clusters' sums and sizes."""
        return measuring_plan(self.components.kernel)

    def central(self, shards: Sequence[Rows]) -> KernelKMeans:
        """Return exact kernel k-means of all rows in one place, which takes two (N, N) arrays."""
        return self._central(shards, self.components.kernel, self.components.most_components)
