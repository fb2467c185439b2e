"""Eigenpairs of the kernel matrix that DKPCA rebuilds, or of the pooled one, with bounds of their error."""

import dataclasses
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from fedkernel.clients.dkpca import DKPCAClient, FindLocalEigenpairs, MeasureKept
from fedkernel.ground import EPS, FloatArray, check_at_most
from fedkernel.models import KernelPCA, compare_vectors, kept_variance
from fedkernel.numerics import Kernel, center_gram, leading_eigenpairs, leading_eigenpairs_of_factor
from fedkernel.protocol import Plan, Protocol, Request, Run, once, to_sum
from fedkernel.run import Result
from fedkernel.strategies.component_count import ChoosesComponents, choose_components
from fedkernel.strategies.new_rows_base import NewRowsStrategy


def error_bound(values: FloatArray, D: int, rows: int, omitted: float) -> float:
    """Return a bound on ||sin Theta||_F that needs no data, for linear, RBF and Laplacian kernels.

    It is ``sqrt(min(D, N - D)) R / (lambda_D(K^) - lambda_{D + 1}(K^))``, R (`omitted`) being the sum of the clients'
    lambda_{D_m + 1}(K_m), and never above ``sqrt(min(D, N - D))``. K - K^ is positive semidefinite, and its norm at
    most R: of a sum, plainly; of elementwise products with diagonals of 1 at most, by Schur's theorem. So lambda_D(K)
    >= lambda_D(K^), and with V, of K, and the complement W^, of K^, ``V^T (K - K^) W^ = Lambda V^T W^ - V^T W^
    Lambda^`` gives the bound, without the factor 2 of Davis and Kahan's. Centring changes none of this. Rounding,
    ``10 N eps lambda_1(K^)``, is added to R. ``values``: the D + 1 leading eigenvalues of K^, or all if fewer.
    """
    if rows == D:
        return 0.0
    most, rounding = float(np.sqrt(min(D, rows - D))), 10 * rows * EPS * float(values[0])
    return min(most, most * divide_by_gap(omitted + rounding, values, D, rows))


def divide_by_gap(numerator: float, values: FloatArray, D: int, rows: int) -> float:
    """Divide a number by lambda_D - lambda_{D + 1}. Return infinity if these differ by rounding alone."""
    gap = float(values[D - 1] - values[D])
    return numerator / gap if gap > rows * EPS * abs(float(values[0])) else float("inf")


class DKPCABase(ChoosesComponents, NewRowsStrategy):
    """Base of `DKPCA` that finds eigenpairs of the rebuilt or the pooled kernel matrix, and measures the result."""

    kernel: Kernel
    local_components: int | Literal["adaptive"] | None
    center: bool
    upload: Literal["kernel", "inner products"]
    certificate: bool

    @property
    def _bounded(self) -> bool:
        """True if the norm of the rebuilt matrix's error is at most the sum of the clients' omitted eigenvalues."""
        return self._elementwise or self.kernel.vertical == "sum"

    @property
    def _elementwise(self) -> bool:
        """True if the kernel matrix is the elementwise product of full-rank matrices that the clients decompose."""
        return self.upload == "kernel" and self.kernel.vertical == "product"

    @abstractmethod
    def _upload_request(self) -> tuple[type[Request[Any]], dict[str, Any]]:
        """Return the class and the fields of the request for the clients' uploads."""

    def _solve_factor(self, F: FloatArray, omitted: float | None = None) -> KernelPCA:
        column_means, mean, centred, number = None, 0.0, None, self._wanted(len(F), omitted)
        row = F.mean(axis=0)
        if self.center:
            # Centring columns of F centres F F^T; the means of F F^T are those of its products with F's mean row.
            column_means, mean = F @ row, float(row @ row)
            F = F - row
        elif self._chooses(omitted):
            centred = leading_eigenpairs_of_factor(F - row, number).values
        pairs = leading_eigenpairs_of_factor(F, number)
        model = KernelPCA(pairs.values, pairs.vectors, self.kernel, column_means, mean)
        return self._with_certificate(model, omitted, centred)

    def _solve_gram(self, K: FloatArray, omitted: float | None = None) -> KernelPCA:
        centred, number = None, self._wanted(len(K), omitted)
        if self._chooses(omitted) and not self.center:
            center_gram(apart := K.copy())
            centred = leading_eigenpairs(apart, number).values
        model = KernelPCA.of_gram(K, self.kernel, number, center=self.center)
        return self._with_certificate(model, omitted, centred)

    def _chooses(self, omitted: float | None) -> bool:
        return self.n_components == "auto" and omitted is not None

    def _wanted(self, rows: int, omitted: float | None) -> int:
        """Return the number of eigenpairs to compute. A certificate or a choice of this number takes one more."""
        most, next_too = self.most_components, omitted is not None and (self.certificate or self._chooses(omitted))
        return min(most + 1, rows) if next_too else most

    def _with_certificate(self, full_model: KernelPCA, omitted: float | None, centred: FloatArray | None) -> KernelPCA:
        """Return the set or chosen number of leading components, with the certificate if requested."""
        most, rows = self.most_components, len(full_model.eigenvectors_)
        if not self._chooses(omitted):
            model = full_model.first(most)
        else:
            share = 1.0 if self._bounded else float((full_model.eigenvalues_ if centred is None else centred)[0])
            model = choose_components(full_model, most, rows, centred, share * (omitted or 0.0))
        if omitted is None or not self.certificate:
            return model
        bound = error_bound(full_model.eigenvalues_, model.n_components, rows, omitted)
        return dataclasses.replace(model, certificate_=bound)

    def central(self, shards: Sequence[FloatArray]) -> KernelPCA:
        """Return kernel PCA of all columns in one place. "auto": with the largest allowed number of components."""
        X = np.hstack(list(shards))
        check_at_most("n_components", self.most_components, X.shape[0])
        return self._solve_factor(X) if self.kernel.vertical == "sum" else self._solve_gram(self.kernel.gram(X))

    def evaluation(self, run: Run, model: KernelPCA) -> Protocol[dict[str, float]]:
        """Return the certificate, if there is one, and the share of the kernel matrix's variance that is kept.

        With a linear kernel exactly: one round, N k floats down to each client, k + 1 up. With RBF and Laplacian
        kernels a lower bound without a request: sum_i lambda_i(K^) of K's trace, which is N, or centred at most N (1 -
        mean(K^)).
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
        """Return the plan of `evaluation`: one request for a linear kernel, else none."""
        measure = once(MeasureKept, {"k": self.most_components}, center=self.center)
        return (measure,) if self.kernel.vertical == "sum" else ()

    def judge(
        self, result: Result[KernelPCA], shards: Sequence[FloatArray], reference: KernelPCA | None = None
    ) -> dict[str, float]:
        """Return certificate and number of uploaded eigenpairs. With a reference, add errors and theorem 1's bound."""
        figures = {} if result.model.certificate_ is None else {"certificate": result.model.certificate_}
        if result.history:
            kind, _ = self._upload_request()
            uploads = sum(row["floats_up"] for row in result.history if row["phase"] == kind.__name__)
            sent = uploads - (len(shards) if self.certificate else 0)
            figures["local_components"] = sent / (len(shards[0]) + 1)
        if reference is None:
            return figures
        if self.n_components == "auto":  # compare the chosen number only
            D, own = result.model.n_components, self.local_components or self.most_components
            fields = {"n_components": D, "max_components": None, "local_components": own}
            settled = dataclasses.replace(self, **fields)  # type: ignore[type-var]
            return settled.judge(result, shards, self.comparable(reference, result.model))
        figures |= compare_vectors(result.model.eigenvectors_, reference)
        bound = self.theorem_1(shards) if result.history else None
        return figures if bound is None else figures | {"bound": bound}

    def theorem_1(self, shards: Sequence[FloatArray]) -> float | None:
        """Return theorem 1's bound on ||sin Theta||_F, whose square bounds the sin-theta error.

        It is ``J sqrt(N - D) max_j lambda_{D_j + 1}(K_j) / (lambda_D(K) - lambda_{D + 1}(K))``, N for N - D with
        product kernels, from all data. None if the theorem does not apply (polynomial and sigmoid
        kernels, inner products of an RBF kernel's rows); infinite if the gap is zero.
        """
        if self.kernel.vertical == "sum-then-map" or self.upload != "kernel":
            return None
        rows, D = shards[0].shape[0], self.most_components
        if rows == D:
            return 0.0
        request = FindLocalEigenpairs(**self._upload_request()[1] | {"omitted": True})
        omitted = max(DKPCAClient(shard).find_local_eigenpairs(request).omitted or 0.0 for shard in shards)
        wider = dataclasses.replace(self, n_components=D + 1, max_components=None)  # type: ignore[type-var]
        numerator = len(shards) * np.sqrt(rows if self.kernel.vertical == "product" else rows - D) * omitted
        return divide_by_gap(float(numerator), wider.central(shards).eigenvalues_, D, rows)
