"""Callbacks for messages to people, with errors suppressed and repetitions limited."""

import logging
from collections.abc import Callable

log = logging.getLogger(__name__)

Tell = Callable[[str], object]


def heedless(tell: Tell) -> Tell:
    """Wrap a print callback so that a closed terminal raises nothing."""

    def tell_safely(text: str) -> None:
        try:
            tell(text)
        except (Exception, SystemExit):  # some libraries exit on a closed output
            log.debug("nobody could be told: %s", text, exc_info=True)

    return tell_safely


class Seldom:
    """Rate limit for reports of one kind, so that a hostile caller cannot fill a disk.

    `clock`: returns seconds.
    """

    FIRST, SECONDS = 20, 10.0

    def __init__(self, clock: Callable[[], float]):
        self._clock, self._since = clock, clock()
        self._left, self._untold = self.FIRST, 0

    def ending(self) -> str | None:
        """Return the report's suffix, with the number suppressed before; None suppresses this one, too."""
        gained = int((self._clock() - self._since) / self.SECONDS)
        self._left, self._since = min(self.FIRST, self._left + gained), self._since + gained * self.SECONDS
        if self._left == 0:
            self._untold += 1
            return None
        before, self._untold, self._left = self._untold, 0, self._left - 1
        return f"; {before:,} more before it" if before else ""
