"""Disclosure ratio: numbers that leave a site in a run per entry of its table, with the default limit.

Numbers that follow from the rows are equations for them. With as many numbers as entries, a search or a few known rows
may give the others (docs/privacy.md); below that nothing is proven.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

TABLE_SHARE: Final = 0.5
"""Default of a site's limit on the disclosure ratio; strategies that choose their own sizes keep to it."""

LIMIT_ADVICE: Final = (
    "more by guards.table_share of its policy, join --table-share without one, or study approve --table-share; "
    "fedkernel check FILE --study STUDY computes the number of a whole run"
)
"""Advice to a site's operator on raising the limit of the disclosure ratio."""


def allowed_numbers(entries: int, share: float = TABLE_SHARE) -> int:
    """Return the largest count of numbers that may leave a site, for the entries of its table."""
    return math.floor(share * entries)


def rounded_up(share: float) -> float:
    """Round a share above 0 up to two digits, so that none above a limit reads as the limit."""
    digits = 1 - math.floor(math.log10(share))
    return float(math.ceil(round(share * 10.0**digits, 6)) / 10.0**digits)


def share_text(share: float) -> str:
    """Format a share with two digits, rounded up."""
    return f"{rounded_up(share):,.{max(1 - math.floor(math.log10(share)), 0)}f}" if share > 0 else "0"


def table_share(floats: Mapping[int, Mapping[int | None, int]], members: Iterable[Any]) -> float:
    """Return the largest disclosure ratio of a run, over sites and readers, from `floats` by site and reader."""
    readers = ((floats.get(member.client, {}), member.entries) for member in members)
    return max((number / max(1, entries) for numbers, entries in readers for number in numbers.values()), default=0.0)
