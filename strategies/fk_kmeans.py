"""FK k-means: federated kernel k-means of horizontally partitioned data.

Source: A Communication Efficient Federated Kernel k-Means (2021): algorithm 1 (DSPGD with CEM), section 4.1 (DSPGD
without), appendix B (distributed Lanczos), theorem 2 (communication).

Departures from the paper:

* The distributed Lanczos algorithm orthogonalises against all earlier vectors, twice, and ends by a test of residuals
  that an eigenvalue just above the threshold does not escape; the paper gives no end.
* ``solver="gram"``, the default, uploads W_t[m]^T W_t[m], which by theorem 4 the coordinator learns anyway: one round
  per iteration instead of some thirty, and about as many floats.
* Clients multiply with [A_t, B_t] and the coordinator applies the weights of W_t.
* Iterations end by ``accuracy``; the paper makes T of them, chosen by hand.
* s is 2 k by default, for better agreement of clusters and classes than the paper's k; the penalty is the (s + 2)-th
  eigenvalue, not the (k + 2)-th, which leaves k + 1 dimensions whatever s is.
* Without CEM the vectors A_t^T u, for labelling new rows, follow from the uploads already made.
"""

import itertools
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedkernel.clients.fk_kmeans import EmbedRows, FKKMeansClient, TakeEmbedding
from fedkernel.ground import FloatArray, InputError, Precision, value_object
from fedkernel.models import FeatureChain, KernelKMeans
from fedkernel.numerics import (
    RBF,
    AnyKernel,
    Frequencies,
    RandomFeatures,
    ShiftInvariant,
    eigengap,
    mean_of_points,
    squared_move,
)
from fedkernel.protocol import AT_MOST, AtMost, Plan, Protocol, Run, any_width, once, to_all, to_each
from fedkernel.strategies.cluster_count import MostClusters, NumberOfClusters
from fedkernel.strategies.component_count import NO_AUTO_BUT_EIGENGAP, refuse_auto
from fedkernel.strategies.fk_eigenpairs import IterationStep, eigenpairs, iteration_plan, split_by_client
from fedkernel.strategies.fk_kmeans_base import FEW_FEATURES, FKKMeansBase, few_features
from fedkernel.strategies.kmeans_base import Clusters

log = logging.getLogger(__name__)


@value_object()
class FKKMeans(FKKMeansBase):
    """Kernel k-means: stochastic proximal gradient steps embed the rows, and distributed k-means clusters them.

    Iteration t draws new random features A_t of all rows. With B_t, the columns from the iterations before, it takes
    the eigenpairs (l, v) of W_t^T W_t, W_t = [sqrt(eta/D) A_t, sqrt(1-eta) B_t], eta = 1/t, with l > eta lambda. With u
    = W_t v / sqrt(l), the columns of B_{t+1} are sqrt(l - eta lambda) u, and at last the rows' coordinates are H =
    sqrt(l + (1 - eta) lambda) u for the s largest l. The rows' features and coordinates stay with the clients.

    - `n_clusters`: k; "auto": of 2 to ``max_clusters``, the fewest clusters whose mean silhouette on the coreset is
      within one standard error of the largest, at no more floats; the result's ``findings`` give the reason.
      ``max_clusters`` is by default 10, and no more than the root of the fewest rows of a client.
    - `n_components`: s, dimensions of the embedding; by default 2 k, of ``max_clusters`` if k is chosen, or as many
      from k on as ``n_features`` and the rows allow. By theorem 3 the error of k-means falls as k / s. With a given
      penalty, no more are found than there are eigenvalues above it.
    - `n_features`: D, random features per iteration; at least s + 2 unless ``penalty`` is given. By default 50, the
      paper's, or 2.5 s if that is more; see ``iterations``.
    - `iterations`: T, the most; by default 20. If neither it nor ``n_features`` is given, and the smallest table is too
      small for both defaults, D and T are those with which at most half as many numbers leave a site as its table has
      entries (`fedkernel.protocol.TABLE_SHARE`). The result's ``findings`` say if features are few.
    - `kernel`: by default RBF with the paper's gamma = N^2 / (2 sum_ij ||x_i - x_j||^2), the rule "mean", from sums
      over the clients' rows (d + 1 floats up and d down, each).
    - `penalty`: lambda; by default the (s + 2)-th eigenvalue of the first iteration.
    - `solver`: the eigenpairs from the matrix itself, or by the paper's distributed Lanczos algorithm, which uploads
      fewer floats if D is more than about 4 s, in some 3 s rounds for one of gram's.
    - `cem`: the paper's communication efficient mechanism; False: Lanczos on R_t = W_t W_t^T, of size N.
    - `coreset_size`: C, points that the clients sample for the distributed k-means; by default 1000, and of each client
      a quarter of its rows at most.
    - `features`: pairs of cosine and sine (D even), which vary less, or the paper's cosines with a random offset.
    - `frequencies`: of an RBF kernel's features: the paper's independent ones; orthogonal ones, which are better at the
      same number; or structured ones, as good and for hundreds of columns faster (docs/explanation/features.md).
    - `tol`: residuals, relative to the largest eigenvalue, at which Lanczos ends.
    - `accuracy`: iterations end once the squared error of K_t = H H^T, the estimate of the best kernel matrix of rank
      s, is about this share of ||K_t||_F^2, or at T; 0: at T. The error is estimated from uploads already made.
    - `eigengap`: take n_components, which must be more than k, as the most: s, at least k, is the number before the
      largest fall of the first iteration's eigenvalues, by the ratio of neighbours (`fedkernel.numerics.eigengap`).
    - `dtype`: precision of random features at the clients; sums over the rows, and all that is sent, are float64.
      float32 takes two thirds of the sites' time, with coordinates off by some 1e-7 of the largest, but no two digits
      are right if entries are 10^4 times as large as the kernel's width, such as seconds since 1970.

    - `clusters`: "coreset": the paper's k-means, to which clients send some embedded rows. "lloyd": by sums alone; with
      CEM nothing else leaves, so that masks can cover it, and noise with ``iterations=1`` and some 200 features. As
      good, for two rounds more.
    - `n_centers`: with ``clusters="lloyd"``, the most centres of all rows, of which the clusters are made; by default
      5 k and at least 30.

    Costs, with M clients, p = D + r_t, r_t the columns of B_t (about 1.5 s), Q Lanczos iterations (about 35 at p = 60):

    - gram: 1 round per iteration; up M p (p + 1) / 2, down the map, M p r_{t+1}.
    - Lanczos: Q rounds per iteration; up Q M p floats, down Q M p and the map.
    - without CEM: 2 Q rounds per iteration; up Q (N + M D), down the same.

    Besides these 2 rounds for the width, 1 for the coordinates, 3 for the k-means (see `distributed_kmeans`; 5 by sums,
    `summed_kmeans`). Memory: a client with n_m rows needs n_m (r_t + s) floats beside its rows, and p^2; the
    coordinator M p^2, without CEM N (3 Q + r_t). A client computes features from their seed in blocks of rows, and
    keeps them until the next iteration if they take 64 MiB at most (`fedkernel.clients.fk_kmeans.MOST_CACHED_BYTES`),
    else it computes them twice, and without CEM twice per product.

    The accuracy: Z_{t+1} = B_{t+1} B_{t+1}^T is about the mean of A_j A_j^T / D, j = 1, ..., t, so that its squared
    error is about the mean of j (j - 1) ||Z_{j+1} - Z_j||_F^2 over t (`fedkernel.numerics.mean_error`), moves that
    follow from the eigenvectors v alone. On digits, wine and breast cancer, runs ended with 0.1 to 3.4 times the
    squared error that was asked for, after 0.15 to 1 times 1 / (D accuracy) iterations or after 2
    (``python benchmarks/accuracy.py``).

    The history's figures are t, rank (r_t) and lanczos_step.
    """

    n_clusters: NumberOfClusters
    n_components: Annotated[Annotated[int, Field(ge=1)] | None, refuse_auto(NO_AUTO_BUT_EIGENGAP)] = None
    n_features: Annotated[int, Field(ge=1)] | None = None
    iterations: Annotated[int, Field(ge=1)] | None = None
    kernel: ShiftInvariant = RBF()
    penalty: Annotated[float, Field(ge=0)] | None = None
    solver: Literal["gram", "lanczos"] = "gram"
    cem: bool = True
    coreset_size: Annotated[int, Field(ge=1)] | None = None
    features: Literal["pairs", "cosine"] = "pairs"
    frequencies: Frequencies = "orthogonal"
    tol: Annotated[float, Field(gt=0, lt=1)] = 1e-10
    accuracy: Annotated[float, Field(ge=0, lt=1)] = 0.001
    eigengap: bool = False
    max_clusters: MostClusters = None
    dtype: Precision = "float64"
    clusters: Clusters = "coreset"
    n_centers: Annotated[int, Field(ge=1)] | None = None

    client: ClassVar = FKKMeansClient
    counterparts: ClassVar[Mapping[str, Mapping[str, Any]]] = {"kernel k-means": {}}

    def __post_init__(self) -> None:
        self._features(RBF(gamma=1.0))
        self.check_clusters()
        if self.eigengap and self.dimensions <= self.most_clusters:
            most = f"n_clusters = {self.most_clusters}, since eigengap = true chooses a number between them"
            raise InputError(f"n_components = {self.dimensions}, but must be more than {most}")
        if self.penalty is None and self._features_per_draw < self._penalty_number:
            least = f"{'n_components' if self.n_components else 'n_clusters'} + 2 = {self._penalty_number}"
            why = "since the penalty is the eigenvalue of that number; or give penalty"
            raise InputError(f"n_features = {self.n_features}, but must be at least {least}, {why}")

    def _features(self, kernel: AnyKernel, seed: int = 0) -> RandomFeatures:
        return RandomFeatures(kernel, self._features_per_draw, self.features, seed, self.frequencies)  # type: ignore[arg-type]

    def plan(self, clients: int, seed: int) -> Plan:
        """Return the plan of at most T iterations, the coordinates and the k-means.

        Numbers of columns and products are upper bounds, which grow with t: after the first iteration B_t has s + 1
        columns if the penalty follows from it, then each time D more; a search takes as many products as columns.
        """
        D, T, most = self._most_features_per_draw, self._most_iterations, self._most_columns()
        features = any_width(self.kernel, lambda kernel: self._features(kernel, seed))
        if not self._has_set_sizes:
            features |= {"n_features": {AT_MOST: D}}
        common = {"features": features, "precision": self.dtype}
        iterations = [
            iteration_plan(common | {"t": t}, self.solver if self.cem else None, D, before, p)
            for t, (before, p) in enumerate(itertools.pairwise([0, *most]), start=1)
        ]
        s = {"p_before": most[-1], "r": self.dimensions}
        last = AtMost(T + 1) if self.accuracy or not self._has_set_sizes else T + 1
        embed = once(EmbedRows, s, t=last, **common) if self.cem else once(TakeEmbedding, {"s": self.dimensions})
        return (*iterations, embed, *self.clusters_plan(self.dimensions))

    def protocol(self, run: Run) -> Protocol[KernelKMeans]:
        """Run algorithm 1."""
        if run.privacy is not None and self._most_iterations != 1:
            allowed = "allowed with privacy: 1, and more features, such as n_features = 200"
            raise InputError(f"iterations = {self._most_iterations}, but each sum has noise; {allowed}")
        own, members, numbers = self._fitted_to_tables(run.members)
        features = own._features(self.kernel.settled(run.columns), run.seed)
        # Lines 4 to 18: T iterations, after which the clients have their rows' coordinates
        chain, values = yield from own._iterate(run, features, numbers)
        # Line 19
        clustered = yield from own.cluster_rows(replace(run, members=tuple(members)), values / run.rows)
        drawn = own._features_per_draw * len(chain.maps)
        few = own is not self and drawn < FEW_FEATURES * self.dimensions
        findings = (few_features(drawn, run.members),) if few else ()
        return clustered.model(chain, values, findings, kernel_mean_=mean_of_points(*clustered.coreset))

    def _iterate(self, run: Run, features: RandomFeatures, numbers: float) -> Protocol[tuple[FeatureChain, FloatArray]]:
        """Return the embedding's map and eigenvalues. Afterwards each client has its rows' coordinates.

        Iterations end before more than so many `numbers` would have left a site.
        """
        D, T, s, penalty = self._features_per_draw, self._most_iterations, self.dimensions, self.penalty
        maps, finish, moves = list[FloatArray](), list[FloatArray](), list[float]()
        shrunk = np.empty(0)  # the eigenvalues of Z_t
        B = np.empty((run.rows, 0))  # B_t, which without CEM is the coordinator's
        for t in range(1, T + 1):
            eta, last = 1 / t, maps[-1] if maps else None
            rank = 0 if last is None else last.shape[1]
            weights = np.concatenate([np.full(D, np.sqrt(eta / D)), np.full(rank, np.sqrt(1 - eta))])
            wanted = self._penalty_number if penalty is None else eta * penalty
            step = IterationStep(features, t, weights, last, wanted, run.tolerance(self.tol), self.dtype)
            # Line 10: the eigenpairs of W_t^T W_t above eta lambda
            values, V, U = yield from eigenpairs(run, step, None if self.cem else B, self.solver)
            if t == 1 and self.eigengap:
                s = eigengap(values, self.most_clusters, s)
            if penalty is None:
                # With fewer rows than that, R_1 has fewer eigenvalues; those of W_1^T W_1 in their place are 0.
                penalty = max(float(values[s + 1]), 0.0) if values.size > s + 1 else 0.0
            above = int(np.count_nonzero(values > max(eta * penalty, step.rounding(values, run.wire))))
            if above == 0:
                raise InputError(f"penalty = {penalty:g} leaves no eigenvalue in iteration {t}; it must be smaller")
            values, V = values[:above], V[:, :above]
            # Lines 11 to 14: B_{t+1} = [A_t, B_t] M
            before, shrunk = shrunk, values - eta * penalty
            maps.append(weights[:, None] * V * np.sqrt(shrunk / values))
            if not self.cem:
                B = U[:, :above] * np.sqrt(shrunk)
            # Line 17: H as the leading columns of B_{t+1}, scaled back
            restored = (values + (1 - eta) * penalty)[:s]
            finish.append(np.sqrt(restored / shrunk[:s]))
            if t > 1:
                moves.append(squared_move(before, shrunk, values, V[D:] / np.sqrt(1 - eta)))
            numbers -= self._floats_per_iteration(D + rank)
            if self._is_accurate(moves, restored) or numbers < self._floats_per_iteration(D + above):
                log.info("iterations end after t = %d of %d", t, T)
                break
        if restored.size < s and self.n_components is not None:
            log.warning("only %d of n_components = %d eigenvalues are above the penalty", restored.size, s)
        s = min(s, restored.size)
        if self.cem:
            M = maps[-1][:, :s] * finish[-1]
            yield from to_all(EmbedRows(features=features, t=len(maps) + 1, precision=self.dtype, map=M))
        else:
            parts = split_by_client(run, B[:, :s] * finish[-1])
            yield from to_each({client: TakeEmbedding(embedding=part) for client, part in enumerate(parts)})
        return FeatureChain(features, run.columns, tuple(maps), tuple(finish)), restored
