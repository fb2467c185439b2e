"""Default waiting times, message size and certificate lifetimes of the gRPC engine, shown in the commands' help."""

from typing import Final

SERVER_PATIENCE: Final = 30.0
"""Seconds of absence after which a site's pending requests fail."""

SITE_PATIENCE: Final = 600.0
"""Seconds for which a site retries to connect before it gives up."""

REPAIR_SECONDS: Final = 3600.0
"""Longest wait in seconds for the return of a site that cannot take part."""

MAX_MESSAGE_BYTES: Final = (1 << 31) - 1
"""Most bytes of a message, protobuf's own limit."""

AUTHORITY_DAYS: Final = 3650
"""Lifetime of an authority, and longest one of a certificate, in days."""

DAYS: Final = 365
"""Default lifetime of a certificate in days."""
