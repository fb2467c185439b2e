"""Default patience, sizes and lifetimes of the engine, as the commands' help prints them."""

from typing import Final

SERVER_PATIENCE: Final = 30.0
"""Seconds of absence after which a site's pending requests fail."""

SITE_PATIENCE: Final = 600.0
"""Seconds for which a site retries to connect before it gives up."""

MEND: Final = 3600.0
"""Seconds to wait for the repair and return of a site that cannot take part."""

LIMIT: Final = (1 << 31) - 1
"""Most bytes of a message: protobuf's own limit."""

AUTHORITY_DAYS: Final = 3650
"""Lifetime of an authority, and longest of a certificate."""

DAYS: Final = 365
"""Default lifetime of a certificate."""
