"""What happens in a run, as records of a log: for lines that people read, lines of JSON, and counters.

What a record is about stands in its attribute `happened`, and what is known of that in attributes of its own: names of
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
"""What records know: `rounds` by the method's forecast, None where it has none, and what these mean (see
`fedkernel.protocol.forecast.MEANINGS`); of a round the members that were `asked`; whether its replies were
`replayed` from a journal; of what was refused its `cause`, one of few words."""


def log_event(happened: Happened, text: str, *values: object, level: int = logging.DEBUG, **known: Any) -> None:
    """Write a record of what happened; one that nobody else tells of has a `level` that people read."""
    if log.isEnabledFor(level):
        log.log(level, text, *values, extra={"happened": happened, **known})


class Observer(logging.Handler):
    """Told what happens as long as it is entered: a subclass has a method for each that it cares for.

    That of a ``"round over"`` is ``round_over(record)``.
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
        """Hand a record to whom it may concern."""
        name = getattr(record, "happened", "").replace(" ", "_")
        if name and (heed := getattr(self, name, None)) is not None:
            try:
                heed(record)
            except Exception:  # whoever observes a run must not end it
                self.handleError(record)
