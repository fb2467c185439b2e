"""Spectral clustering: kernel principal components in the span of some rows, and distributed k-means of coordinates.

Source: Balcan, Liang, Song, Woodruff, Xie: Communication Efficient Distributed Kernel Principal Component Analysis,
KDD 2016, section 6; with disKPCA's components this is CE PCA, a rival in the federated kernel k-means paper (2021).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Discriminator, Field, Tag

from clients.kmeans import LabelRows
from clients.spectral_kmeans import SpectralKMeansClient
from fedkernel.arrays import Rows, stack_rows
from fedkernel.data import check_rows
from fedkernel.errors import InputError
from fedkernel.judging import Measures
from fedkernel.models import KernelKMeans, compare_kernel_kmeans, kernel_kmeans, kmeans_objective
from fedkernel.protocol import Forecast, Member, Plan, Protocol, Run
from fedkernel.run import Result
from fedkernel.strategy import KernelStrategy
from fedkernel.validation import value_object
from strategies.choosing import MostClusters, NumberOfClusters, most_among, most_clusters, settled_clusters
from strategies.cluster_measures import measure_clusters, measuring_plan
from strategies.diskpca import DisKPCA
from strategies.kmeans import check_coreset, check_local_clusters, distributed_kmeans, kmeans_forecast, kmeans_plan
from strategies.stability import compare_clusters, comparing_plan
from strategies.uniform_kpca import UniformKPCA


def _finder(components: Any) -> str:
    """Return the name of the class that a table of a configuration means; the other would refuse these fields."""
    fields = components if isinstance(components, Mapping) else getattr(components, "__dict__", ())
    return "UniformKPCA" if {"n_samples", "solver"} & set(fields) else "DisKPCA"


Components = Annotated[
    Annotated[DisKPCA, Tag("DisKPCA")] | Annotated[UniformKPCA, Tag("UniformKPCA")], Discriminator(_finder)
]


@value_object()
class SpectralKMeans(KernelStrategy[KernelKMeans]):
    """Clusters of the rows' coordinates on kernel principal components.

    Parameters
    ----------
    n_clusters : int or "auto"
        The number of clusters; "auto": of 2 to ``max_clusters``, as for `FKKMeans`.
    components : DisKPCA or UniformKPCA
        What finds the components; in a table of a configuration, its parameters, where `n_samples` or `solver` tells
        that it is UniformKPCA.
    coreset_size : int, optional
        C, points that the clients sample for the distributed k-means; by default 1000, and of each client a quarter of
        its rows at most.

    Notes
    -----
    Costs: the rounds, floats and memory of `components`, then those of `distributed_kmeans`. Clients keep their rows'
    coordinates, n_m k floats.
    """

    n_clusters: NumberOfClusters
    components: Components = dataclasses.field(default_factory=DisKPCA)
    coreset_size: Annotated[int, Field(ge=1)] | None = None
    max_clusters: MostClusters = None

    client: ClassVar = SpectralKMeansClient
    hands_out: ClassVar[tuple[str, ...]] = (LabelRows.__name__,)
    needs_all: ClassVar[str] = "landmarks and coresets are of all rows, and what a client draws follows from all"
    partition: ClassVar[Literal["horizontal"]] = "horizontal"
    central_fields: ClassVar[tuple[str, ...]] = (
        "n_clusters",
        "most_clusters",
        "components.n_components",
        "components.max_components",
        "components.kernel",
    )
    tags: ClassVar = dataclasses.replace(DisKPCA.tags, error="recover_error")

    def __post_init__(self) -> None:
        """Check what one field demands of another."""
        most_clusters(self.n_clusters, self.max_clusters)
        if self.components.n_components == "auto":
            raise InputError(
                'components.n_components = "auto" is not for SpectralKMeans, whose rows are clustered by as many '
                "coordinates as it says; give a number, which a run of the components alone may choose"
            )

    @property
    def most_clusters(self) -> int:
        """How many clusters there are, at most where their number is chosen."""
        return most_clusters(self.n_clusters, self.max_clusters)

    def check_cohort(self, cohort: Sequence[Member]) -> None:
        """Check also what the components demand, and that every client has rows enough."""
        super().check_cohort(cohort)
        self.components.check_cohort(cohort)
        check_local_clusters(cohort, most_among(self.n_clusters, self.max_clusters, cohort))
        check_coreset(cohort, self.coreset_size)

    def forecast(self, cohort: Sequence[Member]) -> Forecast:
        """Return the costs above."""
        s = self.components.most_components
        clustered = kmeans_forecast(cohort, self.most_clusters, self.coreset_size, s)
        return self._embedding.forecast(cohort) + clustered

    def plan(self, clients: int, seed: int) -> Plan:
        """Return the components' plan, and the k-means."""
        k, s = self.most_clusters, self.components.most_components
        clustered = kmeans_plan(k, self.coreset_size, s, choose=self.n_clusters == "auto")
        return *self._embedding.plan(clients, seed), *clustered

    @property
    def _embedding(self) -> DisKPCA | UniformKPCA:
        """The components; the clients cluster their coordinates, so they compute them whatever `embed` says."""
        return dataclasses.replace(self.components, embed=True)

    def protocol(self, run: Run) -> Protocol[KernelKMeans]:
        """Components first, clusters then."""
        spanned = yield from self._embedding.protocol(run)
        k, choose = most_among(self.n_clusters, self.max_clusters, run.members), self.n_clusters == "auto"
        clustered = yield from distributed_kmeans(run, k, self.coreset_size, choose=choose)
        return KernelKMeans(
            *(clustered.centers, spanned.embedding, spanned.eigenvalues_),
            coreset_=clustered.coreset,
            choice_=clustered.choice,
            findings_=spanned.findings_,
            kernel_mean_=spanned.kernel_mean_,
        )

    def evaluation(self, run: Run, model: KernelKMeans) -> Protocol[Measures]:
        """Measure the clusters on all rows and on the coreset: two rounds, s + k + 4 floats from each client."""
        return measure_clusters(run, model)

    def evaluation_plan(self) -> Plan:
        """Return the requests for sums and sizes."""
        return measuring_plan(self.components.kernel)

    def comparison(self, run: Run, earlier: str) -> Protocol[dict[str, float]]:
        """Return `stability` of the clusters: one round, k^2 + 1 floats from each client, which are summed."""
        return compare_clusters(run, earlier, self.most_clusters)

    def comparison_plan(self, earlier: str) -> Plan:
        """Return the request for what the clusters of both runs share."""
        return comparing_plan(earlier, self.most_clusters)

    def central(self, shards: Sequence[Rows]) -> KernelKMeans:
        """Return exact kernel k-means of all rows in one place, which takes two (N, N) arrays."""
        X = check_rows(stack_rows(list(shards)), "the table of all rows")
        kernel = self.components.kernel.settled(X.shape[1])
        return settled_clusters(
            kernel_kmeans(X, kernel, self.most_clusters, self.components.most_components), self.n_clusters
        )

    def judge(
        self, result: Result[KernelKMeans], shards: Sequence[Rows], reference: KernelKMeans | None = None
    ) -> dict[str, float]:
        """Return the mean squared distance of rows to their centres in feature space.

        And recover error and agreement of the clusters, against what `central` returns.
        """
        compared = {} if reference is None else compare_kernel_kmeans(result.model, reference, shards)
        sums = [kmeans_objective(result.model, shard) for shard in shards]
        return compared | {"kmeans_objective": float(np.sum(sums)) / sum(shard.shape[0] for shard in shards)}

    def judge_alone(
        self, models: Sequence[KernelKMeans], shards: Sequence[Rows], reference: KernelKMeans | None = None
    ) -> dict[str, float]:
        """Return the mean of the objectives over all rows: clusters of some of them have no like in the reference."""
        return super().judge_alone(models, shards)
