"""The columns of a site's CSV file, spreadsheet or parquet file: their names, and what reads some of them."""

import csv
import importlib
import warnings
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from fedkernel.data.forms import ALLOWED, Form, with_mark
from fedkernel.data.tables import readable
from fedkernel.ground import InputError, row_of_file

NULLS = frozenset(
    ("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "N/A", "NA", "NULL",
     "NaN", "n/a", "nan", "null")
)  # fmt: skip
"""Texts that mean that a cell is missing: those of pyarrow."""

Reader = Callable[[Sequence[str], Sequence[str]], Any]
"""Reads columns, some of them as the texts that they are, into a pyarrow table."""


def open_csv(path: Path, form: Form) -> tuple[list[str], Reader]:
    """Return the names in a file's header, without blanks around them, and what reads the columns below."""
    with readable(path, ALLOWED), path.open(newline="", encoding=with_mark(form.encoding)) as stream:
        rows = csv.reader(stream, delimiter=form.delimiter)
        passed = sum(1 for _ in islice(rows, form.header - 1))
        lines = rows.line_num  # of which a row may have several
        header = next(rows, None)
    check_header(path, form.header, passed + (header is not None), header)
    names = [name.strip() for name in header or ()]

    def read(include: Sequence[str], texts: Sequence[str]) -> Any:
        return _read_csv(path, form, dict(zip(names, header or (), strict=True)), include, texts, above=lines)

    return names, read


def check_header(path: Path, header: int, rows: int, cells: Sequence[Any] | None) -> None:
    """Raise InputError unless the row that is to have the names is among a file's rows and has some, its `cells`."""
    if rows == 0:
        raise InputError(f"{path} is empty; allowed: a row with the names of the columns, then the rows")
    if cells is None:
        raise InputError(
            f"header = {header}, but {path} has {rows} rows; allowed: the row with the names of the columns"
        )
    if not any(cell is not None and str(cell).strip() for cell in cells):
        raise InputError(
            f"row {header} of {path} is empty; allowed: the names of the columns there, or another --header"
        )


def _read_csv(
    path: Path, form: Form, header: dict[str, str], include: Sequence[str], texts: Sequence[str], *, above: int
) -> Any:
    arrow, string = importlib.import_module("pyarrow.csv"), importlib.import_module("pyarrow").string()
    wrong: list[Any] = []

    def refuse(row: Any) -> str:
        wrong.append(row)
        return "error"

    try:
        with readable(path, ALLOWED):
            read = arrow.read_csv(
                path,
                # with threads it does not know the number of a wrong row
                read_options=arrow.ReadOptions(
                    use_threads=False, encoding=form.encoding.replace("utf-8", "utf8"), skip_rows=above
                ),
                # of a single column, an empty line is a row without a value
                parse_options=arrow.ParseOptions(
                    delimiter=form.delimiter,
                    newlines_in_values=True,
                    ignore_empty_lines=len(header) > 1,
                    invalid_row_handler=refuse,
                ),
                convert_options=arrow.ConvertOptions(
                    decimal_point=form.decimal,
                    include_columns=[header[name] for name in include],
                    column_types={header[name]: string for name in texts},  # 007 is not 7
                    null_values=sorted(NULLS),
                ),
            )
    except InputError:
        if not wrong:
            raise
        commas = form.delimiter == "," and wrong[0].actual_columns > len(header)
        hint = " (with decimal commas, another --delimiter between the values)" if commas else ""
        raise InputError(
            f"{path}: {row_of_file(wrong[0].number - above - 2, form.header)} has {wrong[0].actual_columns} values; "
            f"allowed: one for each of the {len(header)} columns{hint}"
        ) from None
    return read.rename_columns(list(include))


MOST_CELLS = 50_000_000
"""Of a sheet, from its first to its last row and column that hold something."""


class Sheet(NamedTuple):
    """A spreadsheet's first sheet: its name, how many there are, and rows of cells, the first of which has names."""

    name: str
    sheets: int
    rows: list[list[Any]]


def read_sheet(path: Path, header: int = 1) -> Sheet:
    """Read the first sheet of an .xlsx file from the row `header` on, results of formulas as the spreadsheet left them.

    Raises InputError: without openpyxl, and for a file that is missing, damaged or none of these, or has no names
    there; for a cell so far from the others that there are more than `MOST_CELLS` between: a small file can have one,
    and each would take memory.
    """
    try:
        openpyxl = importlib.import_module("openpyxl")
    except ImportError:
        raise InputError(
            f"{path} is read by openpyxl, which is missing; allowed: pip install 'fedkernel[xlsx]', or a .csv file"
        ) from None
    with readable(path, "a spreadsheet, .xlsx"), path.open("rb") as stream, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of styles and extensions that are not read
        try:
            book = openpyxl.load_workbook(stream, read_only=True, data_only=True)
            rows = _filled(path, book.worksheets[0]) if book.worksheets else []
        except SyntaxError:  # the XML's; its text quotes the file
            raise InputError(f"{path} is damaged or no spreadsheet (ParseError); allowed: .xlsx") from None
    while rows and all(cell is None for cell in rows[-1]):
        rows.pop()  # formatted, and empty
    check_header(path, header, len(rows), rows[header - 1] if header <= len(rows) else None)
    rows = rows[header - 1 :]
    width = max((place + 1 for row in rows for place, cell in enumerate(row) if cell is not None), default=0)
    padded = [row[:width] + [None] * (width - len(row)) for row in rows]
    return Sheet(book.worksheets[0].title if book.worksheets else "", len(book.worksheets), padded)


def _filled(path: Path, sheet: Any) -> list[list[Any]]:
    """Return the rows of a sheet, each up to its last cell that holds something."""
    rows, width, last, cut = list[list[Any]](), 0, None, list[Any]()
    for row in sheet.iter_rows(values_only=True):
        if row is not last:  # rows that are not there are all the same one
            last, cut = row, list(row)
            while cut and cut[-1] is None:
                cut.pop()
        rows.append(cut)
        width = max(width, len(cut))
        if cut and len(rows) * width > MOST_CELLS:
            raise InputError(
                f"{path} reaches to row {len(rows):,} and column {width:,}; allowed: {MOST_CELLS:,} cells, or .parquet"
            )
    return rows


def open_sheet(path: Path, header: int = 1) -> tuple[list[str], Reader]:
    """Return the names in a row of a spreadsheet's first sheet, and what reads the columns below."""
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
            return arrow.array([None if cell in NULLS else cell for cell in cells])
        except (arrow.ArrowInvalid, arrow.ArrowTypeError, OverflowError):  # numbers beside texts
            return arrow.array(texts, arrow.string())

    def read(include: Sequence[str], texts: Sequence[str]) -> Any:
        return arrow.table([column(name, name in texts) for name in include], names=list(include))

    return names, read


def text_of(cell: Any) -> str:
    """Return a spreadsheet's cell as a text: what it shows, without blanks around, and 7 for the number 7.0."""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell).strip()


def open_parquet(path: Path) -> tuple[list[str], Reader]:
    """Return the names of a parquet file's columns, and what reads some of them."""
    parquet = importlib.import_module("pyarrow.parquet")
    with readable(path):
        schema = parquet.read_schema(path)
    names = [name.strip() for name in schema.names]
    stored = dict(zip(names, schema.names, strict=True))

    def read(include: Sequence[str], texts: Sequence[str]) -> Any:
        columns = [stored[name] for name in include]
        with readable(path):
            return parquet.read_table(path, columns=columns).select(columns).rename_columns(list(include))

    return names, read
