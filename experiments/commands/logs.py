"""What commands that last long write of themselves: sentences or, where it is asked for, a JSON object in each line."""

import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import typer

from experiments.commands.console import Unheard, messages
from fedkernel.ground import InputError, one_line

LogJSON = Annotated[
    bool, typer.Option("--log-json", help="Write what is told as lines of JSON: time, level, logger, event, ...")
]

FIELDS = ("run", "round", "phase", "site", "code")
"""Attributes of a record that its line of JSON has, where the record has them."""


class JSONLines(logging.Formatter):
    """Makes a JSON object of a record, in one line.

    Parameters
    ----------
    always : mapping of str to str, optional
        Fields of every line, such as the site whose log it is.
    """

    def __init__(self, always: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__()
        self._always = always

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {"time": time.replace("+00:00", "Z"), "level": record.levelname.lower()}
        line |= {"logger": record.name, "event": one_line(record.getMessage()), **self._always}
        line |= {name: value for name in FIELDS if (value := getattr(record, name, None)) is not None}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class Sentences(Unheard):
    """Prints records as `say` does, beside a progress bar if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        try:
            messages.print(one_line(self.format(record)), highlight=False, markup=False, soft_wrap=True)
        except (Exception, SystemExit):  # which rich raises where nobody reads: whoever logs goes on
            self.handleError(record)


class Lines(Unheard):
    """Writes records to `sys.stderr` as it is then: another while descriptor 2 leads to whoever writes them.

    See `fedkernel.engines.grpc.handshakes`.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


class LogFile(Unheard, logging.FileHandler):
    """Writes records to a file that only its owner can read, whose disk may be full."""

    def _open(self) -> TextIOWrapper:
        from fedkernel.ground import owner_only  # noqa: PLC0415 - imports NumPy, which the help does not wait for

        return open(self.baseFilename, "a", encoding=self.encoding, errors=self.errors, opener=owner_only)


@contextmanager
def server_log(as_json: bool) -> Iterator[None]:
    """Log what any part of fedkernel tells of a server to standard error, and what the command itself says there."""
    handler = Lines() if as_json else Sentences()
    with _logging([handler], JSONLines() if as_json else None):
        yield


@contextmanager
def site_log(path: Path | None, name: str, as_json: bool) -> Iterator[Callable[[str], None]]:
    """Log what any part of fedkernel tells of a site: to standard error, and to a file if one is named.

    Yields
    ------
    callable
        Tells a sentence to both.
    """
    handlers: list[logging.Handler] = [Lines()]
    if path is not None:
        try:
            handlers.append(LogFile(path, encoding="utf-8", errors="backslashreplace"))
        except OSError as error:
            raise InputError(f"log = {path} cannot be written: {error.strerror}") from None
    sentences = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    with _logging(handlers, JSONLines({"site": name}) if as_json else sentences) as logger:
        yield lambda text: logger.info("%s", one_line(text))


@contextmanager
def _logging(handlers: Sequence[logging.Handler], formatter: logging.Formatter | None) -> Iterator[logging.Logger]:
    """Have handlers, from INFO on, for as long as this lasts."""
    logger = logging.getLogger("fedkernel")
    for handler in handlers:
        handler.setLevel(logging.INFO)
        handler.setFormatter(formatter)
        logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.INFO)
    try:
        yield logger
    finally:
        logger.setLevel(level)
        for handler in handlers:
            logger.removeHandler(handler)
            handler.close()
