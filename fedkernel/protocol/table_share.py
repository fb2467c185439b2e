"""Numbers that leave a site in a run for each entry of its table: how many, and how texts say it.

Numbers that follow from the rows are equations for them. With as many as entries, a search or a few known rows may give
the others (docs/privacy.md); below nothing is proven.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

TABLE_SHARE: Final = 0.5
"""What a site lets leave by default, and what strategies that choose their own sizes keep to."""

MORE: Final = "join --table-share, guards.table_share of its policy, or study approve --table-share"
"""How a site's operator allows more."""


def most_numbers(entries: int, share: float = TABLE_SHARE) -> int:
    """Return how many numbers may leave of a table with so many entries."""
    return math.floor(share * entries)


def share_text(share: float) -> str:
    """Return a share with two digits, rounded up, so that none above a limit reads as the limit."""
    if share <= 0:
        return "0"
    digits = 1 - math.floor(math.log10(share))
    rounded = math.ceil(round(share * 10**digits, 6)) / 10**digits
    return f"{rounded:,.{max(digits, 0)}f}"


def table_share(floats: Mapping[int, Mapping[int | None, int]], members: Iterable[Any]) -> float:
    """Return the most numbers for each entry of a site's table, of all sites, that any one reader has got.

    Parameters
    ----------
    floats : mapping of int to mapping of int or None to int
        That each site sent, by reader: the coordinator, None, or a peer (`Ledger.floats_by_reader`).
    members : iterable of Member
    """
    readers = ((floats.get(member.client, {}), member.entries) for member in members)
    return max((number / max(1, entries) for numbers, entries in readers for number in numbers.values()), default=0.0)
