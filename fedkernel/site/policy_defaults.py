"""What a site's policy allows where it says nothing, and at most: what the commands' help has of it."""

from typing import Final

MIN_ROWS: Final = 20
MIN_SITES: Final = 3

LEAST_MESSAGE: Final = 1 << 16
"""Bytes of a message that a site may allow: its work is told in one."""

USUAL_MESSAGE: Final = 1 << 30
MOST_MESSAGE: Final = (1 << 31) - 1
"""Protobuf's own limit."""

LEAST_MEMORY: Final = 2**28
"""Bytes: the stacks and buffers that threads reserve are counted, too."""

USUAL_SECONDS: Final = 3600.0
"""For a request, as long as a coordinator waits for an answer by default."""
