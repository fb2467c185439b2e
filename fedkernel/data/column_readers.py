"""Readers of columns from a site's CSV file, spreadsheet or parquet file, as pyarrow tables."""

import csv
import importlib
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from fedkernel.data.block_tables import file_errors
from fedkernel.data.csv_format import ALLOWED, CsvFormat, with_mark
from fedkernel.ground import InputError, row_of_file

MISSING_TEXTS = frozenset(
    ("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "N/A", "NA", "NULL",
     "NaN", "n/a", "nan", "null")
)  # fmt: skip
"""Texts that pyarrow takes for missing cells."""

Reader = Callable[[Sequence[str], Sequence[str]], Any]
"""Function that reads the columns of a first list into a pyarrow table, those of a second list as texts."""


def open_csv(path: Path, form: CsvFormat) -> tuple[list[str], Reader]:
    """Return the stripped column names of a CSV file, and a reader of its columns."""
    with file_errors(path, ALLOWED), path.open(newline="", encoding=with_mark(form.encoding)) as stream:
        rows = csv.reader(stream, delimiter=form.delimiter)
        passed = sum(1 for _ in islice(rows, form.header - 1))
        lines = rows.line_num  # a row may span several lines
        header = next(rows, None)
    check_header(path, form.header, passed + (header is not None), header)
    names = [name.strip() for name in header or ()]
    return names, partial(_read_csv, path, form, dict(zip(names, header or (), strict=True)), above=lines)


def check_header(path: Path, header: int, rows: int, cells: Sequence[Any] | None) -> None:
    """Raise InputError if the header row is missing or empty; `cells` are its contents."""
    if rows == 0:
        raise InputError(f"{path} is empty; allowed: a row with the names of the columns, then the rows")
    if cells is None:
        raise InputError(f"header = {header}, but {path} has {rows} rows; allowed: the row of the column names")
    if not any(cell is not None and str(cell).strip() for cell in cells):
        raise InputError(f"row {header} of {path} is empty; allowed: column names there, or a different --header")


def _read_csv(
    path: Path, form: CsvFormat, header: dict[str, str], include: Sequence[str], texts: Sequence[str], *, above: int
) -> Any:
    arrow, string = importlib.import_module("pyarrow.csv"), importlib.import_module("pyarrow").string()
    broken: list[Any] = []

    def refuse(row: Any) -> str:
        broken.append(row)
        return "error"

    # with threads the number of a wrong row is unknown
    rows = arrow.ReadOptions(use_threads=False, encoding=form.encoding.replace("utf-8", "utf8"), skip_rows=above)
    parse = arrow.ParseOptions(
        delimiter=form.delimiter,
        newlines_in_values=True,
        ignore_empty_lines=len(header) > 1,  # with a single column, an empty line is a row without a value
        invalid_row_handler=refuse,
    )
    convert = arrow.ConvertOptions(
        decimal_point=form.decimal,
        include_columns=[header[name] for name in include],
        column_types={header[name]: string for name in texts},  # 007 is not 7
        null_values=sorted(MISSING_TEXTS),
    )
    try:
        with file_errors(path, ALLOWED):
            read = arrow.read_csv(path, read_options=rows, parse_options=parse, convert_options=convert)
    except InputError:
        if not broken:
            raise
        commas = form.delimiter == "," and broken[0].actual_columns > len(header)
        hint = " (with decimal commas, use a different --delimiter)" if commas else ""
        row = f"{path}: {row_of_file(broken[0].number - above - 2, form.header)}"
        allowed = f"allowed: one for each of the {len(header)} columns{hint}"
        raise InputError(f"{row} has {broken[0].actual_columns} values; {allowed}") from None
    return read.rename_columns(list(include))


MOST_CELLS = 50_000_000  # most cells of a sheet's bounding box


class Sheet(NamedTuple):
    """First sheet of a spreadsheet: its name and rows, with the number of sheets. The first row has the names."""

    name: str
    sheets: int
    rows: list[list[Any]]


def read_sheet(path: Path, header: int = 1) -> Sheet:
    """Read the first sheet of an .xlsx file from row `header` on. Formulas count by their stored results.

    Raises InputError: without openpyxl; for a file that is missing, damaged, no spreadsheet or without names in that
    row; and for more than `MOST_CELLS` cells, since a small file can span millions of empty ones.
    """
    try:
        openpyxl = importlib.import_module("openpyxl")
    except ImportError:
        install = "pip install 'fedkernel[xlsx]', or use a .csv file"
        raise InputError(f"{path} needs openpyxl, which is missing: {install}") from None
    with file_errors(path, "a spreadsheet, .xlsx"), path.open("rb") as stream, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about styles and extensions
        try:
            book = openpyxl.load_workbook(stream, read_only=True, data_only=True)
            rows = _filled(path, book.worksheets[0]) if book.worksheets else []
        except SyntaxError:  # of the XML; its text quotes the file
            raise InputError(f"{path} is damaged or no spreadsheet (ParseError); allowed: .xlsx") from None
    while rows and all(cell is None for cell in rows[-1]):
        rows.pop()  # formatted, but empty
    check_header(path, header, len(rows), rows[header - 1] if header <= len(rows) else None)
    rows = rows[header - 1 :]
    width = max((place + 1 for row in rows for place, cell in enumerate(row) if cell is not None), default=0)
    padded = [row[:width] + [None] * (width - len(row)) for row in rows]
    return Sheet(book.worksheets[0].title if book.worksheets else "", len(book.worksheets), padded)


def _filled(path: Path, sheet: Any) -> list[list[Any]]:
    """Return the rows of a sheet, each up to its last filled cell."""
    rows, width, last, cells = list[list[Any]](), 0, None, list[Any]()
    for row in sheet.iter_rows(values_only=True):
        if row is not last:  # absent rows share one object
            last, cells = row, list(row)
            while cells and cells[-1] is None:
                cells.pop()
        rows.append(cells)
        width = max(width, len(cells))
        if cells and len(rows) * width > MOST_CELLS:
            size = f"{len(rows):,} rows x {width:,} columns"
            raise InputError(f"{path} has {size}; allowed: {MOST_CELLS:,} cells, or .parquet")
    return rows


def open_sheet(path: Path, header: int = 1) -> tuple[list[str], Reader]:
    """Return the column names of a spreadsheet's first sheet, and a reader of its columns."""
    sheet = read_sheet(path, header)
    names = ["" if cell is None else text_of(cell) for cell in sheet.rows[0]]
    below = [row for row in sheet.rows[1:] if any(cell is not None for cell in row)]  # as empty lines of a CSV file
    arrow = importlib.import_module("pyarrow")

    def column(name: str, as_text: bool) -> Any:
        cells = [row[names.index(name)] for row in below]
        texts = [None if cell is None else text_of(cell) for cell in cells]
        if as_text or all(cell is None for cell in cells):
            return arrow.array(texts, arrow.string() if as_text else arrow.null())
        try:
            return arrow.array([None if cell in MISSING_TEXTS else cell for cell in cells])
        except (arrow.ArrowInvalid, arrow.ArrowTypeError, OverflowError):  # numbers beside texts
            return arrow.array(texts, arrow.string())

    def read(include: Sequence[str], texts: Sequence[str]) -> Any:
        return arrow.table([column(name, name in texts) for name in include], names=list(include))

    return names, read


def text_of(cell: Any) -> str:
    """Return a spreadsheet's cell as stripped text; the number 7.0 gives "7"."""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell).strip()


def open_parquet(path: Path) -> tuple[list[str], Reader]:
    """Return the stripped column names of a parquet file, and a reader of its columns."""
    parquet = importlib.import_module("pyarrow.parquet")
    with file_errors(path):
        schema = parquet.read_schema(path)
    names = [name.strip() for name in schema.names]
    stored = dict(zip(names, schema.names, strict=True))

    def read(include: Sequence[str], texts: Sequence[str]) -> Any:
        columns = [stored[name] for name in include]
        with file_errors(path):
            return parquet.read_table(path, columns=columns).select(columns).rename_columns(list(include))

    return names, read
