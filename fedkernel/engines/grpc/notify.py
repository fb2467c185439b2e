"""Telling people what happens, which ends nothing where nobody can be told any more."""

import logging
from collections.abc import Callable

log = logging.getLogger(__name__)

Tell = Callable[[str], object]


def heedless(tell: Tell) -> Tell:
    """Return what tells a sentence as `tell` does, and goes on where that fails, as on a terminal that is gone."""

    def told(text: str) -> None:
        try:
            tell(text)
        except (Exception, SystemExit):  # some libraries that print end the process where nobody reads
            log.debug("nobody could be told: %s", text, exc_info=True)

    return told


class Seldom:
    """Lets the first lines of a kind be told, and then one in a while: whoever calls on purpose fills no disk.

    `clock`: gives seconds.
    """

    FIRST, SECONDS = 20, 10.0

    def __init__(self, clock: Callable[[], float]):
        self._clock, self._since = clock, clock()
        self._left, self._untold = self.FIRST, 0

    def ending(self) -> str | None:
        """Return what a line is to end with, which says how many before it were not told; None: nor is it."""
        gained = int((self._clock() - self._since) / self.SECONDS)
        self._left, self._since = min(self.FIRST, self._left + gained), self._since + gained * self.SECONDS
        if self._left == 0:
            self._untold += 1
            return None
        before, self._untold, self._left = self._untold, 0, self._left - 1
        return f"; {before:,} more before it" if before else ""
