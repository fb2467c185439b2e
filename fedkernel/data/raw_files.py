"""A site's file as it is, for whoever looks for its faults or prepares it: empty cells, columns of text, and labels."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from fedkernel.arrays import AnyArray
from fedkernel.data.columns import is_numeric
from fedkernel.data.raw import RawTable
from fedkernel.data.site_files import SiteFile, ids_of
from fedkernel.data.tables import readable
from fedkernel.errors import InputError


def read_raw(file: SiteFile) -> RawTable:
    """Read a site's file with everything that `SiteFile.read` refuses: empty cells and text in the table's columns.

    The label, which is kept out, is there beside it. Ids and the choice of columns are as `SiteFile` says.

    Raises
    ------
    InputError
        A file that is missing, empty, damaged or of another kind; a column that is not there; wrong ids.
    """
    path = Path(file.path).expanduser()
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".parquet"):
        data = file.read()
        names = data.columns or [str(place) for place in range(data.X.shape[1])]
        return RawTable(dict(zip(names, np.asarray(data.X).T, strict=True)), str(path), data.ids)
    read = _read_csv(file, path) if suffix == ".csv" else _read_parquet(path)
    if read.num_rows == 0:
        raise InputError(f"{path} has no rows; allowed: at least one below the names of the columns")
    chosen = file.choose(path, read.column_names)
    labels = {} if file.label is None else {file.label: _texts(read.column(file.label))}
    columns = {name: _column(read.column(name)) for name in chosen}
    return RawTable(columns, str(path), ids_of(file, path, read), labels)


def _read_csv(file: SiteFile, path: Path) -> Any:
    arrow = importlib.import_module("pyarrow.csv")
    text = {name: importlib.import_module("pyarrow").string() for name in (file.id, file.label) if name is not None}
    with readable(path, "text in UTF-8, with commas between the values"):
        return arrow.read_csv(
            path,
            read_options=arrow.ReadOptions(use_threads=False),
            parse_options=arrow.ParseOptions(newlines_in_values=True),
            convert_options=arrow.ConvertOptions(column_types=text, strings_can_be_null=True),
        )


def _read_parquet(path: Path) -> Any:
    with readable(path):
        return importlib.import_module("pyarrow.parquet").read_table(path)


def _column(column: Any) -> AnyArray:
    """Return a column of numbers with NaN where a cell is empty, or one of texts with None; of nothing, of numbers."""
    if str(column.type) == "null":
        return np.full(len(column), np.nan)
    if not is_numeric(column.type):
        return _texts(column)
    return np.array(column.cast(importlib.import_module("pyarrow").float64()).to_numpy(), dtype=np.float64)


def _texts(column: Any) -> AnyArray:
    texts = np.empty(len(column), dtype=object)
    texts[:] = [None if cell is None else str(cell) for cell in column.to_pylist()]
    return texts
