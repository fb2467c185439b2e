"""Defaults and limits of the values in a site's policy, also shown in the commands' help."""

from typing import Final

MIN_ROWS: Final = 20
MIN_SITES: Final = 3

LEAST_MESSAGE: Final = 1 << 16
"""Smallest limit on a message's bytes, since a whole job travels in one message."""

USUAL_MESSAGE: Final = 1 << 30
MOST_MESSAGE: Final = (1 << 31) - 1
"""Protobuf's own limit."""

LEAST_MEMORY: Final = 2**28
"""Smallest limit on memory in bytes, which includes the stacks and buffers that threads reserve."""

USUAL_SECONDS: Final = 3600.0
"""Default limit on a request's seconds: the coordinator's default deadline."""
