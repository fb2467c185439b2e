"""Detection of a CSV file's format: delimiter, decimal mark and encoding, guessed if unambiguous."""

import codecs
import csv
import io
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fedkernel.data.block_tables import file_errors
from fedkernel.ground import InputError

ALLOWED = "text in UTF-8 (--encoding names another, such as latin-1), with commas between the values (--delimiter)"

DELIMITERS = ",;\t|"  # candidate delimiters when none is given
SAMPLE = 1 << 16  # bytes at a file's beginning from which its format is guessed
MOST_ABOVE = 10  # rows above that with the names


class CsvFormat(NamedTuple):
    """Format of a CSV file: one-character delimiter and decimal mark, Python's name of the encoding, and header row.

    `guessed`: clauses on guessed options that differ from the defaults.
    """

    delimiter: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    header: int = 1
    guessed: tuple[str, ...] = ()


def guess_csv_format(
    path: Path, delimiter: str | None, decimal: str | None, encoding: str | None, header: int = 1
) -> CsvFormat:
    """Return a CSV file's format. Arguments that are None are guessed from the file's beginning.

    Else UTF-8, comma, point: a guess needs, for an encoding, a byte order mark; for a delimiter, that it alone gives
    every row as many values as there are names; for a decimal comma, numbers with commas, none with a point, and some
    that cannot be thousands. Raises InputError: a file that cannot be read, or that two delimiters divide equally well.
    """
    given = encoding
    encoding, every_record = _sample(path, given)
    guessed = ["encoding = 'utf-16'"] if given is None and encoding == "utf-16" else []

    def records(delimiter: str) -> list[list[str]]:
        return [row for row in every_record(delimiter)[header - 1 :] if row]

    if delimiter is None:
        delimiter = _delimiter(path, records)
        if delimiter != ",":
            guessed.append(f"delimiter = {delimiter!r}")
    if decimal is None:
        decimal = "," if delimiter != "," and _has_decimal_commas(records(delimiter)[1:]) else "."
        if decimal != ".":
            guessed.append("decimal = ','")
    return CsvFormat(delimiter, decimal, encoding, header, tuple(guessed))


def find_later_header(path: Path, delimiter: str | None, encoding: str | None) -> int | None:
    """Return the row of the names if rows of other lengths, such as a title, come first. Otherwise return None."""
    _, records = _sample(path, encoding)
    found = []
    for rows in map(records, delimiter or DELIMITERS):
        widths = list(map(len, rows))
        if not widths or widths[-1] < 2:
            continue
        if not {*widths} - {0, widths[-1]}:
            return None
        last = max(place for place, width in enumerate(widths) if width not in (0, widths[-1]))
        place = next(place for place in range(last + 1, len(rows)) if rows[place])
        above = widths[0] != widths[-1] and place <= MOST_ABOVE
        if above and place < len(rows) - 1 and all(map(_is_name, rows[place])):
            found.append(place + 1)
    return min(found, default=None)


def find_later_names(rows: Sequence[Sequence[object]]) -> int | None:
    """Return the only row with names in all of a sheet's columns, if row 1 fills less than half."""
    width = max(map(len, rows), default=0)
    if not rows or 2 * sum(cell is not None for cell in rows[0]) >= width:
        return None
    named = [
        place + 1
        for place, row in enumerate(rows[: MOST_ABOVE + 2])
        if len(row) == width and all(isinstance(cell, str) and _is_name(cell) for cell in row)
    ]
    return named[0] if len(named) == 1 and named[0] <= MOST_ABOVE + 1 else None


def _is_name(cell: str) -> bool:
    return bool(cell.strip()) and not cell.strip()[0].isdigit()


def _sample(path: Path, encoding: str | None) -> tuple[str, Callable[[str], list[list[str]]]]:
    """Return a file's encoding, and a function that cuts its beginning into records by a delimiter."""
    with file_errors(path, ALLOWED), path.open("rb") as stream:
        head = stream.read(SAMPLE)
    if encoding is None:
        encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    encoding = codecs.lookup(encoding).name.removesuffix("-sig")
    text = head.decode(with_mark(encoding), errors="replace")

    def records(delimiter: str) -> list[list[str]]:
        rows = list[list[str]]()  # up to the first CSV fault, which is reported when the whole file is read
        with suppress(csv.Error):
            rows.extend(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
        return rows[: None if len(head) < SAMPLE else -1]

    return encoding, records


def with_mark(encoding: str) -> str:
    """Return the variant of an encoding that skips a byte order mark at a file's beginning."""
    return "utf-8-sig" if encoding == "utf-8" else encoding


def _delimiter(path: Path, records: Callable[[str], list[list[str]]]) -> str:
    fits: dict[str, bool] = {}
    for delimiter in DELIMITERS:
        header, *rows = records(delimiter) or [[]]
        if len(header) > 1 and (delimiter == "," or not rows or any(len(row) == len(header) for row in rows)):
            fits[delimiter] = all(len(row) == len(header) for row in rows)
    sure = [delimiter for delimiter, fit in fits.items() if fit] or list(fits)
    if len(sure) > 1 and "," in sure and not any(fits.values()):
        return ","  # rows of another length are reported later
    if len(sure) > 1:
        raise InputError(f"{path} fits several delimiters: {', '.join(map(repr, sure))}; give one (--delimiter)")
    return sure[0] if sure else ","


_COMMA = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*")
_POINT = re.compile(r"\s*[+-]?\d*\.\d+([eE][+-]?\d+)?\s*")
_THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2}(,\d{3})+\s*")


def _has_decimal_commas(rows: list[list[str]]) -> bool:
    cells = [cell for row in rows for cell in row]
    commas = [cell for cell in cells if _COMMA.fullmatch(cell)]
    return any(not _THOUSANDS.fullmatch(cell) for cell in commas) and not any(map(_POINT.fullmatch, cells))
