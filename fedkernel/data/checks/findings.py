"""Findings about a site's file, with positions as in a spreadsheet: row 1 has the names."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Severity = Literal["fault", "doubt", "note"]

MOST_LISTED = 6  # most rows or names that a sentence lists


@dataclass(frozen=True)
class Finding:
    """Fault or oddity found in a site's data file.

    - `severity`: "fault": must be removed before use; "doubt": probably wrong; "note": harmless.
    - `problem`, `where`: description that quotes no cell, with columns and rows.
    - `remedy`: an option of the command, a key of ``[prepare]``, or a change in the file.
    - `cells`: some affected cells, shown at the site on request.
    """

    severity: Severity
    problem: str
    where: str = ""
    remedy: str = ""
    cells: tuple[str, ...] = ()


def column_letters(place: int) -> str:
    """Return a column's letters in a spreadsheet, from its position: A, B, ..., Z, AA, ..."""
    rest, last = divmod(place, 26)
    return (column_letters(rest - 1) if rest else "") + chr(ord("A") + last)


def column_place(place: int, name: str) -> str:
    """Format a column's spreadsheet letters and name."""
    return f"column {column_letters(place)} {name!r}"


def row_numbers(rows: Iterable[int]) -> str:
    """Format row numbers as text, such as "rows 2, 3 and 5 more"."""
    numbers = [f"{row}" for row in rows]
    return f"{'row' if len(numbers) == 1 else 'rows'} {listing(numbers)}"


def listing(texts: Sequence[str], most: int = MOST_LISTED) -> str:
    """Join the first texts of a list, and add the number of the others."""
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


def plural(number: int, noun: str) -> str:
    """Format a number with its noun: 1 row, 2 rows."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
