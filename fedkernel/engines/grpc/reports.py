"""Reports to operators: callbacks that never raise, a rate limit, and long activities (``computing X for 40 s``)."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fedkernel.ground import format_duration

log = logging.getLogger(__name__)

Report = Callable[[str], object]


def ignore_print_errors(report: Report) -> Report:
    """Wrap a print callback so that its errors, such as those of a closed terminal, are ignored."""

    def report_safely(text: str) -> None:
        try:
            report(text)
        except (Exception, SystemExit):  # some libraries exit on a closed output
            log.debug("not printed: %s", text, exc_info=True)

    return report_safely


class ReportRateLimit:
    """Rate limit for reports of one kind, so that a hostile caller cannot fill the disk. `clock`: returns seconds."""

    MOST_AT_ONCE, SECONDS_EACH = 20, 10.0

    def __init__(self, clock: Callable[[], float]):
        self._clock, self._since = clock, clock()
        self._left, self._suppressed = self.MOST_AT_ONCE, 0

    def suffix(self) -> str | None:
        """Return a report's suffix with the number of reports suppressed before it, or None to suppress this one."""
        gained = int((self._clock() - self._since) / self.SECONDS_EACH)
        self._left, self._since = min(self.MOST_AT_ONCE, self._left + gained), self._since + gained * self.SECONDS_EACH
        if self._left == 0:
            self._suppressed += 1
            return None
        before, self._suppressed, self._left = self._suppressed, 0, self._left - 1
        return f"; {before:,} more before it" if before else ""


FIRST, LONGEST = 30.0, 600.0
"""Seconds until the first report of an activity, and longest interval; each interval doubles."""

CHECK_SECONDS = 1.0
"""Seconds between two checks for a report that is due, so that a new activity need not wake the thread."""


class ActivityReporter:
    """Reporter of a process's activities that last long. `report`: called with a sentence, at growing intervals."""

    def __init__(self, report: Callable[[str], object]) -> None:
        self._report = report
        self._idle = ""
        self._doing = "", 0.0
        self._ended = threading.Event()

    def idle(self, activity: str) -> None:
        """Set the activity that is reported outside `during` blocks. An empty text reports none."""
        if self._doing[0] in ("", self._idle):
            self._doing = activity, time.monotonic()
        self._idle = activity

    @contextmanager
    def during(self, activity: str) -> Iterator[None]:
        """Set the activity that is reported inside the block."""
        self._doing = activity, time.monotonic()
        try:
            yield
        finally:
            self._doing = self._idle, time.monotonic()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the reporting thread inside the block."""
        thread = threading.Thread(target=self._report_long_activities, name="signs", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def _report_long_activities(self) -> None:
        doing, due = self._doing, FIRST
        while not self._ended.wait(min(CHECK_SECONDS, FIRST)):
            if self._doing is not doing:
                doing, due = self._doing, FIRST
            activity, since = doing
            if activity and (lasted := time.monotonic() - since) >= due:
                self._report(f"{activity} for {format_duration(lasted)}")
                due += min(due, LONGEST)
