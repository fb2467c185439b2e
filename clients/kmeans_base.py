"""Client of distributed k-means of a site's embedded rows, with all requests to the site and all its replies.

Source: the paper of `fedkernel.strategies.kmeans_base`, algorithm 1. Methods whose clients embed their rows inherit
these requests, as do methods that label new rows; with an embedding from a kernel, this is kernel k-means.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedkernel.clients.cell_sums import (
    CellClient,
    EmbeddedCellSums,
    SumEmbeddedCells,
    check_columns,
    sum_groups,
    sum_single_rows,
)
from fedkernel.ground import FloatArray, ProtocolError, ShareableError, row_blocks
from fedkernel.models import combine_draws
from fedkernel.numerics import AnyKernel, Kernel, RandomFeatures, assign, coreset, k_means, simplified_silhouettes
from fedkernel.protocol import (
    MAX_COORDINATE,
    Answers,
    Count,
    Done,
    Reply,
    Request,
    Shape,
    State,
    Summed,
    Within,
    bounded_rows,
)

SMALLEST_COUNT = 5
"""Smallest count that is sent, the rule of most owners of data about people."""


class LocalCost(Reply):
    """Sum of the embedded rows' squared distances to the site's k centres: 1 float.

    Reveals how far apart the site's rows are, all together.
    """

    cost: Annotated[float, Shape(), Within()]


class SolveLocally(Request[LocalCost]):
    """Request for a local k-means solution; only its cost leaves the site."""

    seeded: ClassVar = True
    n_clusters: Count


class LocalCoreset(Reply):
    """Weighted points that represent the site's rows: (samples + k) (s + 1) floats, n_m (s + 1) at most.

    Reveals the coordinates of some embedded rows as they are, of all if no fewer are asked for, and the site's cluster
    centres and sizes. It shows rows that are alike. A row follows from its coordinates if these are no fewer than its
    attributes, as with random features that nothing has reduced.
    """

    points: Annotated[FloatArray, Shape("c_m", "s"), Within(-MAX_COORDINATE, MAX_COORDINATE)]
    weights: Annotated[FloatArray, Shape("c_m"), Within()]


class SampleCoreset(Request[LocalCoreset]):
    """Request for a coreset: sampled points of the site, and its local centres."""

    once: ClassVar = True
    sampled: ClassVar = "samples"
    seeded: ClassVar = True
    setting: ClassVar = "coreset_size"
    samples: Annotated[int, Field(ge=0, le=1_000_000)]

    def check_table(self, reply: LocalCoreset, sizes: Mapping[str, int]) -> None:
        """Check also that the weights sum to the number of rows."""
        super().check_table(reply, sizes)
        total, rows = float(reply.weights.sum()), sizes["n_m"]
        if abs(total - rows) > reply.rounding * rows:
            raise ValueError(f"weights sum to {total:.6g}, but must sum to {rows}, the number of rows")


class LabelRows(Request[Done]):
    """Request to label the site's rows by the common centres; the labels stay at the site."""

    centers: Annotated[FloatArray, Shape("k", "s")]


class ClusterSums(Summed):
    """Sums over the site's rows for the clusters' objective and silhouette: s + 4 floats.

    Reveals the mean of the site's embedded rows, how far they are from the origin and from the common centres, and in
    feature space from the origin, all together; nothing of a single cluster, if the coordinator follows the protocol.
    A site with guards leaves out centres that are nearest to fewer than `cell_rows` of its rows, which count to the
    other centres: else a centre near one row alone would tell that row's coordinate by `cost`. `sum` (s,). `lengths`,
    `cost`, `total`: of squared lengths, of squared distances to the nearest centre, and of k(x, x). `silhouette`: of
    `simplified_silhouettes`.
    """

    sum: Annotated[FloatArray, Shape("s")]
    lengths: Annotated[float, Shape(), Within()]
    cost: Annotated[float, Shape(), Within()]
    total: Annotated[float, Shape()]
    silhouette: Annotated[float, Shape(), Within()]


class MeasureClusters(Request[ClusterSums]):
    """Request for sums over the site's rows, such as squared distances to the centres of the last labels."""

    once: ClassVar = True
    kernel: Kernel

    def check_table(self, reply: ClusterSums, sizes: Mapping[str, int]) -> None:
        """Check also that the sum's length fits the squared lengths."""
        super().check_table(reply, sizes)
        if float(reply.sum @ reply.sum) > (1 + reply.rounding) * sizes["n_m"] * reply.lengths:
            raise ValueError(f"sum is too long for {sizes['n_m']} rows with lengths = {reply.lengths:.6g}")
        if reply.silhouette > (1 + reply.rounding) * sizes["n_m"]:
            raise ValueError(
                f"silhouette = {reply.silhouette:.6g}, but must be at most 1 for each of {sizes['n_m']} rows"
            )


class ClusterSizes(Reply):
    """Sizes of the clusters at the site, in whole steps of 5 rows or more: k + 1 floats.

    Reveals how many of the site's rows are in each cluster, up to the step: fewer rows than that count as 0. The rows
    missing from the site's total are the sum that was rounded off all clusters together: only if that is nothing, or
    the most it can be, are all sizes known exactly. `sizes` (k,): rounded down. `step`: the one asked for, or the
    site's guard's, if that is larger.
    """

    sizes: Annotated[FloatArray, Shape("k"), Within(whole=True)]
    step: Annotated[float, Shape(), Within(SMALLEST_COUNT, whole=True)]


class CountClusters(Request[ClusterSizes]):
    """Request for the sizes of the clusters at the site, rounded down to a step of at least 5 rows."""

    once: ClassVar = True
    step: Annotated[int, Field(ge=SMALLEST_COUNT, le=1_000_000)] = SMALLEST_COUNT

    def check_reply(self, reply: ClusterSizes) -> None:
        """Check also that the sizes are multiples of the step, at least the requested one."""
        super().check_reply(reply)
        if reply.step < self.step or np.any(reply.sizes % reply.step != 0):
            raise ValueError(f"sizes must be multiples of step, and step = {reply.step:g} must be at least {self.step}")

    def check_table(self, reply: ClusterSizes, sizes: Mapping[str, int]) -> None:
        """Check also that the sizes sum to the number of rows, up to rounding."""
        super().check_table(reply, sizes)
        rows, off = sizes["n_m"], len(reply.sizes) * (reply.step - 1)
        if not rows - off <= reply.sizes.sum() <= rows:
            raise ValueError(f"sizes sum to {reply.sizes.sum():g}, but must sum to {rows - off:g} to {rows}")


class SharedRows(Summed):
    """Rows at the site that clusters of two runs share, rounded down to a step: k^2 + 1 floats.

    Reveals how many of the site's rows are in a cluster of the earlier run and in one of this, for each pair, up to the
    step of 5 rows or more: fewer rows than that count as 0. With the clusters' own sizes, sent in either run in the
    same steps, more is known of the rounding: if a cluster is larger than its pairs together by all that rounding can
    take of these, they are known exactly. A coordinator that follows the protocol has only the sum over the sites.
    `sizes` (k, k): rounded down; a row for each cluster of the earlier run. `slack`: the step less 1.
    """

    sizes: Annotated[FloatArray, Shape("k", "k"), Within(whole=True)]
    slack: Annotated[float, Shape(), Within(whole=True)]


class CompareClusters(Request[SharedRows]):
    """Request for the number of rows in each pair of clusters, of this run and of an earlier one.

    The study names the earlier run. The numbers are in steps of at least 5 rows.
    """

    once: ClassVar = True
    largest: ClassVar = {"k": "n_clusters"}
    run: Annotated[str, Field(max_length=240)]
    n_clusters: Count
    step: Annotated[int, Field(ge=SMALLEST_COUNT, le=1_000_000)] = SMALLEST_COUNT

    def known_dimensions(self) -> dict[str, int]:
        """Return the side k of the table of counts. It does not shrink if a run found fewer clusters."""
        return {"k": self.n_clusters}

    def check_reply(self, reply: SharedRows) -> None:
        """Check also that the sizes are multiples of the step, at least the requested one."""
        super().check_reply(reply)
        step = reply.slack + 1
        if step < self.step or np.any(reply.sizes % step != 0):
            raise ValueError(f"sizes must be multiples of slack + 1 = {step:g}, which must be at least {self.step}")

    def check_table(self, reply: SharedRows, sizes: Mapping[str, int]) -> None:
        """Check also that the pairs' sizes sum to the number of rows, up to rounding."""
        super().check_table(reply, sizes)
        rows, total, off = sizes["n_m"], float(reply.sizes.sum()), reply.slack * reply.sizes.size
        if not rows - off <= total <= rows:
            raise ValueError(f"sizes sum to {total:g}, but must sum to {rows - off:g} to {rows}")


class LabelNewRows(Request[Done]):
    """Request to label new rows at the site by the request's model. The labels stay at the site.

    The embedding is ``sum_t A_t C_t``, see `fedkernel.models.embedding_maps.combine_draws`.
    """

    once: ClassVar = True
    features: RandomFeatures
    coefficients: Annotated[FloatArray | None, Shape("T", "D", "s")] = None
    centers: Annotated[FloatArray, Shape("k", "s")]


@dataclass(frozen=True)
class Embedding(State):
    """Embedded rows of the site, (n_m, s)."""

    rows: FloatArray


@dataclass(frozen=True)
class LocalCenters(State):
    """The site's own k centres, (k, s)."""

    centers: FloatArray


@dataclass(frozen=True)
class CommonCenters(State):
    """Centres of the last labelling, common to all sites, (k, s)."""

    centers: FloatArray


CLUSTER_REQUESTS: Answers = (
    *(SolveLocally, SampleCoreset, SumEmbeddedCells, LabelRows),
    *(MeasureClusters, CountClusters, CompareClusters),
)
"""Requests to cluster embedded rows, and about the clusters."""


class KMeansClient(CellClient):
    """Client of distributed k-means of its embedded rows, which a subclass saves as `Embedding`.

    Memory between rounds: besides these, n_m s floats, the k local centres.
    """

    answers: ClassVar[Answers] = (*CLUSTER_REQUESTS, LabelNewRows)

    def solve_locally(self, ask: SolveLocally) -> LocalCost:
        """Compute a local solution of constant approximation ratio: k-means++ and Lloyd's iterations.

        A guarded site leaves out centres of too few rows, which go to the others.
        """
        H = Embedding.load(self.memory).rows
        centers = k_means(H, ask.n_clusters, self.rng("local k-means"))
        if self.guards is not None:
            rows = np.bincount(assign(H, centers)[0], minlength=len(centers))
            centers = centers[self.guards.large_groups(rows)]
        LocalCenters(centers).save(self.memory)
        return LocalCost(cost=float(assign(H, centers)[1].sum()))

    def sample_coreset(self, ask: SampleCoreset) -> LocalCoreset:
        """Sample rows by their cost, and add the local centres with the remaining weight."""
        H, centers = Embedding.load(self.memory).rows, LocalCenters.load(self.memory).centers
        points, weights = coreset(H, centers, ask.samples, self.rng("coreset"))
        return LocalCoreset(points=points, weights=weights)

    def sum_embedded_cells(self, ask: SumEmbeddedCells) -> EmbeddedCellSums:
        """Assign the groups of embedded rows to the centres, and sum the rows of each centre."""
        H = Embedding.load(self.memory).rows
        check_columns(ask.centers, H.shape[1])
        if self.privacy is not None:
            blocks = (bounded_rows(H[part], 1.0) for part in row_blocks(len(H)))
            return EmbeddedCellSums(**sum_single_rows(ask.centers, blocks))
        least = self._least_embedded(ask.least, H.shape[1])
        return EmbeddedCellSums(**sum_groups(ask.centers, *self._group_means(least, H.__getitem__)))

    def label_rows(self, ask: LabelRows) -> Done:
        """Store the labels of the rows, (n_m,), and their embedding at the site."""
        H = Embedding.load(self.memory).rows
        self.outputs["labels"] = assign(H, ask.centers)[0]
        self.outputs["embedding"] = H
        CommonCenters(ask.centers).save(self.memory)
        return Done()

    def measure_clusters(self, ask: MeasureClusters) -> ClusterSums:
        """Compute the sums over the rows for the clusters' objective."""
        H, centers = Embedding.load(self.memory).rows, CommonCenters.load(self.memory).centers
        if self.guards is not None:
            counts = np.bincount(assign(H, centers)[0], minlength=len(centers))
            centers = centers[counts >= min(self.guards.cell_rows, counts.max())]
        return ClusterSums(
            sum=H.sum(axis=0),
            lengths=float(np.square(H).sum()),
            cost=float(assign(H, centers)[1].sum()),
            total=self._squared_lengths(ask.kernel),
            silhouette=float(simplified_silhouettes(H, centers).sum()),
        )

    def count_clusters(self, ask: CountClusters) -> ClusterSizes:
        """Count the rows of each cluster, rounded down to whole steps."""
        labels, k = self._common_labels()
        counts, step = np.bincount(labels, minlength=k), self._counting_step(ask.step)
        return ClusterSizes(sizes=(counts - counts % step).astype(np.float64), step=float(step))

    def compare_clusters(self, ask: CompareClusters) -> SharedRows:
        """Count the rows of each pair of clusters of two runs, rounded down to whole steps."""
        k, (labels, own) = ask.n_clusters, self._common_labels()
        earlier = self.labels_of(ask.run)
        if len(earlier) != len(labels):
            raise ProtocolError(f"run {ask.run!r} had other rows than this run")
        if max(own, int(earlier.max(initial=0)) + 1) > k or k > len(labels):
            allowed = f"at least the clusters of both runs and at most {len(labels)} rows"
            raise ProtocolError(f"n_clusters = {k}, but must be {allowed}")
        counts, step = np.bincount(earlier * k + labels, minlength=k * k), self._counting_step(ask.step)
        sizes = (counts - counts % step).astype(np.float64).reshape(k, k)
        return SharedRows(sizes=sizes, slack=step - 1.0)

    def _common_labels(self) -> tuple[npt.NDArray[np.int64], int]:
        """Return the rows' labels by the common centres, and the number of these centres."""
        H, centers = Embedding.load(self.memory).rows, CommonCenters.load(self.memory).centers
        return assign(H, centers)[0], len(centers)

    def _counting_step(self, step: int) -> int:
        return step if self.guards is None else max(step, self.guards.cell_rows)

    def _squared_lengths(self, kernel: AnyKernel) -> float:
        return float(kernel.diag(self.X).sum())

    def label_new_rows(self, ask: LabelNewRows) -> Done:
        """Store the labels of new rows, (n_new,), and their embedding at the site."""
        if self.new is None:
            raise ShareableError(f"client {self.client} has no new rows to label")
        H = combine_draws(self.new, ask.features, ask.coefficients)
        self.outputs["new_labels"] = assign(H, ask.centers)[0]
        self.outputs["new_embedding"] = H
        return Done()
