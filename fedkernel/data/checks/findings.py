"""What is found in a site's file, and where, as a spreadsheet counts: row 1 has the names, columns are letters."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Severity = Literal["fault", "doubt", "note"]

FEW = 6
"""How many rows or names a sentence lists."""


@dataclass(frozen=True)
class Finding:
    """Something in a file that whoever has it should know.

    - `severity`: to be mended before the file can be used; to be looked at; good to know.
    - `what`: it quotes no cell.
    - `where`: columns and rows.
    - `mend`: what to do: an option of the command, a key of ``[prepare]``, or a change in the file.
    - `cells`: some of the cells it is about, for whoever wants to see them at the site.
    """

    severity: Severity
    what: str
    where: str = ""
    mend: str = ""
    cells: tuple[str, ...] = ()


def letters(place: int) -> str:
    """Return what a spreadsheet calls a column, the first of which has place 0: A, B, ..., Z, AA, ..."""
    rest, last = divmod(place, 26)
    return (letters(rest - 1) if rest else "") + chr(ord("A") + last)


def place_of(place: int, name: str) -> str:
    """Return how texts call a column."""
    return f"column {letters(place)} {name!r}"


def rows_of(rows: Iterable[int]) -> str:
    """Return how texts call some rows, as a spreadsheet counts them."""
    numbers = [f"{row}" for row in rows]
    return f"{'row' if len(numbers) == 1 else 'rows'} {listing(numbers)}"


def listing(texts: Sequence[str]) -> str:
    """Return the first of some texts, and how many more there are."""
    more = len(texts) - FEW
    return ", ".join(texts[:FEW]) + (f" and {more} more" if more > 0 else "")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 row, 2 rows."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
