"""Progress of a run: state and remaining time, as lines of text or for a progress bar."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from fedkernel.ground import format_duration
from fedkernel.run import Observer

EVERY = 30.0
"""Seconds after which a line is due."""


@dataclass
class _Standing:
    """State of a run.

    Attributes
    ----------
    rounds, meaning
        Forecast total and its exactness, see `fedkernel.run.events.KNOWN`.
    waiting : dict of int to str
        The nodes that have not answered in the round under way.
    begun : float
        Start of that round, on the clock `time.monotonic`.
    took, taken
        Seconds and number of the rounds before, without replayed ones.
    phases : set of str
        Phases that were reported.
    """

    run: str
    rounds: int | None = None
    meaning: str = ""
    round: int = 0
    phase: str = ""
    sites: int = 0
    waiting: dict[int, str] = field(default_factory=dict)
    begun: float = 0.0
    took: float = 0.0
    taken: int = 0
    phases: set[str] = field(default_factory=set)

    @property
    def text(self) -> str:
        """The state in words."""
        total = self.rounds if self.rounds is not None and self.round <= self.rounds else None
        meaning = "" if self.meaning in ("", "exact") else f"{self.meaning} "
        of = "" if total is None else f" of {meaning}{total}"
        words = [f"phase {self.phase}, round {self.round}{of}"]
        words.append(f"{self.sites - len(self.waiting)} of {self.sites} sites answered")
        if self.waiting and len(self.waiting) < self.sites:
            words.append(f"waiting for {', '.join(list(self.waiting.values())[:3])}{', ...' * (len(self.waiting) > 3)}")
        if total is not None and self.taken and (self.waiting or self.round < total):
            each = self.took / self.taken
            since = time.monotonic() - self.begun if self.waiting else each
            left = max(0.0, each * (total - self.round + 1) - since)
            words.append(f"about {format_duration(left)} left{' at most' * (self.meaning == 'at most')}")
        return ", ".join(words)


class Watch(Observer):
    """Observer that reports the state of this process's run.

    Parameters
    ----------
    tell : callable
        Called with a line and, by name, its run, round and phase.
    phases : bool
        Report each phase once, too, after its first round.
    show : callable, optional
        Called instead at each round with the text of a bar.
    """

    def __init__(
        self, tell: Callable[..., object], *, phases: bool = True, show: Callable[[str], object] | None = None
    ) -> None:
        super().__init__()
        self._tell, self._phases, self._show = tell, phases, show
        self._at: _Standing | None = None
        self._told = time.monotonic()
        self._ended = threading.Event()

    def __enter__(self) -> "Watch":
        super().__enter__()
        threading.Thread(target=self._beat, name="watching", daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        super().__exit__(*exception)

    def run_begun(self, record: logging.LogRecord) -> None:
        """Reset the state for a new run."""
        fields = vars(record)
        self._at = _Standing(fields["run"], fields["rounds"], fields["meaning"])
        self._told = time.monotonic()

    def round_begun(self, record: logging.LogRecord) -> None:
        """Record the nodes that a round waits for."""
        at, fields = self._of(record), vars(record)
        at.round, at.phase, at.begun = fields["round"], fields["phase"], time.monotonic()
        at.waiting = {member.node_id: member.site or member.label for member in fields["asked"]}
        at.sites = len(at.waiting)
        if self._show is not None:
            self._show(f"{at.run}: {at.text}")

    def reply_came(self, record: logging.LogRecord) -> None:
        """Record a node's answer."""
        if self._at is not None:
            self._at.waiting.pop(vars(record)["node"], None)

    def round_over(self, record: logging.LogRecord) -> None:
        """Record a round's seconds, and report the first of a phase."""
        at, fields = self._of(record), vars(record)
        at.waiting = {}
        if not fields["replayed"]:
            at.took, at.taken = at.took + fields["seconds"], at.taken + 1
        if at.phase not in at.phases:
            at.phases.add(at.phase)
            if self._phases and self._show is None:
                self._line(at)

    def run_over(self, record: logging.LogRecord) -> None:
        """Clear the state."""
        self._at = None

    def _of(self, record: logging.LogRecord) -> _Standing:
        run: str = vars(record)["run"]
        if self._at is None or self._at.run != run:
            self._at = _Standing(run)
        return self._at

    def _line(self, at: _Standing) -> None:
        self._told = time.monotonic()
        self._tell(f"run {at.run}: {at.text}", run=at.run, round=at.round, phase=at.phase)

    def _beat(self) -> None:
        """Report the state whenever no line has come for `EVERY` seconds."""
        while not self._ended.wait(max(0.05, self._told + EVERY - time.monotonic())):
            if time.monotonic() - self._told < EVERY:
                continue
            self._told = time.monotonic()
            self.acquire()  # records are handled under the same lock
            try:
                if self._at is not None and self._at.waiting and self._show is None:
                    self._line(self._at)
            finally:
                self.release()
