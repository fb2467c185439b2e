"""Log records for the events of a run, read by progress lines, JSON logs and counters.

A record has its event's name in the attribute `happened`, and the event's fields in attributes of their own: names of
runs, phases and sites, and figures, never data. They are, by event:

- run begun: run, rounds (the forecast; None: unknown), meaning (the forecast's kind). run over: run, failed
- round begun: run, round, phase, asked (the members that the requests go to). reply came: node
- round over: run, round, phase, seconds, bytes_up, bytes_down, replayed (whether its replies came from a journal)
- site here, site gone: site. refused: cause
"""

import logging
from typing import Any, Literal

log = logging.getLogger(__name__)

EventName = Literal[
    "run begun", "round begun", "reply came", "round over", "run over", "site here", "site gone", "refused"
]


def log_event(happened: EventName, text: str, *values: object, level: int = logging.DEBUG, **known: Any) -> None:
    """Log an event of a run, with its fields; `level` is above DEBUG for events without another log line."""
    if log.isEnabledFor(level):
        log.log(level, text, *values, extra={"happened": happened, **known})


class Observer(logging.Handler):
    """Log handler that calls a subclass's method for each event, such as ``round_over(record)``, within a context."""

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
        """Call the method for a record's event, if the subclass has one."""
        name = getattr(record, "happened", "").replace(" ", "_")
        if name and (handle := getattr(self, name, None)) is not None:
            try:
                handle(record)
            except Exception:  # an observer must not end the run
                self.handleError(record)
