"""Prediction of a policy's verdicts on a study, from the study's plans and forecasts and the table's size."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

from fedkernel import protocol
from fedkernel.ground import InputError, RefusedError, and_more
from fedkernel.peers import CarriesLetters
from fedkernel.site.gate import Totals
from fedkernel.site.policy import SHARE_RULE, Policy
from fedkernel.site.study_check import Verdict
from fedkernel.wire import RunSpec, Study

TableShape = tuple[int, int] | None
Kinds = Sequence[type[protocol.Request[Any]]]

Answers = Callable[[RunSpec], Kinds]
"""Function that returns the request classes of a run's client; empty if the class must not be imported."""

Forecasts = Callable[[RunSpec, Sequence[protocol.Member]], protocol.Forecast | None]
"""Function that returns the forecast of a run's strategy for clients of given sizes; None: unknown."""

TABLE = "guards.table_share"
"""Name of the rule that limits all numbers leaving in a run, per table entry."""

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
    """Predict the verdicts of rules on amounts, if each site's table has a `shape`. `left`: totals of earlier runs."""
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
    """Upper bounds on a run's replies of one type: their number, and the floats and columns (last axis) of each."""

    times: int
    floats: int | None
    columns: int | None
    summed: bool

    def at_least(self, other: "ReplyBounds") -> "ReplyBounds":
        """Return the larger of two bounds in each field."""
        pairs = (self.floats, other.floats), (self.columns, other.columns)
        floats, columns = (None if a is None or b is None else max(a, b) for a, b in pairs)
        return ReplyBounds(max(self.times, other.times), floats, columns, self.summed and other.summed)


def reply_bounds(run: RunSpec, answers: Kinds, shape: TableShape) -> dict[str, ReplyBounds]:
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
    """Return upper bounds on the floats and columns of a planned request's reply. None: there is no bound."""
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


def _sizes(policy: Policy, study: Study, shape: tuple[int, int] | None, answers: Answers) -> Iterator[Verdict]:
    """Yield verdicts on the largest size of each type of reply, by the policy's limits on single replies."""
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


class _Amount(NamedTuple):
    """Bounds and forecast of the floats that leave a site, in all or per table entry.

    None: unknown. `is_bound`: the forecast is an upper bound.
    """

    least: float | None
    most: float | None
    likely: float | None
    is_bound: bool = False

    def plus(self, other: "_Amount") -> "_Amount":
        pairs = zip(self[:3], other[:3], strict=True)
        least, most, likely = (None if a is None or b is None else a + b for a, b in pairs)
        return _Amount(least, most, likely, self.is_bound or other.is_bound)

    def per(self, entries: int) -> "_Amount":
        least, most, likely = (None if own is None else own / entries for own in self[:3])
        return _Amount(least, most, likely, self.is_bound)

    def fits(self, limit: float) -> bool | None:
        """Return whether the amount keeps to a limit, or None if unknown, for example as a run may end early."""
        if self.most is not None and self.most <= limit:
            return True
        return None if self.likely is None or self.likely <= limit or self.is_bound else False

    @property
    def text(self) -> str:
        """Forecast and bound per entry in words, as the predicate of a sentence on a run."""
        says = [] if self.most is None else [f"{protocol.share_text(self.most)} at most by its plan"]
        if self.likely is not None and self.likely != self.most:
            bound = "at most " if self.is_bound else ""
            says.insert(0, f"{bound}{protocol.share_text(self.likely)} by its forecast")
        return f"sends {' and '.join(says)}" if says else f"sends a number that {UNKNOWN}"


def _by_amount(amounts: Mapping[str, _Amount]) -> dict[str, _Amount]:
    """Group runs with equal amounts, and return each amount by a name such as ``run 'a' (and 2 more)``."""
    runs: dict[_Amount, list[str]] = {}
    for run, amount in amounts.items():
        runs.setdefault(amount, []).append(run)
    return {f"run {same[0]!r}{and_more(len(same) - 1)}": amount for amount, same in runs.items()}


def _floats(run: RunSpec, shape: TableShape, answers: Kinds, forecasts: Forecasts) -> _Amount:
    """Estimate the floats that leave a site in a run. The plan gives a bound, the forecast a mean over all sites."""
    sizes = reply_bounds(run, answers, shape).values()
    bounds = [None if size.floats is None else size.times * size.floats for size in sizes]
    most = None if run.plan is None or None in bounds else sum(filter(None, bounds))
    clients = len(run.sites or ())
    cohort = None if shape is None else [protocol.Member(place, place, *shape) for place in range(clients)]
    if cohort is None or (forecast := forecasts(run, cohort)) is None:
        return _Amount(None, most, None)
    likely = math.ceil(forecast.floats_up / max(1, clients))
    if forecast.meaning != "exact":
        return _Amount(None, most, likely, forecast.meaning == "at most")
    return _Amount(None if run.align else likely, likely, likely)  # all sites may have fewer rows in common


def _limits(policy: Policy, amounts: Mapping[str, _Amount], shape: TableShape, left: int) -> Iterator[Verdict]:
    total = reduce(_Amount.plus, amounts.values(), _Amount(left, left, left))
    whole = {f"the study{f', with {left:,} floats from before,' if left else ''}": total}
    limits = policy.limits
    for where, own, parts in (("limits.run", limits.run, _by_amount(amounts)), ("limits.total", limits.total, whole)):
        if own.floats is not None:
            yield from (_limit_verdict(f"{where}.floats", own.floats, *part, shape) for part in parts.items())
        for name in ("rows", "bytes", "seconds"):
            if getattr(own, name):  # `verdicts` checks 0 rows
                yield Verdict(f"{where}.{name}", f"{name} are counted during the run; the number {UNKNOWN}", None)


def _limit_verdict(rule: str, limit: int, what: str, amount: _Amount, shape: tuple[int, int] | None) -> Verdict:
    allowed, (least, most, likely, _) = f"{limit:,} are allowed", amount
    if least is not None and least > limit:
        return Verdict(rule, f"{what} sends {least:,} floats, but {allowed}", False)
    if most is not None and most <= limit:
        return Verdict(rule, f"{what} sends {most:,} floats at most; {allowed}", True)
    numbers = [f"up to {most:,} floats by its plan"] if most is not None else []
    numbers += [f"{likely:,} by its forecast (mean over the sites)"] if likely is not None else []
    if numbers:
        return Verdict(rule, f"{what} sends {' and '.join(numbers)}; {allowed}", None)
    return Verdict(rule, f"the number of floats that {what} sends {UNKNOWN if shape else NO_SIZE}; {allowed}", None)


def table_shares(
    policy: Policy,
    study: Study,
    shape: tuple[int, int] | None,
    answers: Answers,
    forecasts: Forecasts,
    *,
    left: float = 0.0,
) -> Iterator[Verdict]:
    """Yield verdicts on the floats per table entry, of each run and of all. `left`: those of earlier runs.

    Equal runs share a verdict. A run that needs more by `Guards.table_share` raises the default limit on all.
    """
    limit = needed = policy.guards.table_share
    if shape is None:
        yield Verdict(TABLE, f"numbers per table entry: the number {NO_SIZE}; allowed: {limit:g}", None)
        return
    entries = math.prod(shape)
    shares = {run.id: _floats(run, shape, answers(run), forecasts).per(entries) for run in study.runs}
    for runs, share in _by_amount(shares).items():
        more, fits = "", share.fits(limit)
        if fits is False and share.likely:
            needed = max(needed, protocol.rounded_up(share.likely))
            more = f", so --table-share {protocol.rounded_up(share.likely):g} is needed"
        text = f"numbers per table entry ({entries:,} entries): {runs} {share.text}; allowed: {limit:g}{more}"
        yield Verdict(TABLE, f"{text} ({protocol.LIMIT_ADVICE})", fits)
    total, most = reduce(_Amount.plus, shares.values(), _Amount(left, left, left)), policy.limits.total
    before = f", with {protocol.share_text(left)} from before," if left else ""
    text = f"numbers per table entry in all runs: the study{before} {total.text}"
    allowed = most.allowed_share(needed)
    yield Verdict(SHARE_RULE, f"{text}; allowed: {allowed:g}", total.fits(allowed))


def needed_share(
    policy: Policy, study: Study, shape: TableShape, answers: Answers, forecasts: Forecasts
) -> float | None:
    """Return the `Guards.table_share` that a study's forecasts need, or None if the policy's is enough."""
    if shape is None:
        return None
    shares = (_floats(run, shape, answers(run), forecasts).per(math.prod(shape)) for run in study.runs)
    needed = [share.likely for share in shares if share.likely and share.fits(policy.guards.table_share) is False]
    return protocol.rounded_up(max(needed)) if needed else None


def _guards(policy: Policy, run: RunSpec, shape: TableShape, answers: Kinds) -> Iterator[Verdict]:
    if run.plan is None or not answers:
        yield Verdict("guards", f"the guards' verdict on run {run.id!r} {UNKNOWN}: its client is not fedkernel's", None)
        return
    try:
        protocol.check_plan(run.plan, answers)
    except InputError as error:
        yield Verdict("study.plan", f"run {run.id!r}: {error}", False)
        return
    kinds = {kind for kind, _ in protocol.known_requests(run.plan, {kind.__name__: kind for kind in answers})}
    by_rows = {"coreset_share": "sampled", "lone_rows": "sketched", "probed_share": "probes"}
    guards = [guard for guard, declared in by_rows.items() if any(getattr(kind, declared) for kind in kinds)]
    if shape is None:
        yield from (Verdict(f"guards.{guard}", f"the verdict {NO_SIZE}", None) for guard in guards)
        return
    faults: dict[str, list[Verdict]] = {guard: [] for guard in by_rows}
    least = math.ceil(policy.table.row_share * shape[0])
    for rows in (shape[0], least) if run.align else (shape[0],):
        for guard, text, certain in policy.guards.refusals(run.plan, answers, rows):
            open_ = run.align or not certain
            shared = "; the sites share the sampled rows, and no site sends more than it allows"
            why = f"{text}{shared if guard == 'coreset_share' and not certain else ''}"
            faults[guard].append(Verdict(f"guards.{guard}", why, None if open_ else False))
    for guard in guards:
        fits = f"{shape[0]:,} rows are enough for all requests of the plan"
        if run.align:
            fits += f", also if only {least:,} of them are common to all"
        yield from faults[guard] or [Verdict(f"guards.{guard}", fits, True)]
