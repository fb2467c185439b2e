"""Distributed k-means, of sampled rows or by sums, as sub-protocols, and base classes of strategies that use it.

Source: Balcan, Ehrlich, Liang: Distributed k-Means and k-Median Clustering on General Topologies, NIPS 2013, algorithm
1; the local solutions and the last one are scikit-learn's k-means. By sums: `fedkernel.strategies.shared_centroids`.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedkernel.clients.kmeans_base import (
    CompareClusters,
    KMeansClient,
    LabelNewRows,
    LabelRows,
    SampleCoreset,
    SolveLocally,
)
from fedkernel.data import Prepare, check_rows
from fedkernel.ground import FloatArray, InputError, Rows, check_at_most, stack_rows, value_object
from fedkernel.models import (
    RESTARTS,
    FeatureChain,
    KernelKMeans,
    check_landmarks,
    compare_kernel_kmeans,
    kernel_kmeans,
    kmeans_objective,
    nystroem_kernel_kmeans,
)
from fedkernel.numerics import AnyKernel, WeightedPoints, allot_samples, eigengap, k_means, leading_eigenpairs
from fedkernel.protocol import FLOAT, AtMost, Forecast, Member, Plan, Protocol, Run, once, to_all, to_each
from fedkernel.run import Result, RunSettings
from fedkernel.strategies.cluster_count import AUTO_CLUSTERS, Clustering, best_division, choose_central_clusters
from fedkernel.strategies.cluster_measures import measure_clusters, measuring_plan
from fedkernel.strategies.cluster_stability import compare_clusters
from fedkernel.strategies.shared_centroids import (
    MOST_ROUNDS,
    embedded_centroids,
    embedded_floats,
    embedded_plan,
    number_with_noise,
)
from fedkernel.strategy import KernelStrategy, Measures, Rival, Tags

CORESET_SIZE, CORESET_SHARE = 1000, 0.25
"""Defaults of the points sampled by all clients together, and of a client's largest share of its rows (its guards')."""

FEWEST_POINTS = 2
"""Points for each cluster below which a finding reports few."""

CENTERS_PER_CLUSTER, FEWEST_CENTERS = 5, 30
"""Default centres of all embedded rows for each cluster, and the fewest by default: of few clusters none is missed."""

Clusters = Literal["coreset", "lloyd"]
"""How the clusters are found: of sampled rows, or by sums."""


def distributed_kmeans(
    run: Run, n_clusters: int, coreset_size: int | None, *, choose: bool = False
) -> Protocol[Clustering]:
    """Cluster the rows that the clients have embedded; a sub-protocol of three rounds. The labels stay at the clients.

    Up: M floats, then (C + M k)(s + 1); a client with no more rows than samples sends just these. Down k s to each
    client. Memory: the coordinator the coreset, a client its embedded rows. If a client's limit (`Member.sampled`) is
    too low, others sample the rest. With `choose`, there are from 2 to k clusters, by `best_division`.
    """
    # Round 1: every client clusters its own rows and replies the cost
    solved = yield from to_all(SolveLocally(n_clusters=n_clusters))
    # Round 2: clients whose rows are far from their centres sample more of them
    size, most = coreset_limits(run.members, coreset_size)
    counts = allot_samples(np.array([reply.cost for reply in solved]), size, most)
    coresets = yield from to_each({client: SampleCoreset(samples=int(n)) for client, n in enumerate(counts)})
    # Round 3: the clients label their rows by the centres of the weighted union
    weights = np.concatenate([reply.weights for reply in coresets])
    coreset = WeightedPoints(np.vstack([reply.points for reply in coresets]), weights)
    return (yield from label_by(cluster_points(run, coreset, n_clusters, choose=choose)))


def summed_kmeans(
    run: Run, n_clusters: int, number: int, squares: FloatArray, *, choose: bool = False
) -> Protocol[Clustering]:
    """Cluster the rows that the clients have embedded, by sums alone; a sub-protocol of five rounds.

    At most `number` centres of all rows are found by Lloyd's algorithm over the clients (`embedded_centroids`), and
    clustered at the coordinator, each weighed by its rows. `squares` (s,): the coordinates' mean squares.
    """
    if run.privacy is not None:
        number, _ = number_with_noise(run.privacy, number, 2 * n_clusters, len(squares), run.rows)
    centers, counts, left_out = yield from embedded_centroids(run, number, squares)
    points = WeightedPoints(centers, counts)
    clustering = cluster_points(run, points, n_clusters, choose=choose, name="the centres")
    return (yield from label_by(clustering._replace(findings=(*left_out, *clustering.findings))))


def label_by(clustering: Clustering) -> Protocol[Clustering]:
    """Have the clients label their rows by the clusters' centres; a sub-protocol of one round."""
    yield from to_all(LabelRows(centers=clustering.centers))
    return clustering


def cluster_points(
    run: Run, points: WeightedPoints, n_clusters: int, *, choose: bool, name: str = "the coreset"
) -> Clustering:
    """Cluster weighted points at the coordinator. `choose`: by `best_division`. Findings call the points by `name`."""
    if choose:
        return best_division(points, n_clusters, lambda: run.rng("k-means"), name)
    centers = k_means(points.points, n_clusters, run.rng("k-means"), weights=points.weights, restarts=RESTARTS)
    found, weighing = len(centers), int(np.count_nonzero(points.weights))
    few = ""
    if found < n_clusters:
        few = f"only {found} clusters in place of n_clusters = {n_clusters}: no more points differ among {name}"
    elif weighing < FEWEST_POINTS * n_clusters:
        few = f"only {weighing} points are clustered ({name}) for n_clusters = {n_clusters}, so clusters are rough"
    return Clustering(centers, points, findings=(few,) if few else ())


def coreset_limits(cohort: Sequence[Member], coreset_size: int | None) -> tuple[int, npt.NDArray[np.int64]]:
    """Return the total number of sampled points over all clients, and each client's largest number."""
    own = [int(CORESET_SHARE * member.rows) if coreset_size is None else coreset_size for member in cohort]
    least = zip(own, cohort, strict=True)
    most = np.array([share if member.sampled is None else member.sampled for share, member in least])
    return (min(CORESET_SIZE, int(most.sum())) if coreset_size is None else coreset_size), most


@value_object()
class Nystroem(Rival[KernelKMeans]):
    """Kernel k-means of all data in one place, the kernel matrix approximated from n_landmarks = 500 rows.

    Source: the federated kernel k-means paper's SK; see `fedkernel.models.nystroem_kernel_kmeans`.
    """

    n_landmarks: Annotated[int, Field(ge=1, strict=True)] = 500

    def check(self, strategy: "KMeansStrategy", rows: int) -> None:
        """Check that there are at least as many landmarks as components, or clusters, and at most all rows."""
        check_landmarks(self.n_landmarks, strategy.n_components or strategy.most_clusters, rows)

    def find(self, strategy: "KMeansStrategy", shards: Sequence[FloatArray], seed: int) -> KernelKMeans:
        """Return approximate kernel k-means of all rows."""
        X, m = np.vstack(list(shards)), self.n_landmarks
        kernel = strategy.settled_on(shards).kernel.settled(X.shape[1])
        s = min(strategy.dimensions_of(len(X)), m)
        return nystroem_kernel_kmeans(X, kernel, strategy.most_clusters, s, n_landmarks=m, seed=seed)


class ClusteringStrategy(KernelStrategy[KernelKMeans]):
    """Base of strategies that give horizontally partitioned rows coordinates, and cluster all rows together."""

    distribution_phases: ClassVar[tuple[str, ...]] = (LabelRows.__name__,)
    partition: ClassVar[Literal["horizontal"]] = "horizontal"

    n_clusters: int | Literal["auto"]
    max_clusters: int | None
    kernel: AnyKernel

    def check_clusters(self) -> None:
        """Raise InputError if both a number and a largest number of clusters are set."""
        if self.n_clusters != "auto" and self.max_clusters is not None:
            raise InputError(f'max_clusters = {self.max_clusters} has a meaning only with n_clusters = "auto"')

    @property
    def most_clusters(self) -> int:
        """Number of clusters, or the upper limit if the number is chosen."""
        if self.n_clusters == "auto":
            return AUTO_CLUSTERS if self.max_clusters is None else self.max_clusters
        return self.n_clusters

    def most_clusters_of(self, cohort: Sequence[Member]) -> int:
        """Return the largest number of clusters for these clients. By default, at most the root of the fewest rows."""
        if self.n_clusters == "auto" and self.max_clusters is None:
            return min(self.most_clusters, max(2, math.isqrt(min(member.rows for member in cohort))))
        return self.most_clusters

    def evaluation_plan(self) -> Plan:
        """Return the requests for the clusters' sums and sizes."""
        return measuring_plan(self.kernel)

    def evaluation(self, run: Run, model: KernelKMeans) -> Protocol[Measures]:
        """Measure the clusters on all rows: two rounds, s + k + 5 floats per client."""
        return measure_clusters(run, model)

    def comparison(self, run: Run, earlier: str) -> Protocol[dict[str, float]]:
        """Measure the clusters' stability: one round, k^2 + 1 summed floats from each client."""
        return compare_clusters(run, earlier, self.most_clusters)

    def comparison_plan(self, earlier: str) -> Plan:
        """Return the plan of `comparison`: one request for the rows that clusters of both runs share."""
        return (once(CompareClusters, **dict(CompareClusters(run=earlier, n_clusters=self.most_clusters))),)

    def judge(
        self, result: Result[KernelKMeans], shards: Sequence[Rows], reference: KernelKMeans | None = None
    ) -> dict[str, float]:
        """Return the mean squared distance of rows to their centres. A reference adds recover error and agreement."""
        compared = {} if reference is None else compare_kernel_kmeans(result.model, reference, shards)
        sums = [kmeans_objective(result.model, shard) for shard in shards]
        return compared | {"kmeans_objective": float(np.sum(sums)) / sum(shard.shape[0] for shard in shards)}

    def judge_alone(
        self, models: Sequence[KernelKMeans], shards: Sequence[Rows], reference: KernelKMeans | None = None
    ) -> dict[str, float]:
        """Return the objective's mean over all rows. One client's clusters have no counterpart in the reference."""
        return super().judge_alone(models, shards)

    def _central(self, shards: Sequence[Rows], kernel: AnyKernel, s: int) -> KernelKMeans:
        """Return exact kernel k-means of all rows in s dimensions, which takes two (N, N) arrays."""
        X = check_rows(stack_rows(list(shards)), "the table of all rows")
        model = kernel_kmeans(X, kernel.settled(X.shape[1]), self.most_clusters, s)
        return choose_central_clusters(model, self.n_clusters)


class CoresetStrategy(ClusteringStrategy):
    """Base of strategies that cluster the rows' coordinates by distributed k-means, of sampled rows or by sums."""

    coreset_size: int | None
    clusters: Clusters
    n_centers: int | None

    def check_clusters(self) -> None:
        """Raise InputError also for a set size that the chosen way of finding clusters does not use."""
        super().check_clusters()
        unused, clusters = ("coreset_size", "coreset") if self.clusters == "lloyd" else ("n_centers", "lloyd")
        if (size := getattr(self, unused)) is not None:
            raise InputError(f'{unused} = {size} has a meaning only with clusters = "{clusters}"')

    @property
    def most_centers(self) -> int:
        """Largest number of centres of all rows, if clusters are found by sums."""
        return self.n_centers or max(FEWEST_CENTERS, CENTERS_PER_CLUSTER * self.most_clusters)

    def check_cohort(self, cohort: Sequence[Member]) -> None:
        """Check also that every client has rows for the clusters, and that sites allow the coreset's size."""
        super().check_cohort(cohort)
        if self.clusters == "lloyd":
            check_at_most("n_clusters", self.most_clusters_of(cohort), self.most_centers, "n_centers = ")
            return
        for member in cohort:
            rows, why = f"the number of rows of {member.label}, ", ", since it finds as many centres of its own"
            check_at_most("n_clusters", self.most_clusters_of(cohort), member.rows, rows, why)
        size, most = coreset_limits(cohort, self.coreset_size)
        if size > most.sum():
            site = cohort[int(np.argmin(most))]
            raise InputError(
                f"coreset_size = {self.coreset_size}, but must be at most {most.sum()}, the rows that all sites "
                f"together allow to be sampled; {site.label} allows {most.min()} of its {site.rows} (guard: coreset)"
            )

    def cluster_rows(self, run: Run, squares: FloatArray) -> Protocol[Clustering]:
        """Cluster the rows by their coordinates; a sub-protocol. `squares` (s,): see `embedded_centroids`."""
        k, choose = self.most_clusters_of(run.members), self.n_clusters == "auto"
        if self.clusters == "lloyd":
            return summed_kmeans(run, k, self.most_centers, squares, choose=choose)
        return distributed_kmeans(run, k, self.coreset_size, choose=choose)

    def clusters_forecast(self, cohort: Sequence[Member], dimensions: int) -> Forecast:
        """Return an upper bound of the clustering's costs, for rows with `dimensions` coordinates."""
        M, rows, k = len(cohort), [member.rows for member in cohort], self.most_clusters
        if self.clusters == "lloyd":
            up, down = embedded_floats(self.most_centers, dimensions)
            memory = 2 * FLOAT * max(rows) * dimensions
            return Forecast(MOST_ROUNDS + 2, M * up, M * (down + k * dimensions), memory, "at most")
        size, most = coreset_limits(cohort, self.coreset_size)
        points = min(size, sum(rows) - M if self.coreset_size is not None else int(most.sum())) + M * k
        memory = 3 * FLOAT * max(rows) * dimensions
        return Forecast(3, M + points * (dimensions + 1), M * k * dimensions, memory, "at most")

    def clusters_plan(self, dimensions: int) -> Plan:
        """Return the clustering's plan, with upper bounds if the number of clusters is chosen."""
        k = self.most_clusters
        if self.clusters == "lloyd":
            return embedded_plan(self.most_centers, dimensions), once(LabelRows, {"k": k, "s": dimensions})
        return (
            once(SolveLocally, n_clusters=AtMost(k) if self.n_clusters == "auto" else k),
            once(SampleCoreset, samples=AtMost(self.coreset_size or CORESET_SIZE)),
            once(LabelRows, {"k": k, "s": dimensions}),
        )


class KMeansStrategy(CoresetStrategy):
    """Base of strategies that embed horizontally partitioned rows and cluster them by distributed k-means."""

    client: ClassVar[type[KMeansClient]]
    central_fields: ClassVar[tuple[str, ...]] = ("n_clusters", "most_clusters", "dimensions", "eigengap", "kernel")
    rivals: ClassVar = (Nystroem,)
    tags: ClassVar = Tags("embedding", orthonormal=True, error="recover_error")

    n_components: int | None = None
    kernel: AnyKernel
    eigengap: bool = False

    @property
    @abstractmethod
    def dimensions(self) -> int:
        """Dimensions of the central counterpart's embedding, or the upper limit if the eigengap chooses."""

    def dimensions_of(self, rows: int) -> int:
        """Return the embedding's dimensions for a number of rows. Raise InputError if more than these are set."""
        if self.n_components is not None:
            check_at_most("n_components", self.n_components, rows)
        return min(self.dimensions, rows)

    def check_cohort(self, cohort: Sequence[Member]) -> None:
        """Check also that all clients together have enough rows."""
        total = sum(member.rows for member in cohort)
        check_at_most("n_clusters", self.most_clusters, total)
        self.dimensions_of(total)
        super().check_cohort(cohort)

    def for_site(self, rows: int) -> Self:
        """Return the strategy for a single site, after checking that the site has enough rows."""
        name, most = ("n_components", self.n_components) if self.n_components else ("n_clusters", self.most_clusters)
        check_at_most(name, most, rows, note=", since each client clusters its own")
        return self

    def prediction(self, run: Run, model: KernelKMeans) -> Protocol[None]:
        """Ask the clients to label their new rows: one round, T D s + k s floats down, none up."""
        if not isinstance(chain := model.embedding, FeatureChain):
            raise InputError(f"{type(self).__name__} labels new rows by a model of its own, not by one with landmarks")
        fields = {"features": chain.features, "coefficients": chain.coefficients}
        yield from to_all(LabelNewRows(**fields, centers=model.centers_))

    def predict(
        self,
        model: KernelKMeans,
        shards: Sequence[npt.ArrayLike],
        new_shards: Sequence[npt.ArrayLike],
        *,
        deadline: float = 3600.0,
        prepare: Prepare | None = None,
    ) -> list[npt.NDArray[np.int64]]:
        """Label new rows at the simulated sites that hold them. For rows in one place, use ``model.predict(X)``.

        `shards`, `new_shards`: of each client, (n_m, d) and (n_new_m, d). `prepare`: as for `fit`, if tables are raw;
        no new row may be dropped. Returns the sites' outputs ``new_labels``, each of shape (n_new_m,).
        """
        settings = RunSettings(clients=len(shards), deadline=deadline, prepare=prepare)
        _, outputs = self.simulate(lambda run: self.prediction(run, model), shards, new_shards, settings)
        return [outputs[client]["new_labels"] for client in range(len(shards))]

    def central(self, shards: Sequence[FloatArray]) -> KernelKMeans:
        """Return exact kernel k-means of all rows in one place, which takes two (N, N) arrays."""
        X = np.vstack(list(shards))
        kernel, s = self.kernel.settled(X.shape[1]), self.dimensions_of(len(X))
        if self.eigengap:
            s = eigengap(leading_eigenpairs(kernel.gram(X), min(s + 1, len(X))).values, self.most_clusters, s)
        return choose_central_clusters(kernel_kmeans(X, kernel, self.most_clusters, s), self.n_clusters)

    def judge(
        self, result: Result[KernelKMeans], shards: Sequence[Rows], reference: KernelKMeans | None = None
    ) -> dict[str, float]:
        """Return recover error and agreement of the clusters, against the result of `central`."""
        return {} if reference is None else compare_kernel_kmeans(result.model, reference, shards)

    def judge_alone(
        self, models: Sequence[KernelKMeans], shards: Sequence[Rows], reference: KernelKMeans | None = None
    ) -> dict[str, float]:
        """Return no figures, since one client's clusters have no counterpart among the clusters of all rows."""
        return {}
