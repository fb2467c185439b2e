"""Error codes that a site or an engine puts into a failed reply; Flower's own are below 100."""

REFUSED = 101
"""The site refuses the request."""

FAILED = 102
"""The site's code raised an unexpected error."""

GONE = 103
"""The site is no longer connected."""

UNFIT = 104
"""The site sent something that is no valid reply."""

UNFIT_TABLE = 105
"""The site's table, or a file beside it, does not fit the run; another one may."""

UNFIT_LETTER = 106
"""The site refuses another site's letter, or lacks it."""

CARRIERS = (GONE, UNFIT)
"""Codes that only an engine may set, never a site."""
