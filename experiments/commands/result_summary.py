"""What commands print of the outcome of an experiment."""

from collections.abc import Sequence
from pathlib import Path

import typer

from experiments.commands.console import FAILED, print_line, say, show
from experiments.config import Experiment
from experiments.report import console_table
from experiments.results import Failure, findings, recommendations, summarise
from experiments.running import Outcome
from fedkernel.ground import and_more, one_line


def show_results(experiment: Experiment, outcome: Outcome, folder: Path) -> None:
    """Print an experiment's table, which runs it lacks and why, whether its claims hold, and where the report is."""
    show(console_table(summarise(outcome.rows), experiment.report.metric))
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
    """Say which runs an experiment lacks."""
    return f"not finished, and in no figure: {', '.join(missing[:10])}{and_more(len(missing) - 10)}"


def has_failed(failure: Failure) -> str:
    """Say that a run has failed, and why."""
    return f"failed, and in no figure: {failure.id}, {failure.tries}: {one_line(failure.cause)}"


def end(outcome: Outcome, debug: bool) -> None:
    """End a command by which runs have failed, if any have, with one sentence."""
    if outcome.failed:
        again = f"the same command tries {'it' if len(outcome.failed) == 1 else 'them'} again"
        say(f"error: {outcome.summary}; {again}{'' if debug else '; --debug shows tracebacks'}")
        raise typer.Exit(FAILED)
