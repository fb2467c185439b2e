"""RFK k-means: distributed k-means of random features, drawn once; the federated kernel k-means paper's rival.

Source: Chitta, Jin, Jain: Efficient Kernel Clustering Using Random Fourier Features, ICDM 2012, with the distributed
k-means of Balcan, Ehrlich, Liang, NIPS 2013.
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from clients.fk_kmeans import EmbedRows, FKKMeansClient
from fedkernel.arrays import FloatArray
from fedkernel.errors import InputError
from fedkernel.models import FeatureChain, KernelKMeans, kernel_kmeans, training_of
from fedkernel.numerics import (
    RBF,
    AnyKernel,
    Frequencies,
    RandomFeatures,
    ShiftInvariant,
    WidthFactors,
    assign,
    kernel_silhouette,
    mean_of_points,
    scaled_width,
)
from fedkernel.protocol import Forecast, Member, Plan, Protocol, Run, any_width, once, to_all
from fedkernel.validation import value_object
from strategies.choosing import MostClusters, NumberOfClusters, most_clusters, settled_clusters
from strategies.cluster_measures import measuring_plan
from strategies.kmeans import KMeansStrategy, check_coreset, kmeans_forecast, kmeans_plan
from strategies.width_grid import best_width, kmeans_at_widths, widths_forecast, widths_plan


@value_object()
class RFKKMeans(KMeansStrategy):
    """Clients compute random features of their rows, and distributed k-means clusters these.

    Parameters
    ----------
    n_clusters : int or "auto"
        k; "auto": by the largest silhouette on the coreset, see `FKKMeans`.
    n_features : int
        D, also the dimensions of what is clustered.
    kernel, coreset_size, features, frequencies, max_clusters
        As for `FKKMeans`.
    width_factors : sequence of float, optional
        A grid of widths, such as (0.25, 0.5, 1, 2, 4): what the kernel's width is multiplied by, sigma of an RBF, so
        that gamma is divided by the factor's square, and 1 / gamma of a Laplacian; also one by rule. In one
        run, of the same features drawn once, the width with the largest mean silhouette on its coreset is taken;
        ``"auto"`` chooses the number of clusters at each. A coreset is sampled at each width, of `coreset_size` points;
        by default the quarter of its rows that a client samples at most is of all together.

    Notes
    -----
    Costs: those of the width (`fedkernel.settling.widths`), 1 round for the features, 3 for the k-means, whose floats
    are those of D dimensions. Memory: a client needs n_m D floats. With G widths as many rounds, G times the floats up
    and as many down, and G n_m D floats of memory.
    """

    n_clusters: NumberOfClusters
    n_features: Annotated[int, Field(ge=1)] = 200
    kernel: ShiftInvariant = RBF()
    coreset_size: Annotated[int, Field(ge=1)] | None = None
    features: Literal["pairs", "cosine"] = "pairs"
    frequencies: Frequencies = "orthogonal"
    max_clusters: MostClusters = None
    width_factors: WidthFactors | None = None

    client: ClassVar = FKKMeansClient
    central_fields: ClassVar[tuple[str, ...]] = (*KMeansStrategy.central_fields, "width_factors")
    # widths are compared by the same draws
    tags: ClassVar = dataclasses.replace(KMeansStrategy.tags, orthonormal=False, repeated=("local k-means", "coreset"))

    def __post_init__(self) -> None:
        """Check what one field demands of another."""
        self._features(RBF(gamma=1.0))
        if most_clusters(self.n_clusters, self.max_clusters) == 1 and self.width_factors is not None:
            raise InputError("width_factors needs n_clusters of 2 or more: one cluster has no silhouette to choose by")

    @property
    def dimensions(self) -> int:
        """Dimensions of the central counterpart's embedding: k."""
        return self.most_clusters

    def _features(self, kernel: AnyKernel, seed: int = 0) -> RandomFeatures:
        return RandomFeatures(kernel, self.n_features, self.features, seed, self.frequencies)  # type: ignore[arg-type]

    def forecast(self, cohort: Sequence[Member]) -> Forecast:
        """Return the costs above; coresets may be smaller."""
        if self.width_factors is not None:
            sizes = self.most_clusters, self.coreset_size, self.n_features, len(self.width_factors)
            return widths_forecast(cohort, *sizes)
        return Forecast(1) + kmeans_forecast(cohort, self.most_clusters, self.coreset_size, self.n_features)

    def plan(self, clients: int, seed: int) -> Plan:
        """Return the features, without a map from others, and the k-means."""
        features = any_width(self.kernel, lambda kernel: self._features(kernel, seed))
        k, choose = self.most_clusters, self.n_clusters == "auto"
        if self.width_factors is not None:
            sizes = k, self.coreset_size, self.n_features
            return widths_plan(features, self.width_factors, *sizes, choose=choose)
        embed = once(EmbedRows, {"r": 0}, precision="float64", features=features, t=1)
        return (embed, *kmeans_plan(k, self.coreset_size, self.n_features, choose=choose))

    def protocol(self, run: Run) -> Protocol[KernelKMeans]:
        """One draw of features, then distributed k-means."""
        features, width = self._features(self.kernel.settled(run.columns), run.seed), None
        if self.width_factors is None:
            yield from to_all(EmbedRows(features=features, t=1))
            clustered = yield from self.clusters(run)
        else:
            k, choose = self.most_among(run.members), self.n_clusters == "auto"
            features, clustered, width = yield from kmeans_at_widths(
                run, features, self.width_factors, k, self.coreset_size, choose=choose
            )
        return KernelKMeans(
            clustered.centers,
            FeatureChain(features, run.columns),
            coreset_=clustered.coreset,
            choice_=clustered.choice,
            width_choice_=width,
            kernel_mean_=mean_of_points(*clustered.coreset),
        )

    def evaluation_plan(self) -> Plan:
        """Return the requests for sums and sizes; where the run chooses the width, with any."""
        return measuring_plan(self.kernel if self.width_factors is None else type(self.kernel)())

    def check_cohort(self, cohort: Sequence[Member]) -> None:
        """Check also that sites let be sampled what the coresets of all widths have together."""
        super().check_cohort(cohort)
        check_coreset(cohort, self.coreset_size, len(self.width_factors or (1.0,)))

    def central(self, shards: Sequence[FloatArray]) -> KernelKMeans:
        """Return exact kernel k-means of all rows in one place; of a grid, at the width that is best there.

        Silhouettes are then of all rows, by their distances in feature space. A run may take another width.
        """
        if self.width_factors is None:
            return super().central(shards)
        X, models, worth = np.vstack(list(shards)), [], []
        own: Any = self.kernel.settled(X.shape[1])
        kernels = [scaled_width(own, factor) for factor in self.width_factors]
        for kernel in kernels:
            clustered = kernel_kmeans(X, kernel, self.most_clusters, self.dimensions)
            models.append(settled_clusters(clustered, self.n_clusters))
            worth.append(kernel_silhouette(kernel.gram(X), assign(training_of(models[-1]), models[-1].centers_)[0]))
        place, choice = best_width(kernels, self.width_factors, worth)
        return dataclasses.replace(models[place], width_choice_=choice)
