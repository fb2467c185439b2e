"""VFedPCA and VFedAKPCA: iterative PCA and kernel PCA of vertically partitioned data, with a coordinator.

Source: Cheung, Jiang, Yu, Lou: Vertical Federated Principal Component Analysis and Its Kernel Extension on Feature-wise
Distributed Data, arXiv 2203.01752: algorithms 2 to 4, equations 10 and 13 to 15.

Departures from the paper:

* ``merge="exact"``, the default: one message of the same size per round, and the true eigenvectors.
* Signs of eigenvectors are arbitrary, and a mean of vectors with arbitrary signs cancels: each is aligned with that of
  the client with the largest eigenvalue before merging, and the merged vector has unit norm.
* Columns are centred by default, as PCA has it; the authors' code centres rows (``center="rows"``).
* More than one component: local orthogonal iteration, a merge of subspaces
  (`fedkernel.clients.eigenvector_merging.merge_eigenpairs`), and in equation 14 the projector on all of ``X^T u``,
  which for one component is the paper's factor.
* Equation 14 is applied to the kernel matrix ``X X^T`` rather than to X, which carries it over to kernels, and by
  default to the original one in each round (``update``).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedkernel.clients.eigenvector_merging import is_moved, merge_eigenpairs, merging_weights
from fedkernel.clients.vfedpca import (
    Finish,
    IterateLocally,
    LeadingVectors,
    Multiply,
    ProjectOntoDirections,
    VFedPCAClient,
)
from fedkernel.ground import EPS, FloatArray, InputError, value_object
from fedkernel.models import KernelPCA
from fedkernel.numerics import (
    RBF,
    Eigenpairs,
    Kernel,
    Linear,
    Unconverged,
    block_krylov,
    block_krylov_gap,
    components_by_gap,
)
from fedkernel.protocol import (
    Forecast,
    Iterations,
    Member,
    Plan,
    Protocol,
    Run,
    Step,
    ask,
    distributed_lanczos,
    once,
    repeated,
    to_all,
    to_sum,
)
from fedkernel.strategies.component_count import MostComponents, NumberOfComponents, beyond_rank, choose_components
from fedkernel.strategies.vfedpca_base import VFedPCABase, pooled_kernel_mean
from fedkernel.strategy import Tags


def _centre_columns(columns: FloatArray) -> FloatArray:
    return np.asarray(columns - columns.mean(axis=0))


@value_object()
class VFedPCA(VFedPCABase):
    """PCA of vertically partitioned data: products with the clients' matrices, or T merges of their leading vectors.

    - `n_components`: k, at most N. "auto", for ``merge="exact"``: of 1 to ``max_components``, by default 10, the number
      before the largest fall of the eigenvalues of the centred pooled matrix, as for `DKPCA`; the result's ``findings``
      give the reason. Products are with as many vectors as the most. With ``center`` other than "columns" there are two
      searches: on the centred matrix, then on the matrix itself.
    - `merge`: "exact": clients multiply their matrix with a block of vectors and the coordinator adds the products up,
      block Lanczos on the pooled matrix. The paper's: "eigenvalue", weights proportional to the clients' eigenvalues
      (equation 13), and "average", equal weights (VFedAvgPCA) and none for clients without variance.
    - `local_iterations`: l, power iterations of a client per round; with "exact" in the first round only, for a start.
    - `rounds`: T; by default 10, and with "exact" as many products as ``tol`` takes (at most 1000). If they end before
      the search converges, the result's ``findings`` say so.
    - `center`: means subtracted from a client's table: of each column (PCA), or of each row over the client's columns.
    - `tol`: for "exact": the search stops at this estimated sine of the largest angle to the true subspace.

    For the paper's merges alone:

    - `update`: "original": equation 14 on the original table in every round. With "eigenvalue" and k > 1 its fixed
      point is the pooled PCA of tables that are divided by the root of their number of columns. "inplace": equation 14
      as printed, after which the local matrix has rank k and nothing moves any more.
    - `warm_start`: start the local iterations at the merged vectors, not at random ones (algorithm 3).
    - `weight_scaling`: raise the weights of the half of clients with the largest eigenvalues, lower the others
      (equation 15).

    Costs, with M clients, for the paper's merges: T + 1 rounds (the last sends the result); up T M k (N + 1) floats,
    down T M k N. Exact: one round of k (N + 1) up, then R of k N up and down each, then the last. Memory: a client O(N
    (d_m + k)), beside a table above 64 MiB O(N k), the coordinator O(M N k), exact O(R N k).

    With "exact" the model's eigenvalues are those of the pooled ``X X^T``, else the part of the sum of ``X_m X_m^T /
    d_m`` along each vector that the clients' last eigenpairs show.

    New rows are projected by one round more, up M k (n_new + 1) floats, down M k N. Their coordinate along a vector u
    is ``sum_m K_m(new, training) u sqrt(lambda) / rho``, K_m being the clients' matrices, centred as in training, and
    ``rho = u^T (sum_m K_m) u``. With "exact" rho is lambda: this is the pooled PCA's coordinate, and training rows have
    those of `embedding`. The vectors of the paper's merges are no eigenvectors of that sum: the
    part of the training rows' projected coordinates along u is the embedding's, and the rest measures how far u is from
    an eigenvector.
    """

    n_components: NumberOfComponents = 1
    merge: Literal["exact", "eigenvalue", "average"] = "exact"
    local_iterations: Iterations = 10
    rounds: Annotated[int, Field(ge=1)] | None = None
    update: Literal["original", "inplace"] = "original"
    warm_start: bool = False
    weight_scaling: bool = False
    center: Literal["columns", "rows", "none"] = "columns"
    tol: Annotated[float, Field(gt=0, lt=1)] = 1e-8
    max_components: MostComponents = None

    client: ClassVar = VFedPCAClient
    may_lose_client_in_first_round: ClassVar[bool] = True
    distribution_phases: ClassVar[tuple[str, ...]] = (Finish.__name__,)
    central_fields: ClassVar[tuple[str, ...]] = ("n_components", "max_components", "center")
    counterparts: ClassVar[Mapping[str, Mapping[str, Any]]] = {"PCA": {}}
    tags: ClassVar = Tags(
        "eigenvectors_", orthonormal=True, signs=True, rotations=True, repeated=("start",), alone=True
    )

    def __post_init__(self) -> None:
        self.check_components()
        if self.n_components == "auto" and self.merge != "exact":
            why = 'knows no eigenvalues of the pooled matrix; give a number, or merge = "exact"'
            raise InputError(f'n_components = "auto" is not for merge = "{self.merge}", which {why}')
        for name in ("update", "warm_start", "weight_scaling"):
            if self.merge == "exact" and (value := getattr(self, name)) != getattr(VFedPCA, name):
                allowed = 'merge = "eigenvalue" or "average"'
                raise InputError(f'{name} = {value!r} has no meaning with merge = "exact"; allowed: {allowed}')
        if self.n_components == "auto" and self.rounds == 1:
            why = f"one product of {self.most_components} vectors does not determine the next eigenvalue"
            raise InputError(f'rounds = 1, but must be at least 2 with n_components = "auto": {why}')

    def check_cohort(self, cohort: Sequence[Member]) -> None:
        """Check also that there are enough rows for the components."""
        super().check_cohort(cohort)
        self.check_components(cohort[0].rows)

    def forecast(self, cohort: Sequence[Member]) -> Forecast:
        """Return the costs. "exact" takes at most ``rounds`` products, or if unset about one per digit of ``tol``."""
        M, N, k = len(cohort), cohort[0].rows, self.most_components
        memory, means = self._local_memory(cohort), self._kernel_mean_floats(cohort)
        if self.merge != "exact":
            T = self.most_rounds
            return Forecast(T + 1, T * M * k * (N + 1) + means, T * M * k * N, memory)
        # multiplied vectors are independent, and in about the span of all columns
        most = N if self.rounds or self.kernel else max(k, min(N, sum(member.columns for member in cohort)))
        steps = min(self.rounds, N) if self.rounds else min(math.ceil(-math.log10(self.tol)), -(-most // k))
        products = self._number_of_searches * M * N * min(steps * k, most)
        up, down = M * k * (N + 1) + products + means, M * k * N + products
        return Forecast(self._number_of_searches * steps + 2, up, down, memory, "at most" if self.rounds else "about")

    def plan(self, clients: int, seed: int) -> Plan:
        """Return the plan: local iterations, then with "exact" the search's products, and at last the result."""
        k, table = {"k": self.most_components}, self._table_fields()
        iterate = ask(IterateLocally, k, **self._iteration_fields())
        finish = once(Finish, k, **table)
        if self.merge != "exact":
            return repeated(self.most_rounds, iterate), finish
        most = self._number_of_searches * self.most_rounds
        products = repeated(most, ask(Multiply, {"b": self.most_components}, **table))
        return repeated(1, iterate), products, finish

    def protocol(self, run: Run) -> Protocol[KernelPCA]:
        """Run algorithm 2, or the exact search."""
        model = yield from self._exact_search(run) if self.merge == "exact" else self._paper_merges()
        # The last broadcast: clients compute their projected features, which stay with them
        replies = yield from to_all(Finish(**self._table_fields(), directions=model.eigenvectors_))
        return replace(model, kernel_mean_=pooled_kernel_mean(replies))

    def _paper_merges(self) -> Protocol[KernelPCA]:
        merges: list[Eigenpairs] = []
        local = self._iteration_fields()
        # t counts replies: clients found the vectors of t = 0 independently
        for t in range(self.most_rounds):
            # Local training: update by the last merged vectors, then power iteration
            uploads = yield from to_all(IterateLocally(**local, directions=merges[-1].vectors if merges else None), t=t)
            # Model integration: weights from the eigenvalues, and the merge
            merge = self._merge(uploads)
            merges.append(merge if not merges or is_moved(merge.vectors, merges[-1].vectors) else merges[-1])
        iterates = np.array([merge.vectors for merge in merges])
        return KernelPCA(*merges[-1], self.kernel or Linear(), iterates_=iterates)

    def _merge(self, uploads: Sequence[LeadingVectors]) -> Eigenpairs:
        values = np.array([upload.values for upload in uploads])
        weights = merging_weights(values, "average" if self.merge == "average" else "eigenvalue", self.weight_scaling)
        return merge_eigenpairs([Eigenpairs(upload.values, upload.vectors) for upload in uploads], weights)

    def _exact_search(self, run: Run) -> Protocol[KernelPCA]:
        # A start that costs one round and is already close: the paper's first merge
        uploads = yield from to_all(IterateLocally(**self._iteration_fields()))
        merge = self._merge(uploads)
        # without the vectors that fill it up if the clients' common rank is below k
        start = merge.vectors[:, merge.values != 0] if merge.values.any() else merge.vectors
        # and with a random part, or a direction that leads at no single site may never come in; costs at most a round
        rng = run.rng("start")
        start = start + 0.01 / math.sqrt(len(start)) * rng.standard_normal(start.shape)
        # Block Lanczos on the sum of the clients' matrices: one product per round
        choose, most, centred = self.n_components == "auto", self.most_components, None
        limits: dict[str, Any] = {"tol": run.tolerance(self.tol), "max_steps": self.most_rounds}
        searches = []
        if self._number_of_searches > 1:
            # The number is the centred matrix's; the search for pairs starts from its vectors and the mean's
            drawn = np.hstack([rng.standard_normal((len(start), 1)), start[:, : most - 1]])
            search = block_krylov_gap(_centre_columns(drawn), most, **limits)
            searches.append((yield from distributed_lanczos(search, self._centred_product)))
            centred = searches[0].values
            number = min(components_by_gap(centred, most, len(start))[0] + 1, len(start))
            start = np.hstack([np.ones((len(start), 1)), searches[0].vectors[:, : min(number, most) - 1]])
            search = block_krylov(start, number, **limits)
        else:
            search = (block_krylov_gap if choose else block_krylov)(start, most, **limits)
        searches.append(pairs := (yield from distributed_lanczos(search, self._multiply)))
        unconverged = any(isinstance(pairs, Unconverged) for pairs in searches)
        few = () if choose else beyond_rank(pairs.values, len(pairs.vectors))
        findings = (self._unconverged(limits["tol"]), *few) if unconverged else few
        model = KernelPCA(*pairs, self.kernel or Linear(), findings_=findings)
        return choose_components(model, most, len(pairs.vectors), centred) if choose else model

    @property
    def _number_of_searches(self) -> int:
        """Number of searches. Two if the number of components is chosen on another matrix than the model's."""
        return 2 if self.n_components == "auto" and self.center != "columns" else 1

    def _multiply(self, block: FloatArray, _: int) -> Protocol[FloatArray]:
        total = yield from to_sum(Multiply(**self._table_fields(), block=block))
        return total.product

    def _centred_product(self, block: FloatArray, step: int) -> Protocol[FloatArray]:
        """Multiply by the centred matrix. Rounding along the constant vector is removed from the block, too."""
        return _centre_columns((yield from self._multiply(_centre_columns(block), step)))

    def _projection_step(self) -> tuple[Step, int]:
        k = self.most_components
        return once(ProjectOntoDirections, {"k": k}, **self._table_fields()), k

    def _projection(self, model: KernelPCA) -> Protocol[FloatArray]:
        kernel = None if self.kernel is None else model.kernel  # a width by rule is settled in the model
        request = ProjectOntoDirections(kernel=kernel, center=self.center, directions=model.eigenvectors_)
        total = yield from to_sum(request)
        # as in `KernelPCA.scale`, a component without variance is 0, in the model or on the training rows
        figures = np.array([model.eigenvalues_, total.captured])
        floors = EPS * len(model.eigenvectors_) * np.abs(figures).max(axis=1, keepdims=True)
        eigenvalues, captured = np.where((figures > floors).all(axis=0), figures, [[0.0], [1.0]])
        return np.asarray(total.products * (np.sqrt(eigenvalues) / captured))


@value_object()
class VFedAKPCA(VFedPCA):
    """VFedPCA on each client's own kernel matrix; the projected features are ``U^T X_m`` (equation 10).

    Parameters are those of `VFedPCA`, and `kernel`, of each client's columns. A width by rule, by default the mean
    distance, is that of all columns: columns that vary more count for more, and the sum of the clients' kernels is
    about the kernel of all columns if these are many. ``width="columns"`` is 1 / d_m, of each client's own.

    ``center="columns"`` centres in feature space, ``"rows"`` the table. With ``merge="exact"`` the result is exact for
    the sum of the clients' kernels, not for the kernel of the pooled columns: DKPCA is the method for that. New rows'
    coordinates are by that sum, too.

    Costs beside those of `VFedPCA`: the width's (`fedkernel.kernel_width.width_rounds`), and with RBF, Laplacian and
    sigmoid kernels 1 float up from each client in the last round, for the result's finding on the width.
    """

    kernel: Kernel = RBF()

    central_fields: ClassVar[tuple[str, ...]] = ("n_components", "max_components", "center", "kernel")
    counterparts: ClassVar[Mapping[str, Mapping[str, Any]]] = {"AKPCA": {}}
