"""Detection of a CSV file's format: delimiter, decimal mark and encoding, guessed if unambiguous."""

import codecs
import csv
import io
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fedkernel.data.block_tables import file_errors
from fedkernel.ground import InputError

ALLOWED = "text in UTF-8 (--encoding names another, such as latin-1), with commas between the values (--delimiter)"

DELIMITERS = ",;\t|"  # candidate delimiters when none is given
SAMPLE = 1 << 16  # bytes at a file's beginning from which its format is guessed


class CsvFormat(NamedTuple):
    """Format of a CSV file: one-character marks, Python's name of the encoding, and the row with the names.

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
    """Return a CSV file's format, with arguments that are None guessed from the file's beginning.

    Else UTF-8, comma, point: a guess needs, for an encoding, a byte order mark; for a delimiter, that it alone gives
    every row as many values as there are names; for a decimal comma, numbers with commas, none with a point, and some
    that cannot be thousands. Raises InputError: a file that cannot be read, or that two delimiters divide equally well.
    """
    with file_errors(path, ALLOWED), path.open("rb") as stream:
        head = stream.read(SAMPLE)
        whole = len(head) < SAMPLE
    guessed = []
    if encoding is None:
        encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
        if encoding == "utf-16":
            guessed.append("encoding = 'utf-16'")
    encoding = codecs.lookup(encoding).name.removesuffix("-sig")
    text = head.decode(with_mark(encoding), errors="replace")

    def records(delimiter: str) -> list[list[str]]:
        rows = list[list[str]]()  # up to the first CSV fault, which is reported when the whole file is read
        with suppress(csv.Error):
            rows.extend(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
        return [row for row in rows[header - 1 : None if whole else -1] if row]

    if delimiter is None:
        delimiter = _delimiter(path, records)
        if delimiter != ",":
            guessed.append(f"delimiter = {delimiter!r}")
    if decimal is None:
        decimal = "," if delimiter != "," and _has_decimal_commas(records(delimiter)[1:]) else "."
        if decimal != ".":
            guessed.append("decimal = ','")
    return CsvFormat(delimiter, decimal, encoding, header, tuple(guessed))


def with_mark(encoding: str) -> str:
    """Return the encoding that skips a byte order mark at the beginning of a file."""
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
