"""What commands print of the outcome of an experiment."""

from collections.abc import Sequence
from pathlib import Path

import typer

from experiments.commands.console import FAILED, output, say, show
from experiments.config import Experiment
from experiments.report import console_table
from experiments.results import Failure, findings, recommendations, summarise
from experiments.running import Outcome
from fedkernel.errors import and_more, one_line


def show_results(experiment: Experiment, outcome: Outcome, folder: Path) -> None:
    """Print an experiment's table, which runs it lacks and why, whether its claims hold, and where the report is."""
    show(console_table(summarise(outcome.rows), experiment.report.metric))
    for failure in outcome.failed:
        output.print(has_failed(failure), highlight=False, markup=False, soft_wrap=True)
    if outcome.missing:
        output.print(not_finished(outcome.missing), highlight=False, markup=False, soft_wrap=True)
    for sentence in (*recommendations(outcome.rows), *findings(outcome.rows)):
        output.print(one_line(sentence), highlight=False, markup=False, soft_wrap=True)
    for claim in outcome.claims:
        line = f"{claim.verdict:20}{claim.text.rstrip('.')}: {claim.numbers}"
        output.print(" ".join(line.splitlines()), highlight=False, markup=False, soft_wrap=True)
    output.print(f"Report: {folder / 'report.html'}", highlight=False, markup=False, soft_wrap=True)


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
