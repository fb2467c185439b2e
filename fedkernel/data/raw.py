"""Raw table of a site, from a frame, array or file: cells may be missing, columns may be text."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fedkernel.data.arrow_columns import column_values, ids_of, is_numeric
from fedkernel.data.block_tables import Table
from fedkernel.data.column_readers import MISSING_TEXTS
from fedkernel.data.frame_alignment import frame_columns, is_frame, is_missing
from fedkernel.data.site_files import SiteFile, read_columns
from fedkernel.ground import AnyArray, FloatArray, InputError, Positions, listed, row_of_file

Texts = npt.NDArray[Any]  # column of text: objects, None for a missing cell


@dataclass(frozen=True)
class RawTable:
    """Raw table: named columns of one length, before any preparation. `title`: the table's name in error texts.

    - `columns` (n,): in the file's order: float64 with NaN, or texts with None, for missing cells.
    - `ids`, `labels` (n,): one id per row; columns kept out of the table, as texts or None.
    - `places` (n,): each row's position in a file with names, 0 for the first row below them; None without such a file.
    - `header`: the file's row with the names, as a spreadsheet counts.
    """

    columns: Mapping[str, AnyArray]
    title: str = "the table"
    ids: tuple[str, ...] | None = None
    labels: Mapping[str, Texts] = field(default_factory=dict)
    places: Positions | None = None
    header: int = 1

    @classmethod
    def of_array(cls, X: FloatArray, names: Sequence[str] = (), title: str = "the table") -> Self:
        """Build a raw table from an array (n, d), with NaN for missing cells. Default names: "0", "1", and so on."""
        numbers = np.asarray(X, dtype=np.float64)
        known = names or [str(place) for place in range(numbers.shape[1])]
        return cls(dict(zip(known, numbers.T, strict=True)), title)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.columns)

    @property
    def rows(self) -> int:
        """Number of rows, n."""
        return len(next(iter(self.columns.values())))

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self.rows, len(self.columns)

    def take(self, positions: AnyArray) -> Self:
        """Return a table of the rows at given positions, in that order, or of those in a mask (n,)."""
        places = np.flatnonzero(positions) if positions.dtype == bool else positions
        return replace(
            self,
            columns={name: column[places] for name, column in self.columns.items()},
            ids=None if self.ids is None else tuple(self.ids[place] for place in places),
            labels={name: column[places] for name, column in self.labels.items()},
            places=None if self.places is None else self.places[places],
        )

    def row(self, position: int) -> str:
        """Return a row's number for error texts. Rows of a file are counted as a spreadsheet does."""
        if self.places is None:
            return f"row {position} (counted from 0)"
        return row_of_file(int(self.places[position]), self.header)

    def select(self, names: Sequence[str]) -> Self:
        """Return a table of the named columns, in this order. Raises InputError if one is missing."""
        if missing := [name for name in names if name not in self.columns]:
            raise InputError(f"{self.title} has no column {missing[0]!r}; there are: {listed(self.names)}")
        return replace(self, columns={name: self.columns[name] for name in names})


def is_text(column: AnyArray) -> bool:
    """Return whether a column of a `RawTable` is text."""
    return column.dtype.kind == "O"


def missing_cells(column: AnyArray) -> npt.NDArray[np.bool_]:
    """Return a mask of a column's missing cells."""
    if is_text(column):
        return np.array([cell is None for cell in column], dtype=bool)
    return np.isnan(column)


def raw_table(table: Any, title: str, names: Sequence[str] = (), id_: str | None = None) -> RawTable:
    """Convert a frame or array to a raw table.

    `table` (n, d): NaN or None for missing cells. `title`: its name in error texts. `names`: of an array's columns;
    unused if their number differs, then they are "0", "1", ... `id_`: a frame's column of row ids, which is left out.

    Raises InputError: a table of another kind, repeated names, cells that are neither numbers nor text.
    """
    if isinstance(table, RawTable):
        return table
    if is_frame(table):
        labels = [label for label in frame_columns(table) if label != id_]
        if len({str(label) for label in labels}) < len(labels):
            raise InputError(f"{title} has two columns of one name; allowed: unique names")
        cells = {str(label): _cells(table[label], f"{title}: column {str(label)!r}") for label in labels}
        return RawTable(cells, title)
    if isinstance(table, Table) or sparse.issparse(table):
        raise InputError(f"{title} is a {type(table).__name__}; allowed with preparation: frames, arrays of numbers")
    try:
        X = np.asarray(table, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{title} is no array of numbers; allowed: frames, arrays of numbers with NaN") from None
    if X.ndim != 2:
        raise InputError(f"{title} has shape {X.shape}; allowed: rows and columns")
    return RawTable.of_array(X, names if len(names) == X.shape[1] else (), title)


def _cells(column: Any, title: str) -> AnyArray:
    """Return a frame's column as floats with NaN, or as texts with None."""
    values = np.asarray(column.to_numpy())
    if values.dtype.kind in "biuf":
        return np.asarray(values, dtype=np.float64)
    cells = [None if is_missing(cell) else cell for cell in values.tolist()]
    if all(cell is None or isinstance(cell, int | float) for cell in cells):
        return np.array([np.nan if cell is None else float(cell) for cell in cells])
    if not all(cell is None or isinstance(cell, str) for cell in cells):
        raise InputError(f"{title} holds {values.dtype}; allowed: numbers or text")
    return text_column(cells)


def read_raw(file: SiteFile) -> RawTable:
    """Read a site's file with its labels. Unlike `SiteFile.read`, this allows empty cells and columns of text.

    Raises InputError: a file that is missing, empty, damaged or of another kind; a missing column; invalid ids.
    """
    path = Path(file.path).expanduser()
    if path.suffix.lower() not in (".csv", ".xlsx", ".parquet"):
        data = file.read()
        names = data.columns or [str(place) for place in range(data.X.shape[1])]
        return RawTable(dict(zip(names, np.asarray(data.X).T, strict=True)), str(path), data.ids)
    chosen, read = read_columns(file, path, file.labels)
    labels = {name: _texts(read.column(name)) for name in file.labels}
    columns = {name: column_of(read.column(name)) for name in chosen}
    ids = ids_of(file.id, path, read, file.header_row)
    return RawTable(columns, str(path), ids, labels, np.arange(read.num_rows), file.header_row)


def write_raw(raw: RawTable, path: Path) -> Path:
    """Write the columns of a raw table as .parquet, read back by `read_raw` bit for bit."""
    arrow, parquet = (importlib.import_module(name) for name in ("pyarrow", "pyarrow.parquet"))
    columns = {
        name: arrow.array(column, arrow.string() if is_text(column) else arrow.float64(), from_pandas=True)
        for name, column in raw.columns.items()
    }
    parquet.write_table(arrow.table(columns), path)
    return path


def column_of(column: Any) -> AnyArray:
    """Return a pyarrow column as floats with NaN or texts with None. A column without any value is numeric."""
    if str(column.type) == "null":
        return np.full(len(column), np.nan)
    if not is_numeric(column.type):
        return _texts(column)
    floats = column.cast(importlib.import_module("pyarrow").float64())
    values = np.array(column_values(floats))
    values[column_values(floats.is_null())] = np.nan
    return values


def _texts(column: Any) -> AnyArray:
    cells = column.to_pylist()
    return text_column([None if cell is None or str(cell) in MISSING_TEXTS else str(cell) for cell in cells])


def text_column(cells: list[Any]) -> AnyArray:
    """Return texts, or None, as a column of a `RawTable`."""
    texts = np.empty(len(cells), dtype=object)
    texts[:] = cells
    return texts
