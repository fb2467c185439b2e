"""Print callbacks for operators that never raise, and a rate limit for repeated reports."""

import logging
from collections.abc import Callable

log = logging.getLogger(__name__)

Report = Callable[[str], object]


def ignore_print_errors(report: Report) -> Report:
    """Wrap a print callback so that its errors, as of a closed terminal, are ignored."""

    def report_safely(text: str) -> None:
        try:
            report(text)
        except (Exception, SystemExit):  # some libraries exit on a closed output
            log.debug("not printed: %s", text, exc_info=True)

    return report_safely


class ReportRateLimit:
    """Rate limit for reports of one kind, so that a hostile caller cannot fill the disk; `clock`: returns seconds."""

    MOST_AT_ONCE, SECONDS_EACH = 20, 10.0

    def __init__(self, clock: Callable[[], float]):
        self._clock, self._since = clock, clock()
        self._left, self._suppressed = self.MOST_AT_ONCE, 0

    def suffix(self) -> str | None:
        """Return the suffix of a report, with the number suppressed before it; None: suppress this one, too."""
        gained = int((self._clock() - self._since) / self.SECONDS_EACH)
        self._left, self._since = min(self.MOST_AT_ONCE, self._left + gained), self._since + gained * self.SECONDS_EACH
        if self._left == 0:
            self._suppressed += 1
            return None
        before, self._suppressed, self._left = self._suppressed, 0, self._left - 1
        return f"; {before:,} more before it" if before else ""
