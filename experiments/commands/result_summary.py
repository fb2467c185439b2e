"""Console summary of an experiment's outcome."""

from collections.abc import Sequence
from pathlib import Path

import typer

from experiments.commands.console import FAILED, print_line, print_status, print_table
from experiments.config import Experiment
from experiments.report import console_table
from experiments.results import Failure, findings, recommendations, summarise
from experiments.running import Outcome
from fedkernel.ground import and_more, one_line


def show_results(experiment: Experiment, outcome: Outcome, folder: Path) -> None:
    """Print an experiment's table, missing and failed runs, findings, claims, and the report's path."""
    print_table(console_table(summarise(outcome.rows), experiment.report.metric))
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
        print_status(f"error: {outcome.summary}; {again}{'' if debug else '; --debug shows tracebacks'}")
        raise typer.Exit(FAILED)
