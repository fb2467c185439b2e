"""Logs of long-running commands: sentences or, with ``--log-json``, a JSON object in each line."""

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

from typer import Option

from fedkernel import ground
from fedkernel.experiments.commands.console import PrintLog, SafeLogHandler, print_message
from fedkernel.ground import InputError, one_line

LogJSON = Annotated[bool, Option("--log-json", help="Write messages as lines of JSON.")]

FIELDS = ("run", "round", "phase", "site", "code")  # of a record, copied into its line of JSON if present


class JSONLines(logging.Formatter):
    """Formatter that writes a record as one line of JSON. `always`: fields of every line, such as the log's site."""

    def __init__(self, always: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__()
        self._always = always

    def format(self, record: logging.LogRecord) -> str:
        """Return a record's line, without its end."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {"time": time.replace("+00:00", "Z"), "level": record.levelname.lower()}
        line |= {"logger": record.name, "event": one_line(record.getMessage()), **self._always}
        line |= {name: value for name in FIELDS if (value := getattr(record, name, None)) is not None}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class Lines(SafeLogHandler):
    """Handler that writes to the current `sys.stderr`. `grpc.handshakes` replaces it while redirecting descriptor 2."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


class LogFile(SafeLogHandler, logging.FileHandler):
    """Handler that writes records to a file readable by its owner only. A full disk does not end the program."""

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding=self.encoding, errors=self.errors, opener=ground.open_for_owner)


@contextmanager
def server_log(as_json: bool) -> Iterator[None]:
    """Log a server's records and messages to standard error."""
    handler = Lines() if as_json else PrintLog(print_message, "fedkernel")
    with _logging([handler], JSONLines() if as_json else None):
        yield


@contextmanager
def site_log(path: Path | None, name: str, as_json: bool) -> Iterator[Callable[[str], None]]:
    """Log a site's records to standard error and, with a path, to a file. Yields a callable that logs a sentence."""
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
    """Attach handlers at level INFO to fedkernel's logger within the context."""
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
