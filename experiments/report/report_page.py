"""Report of an experiment: tables for the console, and report.html as one self-contained file."""

import base64
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedkernel.experiments import results
from fedkernel.experiments.claims import Claim
from fedkernel.experiments.config import Experiment
from fedkernel.experiments.report import page_tables
from fedkernel.experiments.report.about import data_lines, metric_lines, receipt_lines
from fedkernel.experiments.report.cells import count, seconds, settings, short_names, swept_of
from fedkernel.experiments.report.page_tables import SIZES, TRAFFIC
from fedkernel.experiments.report.table_formats import Layout
from fedkernel.experiments.report.templates import render
from fedkernel.experiments.results import Failure, Run, Summary
from fedkernel.ground import InputError, write_atomic
from fedkernel.models import metric_of


def lay_out(summaries: Sequence[Summary], metric: str | None = None) -> Layout:
    """Lay out the summaries in short, for the console; `metric` as `leading_metric` takes it."""
    metric, swept = results.leading_metric(summaries, metric), swept_of(s.point for s in summaries)
    caption = f"mean{' ± standard deviation' if _repeated(summaries) else ''} over {_seeds(summaries)}"
    headings = ["Method", *short_names(swept), *([metric_of(metric).heading] if metric else []), *TRAFFIC.values()]
    rows = []
    for s in summaries:
        numbers = [count(s.floats_up.mean), count(s.floats_down.mean), count(s.rounds.mean), seconds(s.seconds.mean)]
        rows.append([s.name, *settings(s.point, swept), *([page_tables.shown(s, metric)] if metric else []), *numbers])
    return Layout(headings, rows, keys=1 + len(swept), caption=caption)


def in_full(summaries: Sequence[Summary]) -> tuple[list[str], list[list[object]]]:
    """Lay out all figures of the summaries with all their digits, for other programs.

    - Returns `headings`: ``name``, ``kind``, ``method``, each swept parameter, ``seeds``; of each figure ``_mean`` and
      ``_std`` over the seeds, and of a metric that some seeds lack ``_seeds``, their number.
    - Returns `rows`: one per summary; None where a figure does not apply, and for the standard deviation of one seed.
    """
    swept, (leading, others) = swept_of(s.point for s in summaries), metric_names(summaries, None)
    columns: dict[str, list[object]] = {}
    for name in (*leading, *others, *results.RUN_COSTS):
        figures = [s.spread(name) for s in summaries]
        columns[f"{name}_mean"] = [figure and figure.mean for figure in figures]
        columns[f"{name}_std"] = [figure and figure.std for figure in figures]
        if any(figure and figure.n != s.seeds for s, figure in zip(summaries, figures, strict=True)):
            columns[f"{name}_seeds"] = [figure.n if figure else 0 for figure in figures]
    rows = [
        [s.name, s.kind, s.method, *(s.point.get(name) for name in swept), s.seeds, *figures]
        for s, figures in zip(summaries, zip(*columns.values(), strict=True), strict=True)
    ]
    return ["name", "kind", "method", *swept, "seeds", *columns], rows


def write_report(
    out: Path,
    experiment: Experiment,
    runs: Sequence[Run],
    *,
    claims: Sequence[Claim] = (),
    missing: Sequence[str] = (),
    failed: Sequence[Failure] = (),
    environment: Mapping[str, str] | None = None,
) -> Path:
    """Draw the figures into `out/plots` and write `out/report.html`, which embeds them.

    The same arguments give the same bytes. `missing` are the ids of runs that have not been begun, or were interrupted.
    Raises InputError if there are no runs.
    """
    if not runs:
        raise InputError(f"{out}: no finished runs to report")
    summaries, options = results.summarise(runs), experiment.report
    pictures = results.read_row_pictures(out, runs) if options.rows is not False else {}
    figures, (shapes, dropped) = [], results.read_shapes(out)
    if options.plots:
        from fedkernel.experiments.report.plots import draw  # noqa: PLC0415 - no other command waits for matplotlib

        directions = results.read_directions(out, runs) if options.images else {}
        chosen: dict[str, Any] = {name: getattr(options, name) for name in ("metric", "also", "by_iteration")}
        figures = draw(runs, out / "plots", **chosen, directions=directions, rows=pictures)
    missing_values = [
        value for value in options.by_iteration if not any(results.by_iteration(run, value) for run in runs)
    ]
    leading, others = metric_names(summaries, options.metric)
    worth, costs = ([name for name in (*leading, *others) if metric_of(name).cost is cost] for cost in (False, True))
    # each as a data address, which keeps its ids apart from other figures' ids
    address = "data:image/svg+xml;base64,"
    drawn = [(figure, address + base64.b64encode(figure.svg.read_bytes()).decode()) for figure in figures]
    first = [pair for pair in drawn if pair[0].name.endswith("_by_method") or pair[0].name == "rows"]
    swept = swept_of(s.point for s in summaries)
    page = render(
        "report.html.jinja",
        title=experiment.title or experiment.name,
        config=experiment.text,
        count=len(runs),
        methods=len({s.name for s in summaries}),
        engines=", ".join(dict.fromkeys(run.engine for run in runs if run.kind == "strategy")) or "none",
        seeds=_seeds(summaries),
        spread=_repeated(summaries),
        answers=page_tables.answer_tables(summaries, worth),
        findings=[*results.recommendations(runs), *results.findings(runs)],
        sizes=page_tables.size_rows(runs, pictures),
        costs=page_tables.cost_tables(summaries, costs),
        data=data_lines(experiment, shapes, results.read_columns(out, runs), dropped)
        + receipt_lines(out, experiment.data),
        metrics=metric_lines({name: metric_of(name).heading for name in (*worth, *costs)} | TRAFFIC | SIZES),
        first=first,
        figures=[pair for pair in drawn if pair not in first],
        missing=missing,
        failed=failed,
        missing_values=missing_values if options.plots else [],
        swept=swept,
        phases=[
            (s.name, settings(s.point, swept), page_tables.phase_rows(s, same, experiment))
            for s, same in zip(summaries, results.by_setting(runs).values(), strict=True)
            if s.phases
        ],
        claims=claims,
        environment=environment or {},
    )
    return write_atomic(out / "report.html", lambda file: file.write(page.encode()))


def metric_names(summaries: Sequence[Summary], preferred: str | None) -> tuple[list[str], list[str]]:
    """Return the leading metric, if any, and the others: those comparable across settings first, then frequent ones."""
    leading = results.leading_metric(summaries, preferred)
    having = Counter(name for s in summaries for name, spread in s.metrics.items() if spread)
    ranks = {name: rank for rank, name in enumerate(results.LEADING)}
    others = sorted(having, key=lambda name: (not metric_of(name).leads, ranks.get(name, len(ranks)), -having[name]))
    return [leading] if leading else [], [name for name in others if name != leading]


def _repeated(summaries: Iterable[Summary]) -> bool:
    return any(s.seeds > 1 for s in summaries)


def _seeds(summaries: Sequence[Summary]) -> str:
    counts = sorted({s.seeds for s in summaries})
    if not counts:
        return "no seeds"
    if len(counts) > 1:
        return f"{counts[0]} to {counts[-1]} seeds"
    return "1 seed" if counts == [1] else f"{counts[0]} seeds"
