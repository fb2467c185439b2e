"""Error codes that a site or an engine puts into a failed reply; Flower's own are below 100."""

REFUSED = 101
"""The site refuses the request."""

FAILED = 102
"""The site's code raised an unexpected error."""

DISCONNECTED = 103
"""The site is no longer connected."""

INVALID_REPLY = 104
"""The site sent something that is no valid reply."""

UNFIT_TABLE = 105
"""The site's table or another of its files does not fit the run; a corrected one may."""

UNFIT_LETTER = 106
"""The site refuses another site's letter, or lacks it."""

ENGINE_CODES = (DISCONNECTED, INVALID_REPLY)
"""Codes that only an engine may set, never a site."""
