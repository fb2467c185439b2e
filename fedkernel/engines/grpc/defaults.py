"""How long the engine waits and how much it takes where nobody says otherwise: what the commands' help has of it."""

from typing import Final

SERVER_PATIENCE: Final = 30.0
"""Seconds that a site may be gone before what it was asked counts as failed."""

SITE_PATIENCE: Final = 600.0
"""Seconds for which a site tries to connect, again and again, before it gives up."""

MEND: Final = 3600.0
"""Seconds for which a site that cannot take part is waited for."""

LIMIT: Final = (1 << 31) - 1
"""Bytes of a message: protobuf's own limit."""

AUTHORITY_DAYS: Final = 3650
"""How long an authority is valid, and a certificate at most."""

DAYS: Final = 365
"""How long a certificate is valid by default."""
