"""Signs of life of a process that may be busy, or wait, for hours: what it does, and for how long now."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fedkernel.ground import lasting

FIRST, LONGEST = 30.0, 600.0
"""Seconds after which what lasts is told, and told again: twice as long after each time, up to the longest."""

LOOK = 1.0
"""Seconds between two looks: whoever does something is not to wake a thread up each time."""


class Signs:
    """Tells, in a sentence, what lasts, such as ``computing FindLocalEigenpairs for 40 s``."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell = tell
        self._idle = ""
        self._doing = "", 0.0
        self._ended = threading.Event()

    def idle(self, what: str) -> None:
        """Say what lasts from now on while nothing is done; empty: nothing that is worth a word."""
        if self._doing[0] in ("", self._idle):
            self._doing = what, time.monotonic()
        self._idle = what

    @contextmanager
    def during(self, what: str) -> Iterator[None]:
        """Say what is being done as long as this lasts."""
        self._doing = what, time.monotonic()
        try:
            yield
        finally:
            self._doing = self._idle, time.monotonic()

    @contextmanager
    def told(self) -> Iterator[None]:
        """Tell, from a thread of its own, as long as this lasts."""
        thread = threading.Thread(target=self._look, name="signs", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def _look(self) -> None:
        doing, due = self._doing, FIRST
        while not self._ended.wait(min(LOOK, FIRST)):
            if self._doing is not doing:
                doing, due = self._doing, FIRST
            what, since = doing
            if what and (lasted := time.monotonic() - since) >= due:
                self._tell(f"{what} for {lasting(lasted)}")
                due += min(due, LONGEST)
