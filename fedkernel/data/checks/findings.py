"""Findings about a site's file, with positions as in a spreadsheet: row 1 has the names."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Severity = Literal["fault", "doubt", "note"]

FEW = 6
"""Most rows or names that a sentence lists."""


@dataclass(frozen=True)
class Finding:
    """Fault or oddity in a site's file.

    - `severity`: to be mended before use ("fault"), to be looked at ("doubt"), or good to know ("note").
    - `what`: description that quotes no cell.
    - `where`: columns and rows.
    - `mend`: remedy: an option of the command, a key of ``[prepare]``, or a change in the file.
    - `cells`: some affected cells, shown at the site on request.
    """

    severity: Severity
    what: str
    where: str = ""
    mend: str = ""
    cells: tuple[str, ...] = ()


def letters(place: int) -> str:
    """Return a column's spreadsheet letters, from position 0: A, B, ..., Z, AA, ..."""
    rest, last = divmod(place, 26)
    return (letters(rest - 1) if rest else "") + chr(ord("A") + last)


def place_of(place: int, name: str) -> str:
    """Format a column's letters and name."""
    return f"column {letters(place)} {name!r}"


def rows_of(rows: Iterable[int]) -> str:
    """Format a list of row numbers."""
    numbers = [f"{row}" for row in rows]
    return f"{'row' if len(numbers) == 1 else 'rows'} {listing(numbers)}"


def listing(texts: Sequence[str]) -> str:
    """Join the first texts and the number of the others."""
    more = len(texts) - FEW
    return ", ".join(texts[:FEW]) + (f" and {more} more" if more > 0 else "")


def counted(number: int, noun: str) -> str:
    """Format a number with its noun: 1 row, 2 rows."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
