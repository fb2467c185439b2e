"""Base class of landmark kernel PCA strategies, and the low-rank step that they share.

Source: the paper of `fedkernel.strategies.diskpca`, algorithm 3 (disLR).
"""

import dataclasses
import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from fedkernel.clients.landmark_base import (
    LandmarkClient,
    LandmarkRequest,
    MeasureCaptured,
    MultiplyKernel,
    SketchKernel,
    TakeComponents,
)
from fedkernel.ground import (
    BLOCK_ROWS,
    FloatArray,
    InputError,
    Precision,
    Rows,
    check_at_most,
    stack_rows,
    sum_in_order,
)
from fedkernel.models import LandmarkPCA, compare_components, kept_variance
from fedkernel.numerics import (
    AnyKernel,
    above_rounding,
    is_bounded,
    is_sketched,
    leading_eigenpairs,
    mean_of_landmarks,
    mean_value,
    whitening,
)
from fedkernel.protocol import (
    FLOAT,
    AtMost,
    CarriesRows,
    Forecast,
    Member,
    Plan,
    Protocol,
    Run,
    Step,
    any_width,
    once,
    to_all,
    to_each,
    to_sum,
)
from fedkernel.run import Result
from fedkernel.strategies.component_count import ChoosesComponents, choose_components
from fedkernel.strategy import KernelStrategy, Tags

log = logging.getLogger(__name__)

SketchSize = Annotated[int, Field(ge=1)] | Literal["exact"]
"""Columns of a sketch; "exact": no sketch, but products."""

ProjectionSize = SketchSize | Literal["landmarks"]
"""Columns of a sketch as in `SketchSize`; "landmarks": as many as there are landmarks."""

LANDMARKS_PER_COMPONENT = 10
"""Landmarks for each component, by default: at 10 and 20 the error is some 4% and 1% above the least."""


@dataclass(frozen=True)
class LowRankStep:
    """Common parameters of the low-rank step. A span's basis omits squared lengths below ``tol`` of the largest."""

    kernel: AnyKernel
    precision: Precision
    tol: float

    def components(self, coefficients: FloatArray, *, embed: bool) -> TakeComponents:
        """Return the request that sends components' coefficients to the clients."""
        return TakeComponents(coefficients=coefficients, kernel=self.kernel, precision=self.precision, embed=embed)

    def handed(self, rows: Rows, before: int = 0) -> dict[str, Any]:
        """Return the fields of a `LandmarkRequest` that sends a client these landmarks."""
        return {**CarriesRows.of(rows), "before": before, **vars(self)}

    def planned_fields(self) -> dict[str, Any]:
        """Return the request fields that are known before a run."""
        return vars(self) | {"kernel": any_width(self.kernel)}

    def plan(self, kind: type[LandmarkRequest[Any]], rows: int, **fields: Any) -> Step:
        """Return the planned step of a request that sends at most `rows` rows."""
        sizes = {"c_m": rows, "starts_m": rows + 1}  # the rows, and the starts of sparse ones
        return once(kind, sizes, before=AtMost(rows), **self.planned_fields(), **fields)


def low_rank_step(kernel: AnyKernel, precision: Precision, tol: float | None) -> LowRankStep:
    """Return the low-rank step's parameters. By default ``tol`` is the root of the precision's rounding."""
    return LowRankStep(kernel, precision, float(np.sqrt(np.finfo(precision).eps)) if tol is None else tol)


def few_landmarks(number: int, usual: int, wanted: tuple[int, str], why: str, parameter: str) -> str:
    """Return the finding that a run has fewer landmarks than are usual, with the reason."""
    few = f"only {number} landmarks for {wanted[0]} {wanted[1]} ({usual} are usual): {why}"
    return f"{few}; reduce n_{wanted[1]}, or set {parameter} for more"


def low_rank(
    run: Run,
    step: LowRankStep,
    landmarks: Rows,
    handed: Mapping[int, Mapping[str, Any]],
    *,
    n_components: int,
    choose: bool = False,
    columns: ProjectionSize,
    embed: bool,
) -> Protocol[LandmarkPCA]:
    """Find the leading components within the landmarks' span; a sub-protocol (algorithm 3, disLR).

    Two rounds. Up: M |Y| (|Y| + 1) / 2 floats, or of sketches |Y| w from each client with 2 w rows or more; down: the
    last landmarks, each to all clients but its own, and M |Y| k. If k is chosen, M |Y| up besides: the sums of the
    kernel values, for centring by the coordinator. Memory: the coordinator (|Y|, |Y|) arrays; a client |Y| floats per
    row of a block.

    The clients sketch kernel values, not their projections onto a basis: the coordinator applies the basis to the
    sketch, which is the same, and no machine depends on another's rounding.

    ``columns`` is w; "exact": clients send the products k(Y, X_m) k(X_m, Y). ``handed`` has the fields of each client's
    `LandmarkRequest`, with the last landmarks that it does not know. If the landmarks span fewer than k dimensions,
    fewer components are found. With `choose`, their number follows from A's centred eigenvalues (`choose_components`).
    """
    K = step.kernel.gram(landmarks)
    R = whitening(K, step.tol)
    if R.shape[1] == 0:
        raise InputError("the kernel is zero on all landmarks, so that there are no components")
    # Step 1: every client sketches its kernel values
    if columns == "exact":
        basis = None if run.privacy is None else R
        total = yield from to_sum(
            {client: MultiplyKernel(**own, sums=choose, basis=basis) for client, own in handed.items()}
        )
        product, sums = total.product, total.sums
    else:
        w = landmarks.shape[0] if columns == "landmarks" else columns
        requests = {client: SketchKernel(**own, columns=w, sums=choose) for client, own in handed.items()}
        replies = yield from to_each(requests)
        product = sum_in_order([reply.product for reply in replies])
        sums = sum_in_order([own for reply in replies if (own := reply.sums) is not None]) if choose else None
    # Step 2: the coordinator projects onto a basis phi(Y) R of the span, and takes the leading left singular vectors
    A = R.T @ product @ R if run.privacy is None else product
    k = min(n_components, len(A))
    few = f"the landmarks span {k} dimensions, fewer than the {n_components} components asked for"
    findings = (few,) if k < n_components and not choose else ()
    if findings:
        log.warning("%s", few)
    pairs = leading_eigenpairs((A + A.T) / 2, min(k + 1, len(A)) if choose else k)
    has_mean = is_bounded(step.kernel) and run.privacy is None
    kernel_mean = mean_of_landmarks(K, np.diag(product)) if has_mean else None
    values = np.maximum(pairs.values, 0.0)
    fields: dict[str, Any] = {"kernel_mean_": kernel_mean, "findings_": findings}
    model = LandmarkPCA(step.kernel, landmarks, R @ pairs.vectors, values, **fields)
    if sums is not None:
        mean = R.T @ sums if run.privacy is None else sums
        centred = leading_eigenpairs((A + A.T) / 2 - np.outer(mean, mean) / run.rows, len(values)).values
        coarsest = "float32" if "float32" in (step.precision, run.wire) else "float64"
        rounding = len(A) * float(np.finfo(coarsest).eps) * float(values[0])
        model = choose_components(model, n_components, len(A), centred, rounding)
    # Step 3: L = phi(Y) C, at every client
    yield from to_all(step.components(model.coefficients_, embed=embed))
    return model


def low_rank_plan(
    step: LowRankStep, rows: int, *, n_components: int, choose: bool, columns: ProjectionSize, embed: bool
) -> Plan:
    """Return the plan of `low_rank`, with at most `rows` landmarks."""
    if columns == "exact":
        values = step.plan(MultiplyKernel, rows, sums=choose)
    else:
        w = AtMost(rows) if columns == "landmarks" else columns
        values = step.plan(SketchKernel, rows, columns=w, sums=choose)
    return values, components_plan(step, rows, n_components, embed=embed)


def components_plan(step: LowRankStep, rows: int, n_components: int, *, embed: bool) -> Step:
    """Return the planned step that sends components, with at most `rows` landmarks."""
    kernel = any_width(step.kernel)
    return once(TakeComponents, {"Y": rows, "k": n_components}, kernel=kernel, precision=step.precision, embed=embed)


def sketched_floats(cohort: Sequence[Member], size: int, columns: SketchSize) -> int:
    """Return the total floats of the clients' sketches. Each sketched row has `size` numbers."""
    products = size * (size + 1) // 2
    return sum(
        size * columns if columns != "exact" and is_sketched(member.rows, columns) else products for member in cohort
    )


class LandmarkStrategy(ChoosesComponents, KernelStrategy[LandmarkPCA]):
    """Base of strategies that find components in the span of landmarks. These are rows, or points such as centres."""

    client: ClassVar[type[LandmarkClient]]
    distribution_phases: ClassVar[tuple[str, ...]] = (TakeComponents.__name__,)
    partition: ClassVar[Literal["horizontal"]] = "horizontal"
    central_fields: ClassVar[tuple[str, ...]] = ("n_components", "max_components", "kernel")
    tags: ClassVar = Tags("embedding", draws=0.1)

    kernel: AnyKernel
    dtype: Precision
    projection_size: ProjectionSize = "exact"
    tol: float | None
    embed: bool

    @property
    @abstractmethod
    def most_landmarks(self) -> int:
        """Largest number of landmarks |Y|."""

    @property
    def fewest_landmarks(self) -> int:
        """Least number of landmarks |Y|, unless set. One more than components shows the fall after the last."""
        return self.most_components + 1

    def values_floats(self, cohort: Sequence[Member], landmarks: int, columns: ProjectionSize) -> int:
        """Return the uploaded floats of kernel values against landmarks, sketched to `columns` columns (0: none)."""
        sketched = sketched_floats(cohort, landmarks, landmarks if columns == "landmarks" else columns)
        return sketched + (len(cohort) * landmarks if columns != 0 and self.n_components == "auto" else 0)

    def components_forecast(self, cohort: Sequence[Member], landmarks: int, columns: ProjectionSize) -> Forecast:
        """Forecast the costs of finding components in the span of landmarks, without those of the landmarks.

        Upper bounds: landmarks may span fewer dimensions. ``columns``: of the sketch of kernel values; 0: none.
        """
        n, d, k = max(member.rows for member in cohort), cohort[0].columns, self.most_components
        own = landmarks * (d + k) + (n * k if self.embed else 0)
        own += landmarks * (columns if isinstance(columns, int) else landmarks)
        memory = FLOAT * (own + min(n, BLOCK_ROWS) * (landmarks + k))
        memory += np.dtype(self.dtype).itemsize * min(n, BLOCK_ROWS) * (d + landmarks)
        up, down = self.values_floats(cohort, landmarks, columns), len(cohort) * landmarks * k
        return Forecast(2, up, down, memory, "at most")

    def _step(self, kernel: AnyKernel) -> LowRankStep:
        return low_rank_step(kernel, self.dtype, self.tol)

    def _low_rank_fields(self) -> dict[str, Any]:
        choice = {"n_components": self.most_components, "choose": self.n_components == "auto"}
        return {**choice, "columns": self.projection_size, "embed": self.embed}

    def _low_rank(
        self, run: Run, step: LowRankStep, landmarks: Rows, handed: Mapping[int, Mapping[str, Any]]
    ) -> Protocol[LandmarkPCA]:
        return low_rank(run, step, landmarks, handed, **self._low_rank_fields())

    def _low_rank_plan(self, step: LowRankStep) -> Plan:
        return low_rank_plan(step, self.most_landmarks, **self._low_rank_fields())

    def evaluation_plan(self) -> Plan:
        """Return the plan of `evaluation`: one request."""
        return (once(MeasureCaptured, kernel=any_width(self.kernel)),)

    def evaluation(self, run: Run, model: LandmarkPCA) -> Protocol[dict[str, float]]:
        """Measure the share of the clients' rows that the components capture: one round, 2 floats from each."""
        measured = yield from to_sum(MeasureCaptured(kernel=model.kernel))
        total, captured = measured.sums
        return kept_variance(float(captured), float(total), run.rows)

    def central(self, shards: Sequence[Rows]) -> LandmarkPCA:
        """Return uncentred kernel PCA of all rows in one place, by an (N, N) array. "auto": the most components."""
        X = stack_rows(list(shards))
        return kernel_pca(X, self.kernel.settled(X.shape[1]), self.most_components)

    def for_site(self, rows: int) -> Self:
        """Return the strategy with no more components than the site has rows."""
        k = min(self.most_components, rows)
        return dataclasses.replace(self, n_components=k, max_components=None)  # type: ignore[type-var]

    def judge(
        self, result: Result[LandmarkPCA], shards: Sequence[Rows], reference: LandmarkPCA | None = None
    ) -> dict[str, float]:
        """Return the reconstruction error. With a reference, add the relative error, and the components' angles."""
        if reference is not None:
            return compare_components(result.model, self.comparable(reference, result.model), shards)
        model = result.model.orthonormal()
        total, captured = np.sum([model.captured(shard) for shard in shards], axis=0)
        return {"reconstruction_error": float(1 - captured / total)}


def kernel_pca(X: Rows, kernel: AnyKernel, n_components: int) -> LandmarkPCA:
    """Compute uncentred kernel PCA of rows X (N, d) from the eigenpairs of their (N, N) kernel matrix."""
    N = X.shape[0]
    check_at_most("n_components", n_components, N)
    K = kernel.gram(X)
    pairs = leading_eigenpairs(K, n_components)
    if not pairs.values[0] > 0:
        raise InputError(f"the kernel is zero on all {N} rows, so that there are no components")
    above = above_rounding(pairs.values, N)
    values, vectors = pairs.values[above], pairs.vectors[:, above]
    kernel_mean = mean_value(float(K.sum()), float(np.trace(K)), N)
    return LandmarkPCA(kernel, X, vectors / np.sqrt(values), values, kernel_mean_=kernel_mean)
