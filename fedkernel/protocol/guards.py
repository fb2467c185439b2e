"""Guards: checks that a site makes on every request, whatever its plan and policy say.

They refuse requests that are well formed, but that no method sends: vectors that single out a row, widths at which
a kernel sees one row only, coresets of nearly all rows, a repeated request with other parameters. A guard refuses
and alters nothing, so a run that passes has the numbers of one without guards. Guards read the declarations of the
request's class: `Request.probes`, `Request.draw`, `Request.once`, `Request.sampled`, `Request.sketched`.

The client's memory holds the totals of a run. They begin anew with the next run; the site's operator limits the number
of runs. A restarted run must repeat its requests (`fedkernel.site.gate`).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedkernel.ground import EPS, FloatArray, InputError, ShareableError, row_blocks, value_object
from fedkernel.numerics import RBF, Kernel, Laplacian, Polynomial, fk_gamma, is_sketched, moments_of_blocks
from fedkernel.protocol.client_state import ClientMemory, State
from fedkernel.protocol.forecast import LIMIT_ADVICE, TABLE_SHARE, allowed_numbers, share_text
from fedkernel.protocol.messages import Request
from fedkernel.protocol.plan import Plan, PlannedRequest, planned_limit

TOLERANCE = 1e-6  # tolerance for lengths, inner products and leverages of probe vectors
_ROUNDING = 8.0  # rounding of unit vectors of n entries, in multiples of EPS sqrt(n)
_ROW_ROUNDING = 8.0  # rounding of an entry, in multiples of EPS times its row's weight

WIDEST, NARROWEST = 0.01, 50.0
"""Range of gamma, in multiples of the gamma by the mean distance between the site's rows.

At the lower end random features are all but linear (angles differ by 0.1). At the upper end rows at that distance have
a kernel value of exp(-25). The rules of `fedkernel.numerics.widths` come to (wine, breast cancer, digits, diabetes, and
nine columns of Student's t with 2 degrees of freedom): the median 1 to 4.4; 0.2 medians, disKPCA's, 25 to 37 on
standardised columns, 62 on wine and 111 on breast cancer as they are; sqrt(d) / 3, DKPCA's, 18 on standardised columns.
"""

MOST_DEGREE = 5
"""Largest degree of a polynomial kernel: sums of higher powers are all but those of the row farthest out."""


@dataclass(frozen=True)
class Probed(State):
    """State of the guard on probe vectors, the vectors of requests that weigh the rows.

    `basis` (n, m): orthonormal, of all probe vectors. `core`: see `widen_span`. `draw` (1,): number of the last draw.
    """

    basis: FloatArray
    core: FloatArray
    draw: npt.NDArray[np.int64]


@dataclass(frozen=True)
class WidthRange(State):
    """Least and greatest gamma (2,) that the site's rows allow, as from `width_range`."""

    gammas: FloatArray


class PredictedRefusal(NamedTuple):
    """Predicted refusal of a plan by a guard. `guard`: a field of `Guards`. `certain`: not by bounds alone."""

    guard: str
    text: str
    certain: bool


@value_object()
class Guards:
    """Guards of a site: thresholds of the checks that it makes on every request.

    - `table_share`: numbers that may leave the site in a run per entry of its table, to any one reader: the
      coordinator, or a peer with its letters. Of a sparse table the stored entries count. Numbers that follow from the
      rows are equations for them: with as many as entries, known features or a few known rows give the others
      (docs/explanation/privacy.md); sums of all sites, which come site by site, count for each of them. Below that
      nothing is proven: half as many leave room for other knowledge. If another run at the site was on other rows, only
      the entries of the rows by which they differ count: the difference of both runs' numbers is of these alone. The
      policy's ``limits.total.share`` is for all runs together.
    - `probed_share`: largest dimension, as a share of the rows, of all vectors together that weigh the rows in a run.
    - `leverage`: largest squared entry at a row of any vector of length 1 in the span of these vectors. At 1 a
      combination of the replies is about that row alone; at l, if rows are alike, the best guess of it is off by
      sqrt(1 - l) of its length, 0.5 by default. Single vectors would show nothing: those of a Hadamard matrix are as
      flat as can be, and span all rows. Honest runs reach .02 to .72, and 1.0 where a column is set in one row only
      (``python benchmarks/leverages.py``). If outliers exceed the limit, the method itself would show them, and the
      run is refused.
    - `coreset_share`: largest share of the rows that may be sampled into a coreset.
    - `lone_rows`: largest mean number of rows that are alone in their sum, if rows are sketched into sums: such a sum
      shows its row. A tenth of one allows 108 sums of 1000 rows, 868 of 10000. With more sums than half of the rows,
      products over all rows leave instead; strategies ask for these by the size "exact".
    - `group_rows`: fewest rows that each local centre of a coreset stands for; others are left out. A sampled point's
      weight is a row's in any case: with a quarter of the rows sampled, honest ones weigh from 0.1 to 1.
    - `cell_rows`: smallest step of the sizes of clusters that leave the site; fewer rows count as none, and to other
      centres where distances to the nearest are summed. If tables are prepared, a column whose sum leaves has at least
      so many values, and no fewer than ``table.min_rows``, or none.

    With vectors (n, b) and m before them, a check takes 6 n m b multiplications, and n m floats of memory, which each
    request reads and writes: 0.3 ms for one of 40 single vectors with 1000 rows, 170 ms with 100,000. The widths take
    one pass over the rows, at a run's first request with a kernel.
    """

    table_share: Annotated[float, Field(gt=0, strict=True)] = TABLE_SHARE
    probed_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    leverage: Annotated[float, Field(gt=0, le=1)] = 0.75
    coreset_share: Annotated[float, Field(gt=0, le=1)] = 0.25
    lone_rows: Annotated[float, Field(gt=0)] = 0.1
    group_rows: Annotated[int, Field(ge=1)] = 3
    cell_rows: Annotated[int, Field(ge=1)] = 5

    def check(self, request: Request[Any], X: Any, memory: ClientMemory, *, widths: bool = True) -> None:
        """Raise ShareableError if a guard refuses a request on rows X (n, d); update the run's totals in `memory`.

        `widths`: also by the rows themselves, whose noise a refusal would not have.
        """
        name = type(request).__name__
        if request.once:
            if f"answered.{name}" in memory:
                raise ShareableError(f"{name} was answered before in this run; allowed: once (guard: repetition)")
            memory[f"answered.{name}"] = np.ones(1)
        for _, fault in self._size_faults(type(request), dict(request), X.shape[0]):
            raise ShareableError(fault)
        if request.sampled is not None:  # by any of a client's requests
            if "answered.sampled" in memory:
                raise ShareableError(f"{name}: rows were sampled before in this run; allowed: once (guard: coreset)")
            memory["answered.sampled"] = np.ones(1)
        for where, kernel, is_embedded in _kernels(request) if widths else ():
            self._check_width(f"{name}.{where}", kernel, is_embedded, X, memory)
        for field in request.probes:
            if (vectors := getattr(request, field)) is not None:
                self.check_probes(f"{name}.{field}", vectors, memory, request.draw)

    def check_probes(self, name: str, vectors: FloatArray, memory: ClientMemory, draw: int = 0) -> None:
        """Raise ShareableError if vectors, together with earlier ones, would isolate a single row.

        `vectors` (n, b) or (n,). A block's columns must be orthonormal, as methods send them. A single vector, which
        may be a site's part of a longer one, must be no longer than 1.
        """
        off = float(np.abs(vectors.T @ vectors - np.eye(vectors.shape[1])).max()) if vectors.ndim == 2 else 0.0
        if off > TOLERANCE:
            error = f"products are off by {off:.3g}, but must be by at most {TOLERANCE:g}"
            raise ShareableError(f"the columns of {name} are not orthonormal: {error} (guard: probes)")
        if vectors.ndim == 1 and (length := float(np.linalg.norm(vectors))) > 1 + TOLERANCE:
            raise ShareableError(f"{name} has length {length:.3g}; allowed: at most 1 (guard: probes)")
        n = len(vectors)
        nothing = Probed(np.empty((n, 0)), np.empty((0, 0)), np.array([draw]))
        state = Probed.load(memory) if Probed.known(memory) else nothing
        if draw < (last := int(state.draw[0])):
            raise ShareableError(f"{name} has draw = {draw}, but must have at least {last} by now (guard: probes)")
        state = widen_span(state if draw == last else nothing, vectors)
        most, dimension = int(self.probed_share * n), state.basis.shape[1]
        if dimension > most:
            text = f"{name} and the vectors before, which weigh the {n} rows, span {dimension} dimensions"
            raise ShareableError(f"{text}; allowed: at most {most} (guard: probes)")
        if (leverage := float(np.square(state.basis).sum(axis=1).max(initial=0.0))) > self.leverage + TOLERANCE:
            raise ShareableError(
                f"{name} singles out a row: with the vectors before, a combination has {leverage:.3g} of its squared "
                f"length there; allowed: at most {self.leverage:g} (guard: probes)"
            )
        state.save(memory)

    def check_sent(
        self, name: str, floats: Mapping[int | None, int], entries: int, memory: ClientMemory, apart: float = 1.0
    ) -> None:
        """Raise ShareableError if, with a reply, a run's total of sent numbers is too large for the table.

        `name`: the request's. `floats`: numbers that each reader gets with the reply (`Message.floats_by_reader`).
        `entries`: of the table. `memory`: the client's, which holds the totals. `apart`: share of the rows by which the
        run differs from another: the difference of both runs' numbers is of these rows alone, whose entries count.
        """
        entries, table = max(1, int(apart * entries)), "the table" if apart == 1 else "rows that another run had not"
        for reader, number in floats.items():
            if not number:
                continue
            key = "left" if reader is None else f"left.{reader}"
            left = number + (int(memory[key][0]) if key in memory else 0)
            if left > allowed_numbers(entries, self.table_share):
                to = "" if reader is None else f" to client {reader}"
                raise ShareableError(
                    f"with the reply to {name}, {left:,} numbers would have left{to}, {share_text(left / entries)} for "
                    f"each of the {entries:,} entries of {table}; allowed: {self.table_share:g} ({LIMIT_ADVICE}) "
                    "(guard: table)"
                )
            memory[key] = np.array([left])

    def large_groups(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Mark the local centres that stand for enough rows; ShareableError if none does. `rows`: numbers by centre."""
        if not np.any(large := rows >= self.group_rows):
            raise ShareableError(
                f"each local centre would stand for {int(rows.max())} rows or fewer; allowed: at least "
                f"{self.group_rows}, as with fewer clusters (n_clusters, max_clusters) (guard: groups)"
            )
        return large

    def refusals(self, plan: Plan, answers: Sequence[type[Request[Any]]], rows: int) -> Iterator[PredictedRefusal]:
        """Yield the certain or possible refusals at a site of `rows` rows, for a plan's requests among `answers`."""
        kinds = {kind.__name__: kind for kind in answers}
        for kind, planned in known_requests(plan, kinds):
            for guard, fault in self._size_faults(kind, planned.fields, rows):
                yield PredictedRefusal(guard, fault, True)
            bounds: dict[str, int] = {}
            for name, largest in ((kind.sampled, math.inf), (kind.sketched, rows // 2)):  # with more sums, products
                if name is not None and isinstance(planned.fields.get(name), Mapping):
                    bounds[name] = int(min(planned_limit(planned.fields, name) or 0, largest))
            for guard, fault in self._size_faults(kind, bounds, rows):
                yield PredictedRefusal(guard, f"the plan has at most: {fault}", False)
        if (span := _span(plan, kinds)) > (most := int(self.probed_share * rows)):
            wide = f"up to {span}" if math.isfinite(span) else "any number of"
            fault = f"vectors that the {rows} rows are multiplied with span {wide} dimensions"
            yield PredictedRefusal("probed_share", f"{fault}; allowed: at most {most} (guard: probes)", False)

    def most_sampled(self, rows: int) -> int:
        """Return the largest number of a site's rows that may be sampled into a coreset."""
        return int(self.coreset_share * rows)

    def _size_faults(self, kind: type[Request[Any]], fields: Mapping[str, Any], rows: int) -> Iterator[tuple[str, str]]:
        """Yield the faults, with the guard, of a request that samples or sketches too many of a site's rows."""
        setting = f" ({kind.setting})" if kind.setting else ""
        samples, sums = (fields.get(name) if name is not None else None for name in (kind.sampled, kind.sketched))
        if isinstance(samples, int) and samples > (most := self.most_sampled(rows)):
            size = f"{kind.__name__}.{kind.sampled} = {samples}{setting} of {rows} rows"
            allowed = f"at most {most}, {self.coreset_share:g} of them"
            yield "coreset_share", f"{size}; allowed: {allowed} (guard: coreset)"
        if isinstance(sums, int) and sums > 0 and is_sketched(rows, sums):
            lone = rows * (1 - 1 / sums) ** (rows - 1)
            if lone > self.lone_rows:
                size = f"{kind.__name__}.{kind.sketched} = {sums}{setting} makes sums of {rows} rows"
                alone = f"of which {lone:.2g} would be alone in theirs"
                allowed = f"{self.lone_rows:g} in the mean, by fewer sums, or products"
                yield "lone_rows", f"{size}, {alone}; allowed: {allowed} (guard: sums)"

    def _check_width(
        self,
        name: str,
        kernel: RBF | Laplacian | Polynomial,
        is_embedded: bool,
        X: Any,
        memory: ClientMemory,
    ) -> None:
        """Raise ShareableError if a kernel's gamma is too large or, for random features, too small for the rows.

        A polynomial kernel is refused if its degree is too large.
        """
        if isinstance(kernel, Polynomial):
            if kernel.degree > MOST_DEGREE:
                allowed = f"allowed: at most {MOST_DEGREE} (guard: widths)"
                raise ShareableError(f"{name}.degree = {kernel.degree}, so that one row makes up a sum; {allowed}")
            return
        if not WidthRange.known(memory):
            WidthRange(np.array(width_range(X))).save(memory)
        low, high = WidthRange.load(memory).gammas
        if isinstance(kernel, Laplacian):  # its sums of differences are up to sqrt(d) times distances
            low, high = math.sqrt(2 * low / X.shape[1]), math.sqrt(2 * high)
        own = 1.0 / X.shape[1] / kernel.factor**2  # of width = "columns"
        gamma, least = float(kernel.gamma or own), low if is_embedded else 0.0
        if not least <= gamma <= high:
            allowed = f"from {least:.1g} to {high:.1g}"
            raise ShareableError(f"{name}.gamma = {gamma:.3g}, but the site's rows allow {allowed} (guard: widths)")


def known_requests(
    plan: Plan, kinds: Mapping[str, type[Request[Any]]]
) -> Iterator[tuple[type[Request[Any]], PlannedRequest]]:
    """Yield each planned request of a plan once, with its class. Requests of unknown classes are skipped."""
    for planned in (planned for step in plan for planned in step.requests):
        if planned.request in kinds:
            yield kinds[planned.request], planned


def _span(plan: Plan, kinds: Mapping[str, type[Request[Any]]]) -> float:
    """Return the largest dimension that the probe vectors of a plan may span in one draw."""
    spans: dict[str, float] = {}
    for step in plan:
        for kind, planned in known_requests((step,), kinds):
            fields = {name: planned.fields[name] for name in kind.model_fields.keys() & planned.fields.keys()}
            draw = str(getattr(kind.model_construct(**fields), "draw", 0))
            for field in kind.probes:
                columns = (*planned.sizes.get(field, ()), None, None)[1]
                most = math.inf if columns is None else columns
                width = most if len(kind.shapes()[field].dimensions) > 1 else 1
                spans[draw] = spans.get(draw, 0) + step.times * width
    return max(spans.values(), default=0)


def widen_span(probed: Probed, vectors: FloatArray) -> Probed:
    """Return the state with probe vectors (n, b) or (n,) added to the span of earlier ones.

    In the basis all vectors so far, each at length 1, have the coordinates ``core V^T`` for some V with orthonormal
    columns. Directions of singular values below `_ROUNDING` EPS sqrt(n) are dropped: but for rounding, the vectors lie
    in the others' span. A vector that differs from another by 1e-12 of its length adds a direction, as the difference
    between the replies adds information. So does a single vector that differs by less, but at some row by more than
    rounding. Of a block of vectors those are dropped, since a search that ends moves some by so little.
    """
    columns = vectors.reshape(len(vectors), -1)
    columns = _unit(columns[:, columns.any(axis=0)])
    if columns.shape[1] == 0:
        return probed
    rest, known = _off(probed.basis, columns)
    least = _ROUNDING * EPS * math.sqrt(len(vectors))
    if columns.shape[1] == 1 and float(np.linalg.norm(rest)) <= 2 * least:
        rounding = EPS * (np.abs(columns[:, 0]) + np.linalg.norm(probed.basis, axis=1))
        if (np.abs(rest[:, 0]) > _ROW_ROUNDING * rounding).any():
            rest, known = _off(probed.basis, _unit(rest))
    Q, R = np.linalg.qr(rest)
    U, values, _ = np.linalg.svd(np.block([[probed.core, known], [np.zeros((len(R), len(probed.core))), R]]))
    above, basis = values > least, np.hstack([probed.basis, Q])
    if above.all():
        return Probed(basis, U * values, probed.draw)
    return Probed(basis @ U[:, : len(values)][:, above], np.diag(values[above]), probed.draw)


def _unit(columns: FloatArray) -> FloatArray:
    """Return nonzero columns (n, b), scaled to length 1. Squares of their entries may overflow, or be 0."""
    columns = columns / np.abs(columns).max(axis=0, initial=0.0)
    return np.asarray(columns / np.linalg.norm(columns, axis=0))


def _off(basis: FloatArray, columns: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Project columns (n, b) onto an orthonormal basis (n, m). Return the residuals, and coordinates (m, b) in it."""
    rest, known = columns, np.zeros((basis.shape[1], columns.shape[1]))
    for _ in range(2):
        inner = basis.T @ rest
        rest, known = rest - basis @ inner, known + inner
    return rest, known


def blocks_of(X: Any) -> Iterator[Any]:
    """Yield the rows of X (n, d), an ndarray or Table, block by block."""
    for rows in row_blocks(X.shape[0]):
        yield X[rows] if isinstance(X, np.ndarray) else X.block(rows.start, rows.stop)


def width_range(X: Any) -> tuple[float, float]:
    """Return the least and the largest gamma of an RBF kernel for rows X (n, d), an ndarray or Table.

    They are `WIDEST` and `NARROWEST` times the gamma by the mean distance; if all rows are the same, 0 and infinity.
    """
    try:
        gamma = fk_gamma(*moments_of_blocks(blocks_of(X), X.shape[1]))
    except InputError:
        return 0.0, math.inf
    return WIDEST * gamma, NARROWEST * gamma


def _kernels(request: Request[Any]) -> Iterator[tuple[str, RBF | Laplacian | Polynomial, bool]]:
    """Yield path, kernel and a flag for each kernel with a width in a request. True flags those of random features."""
    for name in type(request).model_fields:
        value = getattr(request, name)
        is_embedded = not isinstance(value, Kernel)
        kernel = getattr(value, "kernel", None) if is_embedded else value
        if isinstance(kernel, RBF | Laplacian | Polynomial):
            yield f"{name}.kernel" if is_embedded else name, kernel, is_embedded
