"""The command `fedkernel`."""

import json
import logging
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from experiments.baselines import BASELINES
from experiments.claims import check_claims
from experiments.config import Experiment, read_config
from experiments.report import console_table, summarise, write_report
from experiments.rows import Run, in_order, read_runs
from experiments.runner import environment, run_experiment
from fedkernel.data import available
from fedkernel.engines import ENGINES
from fedkernel.errors import FedkernelError, InputError, ProtocolError
from fedkernel.kernels import KERNELS
from fedkernel.metrics import METRICS
from fedkernel.widths import WIDTHS
from strategies import REGISTRY

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Federated kernel PCA and kernel k-means on Flower: run the papers' methods, compared on the same data.",
)
output = Console()
messages = Console(stderr=True)

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130
"""Exit codes: something the user gave is not allowed; a run or an engine failed; the user stopped it."""


PIPE_WIDTH = 240
"""Columns where the output is no terminal: enough that no line of a table is broken or cut."""


class Kind(StrEnum):
    """What `fedkernel list` can list."""

    strategies = "strategies"
    baselines = "baselines"
    kernels = "kernels"
    datasets = "datasets"
    metrics = "metrics"
    engines = "engines"


@app.callback(invoke_without_command=True)
def _root(show_version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if show_version:
        output.print(version("fedkernel"), highlight=False)
        raise typer.Exit


@app.command()
def run(  # noqa: PLR0917 - one option each
    config: Annotated[Path, typer.Argument(help="The experiment, a TOML file such as experiments/quickstart.toml.")],
    engine: Annotated[
        str | None, typer.Option(help=f"Where it runs: {' or '.join(ENGINES)}; by default what the file says.")
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a value, e.g. partition.clients=10.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Output folder; by default runs/NAME, or runs/NAME-ENGINE if not local.")
    ] = None,
    restart: Annotated[bool, typer.Option(help="Throw away what the output folder holds of an experiment.")] = False,
    debug: Annotated[bool, typer.Option(help="Show tracebacks.")] = False,
) -> None:
    """Run an experiment, or what is left of it, and print and write its report."""
    with _errors(debug):
        table, text = read_config(config, [*(overrides or []), *([f"engine={engine}"] if engine else [])])
        experiment = Experiment.from_table(table, str(config))
        suffix = "" if experiment.engine == "local" else f"-{experiment.engine}"
        folder = out or Path("runs") / f"{experiment.name}{suffix}"
        told = TextColumn("{task.description}")
        columns = (SpinnerColumn(), told, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=messages, transient=True, disable=not messages.is_terminal) as bar:
            task = bar.add_task("checking", total=None)

            def tell(name: str, done: int, total: int) -> None:
                bar.update(task, description=name, completed=done, total=total)

            with _Follow(lambda told: bar.update(task, description=told)):
                rows = run_experiment(table, text, folder, source=str(config), restart=restart, progress=tell)
        _show_results(experiment, rows)
        _tell_report(folder)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Output folder of an experiment.")],
    debug: Annotated[bool, typer.Option(help="Show tracebacks.")] = False,
) -> None:
    """Print an experiment's table again and rewrite its plots and report.html from runs.jsonl."""
    with _errors(debug):
        rows = in_order(read_runs(folder / "runs.jsonl"))
        if not rows:
            raise InputError(f"{folder} holds no finished runs of an experiment (runs.jsonl)")
        try:
            text = (folder / "config.toml").read_text(encoding="utf-8")
            table = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{folder} lacks the experiment's configuration: {error}") from None
        told = Experiment.from_table(table, str(folder / "config.json"))
        claims = check_claims(told.claim, rows, told.due)
        title, options = told.title or told.name, told.report
        write_report(folder, title, text, rows, claims=claims, environment=environment(), options=options)
        _show_results(told, rows)
        _tell_report(folder)


@app.command(name="list")
def list_(
    kind: Annotated[Kind, typer.Argument(help="What to list.")],
    debug: Annotated[bool, typer.Option(help="Show tracebacks.")] = False,
) -> None:
    """List what a configuration can name."""
    with _errors(debug):
        table = Table(box=None, pad_edge=False)
        for heading in ("name", "what it is") if kind is not Kind.datasets else ("name", "kind", "shape", "note"):
            table.add_column(heading, overflow="fold", no_wrap=heading == "name")
        for line in _lines(kind):
            table.add_row(*map(Text, line))
        _show(table)


def _lines(kind: Kind) -> list[tuple[str, ...]]:
    if kind is Kind.datasets:
        shapes = [(one, "" if one.shape is None else " x ".join(map(str, one.shape))) for one in available()]
        return [(one.name, one.kind, shape, one.note) for one, shape in shapes]
    if kind is Kind.metrics:
        return list(METRICS.items())
    if kind is Kind.baselines:
        return list(BASELINES.items())
    if kind is Kind.engines:
        return [(name, (sys.modules[made.__module__].__doc__ or "").splitlines()[0]) for name, made in ENGINES.items()]
    if kind is Kind.kernels:
        widths = f'; width = "{"|".join(WIDTHS)}", perhaps times factor'
        told = {name: _first_line(kernel) for name, kernel in KERNELS.items()}
        return [(name, text + (widths if name in ("rbf", "laplacian") else "")) for name, text in told.items()]
    return [(name, f"{_first_line(made)} ({made.partition} data)") for name, made in REGISTRY.items()]


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").strip().splitlines()[0].removesuffix(".").replace("``", "")


class _Follow(logging.Handler):
    """Tell each finished round of a run in this process: a long one would look like one that hangs."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        super().__init__(logging.INFO)
        self._tell = tell
        self._logger = logging.getLogger("fedkernel.conversation")
        self._level = self._logger.level

    def __enter__(self) -> None:
        self._logger.setLevel(logging.INFO)
        self._logger.addHandler(self)

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._level)

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(record.getMessage())


class _errors:  # noqa: N801 - reads as a statement
    """Turn what a user can mend into one line on standard error and an exit code."""

    def __init__(self, debug: bool) -> None:
        self._debug = debug
        self._quiet = logging.NullHandler()

    def __enter__(self) -> None:
        if not self._debug:  # a simulated site's log would put its traceback here
            logging.getLogger("fedkernel.site").addHandler(self._quiet)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        logging.getLogger("fedkernel.site").removeHandler(self._quiet)
        if error is None or isinstance(error, typer.Exit | SystemExit):
            return
        if self._debug and not isinstance(error, KeyboardInterrupt):
            traceback.print_exception(error)
        if isinstance(error, KeyboardInterrupt):
            _say("interrupted; the same command (without --restart) goes on where it stopped")
            raise typer.Exit(INTERRUPTED) from None
        if isinstance(error, FedkernelError):
            shows = isinstance(error, ProtocolError) and not self._debug
            _say(f"error: {error}{'; --debug shows the log' if shows else ''}")
            raise typer.Exit(BAD_INPUT if isinstance(error, InputError) else FAILED) from None
        if isinstance(error, OSError) and error.strerror:
            _say(f"error: {f'{error.filename}: ' if error.filename else ''}{error.strerror}")
        else:
            hint = "" if self._debug else "; --debug shows where"
            _say(f"error: {type(error).__name__}: {error} (this is a defect{hint})")
        raise typer.Exit(FAILED) from None


def _show(table: Table) -> None:
    if not output.is_terminal:
        output.width = PIPE_WIDTH
    output.print(table)


def _show_results(experiment: Experiment, rows: Sequence[Run]) -> None:
    _show(console_table(summarise(rows), experiment.report.metric))
    for claim in check_claims(experiment.claim, rows, experiment.due):
        line = f"{claim.verdict:15}{claim.text.rstrip('.')}: {claim.numbers}"
        output.print(" ".join(line.splitlines()), highlight=False, markup=False, soft_wrap=True)


def _tell_report(folder: Path) -> None:
    output.print(f"Report: {folder / 'report.html'}", highlight=False, markup=False, soft_wrap=True)


def _say(text: str) -> None:
    # one line, whatever a library put into its own text
    messages.print(" ".join(text.splitlines()), highlight=False, markup=False, soft_wrap=True)


def main() -> None:
    """Run the command line."""
    # An engine ends the processes it started on its way out, which the default action would not give it.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(app())


if __name__ == "__main__":
    main()
