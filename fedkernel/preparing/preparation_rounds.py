"""Protocol that prepares the sites' raw tables jointly, before the method's protocol. It also runs in one process."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedkernel.data import Preparation, Prepare
from fedkernel.ground import EPS, Division, FloatArray, InputError
from fedkernel.preparing import messages, scaling
from fedkernel.preparing.client import PrepareClient
from fedkernel.preparing.raw_table import TableToPrepare
from fedkernel.preparing.scaling import QUARTILES, Moments, Scaling, check_filled
from fedkernel.preparing.site_differences import Finding, findings
from fedkernel.protocol import FLOAT, Forecast, Member, Plan, Protocol, Run, ask, once, repeated, to_all, to_sum

MOST_ROUNDS = 9  # most histograms for a quantile, each of one bin of the previous
RANK_TOLERANCE = 0.005  # largest error of a quantile, as a share of the values
RESOLUTION = 1e-13  # largest error of a quantile in standard deviations: 2.31 / 32^9 is 7e-14


class Outcome(NamedTuple):
    """Result of the preparation: clients with prepared tables, the preparation, and columns that differ.

    `members`: with the rows and columns of the prepared tables. `preparation`: None with a vertical partition, where
    each site has its own. `findings`: columns of sites that differ from the others'.
    """

    members: tuple[Member, ...]
    preparation: Preparation | None = None
    findings: Sequence[Finding] = ()


def prepare_tables(run: Run, prepare: Prepare, partition: Division) -> Protocol[Outcome]:
    """Prepare all sites' tables. Sites that hold rows use sums over all sites; sites that hold columns prepare alone.

    Raises InputError: an option names a column that no site has; `Prepare.scale` lacks one; a column without a value to
    fill cells with; with ``drift = "refuse"`` a column that differs from the others'; rows that cannot be dropped,
    since there are no ids.
    """
    for option, named in prepare.by_column.items():
        if absent := [name for name in named if not any(name in member.names for member in run.members)]:
            raise InputError(f"prepare.{option} names {absent[0]!r}, but no site has this column")
    if partition == "vertical":
        return (yield from _prepare_separately(run, prepare))
    names = run.members[0].names
    numeric = prepare.numeric_names(names)
    columns, rows = len(numeric), run.rows
    fill, scaled = scaling.stated(prepare, numeric)
    flags: tuple[str, ...] = ()
    drifting: Sequence[Finding] = ()
    if columns and prepare.measured:
        # Pass 1: numbers of values, and means
        cells = yield from to_sum(messages.CountCells(names=numeric))
        check_filled(prepare, numeric, cells.counts)
        flags = scaling.flagged(prepare, numeric, cells.counts, rows)
        center = cells.sums / np.maximum(cells.counts, 1)
        moments = Moments(cells.counts, center, np.zeros(columns))
        # Pass 2: squares about the common means
        if _needs_squares(prepare):
            sums = yield from to_sum(messages.SumSquares(names=numeric, center=center))
            moments = scaling.moments_of(cells.counts, center, sums.deviations, sums.squares)
            # Each site compares its columns with the others'
            if prepare.drift != "ignore":
                totals = {"counts": cells.counts, "deviations": sums.deviations, "squares": sums.squares}
                request = messages.CompareColumns(names=numeric, sites=len(run.members), center=center, **totals)
                replies = yield from to_all(request)
                drifting = findings(numeric, run.members, replies)
                if drifting and prepare.drift == "refuse":
                    raise InputError(f'{"; ".join(finding.text for finding in drifting)} (prepare.drift = "refuse")')
        if prepare.missing == "mean":
            fill = moments.means
        elif prepare.missing == "median":
            fill = (yield from quantiles(numeric, (0.5,), moments))[:, 0]
        scaled = yield from _scaling(prepare, numeric, rows, moments, fill)
    settle = messages.TakePreparation(names=names, flagged=flags, fill=fill, center=scaled.center, scale=scaled.scale)
    drifted = {f"{finding.column} at {finding.site}": finding.ratio for finding in drifting}
    sizes = yield from to_all(settle, **drifted)
    preparation = Preparation(prepare, names, fill, *scaled, flags)
    members = [
        replace(member, rows=reply.rows, columns=reply.columns, names=preparation.columns)
        for member, reply in zip(run.members, sizes, strict=True)
    ]
    return Outcome(tuple(members), preparation, drifting)


def _prepare_separately(run: Run, prepare: Prepare) -> Protocol[Outcome]:
    if prepare.missing == "drop" and (without := [member.label for member in run.members if not member.ids]):
        allowed = 'ids at all sites, or missing = "refuse", "center", "mean" or "median"'
        why = f"{without[0]} has no row ids, so other sites cannot drop the same rows"
        raise InputError(f'prepare.missing = "drop", but {why}; allowed: {allowed}')
    replies = yield from to_all(messages.PrepareOwn())
    members = [
        replace(member, rows=reply.rows, columns=reply.columns, names=())
        for member, reply in zip(run.members, replies, strict=True)
    ]
    return Outcome(tuple(members))


def _needs_squares(prepare: Prepare) -> bool:
    return prepare.scale in ("standard", "robust") or prepare.missing == "median" or prepare.drift != "ignore"


def _scaling(
    prepare: Prepare, names: tuple[str, ...], rows: int, moments: Moments, fill: FloatArray
) -> Protocol[Scaling]:
    filled = moments.filled(rows, fill)
    if prepare.scale == "standard":
        return scaling.standard(filled)
    if prepare.scale == "minmax":
        extremes = yield from to_all(messages.FindExtremes(names=names))
        least = np.min([reply.least for reply in extremes], axis=0)
        return scaling.minmax(least, np.max([reply.greatest for reply in extremes], axis=0))
    if prepare.scale == "robust":
        quartiles = yield from quantiles(names, QUARTILES, filled, rows - moments.counts, fill)
        return scaling.robust(quartiles, 4 * RESOLUTION * np.sqrt(filled.variances))
    return scaling.stated(prepare, names)[1]


def quantiles(
    names: tuple[str, ...],
    levels: Sequence[float],
    moments: Moments,
    filled: FloatArray | float = 0.0,
    fill: FloatArray | float = 0.0,
) -> Protocol[FloatArray]:
    """Find quantiles of columns by histograms summed over the sites. Each histogram divides one bin of the previous.

    The first histogram's ends are Cantelli's bounds on a quantile, sqrt((1 - q) / q) standard deviations below the mean
    and sqrt(q / (1 - q)) above. Refining ends once a bin has at most `RANK_TOLERANCE` of the values, or is as narrow as
    `RESOLUTION`, after at most `MOST_ROUNDS` rounds. Many equal values stay in one bin to the end, and are taken as the
    number of fewest digits in it. `names`: the p columns. `levels`: the quantiles q. `moments`: with filled cells.
    `filled`, `fill` (p,): the number of these, and their value. Returns ndarray of shape (p, q).
    """
    q, rows = np.asarray(levels), moments.counts[:, None]
    deviation, mean = np.sqrt(moments.variances)[:, None], moments.means[:, None]
    slack = 4 * EPS * np.abs(mean) + np.finfo(np.float64).tiny
    low = mean - 1.001 * deviation * np.sqrt((1 - q) / q) - slack
    high = mean + 1.001 * deviation * np.sqrt(q / (1 - q)) + slack
    below, upto = np.zeros_like(low), np.repeat(rows, len(q), axis=1)  # numbers of values up to low, and high
    mass, value = (np.broadcast_to(values, len(names))[:, None, None] for values in (filled, fill))
    narrow = high - low <= np.maximum(RESOLUTION * deviation, 8 * EPS * np.abs(mean))
    for _ in range(MOST_ROUNDS):
        done = narrow | (upto - below <= RANK_TOLERANCE * rows)
        if done.all():
            break
        edges = low[..., None] + (high - low)[..., None] * np.linspace(0, 1, messages.EDGES)
        edges[..., -1] = high
        edges[done] = high[done][:, None]  # these are settled
        replies = yield from to_sum(messages.CountBelow(names=names, thresholds=edges.reshape(len(names), -1)))
        counts = replies.counts.reshape(edges.shape) + mass * (value <= edges)
        reached = counts >= (q * rows)[..., None]
        bins = np.where(reached.any(axis=-1), np.maximum(reached.argmax(axis=-1), 1), messages.BINS)
        low, high = (np.where(done, old, _bin_values(edges, bins - less)) for old, less in ((low, 1), (high, 0)))
        below, upto = (np.where(done, old, _bin_values(counts, bins - less)) for old, less in ((below, 1), (upto, 0)))
        narrow = high - low <= np.maximum(RESOLUTION * deviation, 8 * EPS * np.abs(high))
    share = np.clip((q * rows - below) / np.maximum(upto - below, 1), 0, 1)
    within = np.where(narrow, np.vectorize(_shortest_number, otypes=[float])(low, high), low + share * (high - low))
    return np.where(deviation > 0, within, mean)


def _shortest_number(low: float, high: float) -> float:
    """Return the number of fewest decimal digits that is above `low` and at most `high`. 0 has no digits."""
    rounded = (float(f"{low + (high - low) / 2:.{digits}g}") for digits in range(1, 18))
    return next((number for number in (0.0, *rounded) if low < number <= high), high)


def _bin_values(values: FloatArray, places: npt.NDArray[np.intp]) -> FloatArray:
    """Select from values at bin edges (p, q, b) those at positions (p, q)."""
    return np.take_along_axis(values, places[..., None], axis=-1)[..., 0]


def plan(prepare: Prepare, partition: Division, clients: int) -> Plan:
    """Return the plan of `prepare_tables`; without numeric columns, fewer requests are sent."""
    if partition == "vertical":
        return (once(messages.PrepareOwn),)
    steps = [once(messages.CountCells)] if prepare.measured else []
    if _needs_squares(prepare):
        steps.append(once(messages.SumSquares))
    if prepare.drift != "ignore":
        steps.append(once(messages.CompareColumns, sites=clients))
    if prepare.missing == "median":
        steps.append(repeated(MOST_ROUNDS, ask(messages.CountBelow, {"b": messages.EDGES})))
    if prepare.scale == "robust":
        steps.append(repeated(MOST_ROUNDS, ask(messages.CountBelow, {"b": len(QUARTILES) * messages.EDGES})))
    if prepare.scale == "minmax":
        steps.append(once(messages.FindExtremes))
    return (*steps, once(messages.TakePreparation))


def forecast(prepare: Prepare, partition: Division, cohort: Sequence[Member]) -> tuple[Forecast, list[Member]]:
    """Forecast the costs of `prepare_tables`, and the prepared tables' sizes. They are bounds if cells are missing."""
    members = [replace(member, columns=prepare.most_columns(member.columns), names=()) for member in cohort]
    open_ended = prepare.missing == "drop" or prepare.indicator
    memory = 4 * FLOAT * max(member.rows * member.columns for member in cohort)
    if partition == "vertical":
        exact = not open_ended and not prepare.categories  # which differ between sites
        return Forecast(1, memory=memory, meaning="exact" if exact else "at most"), members
    clients, columns = len(cohort), cohort[0].columns - len(prepare.categories)
    rounds, up, down = 1, 0, 3 * columns
    if columns and prepare.measured:
        rounds, up = rounds + 1, 2 * columns
        if _needs_squares(prepare):
            rounds, up, down = rounds + 1, up + 2 * columns, down + columns
        if prepare.drift != "ignore":
            rounds, up, down = rounds + 1, up + 3 * columns, down + 4 * columns
            open_ended = True
        for used, levels in ((prepare.missing == "median", 1), (prepare.scale == "robust", len(QUARTILES))):
            floats = MOST_ROUNDS * columns * levels * messages.EDGES * used
            rounds, up, down = rounds + MOST_ROUNDS * used, up + floats, down + floats
            open_ended = open_ended or used
        if prepare.scale == "minmax":
            rounds, up = rounds + 1, up + 2 * columns
    return Forecast(rounds, clients * up, clients * down, memory, "at most" if open_ended else "exact"), members


def prepare_centrally(tables: Sequence[TableToPrepare], prepare: Prepare, partition: Division) -> list[FloatArray]:
    """Prepare all clients' raw tables in this process, and return arrays of shape (n_m, columns).

    Differences between sites are not reported: the run itself reports them. Raises InputError like `prepare_tables`.
    """
    silent = replace(prepare, drift="ignore")
    clients = [PrepareClient(table.raw, client=number, prepare=silent) for number, table in enumerate(tables)]
    members = [
        Member(number, number, *table.shape, names=table.raw.names, ids=table.raw.ids is not None)
        for number, table in enumerate(tables)
    ]
    protocol = prepare_tables(Run(tuple(members)), silent, partition)
    with suppress(StopIteration):
        round_ = next(protocol)
        while True:  # each round has one request for all
            request: Any = round_.requests
            method = PrepareClient.handlers[round_.phase][1]
            replies = [getattr(client, method)(request) for client in clients]
            round_ = protocol.send(round_.reply_type.sum_of(replies) if round_.summed else replies)  # type: ignore[attr-defined]
    return [client.preparation.apply(client.X)[0] for client in clients if client.preparation is not None]
