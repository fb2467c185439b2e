"""Prediction of a site's verdicts on a study, from its plan, its forecast and the table's size."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fedkernel import protocol
from fedkernel.ground import InputError, RefusedError, and_more
from fedkernel.peers import CarriesLetters
from fedkernel.site.gate import Totals
from fedkernel.site.policy import SHARE_RULE, Limits, Policy
from fedkernel.site.study_check import Verdict
from fedkernel.wire import RunSpec, Study

Answers = Callable[[RunSpec], Sequence[type[protocol.Request[Any]]]]
"""Function that returns the request classes of a run's client; empty if the class must not be imported."""

Forecasts = Callable[[RunSpec, Sequence[protocol.Member]], protocol.Forecast | None]
"""Function that returns the forecast of a run's strategy for clients of given sizes; None: unknown."""

TABLE = "guards.table_share"
"""Name of the rule that limits all numbers leaving in a run, per table entry."""

_ALLOWED = {True: False, False: True, None: None}

UNKNOWN = "cannot be predicted"
NO_SIZE = f"{UNKNOWN} without the table's size (--shape or --data)"


def foreseen(
    policy: Policy,
    study: Study,
    shape: tuple[int, int] | None,
    answers: Answers,
    forecasts: Forecasts,
    *,
    left: Totals | None = None,
) -> Iterator[Verdict]:
    """Predict the verdicts of the rules on amounts; `shape`: of all sites' tables; `left`: by earlier runs."""
    least = policy.table.min_rows
    if shape is not None and shape[0] < least:
        yield Verdict("table.min_rows", f"the table has {shape[0]} rows, but must have at least {least}", False)
    yield from dict.fromkeys(_sizes(policy, study, shape, answers))
    left = left or Totals()
    amounts = {run.id: _floats(run, shape, answers(run), forecasts) for run in study.runs}
    yield from _limits(policy, amounts, shape, left.floats)
    yield from table_shares(policy, study, shape, answers, forecasts, left=left.share)
    yield from dict.fromkeys(verdict for run in study.runs for verdict in _guards(policy, run, shape, answers(run)))


class ReplyBounds(NamedTuple):
    """Upper bounds on a run's replies of one type: their number, and the floats and largest last axis of each."""

    times: int
    floats: int | None
    columns: int | None
    summed: bool

    def at_least(self, other: "ReplyBounds") -> "ReplyBounds":
        """Return the larger of two bounds in each field."""
        pairs = (self.floats, other.floats), (self.columns, other.columns)
        floats, columns = (None if a is None or b is None else max(a, b) for a, b in pairs)
        return ReplyBounds(max(self.times, other.times), floats, columns, self.summed and other.summed)


def reply_bounds(
    run: RunSpec, answers: Sequence[type[protocol.Request[Any]]], shape: tuple[int, int] | None
) -> dict[str, ReplyBounds]:
    """Return the bounds on each type of reply in a run's plan, by the type's name."""
    kinds = {kind.__name__: kind for kind in answers}
    sizes: dict[str, ReplyBounds] = {}
    for step in run.plan or ():
        for planned in step.requests:
            floats, columns = _size(planned, kinds.get(planned.request), _known(run, shape))
            before = sizes.get(planned.reply, ReplyBounds(0, 0, 0, True))
            size = ReplyBounds(before.times + step.times, floats, columns, planned.summed)
            sizes[planned.reply] = size.at_least(before)
    return sizes


def _known(run: RunSpec, shape: tuple[int, int] | None) -> dict[str, int]:
    """Return the sizes of named dimensions that follow from the table's shape (of the raw table, if prepared)."""
    if shape is None:
        return {}
    rows, columns = shape
    if run.prepare is None:
        return {"N": rows, "n_m": rows, "d": columns, "d_m": columns}
    most = run.prepare.most_columns(columns)
    return {"N": rows, "n_m": rows, "d": most, "d_m": most, "p": columns - len(run.prepare.categories)}


def _size(
    planned: protocol.PlannedRequest, kind: type[protocol.Request[Any]] | None, known: dict[str, int]
) -> tuple[int | None, int | None]:
    """Return upper bounds on floats and columns of a planned request's reply; None: unbounded."""
    if kind is None:
        return None, None
    for field, array in kind.shapes().items():
        bounds = zip(array.dimensions, planned.sizes.get(field, ()), strict=False)
        known |= {name: most for name, most in bounds if most is not None and not name.endswith("_m")}
    bounded = {name: protocol.planned_limit(planned.fields, path) for name, path in kind.largest.items()}
    known |= {name: most for name, most in bounded.items() if most is not None}
    # letters count too
    floats: int | None = None if CarriesLetters in kind.reply_type.__mro__ else 0
    columns: int | None = 0
    for array in kind.reply_type.shapes().values():
        sizes = [known.get(name) for name in array.dimensions] or [1]
        if array.dtype.kind == "f":
            floats = None if floats is None or None in sizes else floats + math.prod(size or 0 for size in sizes)
        columns = None if columns is None or sizes[-1] is None else max(columns, sizes[-1])
    return floats, columns


# --- replies one by one


def _sizes(policy: Policy, study: Study, shape: tuple[int, int] | None, answers: Answers) -> Iterator[Verdict]:
    """Yield verdicts on each type of reply: its largest size against the policy's limits on single replies."""
    for run in study.runs if policy.messages is not None else ():
        any_shape = reply_bounds(run, answers(run), (1, 1))
        for reply, size in reply_bounds(run, answers(run), shape).items():
            try:
                rules = policy.rules_of(reply)
            except RefusedError:
                continue  # reported by `verdicts`
            for name in ("floats", "columns"):
                if (most := getattr(rules, name)) is None:
                    continue
                rule, amount = f"messages.{reply}.{name}", getattr(size, name)
                if amount is None:
                    why = UNKNOWN if getattr(any_shape[reply], name) is None else NO_SIZE
                    yield Verdict(rule, f"the number of {name} {why}", None)
                elif amount > most:
                    yield Verdict(rule, f"up to {amount:,} {name} are possible, but {most:,} are allowed", None)
                else:
                    yield Verdict(rule, f"at most {amount:,} {name}; {most:,} are allowed", True)


# --- all replies together


class _FloatAmounts(NamedTuple):
    """Number of floats that leave a site: lower bound, upper bound and forecast; None: unknown."""

    least: int | None
    most: int | None
    likely: int | None

    def plus(self, other: "_FloatAmounts") -> "_FloatAmounts":
        pairs: Iterator[tuple[int | None, int | None]] = zip(self, other, strict=True)
        return _FloatAmounts(*(None if a is None or b is None else a + b for a, b in pairs))


def _limits(
    policy: Policy, amounts: Mapping[str, _FloatAmounts], shape: tuple[int, int] | None, left: int
) -> Iterator[Verdict]:
    total = _FloatAmounts(left, left, left)
    for amount in amounts.values():
        total = total.plus(amount)
    runs_by_amount: dict[_FloatAmounts, list[str]] = {}
    for run, amount in amounts.items():
        runs_by_amount.setdefault(amount, []).append(run)
    runs = {f"run {same[0]!r}{and_more(len(same) - 1)}": amount for amount, same in runs_by_amount.items()}
    whole = {f"the study{f', with {left:,} floats from before,' if left else ''}": total}
    for where, limits, parts in (("limits.run", policy.limits.run, runs), ("limits.total", policy.limits.total, whole)):
        if limits.floats is not None:
            yield from (_limit_verdict(f"{where}.floats", limits.floats, part, shape) for part in parts.items())
        yield from _unforeseen_limits(where, limits)


def _floats(
    run: RunSpec, shape: tuple[int, int] | None, answers: Sequence[type[protocol.Request[Any]]], forecasts: Forecasts
) -> _FloatAmounts:
    """Return the floats that leave a site in a run: bounds by its plan, mean over sites by its forecast."""
    sizes = reply_bounds(run, answers, shape).values()
    most: int | None = None if run.plan is None else 0
    for size in sizes:
        most = None if most is None or size.floats is None else most + size.times * size.floats
    clients = len(run.sites or ())
    forecast = (
        None if shape is None else forecasts(run, [protocol.Member(place, place, *shape) for place in range(clients)])
    )
    if forecast is None:
        return _FloatAmounts(None, most, None)
    likely = math.ceil(forecast.floats_up / max(1, clients))
    if forecast.meaning != "exact":
        return _FloatAmounts(None, most, likely)
    return _FloatAmounts(None if run.align else likely, likely, likely)  # all sites may have fewer rows in common


def _limit_verdict(rule: str, limit: int, part: tuple[str, _FloatAmounts], shape: tuple[int, int] | None) -> Verdict:
    what, (least, most, likely) = part
    allowed = f"{limit:,} are allowed"
    if least is not None and least > limit:
        return Verdict(rule, f"{what} sends {least:,} floats, but {allowed}", False)
    if most is not None and most <= limit:
        return Verdict(rule, f"{what} sends {most:,} floats at most; {allowed}", True)
    numbers = [f"up to {most:,} floats by its plan"] if most is not None else []
    numbers += [f"{likely:,} by its forecast (mean over the sites)"] if likely is not None else []
    if numbers:
        return Verdict(rule, f"{what} sends {' and '.join(numbers)}; {allowed}", None)
    return Verdict(rule, f"the number of floats that {what} sends {UNKNOWN if shape else NO_SIZE}; {allowed}", None)


def _unforeseen_limits(where: str, limits: Limits) -> Iterator[Verdict]:
    for name in ("rows", "bytes", "seconds"):
        if getattr(limits, name):  # `verdicts` checks 0 rows
            yield Verdict(f"{where}.{name}", f"{name} are counted during the run; the number {UNKNOWN}", None)


class TableShare(NamedTuple):
    """Floats per table entry that leave in a run: by forecast, a mean or bound, and by plan."""

    likely: float | None
    most: float | None
    is_bound: bool

    def plus(self, other: "TableShare") -> "TableShare":
        """Return the sum of two runs' shares."""
        pairs = (self.likely, other.likely), (self.most, other.most)
        likely, most = (None if a is None or b is None else a + b for a, b in pairs)
        return TableShare(likely, most, self.is_bound or other.is_bound)

    def exceeds(self, limit: float) -> bool | None:
        """Return whether the run exceeds a limit on the share; None: unknown, for example if it may end early."""
        if self.most is not None and self.most <= limit:
            return False
        if self.likely is None or (self.is_bound and self.likely > limit):
            return None
        return True if self.likely > limit else None

    @property
    def text(self) -> str:
        """Forecast and bound in words, as the predicate of a sentence on a run."""
        bound = "at most " if self.is_bound else ""
        likely = None if self.likely is None else f"{bound}{protocol.share_text(self.likely)} by its forecast"
        says = [] if likely is None or self.likely == self.most else [likely]
        says += [f"{protocol.share_text(self.most)} at most by its plan"] if self.most is not None else []
        return f"sends {' and '.join(says)}" if says else f"sends a number that {UNKNOWN}"


def _table_share(
    run: RunSpec, shape: tuple[int, int], answers: Sequence[type[protocol.Request[Any]]], forecasts: Forecasts
) -> TableShare:
    """Return the share of floats per entry that a run sends of a table of this shape."""
    amount, clients = _floats(run, shape, answers, forecasts), len(run.sites or ())
    forecast = forecasts(run, [protocol.Member(place, place, *shape) for place in range(clients)])
    likely, most = (None if floats is None else floats / math.prod(shape) for floats in (amount.likely, amount.most))
    return TableShare(likely, most, forecast is not None and forecast.meaning == "at most")


def table_shares(
    policy: Policy,
    study: Study,
    shape: tuple[int, int] | None,
    answers: Answers,
    forecasts: Forecasts,
    *,
    left: float = 0.0,
) -> Iterator[Verdict]:
    """Yield verdicts on the floats per table entry of each run, and of all with those that `left` before.

    Equal runs share a verdict. A run that needs more by `Guards.table_share` raises the default limit on all.
    """
    limit, needed, total = policy.guards.table_share, policy.guards.table_share, TableShare(left, left, False)
    if shape is None:
        yield Verdict(TABLE, f"numbers per table entry: the number {NO_SIZE}; allowed: {limit:g}", None)
        return
    runs_by_share: dict[TableShare, list[str]] = {}
    for run in study.runs:
        share = _table_share(run, shape, answers(run), forecasts)
        total = total.plus(share)
        runs_by_share.setdefault(share, []).append(run.id)
    for share, runs in runs_by_share.items():
        what = f"numbers per table entry ({math.prod(shape):,} entries)"
        what = f"{what}: run {runs[0]!r}{and_more(len(runs) - 1)}"
        more, exceeds = "", share.exceeds(limit)
        if exceeds and share.likely:
            needed = max(needed, protocol.rounded_up(share.likely))
            more = f", so --table-share {protocol.rounded_up(share.likely):g} is needed"
        text = f"{what} {share.text}; allowed: {limit:g}{more} ({protocol.LIMIT_ADVICE})"
        yield Verdict(TABLE, text, _ALLOWED[exceeds])
    most = policy.limits.total.allowed_share(needed)
    before = f", with {protocol.share_text(left)} from before," if left else ""
    text = f"numbers per table entry in all runs: the study{before} {total.text}; allowed: {most:g}"
    yield Verdict(SHARE_RULE, text, _ALLOWED[total.exceeds(most)])


def needed_share(
    policy: Policy, study: Study, shape: tuple[int, int] | None, answers: Answers, forecasts: Forecasts
) -> float | None:
    """Return the `Guards.table_share` that a study needs by its forecasts; None: the policy's is enough."""
    if shape is None:
        return None
    shares = (_table_share(run, shape, answers(run), forecasts) for run in study.runs)
    needed = [share.likely for share in shares if share.likely and share.exceeds(policy.guards.table_share)]
    return protocol.rounded_up(max(needed)) if needed else None


# --- guards by the number of rows


def _guards(
    policy: Policy, run: RunSpec, shape: tuple[int, int] | None, answers: Sequence[type[protocol.Request[Any]]]
) -> Iterator[Verdict]:
    if run.plan is None or not answers:
        yield Verdict("guards", f"the guards' verdict on run {run.id!r} {UNKNOWN}: its client is not fedkernel's", None)
        return
    try:
        protocol.check_plan(run.plan, answers)
    except InputError as error:
        yield Verdict("study.plan", f"run {run.id!r}: {error}", False)
        return
    kinds = {kind for kind, _ in protocol.known_requests(run.plan, {kind.__name__: kind for kind in answers})}
    by_rows = {
        "coreset_share": any(kind.sampled is not None for kind in kinds),
        "lone_rows": any(kind.sketched is not None for kind in kinds),
        "probed_share": any(kind.probes for kind in kinds),
    }
    if shape is None:
        yield from (Verdict(f"guards.{guard}", f"the verdict {NO_SIZE}", None) for guard in by_rows if by_rows[guard])
        return
    faults: dict[str, list[Verdict]] = {guard: [] for guard in by_rows}
    least = math.ceil(policy.table.row_share * shape[0])
    for rows in (shape[0], least) if run.align else (shape[0],):
        for guard, text, certain in policy.guards.refusals(run.plan, answers, rows):
            open_ = run.align or not certain
            shared = "; the sites share the sampled rows, and no site sends more than it allows"
            why = f"{text}{shared if guard == 'coreset_share' and not certain else ''}"
            faults[guard].append(Verdict(f"guards.{guard}", why, None if open_ else False))
    for guard in (guard for guard, applies in by_rows.items() if applies):
        fits = f"{shape[0]:,} rows are enough for all requests of the plan"
        if run.align:
            fits += f", also if only {least:,} of them are common to all"
        yield from faults[guard] or [Verdict(f"guards.{guard}", fits, True)]
