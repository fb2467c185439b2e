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
