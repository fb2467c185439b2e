"""Tables of a report's page: metrics for each group of methods, and then costs for each group."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from fedkernel.experiments.config import Experiment
from fedkernel.experiments.report import cells
from fedkernel.experiments.results import RowPicture, Run, Summary, setting
from fedkernel.ground import InputError, load_class
from fedkernel.kernel_width import WidthClient
from fedkernel.models import MAIN_METRIC, metric_of
from fedkernel.peers import CarriesLetters
from fedkernel.preparing import PrepareClient
from fedkernel.protocol import Reply, Summed
from fedkernel.strategy import KernelStrategy

TRAFFIC = {"floats_up": "floats up", "floats_down": "floats down", "rounds": "rounds", "seconds": "seconds"}
SIZES = {"bytes_up": "bytes up", "bytes_down": "bytes down"}
EQUAL_BELOW = 1e-12  # metric means below this count as equal


class Cell(NamedTuple):
    """Text of a figure, the number that rows are sorted by, and a mark for the column's best."""

    text: str
    value: float | None = None
    best: bool = False


class Table(NamedTuple):
    """Table of a group of methods: headings after the method's name, and a row for each method and setting."""

    group: str
    headings: list[str]
    rows: list[tuple[Summary, list[Cell]]]


def answer_tables(summaries: Sequence[Summary], metrics: Sequence[str]) -> list[Table]:
    """Return the tables of the methods' metrics, one per group."""
    return _tables(summaries, metrics, _metric_cell, {}, {})


def cost_tables(summaries: Sequence[Summary], metrics: Sequence[str]) -> list[Table]:
    """Return the tables of the runs' costs, one per group."""
    return _tables(summaries, metrics, _cost_cell, TRAFFIC, SIZES)


def _tables(
    summaries: Sequence[Summary],
    metrics: Sequence[str],
    cell: Callable[[Summary, str], Cell],
    first: Mapping[str, str],
    last: Mapping[str, str],
) -> list[Table]:
    """Return a table of figures for each group: `first`, the group's metrics, and `last`. Only `last` marks no best."""
    groups: dict[str, list[Summary]] = {}
    for s in summaries:
        groups.setdefault(s.group or "", []).append(s)
    tables = []
    for group, same in groups.items():
        having = {name: metric_of(name).heading for name in metrics if any(s.metrics.get(name) for s in same)}
        if headings := {**first, **having, **last}:
            best = {name: _best(same, name) for name in (*first, *having)}
            swept, rows = cells.swept_of(s.point for s in same), []
            for place, s in enumerate(same):
                figures = [cell(s, name)._replace(best=place in best.get(name, ())) for name in headings]
                rows.append((s, [*map(Cell, cells.settings(s.point, swept)), *figures, Cell(str(s.seeds), s.seeds)]))
            tables.append(Table(group, [*swept, *headings.values(), "seeds"], rows))
    return tables


def size_rows(runs: Sequence[Run], pictures: Mapping[str, RowPicture]) -> list[tuple[str, str, str]]:
    """Return method, setting and cluster sizes, largest first. Without a picture, sizes are by site as reported."""
    rows = []
    first = {(run.name, setting(run.point)): run.seed for run in reversed(runs)}
    for run in runs:
        picture = pictures.get(run.id)
        if picture is not None and picture.sizes is not None:
            sizes = ", ".join(cells.count(number) for number in sorted(picture.sizes.tolist(), reverse=True))
            rows.append((run.name, setting(run.point), sizes))
        elif run.seed == first.get((run.name, setting(run.point))) and (by_site := _sizes_by_site(run)):
            at = [", ".join(f"{site} {cells.count(size)}" for site, size in own.items()) for own in by_site]
            texts = [f"{cells.count(sum(own.values()))} ({sites})" for own, sites in zip(by_site, at, strict=True)]
            rows.append((run.name, setting(run.point), "; ".join(texts)))
    return rows


def _sizes_by_site(run: Run) -> list[dict[str, float]]:
    """Return each cluster's number of rows by site, largest cluster first, as far as sites reported them."""
    clusters: dict[str, dict[str, float]] = {}
    for row in run.history:
        for name, number in row.values.items():
            match = re.fullmatch(r"cluster (\d+) at (.+)", name)
            if match and number is not None:
                site = re.search(r"site '(.+)'", match[2])
                clusters.setdefault(match[1], {})[site[1] if site else match[2]] = number
    return sorted(clusters.values(), key=lambda own: -sum(own.values()))


def phase_rows(s: Summary, runs: Sequence[Run], experiment: Experiment) -> list[list[str]]:
    """Return each phase with the replies that left the sites, their number and floats, seconds and share of the run.

    `runs`: those of the summary, whose means are taken.
    """
    whole, replies = max(s.seconds.mean, sum(spread.mean for spread in s.phases.values())), _reply_types(s.method)
    rows = []
    for phase, spread in s.phases.items():
        rounds = [row for run in runs for row in run.history if row.phase == phase]
        times, floats, raw = (
            sum(getattr(row, name) for row in rounds) / len(runs) for name in ("clients", "floats_up", "rows_up")
        )
        left = [cells.NOT_APPLICABLE] * 4
        if floats:
            reply = replies.get(phase)
            named = cells.NOT_APPLICABLE if reply is None else reply.__name__
            left = [named, cells.count(times), cells.count(floats), _form(reply, raw, experiment)]
        share = f"{spread.mean / whole:.0%}" if whole else cells.NOT_APPLICABLE
        rows.append([phase, *left, cells.with_spread(spread, cells.seconds), share])
    return rows


def _reply_types(method: str) -> dict[str, type[Reply]]:
    """Return the reply types by phase, or nothing if the method cannot be imported here."""
    with suppress(InputError):
        pair: type[KernelStrategy[Any]] = load_class(method, KernelStrategy, "pairs", "method")
        clients = (PrepareClient, WidthClient, pair.client)
        return {request.__name__: request.reply_type for client in clients for request in client.answers}
    return {}


def _form(reply: type[Reply] | None, rows: float, experiment: Experiment) -> str:
    if rows:
        return f"with {cells.count(rows)} raw rows"
    if reply is None:
        return cells.NOT_APPLICABLE
    if issubclass(reply, CarriesLetters):
        return "letters sealed for peers"
    if not issubclass(reply, Summed):
        return "each site's own"
    masked = ", masked" if experiment.sums == "masked" else ""
    return f"summed{masked}{', with noise' if experiment.privacy is not None else ''}"


def shown(s: Summary, name: str) -> str:
    """Format a metric, marking the reference's own zero error as such."""
    spread = s.metrics.get(name)
    is_reference = name == MAIN_METRIC and is_central(s) and spread and spread.low == spread.high == 0
    return "0 (reference)" if is_reference else cells.written(spread, name)


def is_central(method: Summary | Run) -> bool:
    """Return whether a method is a baseline with all data in one place."""
    return method.kind == "baseline" and method.method.lower().startswith("central")


def _metric_cell(s: Summary, name: str) -> Cell:
    if (spread := s.metrics.get(name)) is None:
        return Cell(cells.NOT_APPLICABLE)
    alone = replace(s, metrics={name: replace(spread, std=spread.std or None)})
    return Cell(shown(alone, name), spread.mean)


def _cost_cell(s: Summary, name: str) -> Cell:
    if (spread := s.spread(name)) is None:
        return Cell(cells.NOT_APPLICABLE)
    write = cells.writer(name)
    alone = write(spread.mean).startswith("<")  # too small for digits of a spread
    return Cell(write(spread.mean) if alone else cells.with_spread(spread, write), spread.mean)


def _best(same: Sequence[Summary], name: str) -> set[int]:
    """Return the positions of the best strategies at each setting, to the precision of the displayed digits."""
    metric, best = metric_of(name), set[int]()
    if metric.better is None:
        return best
    points: dict[str, dict[int, float]] = {}
    for place, s in enumerate(same):
        spread = s.spread(name)
        if s.kind == "strategy" and spread is not None and spread.mean == spread.mean:
            points.setdefault(setting(s.point), {})[place] = spread.mean
    for means in points.values():
        first = (max if metric.better == "higher" else min)(means.values())
        ties = {place for place, mean in means.items() if _digits(name, mean) == _digits(name, first)}
        best |= ties if len(ties) < len(means) else set()
    return best


def _digits(name: str, mean: float) -> str:
    if metric_of(name).cost:
        return cells.writer(name)(mean)
    return "rounding" if abs(mean) < EQUAL_BELOW else metric_of(name).written(mean)
