"""Detection of a text column's kind: numbers, numbers in human notation, dates, or words."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from fedkernel.ground import FloatArray

TRUTH_VALUES = {"true": 1.0, "false": 0.0}  # truth values, numbers if a whole column consists of them

_NUMBER = re.compile(r"^[+-]?\d[\d.,]*\s*")  # before a unit
_DATE = re.compile(
    r"(\d{4}-\d{1,2}-\d{1,2}|\d{1,2}\.\d{1,2}\.\d{2,4}|\d{1,2}/\d{1,2}/\d{2,4}|\d{4}/\d{1,2}/\d{1,2})"
    r"([T ]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?"
)


@dataclass(frozen=True)
class ColumnKind:
    """Kind of a text column's cells. "spelt" means numbers, some in a spelling that cannot be parsed.

    `numbers` (n,): NaN for a missing or other cell. `odd`: positions of the other cells, by their oddity.
    """

    name: Literal["number", "spelt", "date", "text"]
    numbers: FloatArray
    odd: dict[str, list[int]]


def column_kind(cells: Sequence[str | None], decimal: str = ".") -> ColumnKind:
    """Return the kind of most cells of a text column. A missing cell is None."""
    numbers = np.full(len(cells), np.nan)
    odd: dict[str, list[int]] = {}
    number = _patterns(decimal)["number"]
    for position, cell in enumerate(cells):
        if cell is None:
            continue
        if number.fullmatch(stripped := cell.strip()):
            numbers[position] = float(stripped.replace(",", "."))
        else:
            fits = (name for name, pattern in _patterns(decimal).items() if pattern.fullmatch(stripped))
            odd.setdefault(next(fits, "word"), []).append(position)
    present = sum(cell is not None for cell in cells)
    words = odd.get("word", [])
    if words and len(words) == present and all(str(cells[place]).strip().lower() in TRUTH_VALUES for place in words):
        numbers[words] = [TRUTH_VALUES[str(cells[place]).strip().lower()] for place in words]
        return ColumnKind("number", numbers, {})
    if not odd:
        return ColumnKind("number", numbers, {})
    if 2 * len(odd.get("date", [])) >= present:
        return ColumnKind("date", numbers, odd)
    units = Counter(_NUMBER.sub("", str(cells[place]).strip()) for place in odd.get("unit", []))
    others = len(words) + len(odd.get("date", [])) + (sum(units.values()) if len(units) > FEW_UNITS else 0)
    return ColumnKind("spelt" if 2 * others < present else "text", numbers, odd)


FEW_UNITS = 3  # most different words behind a column's numbers that still count as units

EMPTY = "empty these cells"

ODDITIES = {
    "decimal": ("with a different decimal mark", "state it with --decimal"),
    "thousands": ("with a mark for thousands", "delete these marks"),
    "ambiguous": ("with a mark for thousands or a different decimal mark", "--decimal, if the mark is for decimals"),
    "both": ("with one mark for thousands and another for decimals", "delete those for thousands, and state --decimal"),
    "limit": ("with a sign such as <", "replace it by a number, or empty the cell"),
    "unit": ("with a unit or word after the number", "keep the number alone; the schema may give the unit"),
    "date": ("with dates", EMPTY),
    "blank": ("of blanks only", EMPTY),
    "infinite": ("with infinite numbers", EMPTY),
    "word": ("with words", f"{EMPTY}, or --drop"),
}
"""Descriptions and remedies of cells that are no plain numbers, by kind of oddity."""


@lru_cache(maxsize=2)
def _patterns(decimal: str) -> dict[str, re.Pattern[str]]:
    mark, other = re.escape(decimal), re.escape("," if decimal == "." else ".")
    number = rf"[+-]?(\d+({mark}\d*)?|{mark}\d+)([eE][+-]?\d+)?"
    return {
        "number": re.compile(number),
        "ambiguous": re.compile(rf"[+-]?[1-9]\d{{0,2}}{other}\d{{3}}"),
        "decimal": re.compile(rf"[+-]?\d*{other}\d+([eE][+-]?\d+)?"),
        "thousands": re.compile(rf"[+-]?\d{{1,3}}([ \u00a0\u202f'’]\d{{3}}|{other}\d{{3}})+({mark}\d+)?"),
        "both": re.compile(rf"[+-]?\d{{1,3}}({mark}\d{{3}})+{other}\d+"),
        "limit": re.compile(r"[<>≤≥~]=?\s*[+-]?[\d.,]+.*"),
        "date": _DATE,
        "unit": re.compile(r"[+-]?\d[\d.,]*\s*[^\d\s.,:/-].*"),
        "infinite": re.compile(r"[+-]?inf(inity)?", re.IGNORECASE),
        "blank": re.compile(r""),
    }


def is_date(cell: str) -> bool:
    """Return whether a text is a date, perhaps with a time."""
    return _DATE.fullmatch(cell.strip()) is not None
