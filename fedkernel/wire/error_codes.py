"""Error codes of replies: who could not do what. Flower's own, which are below 100, stand beside them."""

REFUSED = 101
"""A site does not answer the request."""

FAILED = 102
"""A site's code broke."""

GONE = 103
"""In place of a reply: the site is no longer connected."""

UNFIT = 104
"""In place of a reply: the site sent something else."""

UNFIT_TABLE = 105
"""A site's table, or a file beside it, does not fit the run; with another it may."""

UNFIT_LETTER = 106
"""A site does not take the letter of another, or lacks it."""

CARRIERS = (GONE, UNFIT)
"""Of who carries messages, which no site can send."""
