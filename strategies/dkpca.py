"""DKPCA: one-shot kernel PCA of vertically partitioned data.

Source: He, Lv, Yang, Huang: One-Shot Distributed Algorithm for PCA With RBF Kernels, IEEE Signal Processing Letters
2021: algorithm 1, equations 2 to 4, theorem 1.

Departures from the letter: kernels beyond linear and RBF; eigenvalues are returned along with the vectors; the adaptive
threshold is relative to each client's largest eigenvalue, as in the letter's experiments; with ``upload="inner
products"`` clients of an RBF kernel send the same as with a linear one, and the coordinator computes the kernel matrix
from distances: exact once all of a part's rank is sent, d_m pairs, while the letter's form needs all N.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedkernel.clients.dkpca import (
    ComputeKernelRows,
    DKPCAClient,
    FindLocalEigenpairs,
    FindLocalProducts,
    LocalProducts,
    LocalSpectrum,
    ProjectNewRows,
)
from fedkernel.ground import FloatArray, InputError, check_at_most, value_object
from fedkernel.models import KernelPCA
from fedkernel.numerics import RBF, Kernel, Laplacian, Linear, symmetric_by_rows
from fedkernel.protocol import (
    FLOAT,
    Forecast,
    Member,
    Plan,
    Protocol,
    Request,
    Run,
    Step,
    leading_bytes,
    once,
    to_all,
    to_sum,
)
from fedkernel.strategies.component_count import MostComponents, NumberOfComponents, beyond_rank
from fedkernel.strategies.dkpca_base import DKPCABase
from fedkernel.strategy import Tags

EPSILON_INNER_PRODUCTS, EPSILON_PRODUCT = 0.04, 0.0005
"""The letter's thresholds for linear and RBF kernels, relative to the largest local eigenvalue."""

ROUNDING_SHARE = 1e-9
"""Share of the largest eigenvalue below which others may be rounding, and give no finding."""


@value_object()
class DKPCA(DKPCABase):
    """Kernel PCA in one round: every client uploads the leading eigenpairs of its part of the kernel matrix.

    The coordinator rebuilds an approximate kernel matrix from them, as a sum (linear), a sum and then the kernel's map
    (polynomial, sigmoid) or an elementwise product (RBF, Laplacian), and takes its leading eigenvectors.

    - `n_components`: D, eigenpairs of the result; at most N. "auto": of 1 to ``max_components``, by default 10, the
      number before the largest fall, by the ratio of neighbours, of the centred rebuilt matrix's eigenvalues, whatever
      the clients left out; and one more if the mean has a direction of its own and the result is not centred. It takes
      no more floats, but another (N, N) array if the matrix is formed. The result's ``findings`` give the reason.
    - `kernel`: its gamma must be a number (no client knows the number of all columns).
    - `local_components`: D_m, eigenpairs each client uploads, at most the rank of its part; "adaptive": all with an
      eigenvalue above ``epsilon`` times its largest (equation 4); None: ``n_components``, as in algorithm 1.
    - `epsilon`: threshold for "adaptive"; by default 0.04, or 0.0005 for RBF and Laplacian kernels.
    - `center`: centre the rebuilt kernel matrix in feature space, after the clients' truncation: with a non-linear
      kernel, one client alone then need not agree exactly with central kernel PCA.
    - `upload`: matrices that the clients decompose. "kernel": their parts of the kernel matrix, as in the letter.
      "inner products", for RBF kernels: their centred columns' inner products. With D_m = d_m the result is exact, for
      this width and, by `KernelPCA.with_kernel`, any other. **It reveals as much as a linear kernel**: with D_m >= d_m,
      a reader with d_m + 1 rows of a client can compute all others exactly, and no guard of widths applies.
    - `certificate`: each client sends the largest eigenvalue that it leaves out, one float more, which bounds the
      error: the model's ``certificate_``, see `error_bound`. For linear, RBF and Laplacian kernels with
      ``upload="kernel"``.

    Costs, with M clients: 1 round; up sum_m D_m (N + 1) floats, M more with a certificate, down none. Memory: a client
    needs (N, N) for RBF and Laplacian kernels and O(N d_m) for inner products; the coordinator needs O(N sum_m D_m) for
    a linear kernel as long as sum_m D_m < N, and else an (N, N) array (0.8 GB at N = 10000), two if LAPACK solves.

    New rows are projected by one round more, by the exact kernel between them and the training rows, centred with the
    rebuilt matrix's means. With a linear kernel N k floats go down to each client and n_new k up; with others each
    sends its part of that kernel, n_new N floats.
    """

    n_components: NumberOfComponents
    kernel: Kernel = Linear()
    local_components: Annotated[int, Field(ge=1)] | Literal["adaptive"] | None = None
    epsilon: Annotated[float, Field(gt=0, lt=1)] | None = None
    center: bool = False
    upload: Literal["kernel", "inner products"] = "kernel"
    certificate: bool = False
    max_components: MostComponents = None

    client: ClassVar = DKPCAClient
    may_lose_client_in_first_round: ClassVar[bool] = True
    partition: ClassVar[Literal["vertical"]] = "vertical"
    central_fields: ClassVar[tuple[str, ...]] = ("n_components", "max_components", "kernel", "center")
    counterparts: ClassVar[Mapping[str, Mapping[str, Any]]] = {"KPCA": {}}
    tags: ClassVar = Tags("eigenvectors_", orthonormal=True, signs=True, rotations=True, alone=True)

    def __post_init__(self) -> None:
        self.check_components()
        if self.epsilon is not None and self.local_components != "adaptive":
            raise InputError(f'epsilon = {self.epsilon} has a meaning only with local_components = "adaptive"')
        self.kernel.require_vertical()
        if self.upload != "kernel" and not isinstance(self.kernel, RBF):
            needs = f'upload = "{self.upload}" needs an RBF kernel, a function of distances'
            raise InputError(f"{needs}, but the kernel is {type(self.kernel).__name__}")
        if self.certificate and (self.upload != "kernel" or not isinstance(self.kernel, Linear | RBF | Laplacian)):
            known = 'linear, RBF and Laplacian kernels with upload = "kernel" only'
            raise InputError(f"certificate = True is known for {known}")

    def check_cohort(self, cohort: Sequence[Member]) -> None:
        """Check also that there are enough rows for the components."""
        super().check_cohort(cohort)
        self.check_components(cohort[0].rows)
        if isinstance(self.local_components, int):
            check_at_most("local_components", self.local_components, cohort[0].rows)

    def forecast(self, cohort: Sequence[Member]) -> Forecast:
        """Return the costs of the single round. "adaptive" may send as many eigenpairs as each part's rank."""
        N, product = cohort[0].rows, self._elementwise
        ranks = [N if product else min(N, member.columns) for member in cohort]
        most = N if (adaptive := self.local_components == "adaptive") else self.local_components or self.most_components
        sent = [min(most, rank) for rank in ranks]
        memory = leading_bytes(N, max(sent)) if product else 3 * FLOAT * N * max(ranks)
        floats = sum(sent) * (N + 1) + (len(cohort) if self.certificate else 0)
        return Forecast(1, floats, 0, memory, "at most" if adaptive else "exact")

    def plan(self, clients: int, seed: int) -> Plan:
        """Return the plan of the single request."""
        kind, fields = self._upload_request()
        return (once(kind, **fields),)

    def protocol(self, run: Run) -> Protocol[KernelPCA]:
        """Run algorithm 1."""
        # Step 1: every client uploads the leading eigenpairs of its part of the kernel matrix
        kind, fields = self._upload_request()
        uploads = yield from to_all(kind(**fields))
        # Steps 2 and 3: the coordinator rebuilds the kernel matrix and takes its leading eigenpairs
        left_out = self._left_out(uploads, run.members)
        total = float(sum(up.values.sum() for up in uploads))
        rounding = run.tolerance(0.0) * total if self._bounded else 0.0  # of arrays sent as float32
        model = self._solve(uploads, left_out + rounding)
        # a factor's singular values have as many digits
        values = np.sqrt(np.maximum(model.eigenvalues_, 0.0)) if self.kernel.vertical == "sum" else model.eigenvalues_
        few = () if self.n_components == "auto" else beyond_rank(values, len(model.eigenvectors_))
        largest, last = model.eigenvalues_[[0, -1]].tolist() if model.n_components else (0.0, 0.0)
        if not self._bounded or left_out <= max(last, ROUNDING_SHARE * largest):
            return dataclasses.replace(model, findings_=few)
        sent = " or ".join(map(str, sorted({len(up.values) for up in uploads})))
        why = f"the eigenvalues that sites left out, beyond {sent} each, may exceed the last component's"
        more = "raise local_components, or set certificate = true for a bound of the error"
        return dataclasses.replace(model, findings_=(f"{why}: {more}", *few))

    def _upload_request(self) -> tuple[type[Request[Any]], dict[str, Any]]:
        fields: dict[str, Any] = {"n_components": self.local_components or self.most_components}
        if self.local_components == "adaptive":
            default = EPSILON_PRODUCT if self._elementwise else EPSILON_INNER_PRODUCTS
            fields = {"epsilon": self.epsilon or default}
        if self.upload == "inner products":
            return FindLocalProducts, {"kernel": Linear(), **fields}
        return FindLocalEigenpairs, {"kernel": self.kernel, "omitted": self.certificate, **fields}

    def _left_out(self, uploads: Sequence[LocalSpectrum | LocalProducts], members: Sequence[Member]) -> float:
        """Return the sum over clients of the largest eigenvalue that each has not sent, or an upper bound.

        For a kernel that maps inner products it is their share of all clients' largest, taken as the matrix's share.
        """
        total, threshold = 0.0, self._upload_request()[1].get("epsilon", 1.0)
        if len(uploads) < len(members):  # clients were lost; the replies do not name them
            members = [max(members, key=lambda member: member.columns)] * len(uploads)
        for up, member in zip(uploads, members, strict=True):
            rank = member.rows if self._elementwise else min(member.rows, member.columns)
            most = min(float(up.values[-1]), threshold * float(up.values[0])) if len(up.values) < rank else 0.0
            known = up.omitted if isinstance(up, LocalSpectrum) else None
            total += most if known is None else known
        return total if self._bounded else total / (sum(float(up.values[0]) for up in uploads) or 1.0)

    def _solve(self, uploads: Sequence[LocalSpectrum | LocalProducts], omitted: float) -> KernelPCA:
        if self.upload == "inner products" or self.kernel.vertical == "sum":
            # Equation 2 as K = F F^T: the matrix itself is never needed.
            F = np.hstack([up.vectors * np.sqrt(np.maximum(up.values, 0)) for up in uploads])
            if self.kernel.vertical == "sum":
                return self._solve_factor(F, omitted)
            # Distances of F's rows are those of the clients' rows, up to the truncation.
            return dataclasses.replace(self._solve_gram(self.kernel.gram(F), omitted), coordinates_=F)
        return self._solve_gram(self._rebuilt(uploads), omitted)

    def _rebuilt(self, uploads: Sequence[LocalSpectrum | LocalProducts]) -> FloatArray:
        """Rebuild the kernel matrix by equation 3 or its like. Memory holds the clients' parts for some rows only."""
        scaled = [up.vectors * up.values for up in uploads]

        def upper(rows: slice, columns: slice) -> FloatArray:
            return self.kernel.combine(
                left[rows] @ up.vectors[columns].T for left, up in zip(scaled, uploads, strict=True)
            )

        return symmetric_by_rows(len(uploads[0].vectors), upper)

    def _projection_step(self) -> tuple[Step, int]:
        k = self.most_components
        linear = self.kernel.vertical == "sum"
        return once(ProjectNewRows, {"k": k}) if linear else once(ComputeKernelRows, kernel=self.kernel), k

    def _projection(self, model: KernelPCA) -> Protocol[FloatArray]:
        if self.kernel.vertical == "sum":
            total = yield from to_sum(ProjectNewRows(vectors=model.eigenvectors_))
            products = total.products
            if model.column_means_ is not None:
                # V is orthogonal to the ones: only the column means remain of the centring.
                products = products - model.column_means_ @ model.eigenvectors_
            return model.scale(products)
        rows = yield from to_all(ComputeKernelRows(kernel=model.kernel))
        return model.project(model.kernel.combine(row.part for row in rows))
