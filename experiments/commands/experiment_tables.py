"""Output of an experiment for the console, a document or a program: summary, tables, two experiments compared."""

import logging
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import typer

from fedkernel.experiments import report
from fedkernel.experiments.commands.console import FAILED, print_line, print_status, print_table, print_text
from fedkernel.experiments.config import Experiment, by_path
from fedkernel.experiments.report import Format, Layout
from fedkernel.experiments.results import Failure, Run, findings, in_order, recommendations, setting, summarise
from fedkernel.experiments.running import PRESENTATION_SECTIONS, Outcome, read_folder, unfinished
from fedkernel.ground import InputError, and_more, load_function, one_line
from fedkernel.models import METRICS, is_user_defined


def show_results(experiment: Experiment, outcome: Outcome, folder: Path) -> None:
    """Print an experiment's table, missing and failed runs, findings, claims, and the report's path."""
    print_table(report.for_terminal(report.lay_out(summarise(outcome.rows), experiment.report.metric)))
    for failure in outcome.failed:
        print_line(has_failed(failure))
    if outcome.missing:
        print_line(not_finished(outcome.missing))
    for sentence in (*recommendations(outcome.rows), *findings(outcome.rows)):
        print_line(one_line(sentence))
    for claim in outcome.claims:
        line = f"{claim.verdict:20}{claim.text.rstrip('.')}: {claim.numbers}"
        print_line(" ".join(line.splitlines()))
    print_line(f"Report: {folder / 'report.html'}")


def not_finished(missing: Sequence[str]) -> str:
    """Return a sentence that names the unfinished runs."""
    return f"not finished, and in no figure: {', '.join(missing[:10])}{and_more(len(missing) - 10)}"


def has_failed(failure: Failure) -> str:
    """Return a sentence on a failed run and its cause."""
    return f"failed, and in no figure: {failure.id}, {failure.tries}: {one_line(failure.cause)}"


def exit_if_failed(outcome: Outcome, debug: bool) -> None:
    """Exit with an error if any run has failed."""
    if outcome.failed:
        again = f"the same command tries {'it' if len(outcome.failed) == 1 else 'them'} again"
        more = "" if debug else "; --debug shows tracebacks"
        print_status(f"error: {outcome.summary}; {again}{more}", logging.ERROR)
        raise typer.Exit(FAILED)


MOST_LISTED = 8
MOST_CHANGE_CHARACTERS = 120  # of a configuration's change; a longer one is named by its key alone


class Finished(NamedTuple):
    """Content of an output folder: experiment, finished runs in order, and ids of the unfinished runs."""

    folder: Path
    experiment: Experiment
    runs: list[Run]
    missing: list[str]


def open_finished(folder: Path) -> Finished:
    """Read an output folder, and register the experiment's own metrics."""
    experiment, runs = read_folder(folder)
    for name in filter(is_user_defined, experiment.metrics):
        with suppress(InputError):  # a metric that is no longer here is shown by its name
            load_function(name, "metrics", "metric")
    return Finished(folder, experiment, in_order(runs), unfinished(experiment, runs))


def print_summaries(finished: Finished, form: Format) -> None:
    """Print the console's table in a format, or all figures as csv. Missing runs are named on standard error."""
    summaries = summarise(finished.runs)
    if form is Format.csv:
        print_text(report.as_csv(*report.in_full(summaries)))
    else:
        print_layouts(form, [report.lay_out(summaries, finished.experiment.report.metric)])
    if finished.missing:
        print_status(not_finished(finished.missing))


def compare_folders(a: Path, b: Path, metrics: Sequence[str], form: Format | None, *, every: bool) -> str:
    """Print a comparison of two output folders, and return the differences beyond noise."""
    sides = open_finished(a), open_finished(b)
    both, *alone = report.match(sides[0].runs, sides[1].runs)
    if not both:
        raise InputError(
            f"{a} and {b} have no method at the same setting in common: "
            f"{_places_text(alone[0], 3)} against {_places_text(alone[1], 3)}"
        )
    chosen = _metrics(sides, metrics, every)
    compared = {name: report.compare_figure(both, name) for name in chosen}
    costs = {name: report.compare_figure(both, name) for name in report.COSTS}
    unmatched = zip("AB", alone, strict=True)
    notes = [*_notes(sides), *(f"only in {side}: {_places_text(only)}" for side, only in unmatched if only)]
    rows = [row for table in (compared | costs).values() for row in table]
    if form is Format.csv:
        print_text(report.as_csv(*report.compared_in_full(rows)))
    else:
        names = f"A: {a}, B: {b}"
        tables = [report.metric_table(table, names) for table in compared.values() if table]
        print_layouts(form, [*tables, report.cost_table(costs, names)])
    for note in notes:
        (print_line if form is None else print_status)(note)
    return _listed([f"{_place(row.run)}: {row.figure}" for row in rows if row.differs])


def print_layouts(form: Format | None, tables: Sequence[Layout]) -> None:
    """Print tables in a format for documents or programs, or else on the console."""
    if form is not None:
        write = report.as_latex if form is Format.latex else report.as_markdown
        texts = [report.as_csv(table.headings, table.rows) if form is Format.csv else write(table) for table in tables]
        print_text("\n".join(texts))
        return
    for table in tables:
        print_line(f"\n{table.title}")
        print_table(report.for_terminal(table))


def _metrics(sides: Sequence[Finished], named: Sequence[str], every: bool) -> list[str]:
    wanted = next((side.experiment.report.metric for side in sides if side.experiment.report.metric), None)
    leading, others = report.metric_names(summarise(run for side in sides for run in side.runs), wanted)
    allowed = [*leading, *others, *(name for name, metric in METRICS.items() if metric.counted)]
    if unknown := [name for name in named if name not in allowed]:
        raise InputError(f"metric = {unknown[0]!r}, but no run has it (allowed: {', '.join(allowed)})")
    chosen = [*leading, *others] if every else named or leading
    return list(dict.fromkeys([*named, *chosen]))


def _notes(sides: Sequence[Finished]) -> Iterator[str]:
    named = [side.experiment.name for side in sides]
    if named[0] != named[1]:
        yield f"different experiments, {named[0]} and {named[1]}: only common methods and settings are compared"
    methods = set.intersection(*({run.name for run in side.runs} for side in sides))
    a, b = (by_path(_deciding(side.experiment.table, methods)) for side in sides)
    if differing := [key for key in {**a, **b} if a.get(key) != b.get(key)]:
        changes = {key: f"{key} {a.get(key, '–')} → {b.get(key, '–')}" for key in differing}
        short = [text if len(text) <= MOST_CHANGE_CHARACTERS else key for key, text in changes.items()]
        yield f"configuration, A → B: {_listed(short)}"
    for letter, side in zip("AB", sides, strict=True):
        if side.missing:
            yield f"{letter}: {not_finished(side.missing)}"


def _places_text(settings: Sequence[list[Run]], most: int = MOST_LISTED) -> str:
    return _listed([_place(runs[0]) for runs in settings], most)


def _place(run: Run) -> str:
    return f"{run.name} at {setting(run.point)}" if run.point else run.name


def _listed(texts: Sequence[str], most: int = MOST_LISTED) -> str:
    return f"{'; '.join(texts[:most])}{and_more(len(texts) - most)}"


def _deciding(table: Mapping[str, Any], methods: Set[str]) -> dict[str, Any]:
    """Return the parts of a configuration that decide some methods' runs. Methods are keyed by name."""
    named = {
        kind: {method["name"]: method for method in table.get(kind, []) if method["name"] in methods}
        for kind in ("strategy", "baseline")
    }
    return {key: value for key, value in table.items() if key not in ("name", *PRESENTATION_SECTIONS)} | named
