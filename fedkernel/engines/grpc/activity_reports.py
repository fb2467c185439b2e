"""Progress messages of a process that may compute or wait for hours."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fedkernel.ground import format_duration

FIRST, LONGEST = 30.0, 600.0
"""Seconds until the first message about an activity; each interval doubles, up to the longest."""

LOOK = 1.0
"""Seconds between two checks, so that a new activity need not wake the thread."""


class Signs:
    """Reporter of activities that last, such as ``computing FindLocalEigenpairs for 40 s``."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell = tell
        self._idle = ""
        self._doing = "", 0.0
        self._ended = threading.Event()

    def idle(self, what: str) -> None:
        """Set the activity to report between others; empty: none."""
        if self._doing[0] in ("", self._idle):
            self._doing = what, time.monotonic()
        self._idle = what

    @contextmanager
    def during(self, what: str) -> Iterator[None]:
        """Set the activity to report inside the block."""
        self._doing = what, time.monotonic()
        try:
            yield
        finally:
            self._doing = self._idle, time.monotonic()

    @contextmanager
    def told(self) -> Iterator[None]:
        """Report from a thread of its own inside the block."""
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
                self._tell(f"{what} for {format_duration(lasted)}")
                due += min(due, LONGEST)
