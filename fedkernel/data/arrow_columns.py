"""Numeric columns and row ids of pyarrow tables. Row ids are unique texts."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkernel.ground import AnyArray, InputError, row_of_file


def is_numeric(kind: Any) -> bool:
    """Return whether a pyarrow type is numeric; true and false count as 1 and 0."""
    types = importlib.import_module("pyarrow.types")
    return any(is_kind(kind) for is_kind in (types.is_integer, types.is_floating, types.is_boolean))


def stack_columns(read: Any, dtype: npt.DTypeLike, title: str, first: int = 0, header: int = 1) -> AnyArray:
    """Return a pyarrow table's numeric columns as an array of shape (n, d). Raises InputError for an empty cell.

    For the error text: `title` names the table, `first` is the number of its first row, `header` the row of names.
    """
    table = np.empty(read.shape, dtype)
    for place, (name, column) in enumerate(zip(read.column_names, read.columns, strict=True)):
        if column.null_count:
            row = int(np.flatnonzero(column_values(column.is_null()))[0]) + first
            cell = f"{row_of_file(row, header)}, column {name!r}"
            raise InputError(f"{title}: {cell} holds no value; allowed: finite numbers only")
        table[:, place] = column_values(column)
    return table


def column_values(column: Any) -> AnyArray:
    """Return a numeric pyarrow column's values, arbitrary at nulls. Unlike ``to_numpy``, it does not import pandas."""
    array = column.combine_chunks()
    data, first, count = array.buffers()[1], array.offset, len(array)
    if str(array.type) == "bool":  # eight per byte
        bits = np.unpackbits(np.frombuffer(data or b"", np.uint8), count=first + count, bitorder="little")
        return bits[first:].astype(bool)
    kind = np.dtype(NUMPY_FLOATS.get(str(array.type), str(array.type)))
    return np.frombuffer(data or b"", kind, count, first * kind.itemsize)


NUMPY_FLOATS = {"double": "float64", "float": "float32", "halffloat": "float16"}  # integers have the same names


def ids_of(name: str | None, path: Path, read: Any, header: int = 1) -> tuple[str, ...] | None:
    """Return a pyarrow column's ids. Raises InputError unless present and unique. `header`: row of the names."""
    if name is None:
        return None
    column, types = read.column(name), importlib.import_module("pyarrow.types")
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not any(is_kind(column.type) for is_kind in (types.is_integer, types.is_string, types.is_large_string)):
        raise InputError(f"{path}: column {name!r} holds {column.type}; allowed for ids: text or whole numbers")
    ids = ["" if id_ is None else str(id_) for id_ in column.to_pylist()]
    return checked_ids(ids, f"{path}: column {name!r}", header + 1)


def checked_ids(ids: list[str], title: str, begin: int = 0) -> tuple[str, ...]:
    """Check that every row has a unique id; return the ids. Errors count rows from `begin` and quote no id."""
    first: dict[str, int] = {}
    counted = "counted from 0" if begin == 0 else f"row {begin - 1} has the names"
    for row, id_ in enumerate(ids, begin):
        if not id_.strip():
            raise InputError(f"{title}: row {row} ({counted}) has no id; allowed: an id for each row")
        if (other := first.setdefault(id_, row)) != row:
            raise InputError(f"{title}: rows {other} and {row} ({counted}) have the same id; allowed: unique ids")
    return tuple(ids)
