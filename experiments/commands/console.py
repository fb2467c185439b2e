"""Console of all commands: output, errors, exit codes, and progress of long work."""

import functools
import inspect
import logging
import math
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text
from typer import Option

from fedkernel import ground
from fedkernel.experiments.commands.command_group import Group
from fedkernel.ground import FedkernelError, InputError, ProtocolError, one_line
from fedkernel.run import ProgressReporter

log = logging.getLogger("fedkernel.command")

Debug = Annotated[bool, Option(help="Show tracebacks.")]

BAD_INPUT, FAILED, INTERRUPTED, UNREAD = 2, 1, 130, 141
"""Exit codes: invalid input by the user; a failed run or engine; an interruption; output that nobody reads any more."""


class _Output(Console):
    """Standard output. Once its reader, such as `head`, has ended, it ends the command quietly."""

    def on_broken_pipe(self) -> None:
        """Exit with the code of a program that SIGPIPE has ended."""
        with suppress(SystemExit):
            super().on_broken_pipe()
        raise SystemExit(UNREAD)


output, messages = _Output(), Console(stderr=True)

PIPE_WIDTH = 240  # columns of output that is no terminal: enough for unbroken lines of a table


def print_line(text: object) -> None:
    """Print a text on standard output unbroken, without markup or highlighting."""
    output.print(text, highlight=False, markup=False, emoji=False, soft_wrap=True)


def print_text(text: str) -> None:
    """Print a text on standard output as it is, of any number of lines."""
    try:
        typer.echo(text, nl=False)
    except BrokenPipeError:
        output.on_broken_pipe()


def print_table(table: Table) -> None:
    """Print a table on standard output, unbroken if that is not a terminal."""
    if not output.is_terminal:
        output.width = PIPE_WIDTH
    output.print(table)


def print_rows(headings: Sequence[str], rows: Iterable[Sequence[str | Text]], numbers: Sequence[str] = ()) -> None:
    """Print a table without lines; `numbers` are the headings of its last, right-aligned columns."""
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*(Text(one_line(cell)) if isinstance(cell, str) else cell for cell in row))
    print_table(table)


def write_file(path: Path, text: str) -> None:
    """Write text to a file, and print the path. If the file exists, a free name such as NAME-2 is taken."""
    print_status(f"wrote {ground.write_new(path, text.encode())}")


def print_message(text: str) -> None:
    """Print a text on standard error as one line, above a progress bar if there is one."""
    messages.print(one_line(text), highlight=False, markup=False, soft_wrap=True)


def print_status(text: str, level: int = logging.INFO, **fields: Any) -> None:
    """Print a message as one line on standard error. If the command has a log, log it there with `fields` instead."""
    if logging.getLogger("fedkernel").handlers:
        log.log(level, "%s", one_line(text), extra=fields)
    else:
        print_message(text)


def check_finite(seconds: float) -> float:
    """Return an option's number, or raise a typer error unless it is finite."""
    if not math.isfinite(seconds):
        raise typer.BadParameter(f"{seconds:g} is not finite.")
    return seconds


@contextmanager
def progress(*, phases: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """Show a progress bar on a terminal. Elsewhere, print the state every half minute and, with `phases`, each phase.

    Yields a callable that takes the name of a finished run, the number of finished runs, and the total.
    """
    description = TextColumn("{task.description}")
    columns = (SpinnerColumn(), description, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=messages, transient=True, disable=not messages.is_terminal) as bar:
        task = bar.add_task("checking", total=None)

        def report_line(name: str, done: int, total: int) -> None:
            bar.update(task, description=name, completed=done, total=total)

        show_text = (lambda text: bar.update(task, description=text)) if messages.is_terminal else None
        with ProgressReporter(print_status, phases=phases, show=show_text):
            yield report_line


class SafeLogHandler(logging.Handler):
    """Log handler that never raises, not even if standard error is closed."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Print the error on standard error, if possible."""
        with suppress(Exception):
            super().handleError(record)


class PrintLog(SafeLogHandler):
    """Context manager that prints each record of a logger."""

    def __init__(self, report_line: Callable[[str], object], log: str, *, tracebacks: bool = False) -> None:
        super().__init__(logging.INFO)
        self._report_line, self._tracebacks = report_line, tracebacks
        self._logger = logging.getLogger(log)
        self._level = self._logger.level

    def __enter__(self) -> None:
        self._logger.setLevel(logging.INFO)
        self._logger.addHandler(self)

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._level)

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record's text, with an error's traceback if wanted."""
        try:
            if self._tracebacks and record.exc_info and record.exc_info[1] is not None:
                traceback.print_exception(record.exc_info[1])
            self._report_line(record.getMessage())
        except (Exception, SystemExit):  # rich raises the latter at a closed pipe; the logging code goes on
            self.handleError(record)


def follow_failures(debug: bool) -> PrintLog:
    """Return a context manager that prints each failed run as soon as it fails."""
    return PrintLog(print_status, "fedkernel.experiments.running.execution", tracebacks=debug)


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command function with the option --debug. Its errors become one line and an exit code.

    A parameter whose type is a dataclass of options stands for one option for each of its fields.
    """
    own = inspect.signature(function, eval_str=True).parameters
    options = {option.name: option for option in _options_of(own.values())}
    debug = inspect.Parameter("debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Debug)

    @functools.wraps(function)
    def run(*, debug: bool, **values: Any) -> None:
        with report_errors(debug):
            function(**{name: _value_of(option, values | {"debug": debug}) for name, option in own.items()})

    options |= {"debug": debug}
    run.__signature__ = inspect.Signature(list(options.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: option.annotation for name, option in options.items()}
    return run


def _options_of(parameters: Iterable[inspect.Parameter]) -> Iterator[inspect.Parameter]:
    """Yield the parameters as keyword options, a dataclass as one option per field."""
    for parameter in parameters:
        if fields := _fields_of(parameter.annotation):
            yield from _options_of(fields.values())
        else:
            yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def _value_of(parameter: inspect.Parameter, values: Mapping[str, Any]) -> Any:
    """Return a parameter's value; for a dataclass, an instance with the values of its fields."""
    if not (fields := _fields_of(parameter.annotation)):
        return values[parameter.name]
    return parameter.annotation(**{name: _value_of(field, values) for name, field in fields.items()})


def _fields_of(kind: Any) -> Mapping[str, inspect.Parameter]:
    """Return the fields of a dataclass as parameters, or nothing for any other type."""
    make: Callable[..., Any] = kind
    return inspect.signature(make, eval_str=True).parameters if is_dataclass(kind) else {}


class CommandGroup(typer.Typer):
    """Group of commands under one name, each wrapped by `command`."""

    def __init__(self, text: str) -> None:
        super().__init__(cls=Group, no_args_is_help=True, help=text)

    def command(  # type: ignore[override] # what it adds is another function than it takes
        self, name: str | None = None, **settings: Any
    ) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Return a decorator that adds a function as a command."""
        add = super().command(name, **settings)
        return lambda function: add(command(function))


@contextmanager
def report_errors(debug: bool) -> Iterator[None]:
    """Turn errors into one line on standard error and an exit code."""
    site, quiet = logging.getLogger("fedkernel.site.site_setup"), logging.NullHandler()
    if not debug:  # a simulated site's log would put its traceback here
        site.addHandler(quiet)
    try:
        yield
    except KeyboardInterrupt:
        print_status("interrupted; the same command (without --restart) resumes the work")
        raise typer.Exit(INTERRUPTED) from None
    except typer.Exit:
        raise
    except Exception as error:
        if debug:
            traceback.print_exception(error)
        if isinstance(error, FedkernelError):
            shows = isinstance(error, ProtocolError) and not debug
            text = f"{error}{'; --debug shows the traceback' if shows else ''}"
        elif isinstance(error, OSError) and error.strerror:
            text = f"{f'{error.filename}: ' if error.filename else ''}{error.strerror}"
        else:
            hint = "" if debug else "; --debug shows where"
            text = f"{type(error).__name__}: {error} (this is a defect{hint})"
        print_status(f"error: {text}", logging.ERROR)
        raise typer.Exit(BAD_INPUT if isinstance(error, InputError) else FAILED) from None
    finally:
        site.removeHandler(quiet)
