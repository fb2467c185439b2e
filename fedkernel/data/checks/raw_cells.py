"""Reading of a site's file into raw cells with their positions, despite faults."""

import csv
import importlib
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedkernel.data.block_tables import file_errors
from fedkernel.data.checks.findings import Finding, plural, row_numbers
from fedkernel.data.column_readers import MISSING_TEXTS, check_header, read_sheet, text_of
from fedkernel.data.csv_format import CsvFormat, find_later_names, with_mark
from fedkernel.data.raw import column_of, text_column
from fedkernel.data.site_files import SiteFile
from fedkernel.ground import AnyArray, InputError

LOST = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class Cells:
    """Cells of a file, as columns by position, since names may be missing or repeated.

    - `names`, `columns` (n,): unchanged names, and float64 with NaN for a missing cell, or texts with None.
    - `rows` (n,): row numbers of a spreadsheet.
    - `findings`: faults met while reading.
    - `decimal`: decimal mark of texts.
    - `ids`: ids of an .npz file, stored beside the columns.
    """

    names: tuple[str, ...]
    columns: tuple[AnyArray, ...]
    rows: npt.NDArray[np.intp]
    findings: tuple[Finding, ...] = ()
    decimal: str = "."
    ids: tuple[str, ...] | None = None


def read_cells(file: SiteFile) -> Cells:
    """Read all cells of a file. Raises InputError if it is empty or cannot be read at all."""
    path = Path(file.path).expanduser()
    suffix = path.suffix.lower()
    if suffix == ".csv":
        return _csv_cells(file, path)
    if suffix == ".xlsx":
        sheet, findings = read_sheet(path, file.header_row), list[Finding]()
        if file.header is None and (row := find_later_names(sheet.rows)):
            findings.append(_names_below(row))
            file, sheet = replace(file, header=row), read_sheet(path, row)
        if sheet.sheets > 1:
            findings.append(Finding("note", f"the first of {sheet.sheets} sheets is read", f"sheet {sheet.name!r}"))
        rows = [["" if cell is None else text_of(cell) for cell in row] for row in sheet.rows]
        return _rows_cells(rows, findings, CsvFormat(header=file.header_row), "")
    if suffix == ".parquet":
        with file_errors(path):
            table = importlib.import_module("pyarrow.parquet").read_table(path)
        columns = tuple(column_of(column) for column in table.columns)
        return Cells(tuple(table.column_names), columns, np.arange(table.num_rows) + 2)
    data = replace(file, columns=None, label=None, drop=(), allowed=("*",), hidden=()).read()
    names = data.columns or tuple(str(place) for place in range(data.X.shape[1]))
    return Cells(names, tuple(np.asarray(data.X).T), np.arange(data.X.shape[0]) + 2, ids=data.ids)


def _csv_cells(file: SiteFile, path: Path) -> Cells:
    findings: list[Finding] = []
    if row := file.later_header:
        findings.append(_names_below(row))
        file = replace(file, header=row)  # the other findings are as with that
    try:
        form = file.csv_format
    except InputError as error:  # two delimiters
        if not path.is_file():
            raise
        problem = str(error).removeprefix(f"{path} ").removeprefix(f"{path}: ")
        findings.append(Finding("fault", problem, remedy="--delimiter"))
        form = CsvFormat(file.delimiter or ",", file.decimal or ".", file.encoding or "utf-8", file.header_row)
    if form.guessed:
        findings.append(Finding("note", f"read with {' and '.join(form.guessed)}, as it looks"))
    with file_errors(path):
        content = path.read_bytes()
    try:
        text = content.decode(with_mark(form.encoding))
    except UnicodeDecodeError:
        text = content.decode("latin-1")
        lines = (line.decode(form.encoding, "replace") for line in content.split(b"\n"))
        garbled = [row for row, line in enumerate(lines, 1) if LOST in line]
        problem, remedy = f"the text is not in {form.encoding}", "give its --encoding, such as latin-1"
        findings.append(Finding("fault", problem, row_numbers(garbled), remedy))
    if LOST in text:
        findings.append(Finding("doubt", "letters were lost when the file was saved in a different encoding"))
    try:
        records = list(csv.reader(io.StringIO(text, newline=""), delimiter=form.delimiter))
    except csv.Error as error:
        raise InputError(f"{path} is no CSV file: {error}") from None
    names = records[form.header - 1] if form.header <= len(records) else None
    check_header(path, form.header, len(records), names)
    return _rows_cells(records[form.header - 1 :], findings, form, form.delimiter)


def _names_below(row: int) -> Finding:
    problem = f"row 1 does not have the columns' names, but row {row} may"
    return Finding("fault", problem, remedy=f"--header {row}, or delete the rows above it")


def _rows_cells(records: Sequence[Sequence[str]], findings: list[Finding], form: CsvFormat, delimiter: str) -> Cells:
    """Convert rows of texts, the names first, to columns. `delimiter`: empty for a spreadsheet."""
    names, *below = records
    width = len(names)
    numbered = [(number, record or [""] * (width == 1)) for number, record in enumerate(below, form.header + 1)]
    # an empty line is skipped, but with a single column it is a row with a missing cell
    empty = [number for number, record in numbered if not record or (not delimiter and not any(record))]
    if empty:
        findings.append(Finding("note", f"{plural(len(empty), 'empty line')}, skipped", row_numbers(empty)))
    rest = [(number, record) for number, record in numbered if number not in set(empty)]
    other = [(number, len(record)) for number, record in rest if len(record) != width]
    if other:
        findings.append(_other_lengths(other, width, delimiter))
    whole = [(number, record) for number, record in rest if len(record) == width]
    present = [[None if cell in MISSING_TEXTS else cell for cell in record] for _, record in whole]
    columns = tuple(text_column([cells[place] for cells in present]) for place in range(width))
    rows = np.array([number for number, _ in whole], int)
    return Cells(tuple(names), columns, rows, tuple(findings), form.decimal)


def _other_lengths(other: list[tuple[int, int]], width: int, delimiter: str) -> Finding:
    longer = sum(length > width for _, length in other)
    problem = f"{plural(len(other), 'row')} with more or fewer values than the {width} names"
    remedy = "correct these rows"
    if delimiter == "," and 2 * longer > len(other):
        problem += "; decimal commas look the same as commas between values"
        remedy = "save it again, with semicolons or tabs between values"
    return Finding("fault", problem, row_numbers(number for number, _ in other), remedy)
