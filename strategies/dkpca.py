"""DKPCA: one-shot kernel PCA of vertically partitioned data.

Source: He, Lv, Yang, Huang: One-Shot Distributed Algorithm for PCA With RBF Kernels, IEEE Signal Processing Letters
2021: algorithm 1, equations 2 to 4, theorem 1.

Where this departs from the letter: kernels beyond linear and RBF; eigenvalues are returned along with the vectors;
the adaptive threshold is relative to each client's largest eigenvalue, as in the letter's experiments.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from clients.dkpca import ComputeKernelRows, DKPCAClient, FindLocalEigenpairs, LocalSpectrum, ProjectNewRows
from fedkernel.arrays import FloatArray
from fedkernel.errors import InputError
from fedkernel.models import KernelPCA, compare_kernel_pca
from fedkernel.numerics import Kernel, Linear, center_gram, leading_eigenpairs, leading_eigenpairs_of_factor
from fedkernel.protocol import FLOAT, Forecast, Member, Plan, Protocol, Run, once, to_all, to_sum
from fedkernel.run import Result, RunSettings
from fedkernel.strategy import KernelStrategy
from fedkernel.tags import Tags
from fedkernel.validation import check_at_most, value_object

EPSILON_INNER_PRODUCTS, EPSILON_PRODUCT = 0.04, 0.0005
"""The letter's thresholds for linear and RBF kernels, relative to the largest local eigenvalue."""


@value_object()
class DKPCA(KernelStrategy[KernelPCA]):
    """One round: every client uploads the leading eigenpairs of its part of the kernel matrix.

    The coordinator rebuilds an approximate kernel matrix from them, as a sum (linear), a sum and then the kernel's map
    (polynomial, sigmoid) or an elementwise product (RBF, Laplacian), and takes its leading eigenvectors.

    Parameters
    ----------
    n_components : int
        D, eigenpairs of the result; at most N.
    kernel : Kernel
        Its gamma must be a number (no client knows how many columns there are in all).
    local_components : int, "adaptive" or None
        D_m, eigenpairs each client uploads, at most the rank of its part; "adaptive": as many as have an eigenvalue
        above ``epsilon`` times its largest (equation 4); None: ``n_components``, as in algorithm 1.
    epsilon : float, optional
        Threshold for "adaptive"; by default 0.04, or 0.0005 for RBF and Laplacian kernels.
    center : bool
        Centre the rebuilt kernel matrix in feature space. This happens at the coordinator, after the clients'
        truncation: with a non-linear kernel, one client alone then need not agree exactly with central kernel PCA.

    Notes
    -----
    Costs, with M clients: 1 round; up sum_m D_m (N + 1) floats, down none. Memory: a client needs (N, N) for RBF and
    Laplacian kernels and O(N d_m) for the others; the coordinator needs O(N sum_m D_m) for a linear kernel as long as
    sum_m D_m < N, and else two (N, N) arrays. At N = 10000 an (N, N) array takes 0.8 GB.
    """

    n_components: Annotated[int, Field(ge=1)]
    kernel: Kernel = Linear()
    local_components: Annotated[int, Field(ge=1)] | Literal["adaptive"] | None = None
    epsilon: Annotated[float, Field(gt=0, lt=1)] | None = None
    center: bool = False

    client: ClassVar = DKPCAClient
    partition: ClassVar[Literal["vertical"]] = "vertical"
    central_fields: ClassVar[tuple[str, ...]] = ("n_components", "kernel", "center")
    counterparts: ClassVar[Mapping[str, Mapping[str, Any]]] = {"KPCA": {}}
    tags: ClassVar = Tags("eigenvectors_", orthonormal=True, signs=True, rotations=True, alone=True)

    def __post_init__(self) -> None:
        """Check what one field demands of another."""
        if self.epsilon is not None and self.local_components != "adaptive":
            raise InputError(f'epsilon = {self.epsilon} has a meaning only with local_components = "adaptive"')
        self.kernel.require_vertical()

    def check_cohort(self, cohort: Sequence[Member]) -> None:
        """Check also that there are enough rows."""
        super().check_cohort(cohort)
        rows = cohort[0].rows
        for name, value in (("n_components", self.n_components), ("local_components", self.local_components)):
            if isinstance(value, int):
                check_at_most(name, value, rows)

    def forecast(self, cohort: Sequence[Member]) -> Forecast:
        """Return the costs above; "adaptive" may send as many eigenpairs as the rank of each part."""
        N, product = cohort[0].rows, self.kernel.vertical == "product"
        ranks = [N if product else min(N, member.columns) for member in cohort]
        adaptive = self.local_components == "adaptive"
        most = N if self.local_components == "adaptive" else self.local_components or self.n_components
        sent = [min(most, rank) for rank in ranks]
        memory = FLOAT * N * ((5 if adaptive else 2) * N if product else 3 * max(ranks))
        return Forecast(1, sum(sent) * (N + 1), 0, memory, "at most" if adaptive else "exact")

    def plan(self, clients: int, seed: int) -> Plan:
        """Return the one request."""
        return (once(FindLocalEigenpairs, **self._local_fields()),)

    def protocol(self, run: Run) -> Protocol[KernelPCA]:
        """Algorithm 1."""
        # Step 1: every client uploads the leading eigenpairs of its part of the kernel matrix
        uploads = yield from to_all(FindLocalEigenpairs(**self._local_fields()))
        # Steps 2 and 3: the coordinator rebuilds the kernel matrix and takes its leading eigenpairs
        return self._solve(uploads)

    def _local_fields(self) -> dict[str, Any]:
        if self.local_components == "adaptive":
            product = self.kernel.vertical == "product"
            default = EPSILON_PRODUCT if product else EPSILON_INNER_PRODUCTS
            return {"kernel": self.kernel, "epsilon": self.epsilon or default}
        return {"kernel": self.kernel, "n_components": self.local_components or self.n_components}

    def _solve(self, uploads: Sequence[LocalSpectrum]) -> KernelPCA:
        if self.kernel.vertical == "sum":
            # Equation 2 as K = F F^T: the matrix itself is never needed.
            return self._solve_factor(np.hstack([up.vectors * np.sqrt(np.maximum(up.values, 0)) for up in uploads]))

        # Equation 3 and its like: only the running result and one client's part are ever held.
        parts: Iterator[FloatArray] = ((up.vectors * up.values) @ up.vectors.T for up in uploads)
        return self._solve_gram(self.kernel.combine(parts))

    def _solve_factor(self, F: FloatArray) -> KernelPCA:
        column_means, mean = None, 0.0
        if self.center:
            # Centring columns of F centres F F^T; the means of F F^T are those of its products with F's mean row.
            row = F.mean(axis=0)
            column_means, mean = F @ row, float(row @ row)
            F = F - row
        pairs = leading_eigenpairs_of_factor(F, self.n_components)
        return KernelPCA(pairs.values, pairs.vectors, self.kernel, column_means, mean)

    def _solve_gram(self, K: FloatArray) -> KernelPCA:
        column_means, mean = center_gram(K) if self.center else (None, 0.0)
        pairs = leading_eigenpairs(K, self.n_components)
        return KernelPCA(pairs.values, pairs.vectors, self.kernel, column_means, mean)

    def projection(self, run: Run, model: KernelPCA) -> Protocol[FloatArray]:
        """Project the rows that are new at the clients: one round, (n_new, k) coordinates.

        With a linear kernel the clients get the vectors (N k floats down) and send n_new k floats; with others they
        send their part of the kernel between new and training rows, n_new N floats. No column leaves a client.
        """
        if self.kernel.vertical == "sum":
            total = yield from to_sum(ProjectNewRows(vectors=model.eigenvectors_))
            products = total.products
            if model.column_means_ is not None:
                # V is orthogonal to the ones, so of the centring only the column means remain.
                products = products - model.column_means_ @ model.eigenvectors_
            return model.scale(products)
        rows = yield from to_all(ComputeKernelRows(kernel=self.kernel))
        return model.project(self.kernel.combine(row.part for row in rows))

    def transform(
        self,
        model: KernelPCA,
        shards: Sequence[FloatArray],
        new_shards: Sequence[FloatArray],
        *,
        seed: int = 0,
        deadline: float = 3600.0,
    ) -> FloatArray:
        """Project new rows, whose columns are split between the simulated sites as those of the training rows.

        Parameters
        ----------
        model : KernelPCA
            From `fit` on the same shards.
        shards : sequence of ndarray, each (N, d_m)
        new_shards : sequence of ndarray, each (n_new, d_m)

        Returns
        -------
        ndarray of shape (n_new, k)
            Equal to projecting the exact kernel between new and training rows on the learned vectors; if the model is
            centred, with the means of the kernel matrix the coordinator rebuilt.
        """
        settings = RunSettings(seed=seed, clients=len(shards), deadline=deadline)
        return self.simulate(lambda run: self.projection(run, model), shards, new_shards, settings)[0]

    def central(self, shards: Sequence[FloatArray]) -> KernelPCA:
        """Return kernel PCA of all columns in one place."""
        X = np.hstack(list(shards))
        check_at_most("n_components", self.n_components, X.shape[0])
        return self._solve_factor(X) if self.kernel.vertical == "sum" else self._solve_gram(self.kernel.gram(X))

    def judge(
        self, result: Result[KernelPCA], shards: Sequence[FloatArray], reference: KernelPCA | None = None
    ) -> dict[str, float]:
        """Return the errors against a reference and, of a run, theorem 1's bound on ||sin Theta||_F."""
        if reference is None:
            return {}
        errors = compare_kernel_pca(result.model, reference)
        bound = self.theorem_1(shards) if result.history else None
        return errors if bound is None else errors | {"bound": bound}

    def theorem_1(self, shards: Sequence[FloatArray]) -> float | None:
        """Return theorem 1's bound on ||sin Theta||_F, whose square bounds the sin-theta error.

        The bound is ``J sqrt(N - D) max_j lambda_{D_j + 1}(K_j) / (lambda_D(K) - lambda_{D + 1}(K))``, with N in place
        of N - D for product kernels; it needs all data and is for experiments. None for kernels that the theorem
        does not cover (polynomial, sigmoid); infinite where the gap is zero.
        """
        if self.kernel.vertical == "sum-then-map":
            return None
        rows = shards[0].shape[0]
        if self.n_components == rows:
            return 0.0
        product = self.kernel.vertical == "product"
        omitted = max(self._largest_omitted(DKPCAClient(shard)) for shard in shards)
        eigenvalues = DKPCA(self.n_components + 1, self.kernel, center=self.center).central(shards).eigenvalues_
        gap = float(eigenvalues[-2] - eigenvalues[-1])
        numerator = len(shards) * np.sqrt(rows if product else rows - self.n_components) * omitted
        if numerator == 0:
            return 0.0
        return float(numerator / gap) if gap > 0 else float("inf")

    def _largest_omitted(self, client: DKPCAClient) -> float:
        sent = client.find_local_eigenpairs(FindLocalEigenpairs(**self._local_fields())).values.size
        request = FindLocalEigenpairs(kernel=self.kernel, n_components=min(sent + 1, client.X.shape[0]))
        values = client.find_local_eigenpairs(request).values
        return max(float(values[sent]), 0.0) if values.size > sent else 0.0
