"""Progress of a run: state and remaining time, as lines of text or for a progress bar."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fedkernel.ground import format_duration
from fedkernel.run.events import Observer

REPORT_SECONDS = 30.0
"""Seconds after which a line is due."""


@dataclass
class _RunState:
    """State of the run under way.

    - `rounds`, `meaning`: forecast total and its exactness, see `fedkernel.run.events`.
    - `waiting`: the nodes that have not answered in the round under way.
    - `round_start`: start of that round, on the clock `time.monotonic`.
    - `seconds_so_far`, `rounds_so_far`: seconds and number of the finished rounds, without replayed ones.
    - `phases`: phases that were reported.
    """

    run: str
    rounds: int | None = None
    meaning: str = ""
    round: int = 0
    phase: str = ""
    sites: int = 0
    waiting: dict[int, str] = field(default_factory=dict)
    round_start: float = 0.0
    seconds_so_far: float = 0.0
    rounds_so_far: int = 0
    phases: set[str] = field(default_factory=set)

    @property
    def text(self) -> str:
        """State of the run in words."""
        total = self.rounds if self.rounds is not None and self.round <= self.rounds else None
        meaning = "" if self.meaning in ("", "exact") else f"{self.meaning} "
        of = "" if total is None else f" of {meaning}{total}"
        words = [f"phase {self.phase}, round {self.round}{of}"]
        words.append(f"{self.sites - len(self.waiting)} of {self.sites} sites answered")
        if self.waiting and len(self.waiting) < self.sites:
            words.append(f"waiting for {', '.join(list(self.waiting.values())[:3])}{', ...' * (len(self.waiting) > 3)}")
        if total is not None and self.rounds_so_far and (self.waiting or self.round < total):
            each = self.seconds_so_far / self.rounds_so_far
            since = time.monotonic() - self.round_start if self.waiting else each
            left = max(0.0, each * (total - self.round + 1) - since)
            words.append(f"about {format_duration(left)} left{' at most' * (self.meaning == 'at most')}")
        return ", ".join(words)


class ProgressReporter(Observer):
    """Observer that passes a run's progress to `report_line`, as a text and the keywords run, round and phase.

    - `phases`: report each phase once, too, after its first round.
    - `show`: called instead, at each round, with the text of a progress bar.
    """

    def __init__(
        self, report_line: Callable[..., object], *, phases: bool = True, show: Callable[[str], object] | None = None
    ) -> None:
        super().__init__()
        self._report_line, self._phases, self._show = report_line, phases, show
        self._state: _RunState | None = None
        self._last_report = time.monotonic()
        self._exited = threading.Event()

    def __enter__(self) -> "ProgressReporter":
        super().__enter__()
        threading.Thread(target=self._report_regularly, name="watching", daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._exited.set()
        super().__exit__(*exception)

    def run_begun(self, record: logging.LogRecord) -> None:
        """Reset the state for a new run."""
        fields = vars(record)
        self._state = _RunState(fields["run"], fields["rounds"], fields["meaning"])
        self._last_report = time.monotonic()

    def round_begun(self, record: logging.LogRecord) -> None:
        """Record the nodes that a round waits for."""
        at, fields = self._state_of(record), vars(record)
        at.round, at.phase, at.round_start = fields["round"], fields["phase"], time.monotonic()
        at.waiting = {member.node_id: member.site or member.label for member in fields["asked"]}
        at.sites = len(at.waiting)
        if self._show is not None:
            self._show(f"{at.run}: {at.text}")

    def reply_came(self, record: logging.LogRecord) -> None:
        """Remove the answering node from the nodes that the progress line waits for."""
        if self._state is not None:
            self._state.waiting.pop(vars(record)["node"], None)

    def round_over(self, record: logging.LogRecord) -> None:
        """Record a round's seconds, and report the first round of a phase."""
        at, fields = self._state_of(record), vars(record)
        at.waiting = {}
        if not fields["replayed"]:
            at.seconds_so_far, at.rounds_so_far = at.seconds_so_far + fields["seconds"], at.rounds_so_far + 1
        if at.phase not in at.phases:
            at.phases.add(at.phase)
            if self._phases and self._show is None:
                self._report(at)

    def run_over(self, record: logging.LogRecord) -> None:
        """Clear the state at the end of a run."""
        self._state = None

    def _state_of(self, record: logging.LogRecord) -> _RunState:
        run: str = vars(record)["run"]
        if self._state is None or self._state.run != run:
            self._state = _RunState(run)
        return self._state

    def _report(self, at: _RunState) -> None:
        self._last_report = time.monotonic()
        self._report_line(f"run {at.run}: {at.text}", run=at.run, round=at.round, phase=at.phase)

    def _report_regularly(self) -> None:
        """Report the state whenever no line has come for `REPORT_SECONDS` seconds."""
        while not self._exited.wait(max(0.05, self._last_report + REPORT_SECONDS - time.monotonic())):
            if time.monotonic() - self._last_report < REPORT_SECONDS:
                continue
            self._last_report = time.monotonic()
            self.acquire()  # records are handled under the same lock
            try:
                if self._state is not None and self._state.waiting and self._show is None:
                    self._report(self._state)
            finally:
                self.release()


@contextmanager
def show_progress(show: Callable[[str], object] | None = None) -> Iterator[None]:
    """Show the state of runs while a block lasts: phase, round, sites that answered, time left.

    As in ``with fedkernel.show_progress(): strategy.fit(shards)``. `show`: a function that is called with the text as
    each round begins; None: a line on standard error, or below a notebook's cell, which goes at the end.
    """
    if show is not None:
        with ProgressReporter(print, show=show):
            yield
        return
    from rich.console import Console  # noqa: PLC0415 - takes 0.1 s

    with Console(stderr=True).status("no run has begun") as status, ProgressReporter(print, show=status.update):
        yield
