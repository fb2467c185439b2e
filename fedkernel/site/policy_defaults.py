"""Default and maximum values of a site's policy, also shown in the commands' help."""

from typing import Final

MIN_ROWS: Final = 20
MIN_SITES: Final = 3

LEAST_MESSAGE: Final = 1 << 16
"""Smallest limit on a message in bytes: a job travels in one message."""

USUAL_MESSAGE: Final = 1 << 30
MOST_MESSAGE: Final = (1 << 31) - 1
"""Protobuf's own limit."""

LEAST_MEMORY: Final = 2**28
"""Bytes; includes the stacks and buffers that threads reserve."""

USUAL_SECONDS: Final = 3600.0
"""For a request; as long as a coordinator's default deadline."""
