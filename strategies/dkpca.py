"""DKPCA: one-shot kernel PCA of vertically partitioned data.

Source: He, Lv, Yang, Huang: One-Shot Distributed Algorithm for PCA With RBF Kernels, IEEE Signal Processing Letters
2021: algorithm 1, equations 2 to 4, theorem 1.

Where this departs from the letter: kernels beyond linear and RBF; eigenvalues are returned along with the vectors;
the adaptive threshold is relative to each client's largest eigenvalue, as in the letter's experiments; with
``upload="inner products"`` clients of an RBF kernel send what a linear one's do, and the coordinator makes the kernel
matrix of distances: exact once all of a part's rank is sent, d_m pairs, where the letter's needs all N.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from clients.dkpca import (
    ComputeKernelRows,
    DKPCAClient,
    FindLocalEigenpairs,
    FindLocalProducts,
    LocalProducts,
    LocalSpectrum,
    MeasureKept,
    ProjectNewRows,
)
from fedkernel.arrays import FloatArray
from fedkernel.errors import InputError
from fedkernel.models import KernelPCA, compare_kernel_pca, kept_variance
from fedkernel.numerics import (
    RBF,
    Kernel,
    Laplacian,
    Linear,
    leading_eigenpairs_of_factor,
    symmetric_by_rows,
)
from fedkernel.protocol import (
    FLOAT,
    Computing,
    Forecast,
    Member,
    Plan,
    Protocol,
    Request,
    Run,
    Step,
    Work,
    centred,
    leading,
    leading_bytes,
    once,
    singular,
    to_all,
    to_sum,
    whole_kernel_matrix,
)
from fedkernel.run import Result
from fedkernel.tags import Tags
from fedkernel.validation import check_at_most, value_object
from strategies.choosing_components import (
    MostComponents,
    NumberOfComponents,
    check_components,
    chosen,
    comparable,
    most_components,
)
from strategies.dkpca_spectrum import certified, over_gap
from strategies.new_rows import ProjectsNewRows

EPSILON_INNER_PRODUCTS, EPSILON_PRODUCT = 0.04, 0.0005
"""The letter's thresholds for linear and RBF kernels, relative to the largest local eigenvalue."""

LEAST = 1e-9
"""Eigenvalues below so much of the largest may be rounding, of which no finding tells."""


@value_object()
class DKPCA(ProjectsNewRows):
    """One round: every client uploads the leading eigenpairs of its part of the kernel matrix.

    The coordinator rebuilds an approximate kernel matrix from them, as a sum (linear), a sum and then the kernel's map
    (polynomial, sigmoid) or an elementwise product (RBF, Laplacian), and takes its leading eigenvectors.

    Parameters
    ----------
    n_components : int or "auto"
        D, eigenpairs of the result; at most N. "auto": of 1 to ``max_components``, by default 10, where the rebuilt
        matrix's eigenvalues fall the most, but to 0, by the ratio of neighbours (`fedkernel.numerics.eigengap`), which
        asks the clients nothing more. The result's ``findings`` say why.
    kernel : Kernel
        Its gamma must be a number (no client knows how many columns there are in all).
    local_components : int, "adaptive" or None
        D_m, eigenpairs each client uploads, at most the rank of its part; "adaptive": as many as have an eigenvalue
        above ``epsilon`` times its largest (equation 4); None: ``n_components``, as in algorithm 1, or the most.
    epsilon : float, optional
        Threshold for "adaptive"; by default 0.04, or 0.0005 for RBF and Laplacian kernels.
    center : bool
        Centre the rebuilt kernel matrix in feature space. This happens at the coordinator, after the clients'
        truncation: with a non-linear kernel, one client alone then need not agree exactly with central kernel PCA.
    upload : {"kernel", "inner products"}
        What the clients decompose. "kernel": their parts of the kernel matrix, as the letter has it. "inner products",
        for RBF kernels: their centred columns' inner products, of which the coordinator makes the distances and the
        kernel matrix. With D_m = d_m that is exact, for this width and, by `KernelPCA.with_kernel`, any other. **It
        gives as much away as a linear kernel**: with D_m >= d_m, who knows d_m + 1 rows of a client can compute all
        others exactly, and no guard of widths stands before it.
    certificate : bool
        Let each client say the largest eigenvalue that it leaves out, one float more, from which the coordinator,
        without data, bounds the error: the model's ``certificate_``, see `certified`. For linear, RBF and Laplacian
        kernels with ``upload="kernel"``.

    Notes
    -----
    Costs, with M clients: 1 round; up sum_m D_m (N + 1) floats, M more with a certificate, down none. Memory: a client
    needs (N, N) for RBF and Laplacian kernels and O(N d_m) for inner products; the coordinator needs O(N sum_m D_m) for
    a linear kernel as long as sum_m D_m < N, and else an (N, N) array, two where LAPACK solves. At N = 10000 such an
    array takes 0.8 GB.

    New rows are projected by one round more, by the exact kernel between them and the training rows; if the model is
    centred, with the means of the kernel matrix the coordinator rebuilt. With a linear kernel N k floats go down to
    each client and n_new k up; with others each sends its part of that kernel, n_new N floats.
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
    loses_first: ClassVar[bool] = True
    partition: ClassVar[Literal["vertical"]] = "vertical"
    central_fields: ClassVar[tuple[str, ...]] = ("n_components", "max_components", "kernel", "center")
    counterparts: ClassVar[Mapping[str, Mapping[str, Any]]] = {"KPCA": {}}
    tags: ClassVar = Tags("eigenvectors_", orthonormal=True, signs=True, rotations=True, alone=True)

    def __post_init__(self) -> None:
        """Check what one field demands of another."""
        most_components(self.n_components, self.max_components)
        if self.epsilon is not None and self.local_components != "adaptive":
            raise InputError(f'epsilon = {self.epsilon} has a meaning only with local_components = "adaptive"')
        self.kernel.require_vertical()
        if self.upload != "kernel" and not isinstance(self.kernel, RBF):
            name = type(self.kernel).__name__
            raise InputError(
                f'upload = "{self.upload}" is for RBF kernels, of whose distances they are; not for {name}'
            )
        if self.certificate and (self.upload != "kernel" or not isinstance(self.kernel, Linear | RBF | Laplacian)):
            raise InputError(
                'certificate = True is known for linear, RBF and Laplacian kernels with upload = "kernel" only'
            )

    @property
    def most_components(self) -> int:
        """D, the most of it where it is chosen."""
        return most_components(self.n_components, self.max_components)

    def check_cohort(self, cohort: Sequence[Member]) -> None:
        """Check also that there are enough rows."""
        super().check_cohort(cohort)
        rows = cohort[0].rows
        check_components(self.n_components, self.most_components, rows)
        if isinstance(self.local_components, int):
            check_at_most("local_components", self.local_components, rows)

    def forecast(self, cohort: Sequence[Member]) -> Forecast:
        """Return the costs above; "adaptive" may send as many eigenpairs as the rank of each part."""
        N, product = cohort[0].rows, self._elementwise
        ranks = [N if product else min(N, member.columns) for member in cohort]
        adaptive = self.local_components == "adaptive"
        most = N if self.local_components == "adaptive" else self.local_components or self.most_components
        sent = [min(most, rank) for rank in ranks]
        memory = leading_bytes(N, max(sent)) if product else 3 * FLOAT * N * max(ranks)
        floats = sum(sent) * (N + 1) + (len(cohort) if self.certificate else 0)
        computing = self._computing(cohort, sent)
        return Forecast(1, floats, 0, memory, "at most" if adaptive else "exact", computing)

    def _computing(self, cohort: Sequence[Member], sent: Sequence[int]) -> Computing:
        """Return what is computed where each client sends so many eigenpairs."""
        N, k = cohort[0].rows, self.most_components
        solved = leading(N, k) + (centred(N) if self.center else Work())
        if self._elementwise:
            # Step 1: a kernel matrix at each client, and its leading eigenpairs, with a certificate found twice
            times = 2 if self.certificate else 1
            sites = zip(cohort, sent, strict=True)
            own = [whole_kernel_matrix(N, member.columns) + leading(N, D) * times for member, D in sites]
            # Steps 2 and 3: one triangle of each part, multiplied onto the result, and the eigenpairs of that
            rebuilt = Work(products=1.0 * N * N * sum(sent), passes=(2.0 + 0.8 * len(cohort)) * FLOAT * N * N)
            return Computing.of(own, rebuilt + solved)
        # Singular values of a factor, about 8 n r^2 operations of which half are products with vectors
        factors = [singular(N, member.columns) for member in cohort]
        width = min(N, sum(sent))
        # Of other kernels than a linear one: distances from the factor's rows, and the kernel matrix of these
        sums = self.kernel.vertical == "sum"
        return Computing.of(factors, singular(N, width) if sums else whole_kernel_matrix(N, width) + solved)

    def plan(self, clients: int, seed: int) -> Plan:
        """Return the one request."""
        kind, fields = self._asked()
        return (once(kind, **fields),)

    def protocol(self, run: Run) -> Protocol[KernelPCA]:
        """Algorithm 1."""
        # Step 1: every client uploads the leading eigenpairs of its part of the kernel matrix
        kind, fields = self._asked()
        uploads = yield from to_all(kind(**fields))
        # Steps 2 and 3: the coordinator rebuilds the kernel matrix and takes its leading eigenpairs
        model = self._solve(uploads)
        # Nothing that a client leaves out is larger than the last that it sends
        ranks = [run.members[0].rows if self._elementwise else member.columns for member in run.members]
        if len(uploads) < len(ranks):  # clients were lost, and which the replies do not say
            ranks = [max(ranks)] * len(uploads)
        ends = [(up.values, rank) for up, rank in zip(uploads, ranks, strict=True)]
        left_out = sum(float(values[-1]) for values, rank in ends if 0 < len(values) < rank)
        told = [float(value) for value in model.eigenvalues_[[0, -1]]] if model.n_components else [0.0, 0.0]
        if self.upload == "inner products" or left_out <= max(told[1], LEAST * told[0]):
            return model
        sent = " or ".join(map(str, sorted({len(values) for values, _ in ends})))
        why = f"beyond {sent} eigenpairs each, sites may have left out more than the last component holds"
        more = "more local_components leave out less, and certificate = true bounds the error"
        return dataclasses.replace(model, findings_=(f"{why}: {more}",))

    def evaluation(self, run: Run, model: KernelPCA) -> Protocol[dict[str, float]]:
        """Return the certificate, where there is one, and what the components keep of the kernel matrix.

        With a linear kernel exactly: one round, N k floats down to each client, k + 1 up. With RBF and Laplacian
        kernels no client is asked: K - K^ is positive semidefinite and the diagonal of K is 1, so that the components
        keep at least sum_i lambda_i(K^) of K's trace, which is N, or centred at most N (1 - mean(K^)).
        """
        figures = {} if model.certificate_ is None else {"certificate": model.certificate_}
        if self.kernel.vertical == "sum":
            vectors = model.eigenvectors_
            variances = yield from to_sum(MeasureKept(vectors=vectors, center=self.center))
            figures |= kept_variance(float(variances.captured.sum()), variances.total, len(vectors))
        elif self._elementwise:
            most = len(model.eigenvectors_) * (1.0 - model.mean_)
            figures["explained_variance_bound"] = float(model.eigenvalues_.sum()) / most if most > 0 else 0.0
        return figures

    def evaluation_plan(self) -> Plan:
        """Return the request for the variance, which with other kernels than a linear one there is not."""
        if self.kernel.vertical != "sum":
            return ()
        return (once(MeasureKept, {"k": self.most_components}, center=self.center),)

    @property
    def _elementwise(self) -> bool:
        """Whether clients decompose kernel matrices of full rank, whose elementwise product the kernel matrix is."""
        return self.upload == "kernel" and self.kernel.vertical == "product"

    def _asked(self) -> tuple[type[Request[Any]], dict[str, Any]]:
        fields: dict[str, Any] = {"n_components": self.local_components or self.most_components}
        if self.local_components == "adaptive":
            default = EPSILON_PRODUCT if self._elementwise else EPSILON_INNER_PRODUCTS
            fields = {"epsilon": self.epsilon or default}
        if self.upload == "inner products":
            return FindLocalProducts, {"kernel": Linear(), **fields}
        return FindLocalEigenpairs, {"kernel": self.kernel, "omitted": self.certificate, **fields}

    def _solve(self, uploads: Sequence[LocalSpectrum] | Sequence[LocalProducts]) -> KernelPCA:
        omitted = [up.omitted or 0.0 for up in uploads if isinstance(up, LocalSpectrum)] if self.certificate else None
        if self.upload == "inner products" or self.kernel.vertical == "sum":
            # Equation 2 as K = F F^T: the matrix itself is never needed.
            F = np.hstack([up.vectors * np.sqrt(np.maximum(up.values, 0)) for up in uploads])
            if self.kernel.vertical == "sum":
                return self._solve_factor(F, omitted)
            # F's rows are as far apart as the clients' rows are, up to the truncation.
            most = self._wanted(len(F), omitted)
            return self._chosen(KernelPCA.of_coordinates(F, self.kernel, most, center=self.center))

        return self._solve_gram(self._rebuilt(uploads), omitted)

    def _rebuilt(self, uploads: Sequence[LocalSpectrum | LocalProducts]) -> FloatArray:
        """Return the kernel matrix by equation 3 or its like; of the clients' parts memory has some rows only."""
        scaled = [up.vectors * up.values for up in uploads]

        def upper(rows: slice, columns: slice) -> FloatArray:
            return self.kernel.combine(
                left[rows] @ up.vectors[columns].T for left, up in zip(scaled, uploads, strict=True)
            )

        return symmetric_by_rows(len(uploads[0].vectors), upper)

    def _solve_factor(self, F: FloatArray, omitted: Sequence[float] | None = None) -> KernelPCA:
        column_means, mean = None, 0.0
        if self.center:
            # Centring columns of F centres F F^T; the means of F F^T are those of its products with F's mean row.
            row = F.mean(axis=0)
            column_means, mean = F @ row, float(row @ row)
            F = F - row
        pairs = leading_eigenpairs_of_factor(F, self._wanted(len(F), omitted))
        return self._certified(KernelPCA(pairs.values, pairs.vectors, self.kernel, column_means, mean), omitted)

    def _solve_gram(self, K: FloatArray, omitted: Sequence[float] | None = None) -> KernelPCA:
        model = KernelPCA.of_gram(K, self.kernel, self._wanted(len(K), omitted), center=self.center)
        return self._certified(model, omitted)

    def _wanted(self, rows: int, omitted: Sequence[float] | None) -> int:
        """Return how many eigenpairs are needed: for a certificate, or to choose, the next one too."""
        most, next_too = self.most_components, omitted is not None or self.n_components == "auto"
        return min(most + 1, rows) if next_too else most

    def _certified(self, found: KernelPCA, omitted: Sequence[float] | None) -> KernelPCA:
        model = self._chosen(found)
        if omitted is None:
            return model
        bound = certified(found.eigenvalues_, model.n_components, len(found.eigenvectors_), sum(omitted))
        return dataclasses.replace(model, certificate_=bound)

    def _chosen(self, model: KernelPCA) -> KernelPCA:
        """Return as many of a model's leading components as are wanted, or chosen."""
        most = self.most_components
        return chosen(model, most, len(model.eigenvectors_)) if self.n_components == "auto" else model.first(most)

    def _projected_by(self) -> tuple[Step, int]:
        k = self.most_components
        linear = self.kernel.vertical == "sum"
        return once(ProjectNewRows, {"k": k}) if linear else once(ComputeKernelRows, kernel=self.kernel), k

    def _projected(self, model: KernelPCA) -> Protocol[FloatArray]:
        if self.kernel.vertical == "sum":
            total = yield from to_sum(ProjectNewRows(vectors=model.eigenvectors_))
            products = total.products
            if model.column_means_ is not None:
                # V is orthogonal to the ones, so of the centring only the column means remain.
                products = products - model.column_means_ @ model.eigenvectors_
            return model.scale(products)
        rows = yield from to_all(ComputeKernelRows(kernel=model.kernel))
        return model.project(model.kernel.combine(row.part for row in rows))

    def central(self, shards: Sequence[FloatArray]) -> KernelPCA:
        """Return kernel PCA of all columns in one place; with "auto" of the most components that there may be."""
        if self.n_components == "auto":
            return dataclasses.replace(self, n_components=self.most_components, max_components=None).central(shards)
        X = np.hstack(list(shards))
        check_at_most("n_components", self.most_components, X.shape[0])
        return self._solve_factor(X) if self.kernel.vertical == "sum" else self._solve_gram(self.kernel.gram(X))

    def judge(
        self, result: Result[KernelPCA], shards: Sequence[FloatArray], reference: KernelPCA | None = None
    ) -> dict[str, float]:
        """Return the certificate, what a run sent and, against a reference, the errors and theorem 1's bound."""
        figures = {} if result.model.certificate_ is None else {"certificate": result.model.certificate_}
        if result.history:
            kind, _ = self._asked()
            uploads = sum(row["floats_up"] for row in result.history if row["phase"] == kind.__name__)
            sent = uploads - (len(shards) if self.certificate else 0)
            figures["local_components"] = sent / (len(shards[0]) + 1)
        if reference is None:
            return figures
        if self.n_components == "auto":  # as many as were chosen, of as many as there might have been
            D, own = result.model.n_components, self.local_components or self.most_components
            settled = dataclasses.replace(self, n_components=D, max_components=None, local_components=own)
            return settled.judge(result, shards, comparable(reference, result.model))
        figures |= compare_kernel_pca(result.model, reference)
        bound = self.theorem_1(shards) if result.history else None
        return figures if bound is None else figures | {"bound": bound}

    def theorem_1(self, shards: Sequence[FloatArray]) -> float | None:
        """Return theorem 1's bound on ||sin Theta||_F, whose square bounds the sin-theta error.

        The bound is ``J sqrt(N - D) max_j lambda_{D_j + 1}(K_j) / (lambda_D(K) - lambda_{D + 1}(K))``, with N in place
        of N - D for product kernels; it needs all data and is for experiments. None where the theorem says nothing
        (polynomial and sigmoid kernels, inner products of an RBF kernel's rows); infinite where the gap is zero.
        """
        if self.kernel.vertical == "sum-then-map" or self.upload != "kernel":
            return None
        rows = shards[0].shape[0]
        if self.most_components == rows:
            return 0.0
        product = self.kernel.vertical == "product"
        _, fields = self._asked()
        request = FindLocalEigenpairs(**fields | {"omitted": True})
        omitted = max(DKPCAClient(shard).find_local_eigenpairs(request).omitted or 0.0 for shard in shards)
        eigenvalues = DKPCA(self.most_components + 1, self.kernel, center=self.center).central(shards).eigenvalues_
        numerator = len(shards) * np.sqrt(rows if product else rows - self.most_components) * omitted
        return over_gap(float(numerator), eigenvalues, self.most_components, rows)
