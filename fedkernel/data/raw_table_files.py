"""Reading of a site's file as a raw table, with empty cells, text columns and labels; writing as parquet."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from fedkernel.data.column_readers import MISSING_TEXTS
from fedkernel.data.ids import ids_of
from fedkernel.data.numeric_columns import column_values, is_numeric
from fedkernel.data.raw import RawTable, is_text
from fedkernel.data.site_files import SiteFile, read_columns
from fedkernel.ground import AnyArray


def read_raw(file: SiteFile) -> RawTable:
    """Read a site's file with empty cells, text columns and labels, which `SiteFile.read` refuses.

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
    """Return a pyarrow column as floats with NaN or texts with None; an empty column is numeric."""
    if str(column.type) == "null":
        return np.full(len(column), np.nan)
    if not is_numeric(column.type):
        return _texts(column)
    floats = column.cast(importlib.import_module("pyarrow").float64())
    values = np.array(column_values(floats))
    values[column_values(floats.is_null())] = np.nan
    return values


def _texts(column: Any) -> AnyArray:
    texts = np.empty(len(column), dtype=object)
    texts[:] = [None if cell is None or str(cell) in MISSING_TEXTS else str(cell) for cell in column.to_pylist()]
    return texts
