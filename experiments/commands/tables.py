"""Tables of finished experiments on standard output, where nothing else stands then: for documents and programs."""

from collections.abc import Sequence

import typer

from experiments.commands.console import not_finished, say
from experiments.config import Experiment
from experiments.report import Format, Layout, as_csv, as_latex, as_markdown, in_full, lay_out
from experiments.results import Run, in_order, summarise
from experiments.running import unfinished


def print_summaries(experiment: Experiment, runs: Sequence[Run], form: Format) -> None:
    """Print what the console's table says, or as csv all figures in full; runs that lack are named elsewhere."""
    summaries = summarise(in_order(runs))
    if form is Format.csv:
        typer.echo(as_csv(*in_full(summaries)), nl=False)
    else:
        print_layouts(form, [lay_out(summaries, experiment.report.metric)])
    if missing := unfinished(experiment, runs):
        say(not_finished(missing))


def print_layouts(form: Format, tables: Sequence[Layout]) -> None:
    """Print tables for a document."""
    writers = {
        Format.csv: lambda table: as_csv(table.headings, table.rows),
        Format.latex: as_latex,
        Format.markdown: as_markdown,
    }
    typer.echo("\n".join(map(writers[form], tables)), nl=False)
