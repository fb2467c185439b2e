"""The command `fedkernel`."""

import signal
import sys
from enum import StrEnum
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from experiments.baselines import BASELINES
from experiments.commands import advise, applying, checking, joining, machines, outbox, policy, show, study, tables
from experiments.commands.collection import is_collection, report_folder, run_folder
from experiments.commands.console import (
    FAILED,
    Follow,
    end,
    errors,
    follow_failures,
    output,
    progress,
    say,
    show_results,
)
from experiments.commands.console import show as print_table
from experiments.commands.forecast import read_shape, show_forecast
from experiments.commands.group import Group
from experiments.commands.new_pair import write_pair
from experiments.commands.tables import open_finished, print_summaries
from experiments.config import read_config
from experiments.report import Format
from experiments.running import MLflowTracking, conclude, run_experiment
from fedkernel.addresses import find, find_function, names
from fedkernel.data import available
from fedkernel.engines import ENGINES, superlink
from fedkernel.errors import InputError
from fedkernel.models import METRICS, metric_of
from fedkernel.numerics import WIDTHS, Kernel
from fedkernel.strategy import KernelStrategy

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Federated kernel PCA and kernel k-means on Flower: run the papers' methods, compared on the same data.",
)


class Kind(StrEnum):
    """What `fedkernel list` can list."""

    strategies = "strategies"
    baselines = "baselines"
    kernels = "kernels"
    datasets = "datasets"
    metrics = "metrics"
    engines = "engines"


class Tracker(StrEnum):
    """Where finished runs can be shown besides the output folder."""

    mlflow = "mlflow"


HEADINGS = {Kind.datasets: ("name", "kind", "shape", "note"), Kind.metrics: ("name", "better", "unit", "what it is")}


@app.callback(invoke_without_command=True)
def _root(show_version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if show_version:
        output.print(version("fedkernel"), highlight=False)
        raise typer.Exit


@app.command()
def run(  # noqa: PLR0917 - one option each
    config: Annotated[
        Path,
        typer.Argument(
            help="The experiment, a TOML file such as experiments/quickstart.toml; with --all a folder of such."
        ),
    ],
    engine: Annotated[
        str | None, typer.Option(help=f"Where it runs: {' or '.join(ENGINES)}; by default what the file says.")
    ] = None,
    connection: Annotated[
        str | None, typer.Option(metavar="NAME", help="Engine superlink: which one of Flower's configuration.")
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a value, e.g. partition.clients=10.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Output folder; by default runs/NAME, or runs/NAME-ENGINE if not local.")
    ] = None,
    restart: Annotated[bool, typer.Option(help="Throw away what the output folder holds of an experiment.")] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Run every experiment of the folder CONFIG, side by side, into one report.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="With --all: how many at a time; by default as there are processors.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A rehearsal of seconds, as the file's table \\[quick] says.")
    ] = False,
    track: Annotated[
        Tracker | None, typer.Option(help="Show each finished run there, too: mlflow, an extra to be installed.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what it would take, and run nothing.")] = False,
    shape: Annotated[
        str | None,
        typer.Option(metavar="ROWSxCOLUMNS", help="With --dry-run: of a table that a site holds."),
    ] = None,
    debug: Annotated[bool, typer.Option(help="Show tracebacks.")] = False,
) -> None:
    """Run an experiment, or what is left of it, and print and write its report."""
    with errors(debug):
        changes = [*(overrides or []), *([f"engine={engine}"] if engine else [])]
        if every != config.is_dir():
            raise InputError(
                f"{config} is {'no' if every else 'a'} folder; allowed: a folder with --all, a file without it"
            )
        if every and (dry_run or connection is not None or track is not None):
            raise InputError("--all takes no --dry-run, --connection or --track; allowed: these with one experiment")
        if jobs is not None and not every:
            raise InputError(
                f"--jobs {jobs} is how many experiments run at a time; allowed: with --all and a folder of such"
            )
        if every:
            name = f"{config.resolve().name}{'-quick' if quick else ''}"
            run_folder(config, out or Path("runs") / name, changes, quick=quick, restart=restart, jobs=jobs)
            return
        experiment = read_config(config, changes, quick=quick)
        if dry_run:
            show_forecast(experiment, None if shape is None else read_shape(shape))
            return
        if connection is not None and experiment.engine != "superlink":
            raise InputError(f"connection = {connection!r}, but engine {experiment.engine} has none, only superlink")
        carry = partial(superlink.run_job, connection=connection) if connection is not None else None
        suffix = "" if experiment.engine == "local" else f"-{experiment.engine}"
        folder = out or Path("runs") / f"{experiment.name}{suffix}{'-quick' if quick else ''}"
        tracking = MLflowTracking(experiment, folder) if track is Tracker.mlflow else None
        with Follow(say, "fedkernel.run.journal"), follow_failures(debug), progress() as tell:
            outcome = run_experiment(experiment, folder, restart=restart, progress=tell, engine=carry, track=tracking)
        show_results(experiment, outcome, folder)
        if tracking is not None and tracking.failure is not None:
            say(f"error: not all runs are in MLflow, where the same command goes on: {tracking.failure}")
            raise typer.Exit(FAILED)
        end(outcome, debug)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Output folder of an experiment.")],
    form: Annotated[
        Format | None,
        typer.Option("--format", help="Print the table so, and write nothing: csv has every figure in full."),
    ] = None,
    debug: Annotated[bool, typer.Option(help="Show tracebacks.")] = False,
) -> None:
    """Print an experiment's table again and rewrite its plots and report.html from runs.jsonl.

    Of an experiment of which runs have failed, or which goes on, it reports those that are finished, and names the
    others. With --format the table alone is on standard output, for a document or another program.
    """
    with errors(debug):
        if is_collection(folder):
            report_folder(folder, form)
            return
        finished = open_finished(folder)
        if form is not None:
            print_summaries(finished, form)
            return
        show_results(finished.experiment, conclude(finished.experiment, finished.runs, folder), folder)


app.command()(tables.compare)


@app.command()
def new(
    pair: Annotated[str, typer.Argument(metavar="PAIR", help="The strategy's class, such as MyPCA.")],
    out: Annotated[Path, typer.Option(help="Folder.")] = Path(),
    flower: Annotated[bool, typer.Option("--app", help="Make it a Flower app, for flwr run.")] = False,
    debug: Annotated[bool, typer.Option(help="Show tracebacks.")] = False,
) -> None:
    """Write a pair of your own to start from: client, strategy, test and experiment."""
    with errors(debug):
        for path in write_pair(pair, out, app=flower):
            output.print(path, highlight=False, markup=False, soft_wrap=True)


app.command(name="advise")(advise.advise_command)
app.command()(checking.check)
app.command()(applying.predict)
app.command()(applying.transform)
app.command()(machines.certs)
app.command()(machines.identity)
app.command()(machines.serve)
app.command()(joining.join)
app.command()(show.show)
app.add_typer(study.app, name="study")
app.add_typer(policy.app, name="policy")
app.add_typer(outbox.app, name="outbox")


@app.command(name="list")
def list_(
    kind: Annotated[Kind, typer.Argument(help="What to list.")],
    debug: Annotated[bool, typer.Option(help="Show tracebacks.")] = False,
) -> None:
    """List what a configuration can name."""
    with errors(debug):
        table = Table(box=None, pad_edge=False)
        for heading in HEADINGS.get(kind, ("name", "what it is")):
            table.add_column(heading, overflow="fold", no_wrap=heading == "name")
        for line in _lines(kind):
            table.add_row(*map(Text, line))
        print_table(table)


def _lines(kind: Kind) -> list[tuple[str, ...]]:
    if kind is Kind.datasets:
        shapes = [(data, "" if data.shape is None else " x ".join(map(str, data.shape))) for data in available()]
        return [(data.name, data.kind, shape, data.note) for data, shape in shapes]
    if kind is Kind.metrics:
        functions = {name: find_function(name, "metrics", "metric") for name in names("metrics")}
        metrics = [*METRICS.values(), *map(metric_of, functions)]
        return [
            (metric.name, metric.better or "", metric.unit, metric.meaning or _first_line(functions[metric.name]))
            for metric in metrics
        ]
    if kind is Kind.baselines:
        return list(BASELINES.items())
    if kind is Kind.engines:
        return [
            (name, (sys.modules[run_job.__module__].__doc__ or "").splitlines()[0]) for name, run_job in ENGINES.items()
        ]
    if kind is Kind.kernels:
        widths = f'; width = "{"|".join(WIDTHS)}", perhaps times factor'
        sentences = {name: _first_line(find(name, Kernel, "kernels", "kernel")) for name in names("kernels")}
        return [(name, text + (widths if name in ("rbf", "laplacian") else "")) for name, text in sentences.items()]
    pairs = {name: find(name, KernelStrategy, "pairs", "strategy") for name in names("pairs")}
    return [(name, f"{_first_line(kind)} ({kind.partition} data)") for name, kind in pairs.items()]


def _first_line(cls: Any) -> str:
    return str(cls.__doc__ or cls.__name__).strip().splitlines()[0].removesuffix(".").replace("``", "")


def main() -> None:
    """Run the command line; what stands in this folder can be named by its address, after all that is installed."""
    sys.path.append(str(Path.cwd()))
    # An engine ends the processes it started on its way out, which the default action would not give it.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(app())


if __name__ == "__main__":
    main()
