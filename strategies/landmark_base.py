"""Base class of landmark kernel PCA strategies, and the low-rank step that they share.

Source: the paper of `strategies.diskpca`, algorithm 3 (disLR).
"""

import dataclasses
import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from clients.diskpca import DisKPCAClient, DrawnRows, DrawUniformly
from clients.landmark_base import LandmarkRequest, MeasureCaptured, MultiplyKernel, SketchKernel, TakeComponents
from fedkernel.ground import (
    BLOCK_ROWS,
    InputError,
    Positions,
    Precision,
    ProtocolError,
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
    MAX_COORDINATE,
    MAX_ENTRY_RATIO,
    AtMost,
    CarriesRows,
    Forecast,
    Member,
    Plan,
    Protocol,
    Run,
    Step,
    any_width,
    lost_to_rounding,
    once,
    pooled_floats,
    to_all,
    to_each,
    to_sum,
)
from fedkernel.run import Result
from fedkernel.strategy import KernelStrategy, Tags
from strategies.component_count import ChoosesComponents, choose_components

log = logging.getLogger(__name__)

SketchSize = Annotated[int, Field(ge=1)] | Literal["exact"]
"""Columns of a sketch; "exact": no sketch, but products."""

ProjectionSize = SketchSize | Literal["landmarks"]
"""Columns of a sketch as in `SketchSize`; "landmarks": as many as there are landmarks."""

LANDMARKS_PER_COMPONENT = 10
"""Landmarks for each component, by default: at 10 and 20 the error is some 4% and 1% above the least."""


@dataclass(frozen=True)
class DrawnLandmarks:
    """Rows that clients disclosed, in the order of the clients, and each client's number of them."""

    rows: Rows
    counts: tuple[int, ...]

    @classmethod
    def of(cls, replies: Mapping[int, DrawnRows], clients: int, kernel: AnyKernel, like: Rows | None = None) -> Self:
        """Concatenate the rows of some clients' replies; without replies there are no rows, of the kind of `like`.

        Rows are refused if other clients' products with them would be too large to send, or lost to rounding.
        """
        rows = {client: reply.rows for client, reply in replies.items()}
        sizes: dict[int, Any] = {client: abs(own) for client, own in rows.items()}  # absolute entries, dense or sparse
        largest = {client: float(own.max()) for client, own in sizes.items()}
        for client, own in rows.items():
            with np.errstate(over="ignore", invalid="ignore"):
                lengths = abs(kernel.diag(own))
            if not (largest[client] <= MAX_COORDINATE and np.all(lengths <= MAX_COORDINATE)):
                raise ProtocolError(
                    f"client {client} sent a row with an entry or k(x, x) above {MAX_COORDINATE:g}, so that the "
                    "other sites' products would be too large"
                )
            others = max((size for other, size in largest.items() if other != client), default=0.0)
            if lost_to_rounding(kernel, largest[client], others):
                raise ProtocolError(
                    f"client {client} sent a row with an entry more than {MAX_ENTRY_RATIO:g} times as large as "
                    "each of the other clients' rows, whose distances would be lost to rounding"
                )
        counts = tuple(rows[client].shape[0] if client in rows else 0 for client in range(clients))
        none = [] if like is None else [like[:0]]
        return cls(stack_rows([rows[client] for client in sorted(rows)] or none), counts)

    def rows_of_others(self, client: int) -> tuple[Rows, int]:
        """Return the rows of the other clients, and the number of these rows before this client's own."""
        first = sum(self.counts[:client])
        last = first + self.counts[client]
        others = np.r_[0:first, last : self.rows.shape[0]]
        return self.rows[others], first


@dataclass(frozen=True)
class Allotment:
    """Number of landmarks |Y|, the most rows (M,) that each client draws, and the findings if they are few."""

    number: int
    most: Positions
    findings: tuple[str, ...] = ()


@dataclass(frozen=True)
class LowRankStep:
    """Common parameters of the low-rank step; a span's basis omits squared lengths below ``tol`` of the largest."""

    kernel: AnyKernel
    precision: Precision
    tol: float

    def landmark_fields(self, drawn: DrawnLandmarks, client: int) -> dict[str, Any]:
        """Return the fields of a request that sends a client the other clients' rows."""
        others, before = drawn.rows_of_others(client)
        return {**CarriesRows.of(others), "before": before, **vars(self)}

    def components(self, model: LandmarkPCA, *, embed: bool) -> TakeComponents:
        """Return the request that sends a model's components to the clients."""
        return TakeComponents(
            coefficients=model.coefficients_, kernel=self.kernel, precision=self.precision, embed=embed
        )

    def planned_fields(self) -> dict[str, Any]:
        """Return the request fields that are known before a run."""
        return vars(self) | {"kernel": any_width(self.kernel)}

    def plan(self, kind: type[LandmarkRequest[Any]], rows: int, **fields: Any) -> Step:
        """Return the planned step of a request that sends at most so many rows."""
        sizes = {"c_m": rows, "starts_m": rows + 1}  # the rows, and the starts of sparse ones
        return once(kind, sizes, before=AtMost(rows), **self.planned_fields(), **fields)


def low_rank(
    run: Run,
    step: LowRankStep,
    landmarks: Rows,
    last: DrawnLandmarks,
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

    ``columns`` is w; "exact": clients send the products k(Y, X_m) k(X_m, Y). ``last`` are the last rows of `landmarks`,
    which clients know only of their own. If the landmarks span fewer than k dimensions, fewer components are found.
    With `choose`, their number follows from A's centred eigenvalues (`choose_components`).
    """
    # Step 1: every client sketches its kernel values
    handed = {client: step.landmark_fields(last, client) for client in range(len(last.counts))}
    if columns == "exact":
        total = yield from to_sum({client: MultiplyKernel(**own, sums=choose) for client, own in handed.items()})
        product, sums = total.product, total.sums
    else:
        w = landmarks.shape[0] if columns == "landmarks" else columns
        requests = {client: SketchKernel(**own, columns=w, sums=choose) for client, own in handed.items()}
        replies = yield from to_each(requests)
        product = sum_in_order([reply.product for reply in replies])
        sums = sum_in_order([own for reply in replies if (own := reply.sums) is not None]) if choose else None
    # Step 2: the coordinator projects onto a basis phi(Y) R of the span, and takes the leading left singular vectors
    K = step.kernel.gram(landmarks)
    R = whitening(K, step.tol)
    A = R.T @ product @ R
    k = min(n_components, len(A))
    if k == 0:
        raise InputError("the kernel is zero on all landmarks, so that there are no components")
    if k < n_components and not choose:
        log.warning("the landmarks span %d dimensions, fewer than the %d components asked for", k, n_components)
    pairs = leading_eigenpairs((A + A.T) / 2, min(k + 1, len(A)) if choose else k)
    kernel_mean = mean_of_landmarks(K, np.diag(product)) if is_bounded(step.kernel) else None
    values = np.maximum(pairs.values, 0.0)
    model = LandmarkPCA(step.kernel, landmarks, R @ pairs.vectors, values, kernel_mean_=kernel_mean)
    if sums is not None:
        mean = R.T @ sums
        centred = leading_eigenpairs((A + A.T) / 2 - np.outer(mean, mean) / run.rows, len(values)).values
        coarsest = "float32" if "float32" in (step.precision, run.wire) else "float64"
        rounding = len(A) * float(np.finfo(coarsest).eps) * float(values[0])
        model = choose_components(model, n_components, len(A), centred, rounding)
    # Step 3: L = phi(Y) C, at every client
    yield from to_all(step.components(model, embed=embed))
    return model


def low_rank_plan(
    step: LowRankStep, rows: int, *, n_components: int, choose: bool, columns: ProjectionSize, embed: bool
) -> Plan:
    """Return the plan of `low_rank`, with at most so many landmarks."""
    if columns == "exact":
        values = step.plan(MultiplyKernel, rows, sums=choose)
    else:
        w = AtMost(rows) if columns == "landmarks" else columns
        values = step.plan(SketchKernel, rows, columns=w, sums=choose)
    return values, components_plan(step, rows, n_components, embed=embed)


def components_plan(step: LowRankStep, rows: int, n_components: int, *, embed: bool) -> Step:
    """Return the planned step that sends components, with at most so many landmarks."""
    kernel = any_width(step.kernel)
    return once(TakeComponents, {"Y": rows, "k": n_components}, kernel=kernel, precision=step.precision, embed=embed)


def sketched_floats(cohort: Sequence[Member], size: int, columns: SketchSize) -> int:
    """Return the floats of all clients' sketches, of rows with `size` numbers each."""
    products = size * (size + 1) // 2
    return sum(
        size * columns if columns != "exact" and is_sketched(member.rows, columns) else products for member in cohort
    )


def draw_uniformly(allotment: Allotment, kernel: AnyKernel, rng: np.random.Generator) -> Protocol[DrawnLandmarks]:
    """Ask the clients for rows, all choices equally likely; one round, |Y| d floats up, of sparse rows fewer."""
    samples, most = allotment.number, allotment.most
    counts = most if samples >= most.sum() else rng.multivariate_hypergeometric(most, samples, method="marginals")
    requests = {client: DrawUniformly(samples=int(count)) for client, count in enumerate(counts) if count}
    replies = yield from to_each(requests)
    return DrawnLandmarks.of(dict(zip(requests, replies, strict=True)), len(most), kernel)


class LandmarkStrategy(ChoosesComponents, KernelStrategy[LandmarkPCA]):
    """Base of strategies that find components in the span of rows that the clients disclose."""

    client: ClassVar[type[DisKPCAClient]] = DisKPCAClient
    distribution_phases: ClassVar[tuple[str, ...]] = (TakeComponents.__name__,)
    needs_all: ClassVar[str] = "how many rows each client draws follows from the sizes and scores of all"
    partition: ClassVar[Literal["horizontal"]] = "horizontal"
    central_fields: ClassVar[tuple[str, ...]] = ("n_components", "max_components", "kernel")
    tags: ClassVar = Tags("embedding", draws=0.1)

    kernel: AnyKernel
    dtype: Precision
    projection_size: ProjectionSize
    tol: float | None
    share_rows: bool
    landmark_parameter: ClassVar[str]
    """Parameter that sets the number of landmarks."""
    embed: bool

    @property
    @abstractmethod
    def user_landmarks(self) -> int | None:
        """Most rows that the clients will disclose, if the user sets it, or None."""

    @property
    def n_landmarks(self) -> int:
        """Largest number of landmarks |Y|; see `allotment`."""
        named = self.user_landmarks
        return max(LANDMARKS_PER_COMPONENT * self.most_components, self.fewest_landmarks) if named is None else named

    @property
    def fewest_landmarks(self) -> int:
        """Least number of landmarks |Y|, unless set: one more than components, to show the fall after the last."""
        return self.most_components + 1

    @abstractmethod
    def floats_up_with(self, cohort: Sequence[Member], landmarks: int) -> int:
        """Return a lower bound of the floats that go up with so many landmarks."""

    def allotment(self, cohort: Sequence[Member]) -> Allotment:
        """Return the number of landmarks for these clients: the number set by the user, or the default.

        The default is `LANDMARKS_PER_COMPONENT` times the components, but no more than a tenth of each client's rows,
        and not so many that more floats than the whole table go up; and at least `fewest_landmarks`, shared out by the
        clients' rows.
        """
        rows = np.array([member.rows for member in cohort])
        N, k, named = int(rows.sum()), self.most_components, self.user_landmarks
        if named is not None:
            return Allotment(min(named, N), rows)
        tenth, fewest, usual = rows // 10, min(self.fewest_landmarks, N), min(self.n_landmarks, N)
        budget = self.budget(cohort)
        at_most = range(min(usual, int(tenth.sum())), fewest, -1)
        number = next((Y for Y in at_most if self.floats_up_with(cohort, Y) <= budget), fewest)
        most = tenth if number <= tenth.sum() else -(-number * rows // N)
        if number == usual:
            return Allotment(number, most)
        why = f"sites send at most a tenth of their rows, {tenth.sum()} in all"
        if number < tenth.sum():
            why = "more landmarks would take more floats than the whole table"
        few = f"only {number} landmarks for {k} components ({usual} are usual): {why}"
        return Allotment(number, most, (f"{few}; reduce n_components, or set {self.landmark_parameter} for more",))

    def budget(self, cohort: Sequence[Member]) -> int:
        """Return the floats that may go up: the whole table's, less the floats of a width by rule."""
        return pooled_floats(cohort, self.partition) - sum(member.columns + 1 for member in cohort)

    def check_cohort(self, cohort: Sequence[Member]) -> None:
        """Check also that `share_rows` is true and that the rows suffice for the components."""
        super().check_cohort(cohort)
        rows, columns = sum(member.rows for member in cohort), cohort[0].columns
        self.check_components(rows)
        if not self.share_rows:
            sent = self.allotment(cohort).number
            raise InputError(
                f"share_rows = false, but {type(self).__name__} sends raw data: up to {sent} of the {rows} rows, all "
                f"{columns} columns of each, go to the coordinator and to every client; share_rows = true allows that"
            )

    def span_floats(self, cohort: Sequence[Member], landmarks: int, columns: ProjectionSize) -> int:
        """Return the floats up of landmarks, and of kernel values sketched to so many columns (0: none)."""
        sketched = sketched_floats(cohort, landmarks, landmarks if columns == "landmarks" else columns)
        sums = len(cohort) * landmarks if columns != 0 and self.n_components == "auto" else 0
        return landmarks * cohort[0].columns + sketched + sums

    def span_forecast(self, cohort: Sequence[Member], columns: ProjectionSize) -> Forecast:
        """Forecast the costs of sending the landmarks and finding components in their span, without the draws.

        Upper bounds: rows may be sparse, or span fewer dimensions. ``columns``: of the sketch; 0: there is none.
        """
        M, n, d = len(cohort), max(member.rows for member in cohort), cohort[0].columns
        Y, k = self.allotment(cohort).number, self.most_components
        up = self.span_floats(cohort, Y, columns)
        own = Y * (d + k) + (n * k if self.embed else 0) + Y * (columns if isinstance(columns, int) else Y)
        memory = FLOAT * (own + min(n, BLOCK_ROWS) * (Y + k)) + np.dtype(self.dtype).itemsize * min(n, BLOCK_ROWS) * (
            d + Y
        )
        return Forecast(2, up, (M - 1) * Y * d + M * Y * k, memory, "at most")

    def _step(self, kernel: AnyKernel) -> LowRankStep:
        tol = float(np.sqrt(np.finfo(self.dtype).eps)) if self.tol is None else self.tol
        return LowRankStep(kernel, self.dtype, tol)

    def _low_rank_fields(self) -> dict[str, Any]:
        choice = {"n_components": self.most_components, "choose": self.n_components == "auto"}
        return {**choice, "columns": self.projection_size, "embed": self.embed}

    def _low_rank(self, run: Run, step: LowRankStep, landmarks: Rows, last: DrawnLandmarks) -> Protocol[LandmarkPCA]:
        return low_rank(run, step, landmarks, last, **self._low_rank_fields())

    def _low_rank_plan(self, step: LowRankStep) -> Plan:
        return low_rank_plan(step, self.n_landmarks, **self._low_rank_fields())

    def evaluation_plan(self) -> Plan:
        """Return the plan of `evaluation`: one request."""
        return (once(MeasureCaptured, kernel=any_width(self.kernel)),)

    def evaluation(self, run: Run, model: LandmarkPCA) -> Protocol[dict[str, float]]:
        """Measure the share of the clients' rows that the components capture: one round, 2 floats from each."""
        measured = yield from to_sum(MeasureCaptured(kernel=model.kernel))
        total, captured = measured.sums
        return kept_variance(float(captured), float(total), run.rows)

    def central(self, shards: Sequence[Rows]) -> LandmarkPCA:
        """Return uncentred kernel PCA of all rows in one place, by an (N, N) array; "auto": the most components."""
        X = stack_rows(list(shards))
        return kernel_pca(X, self.kernel.settled(X.shape[1]), self.most_components)

    def for_site(self, rows: int) -> Self:
        """Return the strategy with no more components than the site has rows."""
        k = min(self.most_components, rows)
        return dataclasses.replace(self, n_components=k, max_components=None)  # type: ignore[type-var]

    def judge(
        self, result: Result[LandmarkPCA], shards: Sequence[Rows], reference: LandmarkPCA | None = None
    ) -> dict[str, float]:
        """Return the reconstruction error, also relative to the reference's, and the components' angles."""
        if reference is not None:
            return compare_components(result.model, self.comparable(reference, result.model), shards)
        model = result.model.orthonormal()
        total, captured = np.sum([model.captured(shard) for shard in shards], axis=0)
        return {"reconstruction_error": float(1 - captured / total)}


def kernel_pca(X: Rows, kernel: AnyKernel, n_components: int) -> LandmarkPCA:
    """Compute kernel PCA of rows X (N, d), not centred, by the eigenpairs of the (N, N) kernel matrix."""
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
