"""What an experiment found: a table for the console and report.html, one file that needs nothing else."""

import base64
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from experiments.claims import Claim
from experiments.config import Experiment
from experiments.report.wide import NARROWEST, WideTable
from experiments.report.writing import NOTHING, count, render, seconds, size, with_spread
from experiments.results import Run, Summary, by_iteration, leading_metric, summarise
from fedkernel.errors import InputError
from fedkernel.models import MAIN, metric_of

TRAFFIC, SIZES = ("floats up", "floats down", "rounds", "seconds"), ("bytes up", "bytes down", "seeds")


def console_table(summaries: Sequence[Summary], metric: str | None = None) -> WideTable:
    """Lay out the summaries for a terminal: a line each on one of about 100 columns, in parts on one of fewer.

    Parameters
    ----------
    summaries : sequence of Summary
        As `summarise` returns them.
    metric : str, optional
        What to show, as `leading_metric` takes it.

    Returns
    -------
    WideTable
        A row per summary: method, swept parameters, the metric, floats up and down, rounds, seconds.
    """
    metric, swept = leading_metric(summaries, metric), _swept(summaries)
    caption = f"mean{' ± standard deviation' if _repeated(summaries) else ''} over {_seeds(summaries)}"
    table = WideTable(1 + len(swept), caption)
    table.add_column("Method", overflow="fold", min_width=NARROWEST)
    short = [name.rsplit(".", 1)[-1] for name in swept]
    for name, last in zip(swept, short, strict=True):
        table.add_column(Text(last if short.count(last) == 1 else name), justify="right")
    headings = [metric_of(metric).heading.replace(" central", "\ncentral" if swept else " central")] if metric else []
    for heading in [*headings, "floats up", "floats down", "rounds", "seconds"]:
        table.add_column(Text(heading), justify="right", no_wrap=True)
    for s in summaries:
        numbers = [count(s.floats_up.mean), count(s.floats_down.mean), count(s.rounds.mean), seconds(s.seconds.mean)]
        figure = [_metric(s, metric)] if metric else []
        # Text, not markup: a method may be called [red]
        table.add_row(Text(s.name), *(Text(cell) for cell in (*_settings(s, swept), *figure, *numbers)))
    return table


def write_report(
    out: Path,
    experiment: Experiment,
    runs: Sequence[Run],
    *,
    claims: Sequence[Claim] = (),
    missing: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Path:
    """Draw the figures into `out/plots` and write `out/report.html`, which embeds them.

    Parameters
    ----------
    out : Path
        The output folder; made if there is none.
    experiment : Experiment
        Its title, its text and what its report is to show.
    runs : sequence of Run
    claims : sequence of Claim, optional
    missing : sequence of str, optional
        The ids of runs that have failed, or have not been begun.
    environment : mapping of str to str, optional
        Versions and machine, shown at the end.

    Returns
    -------
    Path
        The report. The same arguments give the same bytes.

    Raises
    ------
    InputError
        If there are no runs.
    """
    if not runs:
        raise InputError(f"{out}: no finished runs to report")
    summaries = summarise(runs)
    swept, options = _swept(summaries), experiment.report
    figures = []
    if options.plots:
        from experiments.report.plots import draw  # noqa: PLC0415 - no other command waits for matplotlib

        figures = draw(runs, out / "plots", metric=options.metric, also=options.also, by_iteration=options.by_iteration)
    missing_values = [value for value in options.by_iteration if not any(by_iteration(run, value) for run in runs)]
    leading, others = _metrics(summaries, options.metric)
    page = render(
        "report.html.jinja",
        title=experiment.title or experiment.name,
        config=experiment.text,
        count=len(runs),
        methods=len({s.name for s in summaries}),
        engines=", ".join(dict.fromkeys(run.engine for run in runs if run.kind == "strategy")) or "none",
        seeds=_seeds(summaries),
        spread=_repeated(summaries),
        columns=[*swept, *map(_heading, leading), *TRAFFIC, *map(_heading, others), *SIZES],
        rows=[(s.name, s.kind, _cells(s, swept, leading, others)) for s in summaries],
        figures=[(figure, _embedded(figure.svg)) for figure in figures],
        missing=missing,
        missing_values=missing_values if options.plots else [],
        swept=swept,
        phases=[(s.name, _settings(s, swept), _phases(s)) for s in summaries if s.phases],
        claims=claims,
        environment=environment or {},
    )
    path = out / "report.html"
    unfinished = path.with_suffix(".html.part")
    unfinished.write_text(page, encoding="utf-8", newline="\n")
    os.replace(unfinished, path)
    return path


def _metrics(summaries: Sequence[Summary], wanted: str | None) -> tuple[list[str], list[str]]:
    """Return the metric that leads, if any does, and the others: costs last, of each kind what most rows have first."""
    leading = leading_metric(summaries, wanted)
    having = Counter(name for s in summaries for name, spread in s.metrics.items() if spread)
    others = sorted(having, key=lambda name: (not metric_of(name).leads, -having[name]))
    return [leading] if leading else [], [name for name in others if name != leading]


def _cells(s: Summary, swept: Sequence[str], leading: Sequence[str], others: Sequence[str]) -> list[str]:
    """Write a row of the page's table: what was asked, what it took, what else was measured, sizes."""
    floats = [with_spread(spread, count) for spread in (s.floats_up, s.floats_down)]
    sizes = [with_spread(spread, size) for spread in (s.bytes_up, s.bytes_down)]
    took = [*floats, with_spread(s.rounds, count), with_spread(s.seconds, seconds)]
    first, rest = ([_metric(s, name) for name in names] for names in (leading, others))
    return [*_settings(s, swept), *first, *took, *rest, *sizes, str(s.seeds)]


def _phases(s: Summary) -> list[tuple[str, str, str]]:
    """List phase, seconds and share of the run."""
    whole = max(s.seconds.mean, sum(spread.mean for spread in s.phases.values()))
    return [
        (phase, with_spread(spread, seconds), f"{spread.mean / whole:.0%}" if whole else NOTHING)
        for phase, spread in s.phases.items()
    ]


def _embedded(svg: Path) -> str:
    """Make an image address of the file itself; as an image the ids of one figure cannot meet those of another."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.read_bytes()).decode()


def _swept(summaries: Iterable[Summary]) -> list[str]:
    return list(dict.fromkeys(name for s in summaries for name in s.point))


def _settings(s: Summary, swept: Iterable[str]) -> list[str]:
    return [_setting(s.point[name]) if name in s.point else NOTHING for name in swept]


def _setting(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _repeated(summaries: Iterable[Summary]) -> bool:
    return any(s.seeds > 1 for s in summaries)


def _seeds(summaries: Sequence[Summary]) -> str:
    counts = sorted({s.seeds for s in summaries})
    if not counts:
        return "no seeds"
    if len(counts) > 1:
        return f"{counts[0]} to {counts[-1]} seeds"
    return "1 seed" if counts == [1] else f"{counts[0]} seeds"


def _metric(s: Summary, name: str) -> str:
    """Write a metric; an exact zero says so."""
    spread = s.metrics.get(name)
    if spread is None:
        return NOTHING
    if spread.low == spread.high == 0:
        reference = name == MAIN and s.kind == "baseline" and s.method.lower().startswith("central")
        return "0 (reference)" if reference else "0"
    if not math.isfinite(spread.mean):
        return "not finite"
    return metric_of(name).written(spread.mean, spread.std)


def _heading(name: str) -> str:
    return metric_of(name).heading
