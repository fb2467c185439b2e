"""Base classes of VFedPCA and its variants: sums of the clients' matrices ``X_m X_m^T``, or kernel matrices."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np

from fedkernel.clients.vfedpca import CENTRED_ROWS, MOST_CACHED_BYTES, Finished, MeasureVariance
from fedkernel.ground import FloatArray
from fedkernel.models import KernelPCA, compare_vectors, kept_variance
from fedkernel.numerics import (
    NARROW_MEAN,
    Kernel,
    Linear,
    center_gram,
    is_bounded,
    leading_eigenpairs,
    leading_eigenpairs_of_factor,
    low_rank_pays,
)
from fedkernel.protocol import FLOAT, Member, Plan, Protocol, Run, leading_bytes, once, to_sum
from fedkernel.run import Result
from fedkernel.strategies.component_count import ChoosesComponents
from fedkernel.strategies.new_rows_base import NewRowsStrategy
from fedkernel.strategy import KernelStrategy

DEFAULT_ROUNDS, MOST_ROUNDS = 10, 1000
"""Default of T for the paper's merges, and largest number of products."""

M = TypeVar("M")


def pooled_kernel_mean(replies: Sequence[Finished]) -> float | None:
    """Estimate the mean kernel value between rows over all columns, from the clients' means over their own columns.

    A product kernel's mean is about the product of theirs; but a sum of kernels is too narrow only if each of them is.
    """
    means = [reply.kernel_mean for reply in replies if reply.kernel_mean is not None]
    return (largest if (largest := max(means)) < NARROW_MEAN else math.prod(means)) if means else None


class LocalMatrixStrategy(KernelStrategy[M], Generic[M]):
    """Base of strategies that find leading vectors of the clients' summed matrices, or merge each client's vectors."""

    partition: ClassVar[Literal["vertical"]] = "vertical"

    kernel: Kernel | None = None
    merge: Literal["exact", "eigenvalue", "average"]
    local_iterations: int
    rounds: int | None
    update: Literal["original", "inplace"]
    warm_start: bool
    center: Literal["columns", "rows", "none"]
    tol: float

    @property
    @abstractmethod
    def most_components(self) -> int:
        """Number of components k, or the upper limit if k is chosen."""

    @property
    def most_rounds(self) -> int:
        """Number of rounds T. With "exact", the largest number of products in a search."""
        return self.rounds or (MOST_ROUNDS if self.merge == "exact" else DEFAULT_ROUNDS)

    def _table_fields(self) -> dict[str, Any]:
        return {"kernel": self.kernel, "center": self.center}

    def _iteration_fields(self) -> dict[str, Any]:
        local = {"n_components": self.most_components, "iterations": self.local_iterations}
        return {**self._table_fields(), **local, "update": self.update, "warm_start": self.warm_start}

    def _unconverged(self, tol: float) -> str:
        ended = f"rounds = {self.most_rounds} ended the search before it converged to tol = {tol:g}"
        return f"{ended}: the components may be far from the leading ones; allow more rounds, or a larger tol"

    def _kernel_mean_floats(self, cohort: Sequence[Member]) -> int:
        return len(cohort) if is_bounded(self.kernel) else 0

    def _local_memory(self, cohort: Sequence[Member]) -> int:
        """Return an upper bound of a client's memory in bytes for local iterations."""
        N, widest, k = cohort[0].rows, max(member.columns for member in cohort), self.most_components
        table = FLOAT * N * widest
        centred = table if table <= MOST_CACHED_BYTES else FLOAT * CENTRED_ROWS * widest
        if low_rank_pays((N, widest), k, self.local_iterations):
            centred += leading_bytes(widest, widest)
        return FLOAT * N * 4 * k + (FLOAT * N * (N + 2 * widest) if self.kernel else centred)

    def central(self, shards: Sequence[FloatArray]) -> KernelPCA:  # type: ignore[override]
        """Return PCA or AKPCA of all columns in one place, with the clients' centring. "auto": the most components."""
        if self.kernel is None:
            pairs = leading_eigenpairs_of_factor(np.hstack([self._centred(X) for X in shards]), self.most_components)
            return KernelPCA(pairs.values, pairs.vectors, Linear())
        in_features = self.center == "columns"
        K = self.kernel.gram(np.hstack([X if in_features else self._centred(X) for X in shards]))
        if in_features:
            center_gram(K)
        pairs = leading_eigenpairs(K, self.most_components)
        return KernelPCA(pairs.values, pairs.vectors, self.kernel)

    def _centred(self, X: FloatArray) -> FloatArray:
        if self.center == "none":
            return X
        means: FloatArray = X.mean(axis=0 if self.center == "columns" else 1, keepdims=True)
        return X - means


class VFedPCABase(ChoosesComponents, LocalMatrixStrategy[KernelPCA], NewRowsStrategy):
    """Base of `VFedPCA` with quality measures of the eigenvectors, which the coordinator has."""

    def evaluation(self, run: Run, model: KernelPCA) -> Protocol[dict[str, float]]:
        """Measure the share of the clients' total variance that the components keep.

        One round: k + 1 floats up, N k down. A kernel's variance is that of the summed kernel matrices.
        """
        variance = yield from to_sum(MeasureVariance(**self._table_fields(), directions=model.eigenvectors_))
        return kept_variance(float(variance.captured.sum()), variance.total, len(model.eigenvectors_))

    def evaluation_plan(self) -> Plan:
        """Return the plan of `evaluation`: one request."""
        return (once(MeasureVariance, {"k": self.most_components}, **self._table_fields()),)

    def judge(
        self, result: Result[KernelPCA], shards: Sequence[FloatArray], reference: KernelPCA | None = None
    ) -> dict[str, float]:
        """Return the errors of the eigenvectors against a reference."""
        if reference is None:
            return {}
        return compare_vectors(result.model.eigenvectors_, self.comparable(reference, result.model))

    def judge_steps(
        self, result: Result[KernelPCA], shards: Sequence[FloatArray], reference: KernelPCA
    ) -> dict[str, list[float]]:
        """Return sin-theta error and distance from the reference after each merge of the paper's method."""
        if result.model.iterates_ is None:
            return {}
        merges = [compare_vectors(V, reference) for V in result.model.iterates_]
        return {name: [merge[name] for merge in merges] for name in merges[0]}
