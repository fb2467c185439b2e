"""Events of a run as log records, for log lines, JSON lines and counters.

A record has its event's name in the attribute `happened`, and the event's fields in attributes of their own: names of
runs, phases and sites, and figures, never data.
"""

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

log = logging.getLogger(__name__)

Happened = Literal[
    "run begun", "round begun", "reply came", "round over", "run over", "site here", "site gone", "refused"
]
KNOWN: Mapping[Happened, tuple[str, ...]] = MappingProxyType(
    {
        "run begun": ("run", "rounds", "meaning"),
        "round begun": ("run", "round", "phase", "asked"),
        "reply came": ("node",),
        "round over": ("run", "round", "phase", "seconds", "bytes_up", "bytes_down", "replayed"),
        "run over": ("run", "failed"),
        "site here": ("site",),
        "site gone": ("site",),
        "refused": ("cause",),
    }
)
"""Fields of each event's records: `rounds` is the method's forecast, None without one, and `meaning` its kind.

`asked` are the members that a round addresses, `replayed` says that its replies came from a journal.
"""


def log_event(happened: Happened, text: str, *values: object, level: int = logging.DEBUG, **known: Any) -> None:
    """Log an event; a `level` above DEBUG is for events without any other log line."""
    if log.isEnabledFor(level):
        log.log(level, text, *values, extra={"happened": happened, **known})


class Observer(logging.Handler):
    """Log handler, active as a context manager, with a method for each event that a subclass handles.

    The method for ``"round over"`` is ``round_over(record)``.
    """

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)

    def __enter__(self) -> "Observer":
        self._level = log.level
        log.setLevel(logging.DEBUG)
        log.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        log.removeHandler(self)
        log.setLevel(self._level)

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a record to its event's method, if there is one."""
        name = getattr(record, "happened", "").replace(" ", "_")
        if name and (heed := getattr(self, name, None)) is not None:
            try:
                heed(record)
            except Exception:  # an observer must not end the run
                self.handleError(record)
