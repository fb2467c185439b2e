"""Column names of frames, and numeric columns of pyarrow tables."""

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkernel.data.frame_alignment import frame_columns, is_frame
from fedkernel.ground import AnyArray, InputError, row_of_file


def column_names(tables: Sequence[Any]) -> tuple[str, ...]:
    """Return the first frame's column names; () if there is no frame or its columns are only numbered."""
    labels = (frame_columns(table) for table in tables if is_frame(table))
    return next((tuple(map(str, own)) for own in labels if set(own) != set(range(len(own)))), ())


def is_numeric(kind: Any) -> bool:
    """Return whether a pyarrow type is numeric; true and false count as 1 and 0."""
    types = importlib.import_module("pyarrow.types")
    return any(is_kind(kind) for is_kind in (types.is_integer, types.is_floating, types.is_boolean))


def stack_columns(read: Any, dtype: npt.DTypeLike, title: str, first: int = 0, header: int = 1) -> AnyArray:
    """Return a pyarrow table's numeric columns as an array of shape (n, d); InputError for an empty cell.

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
    """Return the values of a numeric pyarrow column, arbitrary at nulls.

    pyarrow's own ``to_numpy`` would import pandas, for a quarter of a second.
    """
    array = column.combine_chunks()
    data, first, count = array.buffers()[1], array.offset, len(array)
    if str(array.type) == "bool":  # eight per byte
        bits = np.unpackbits(np.frombuffer(data or b"", np.uint8), count=first + count, bitorder="little")
        return bits[first:].astype(bool)
    kind = np.dtype(NUMPY_FLOATS.get(str(array.type), str(array.type)))
    return np.frombuffer(data or b"", kind, count, first * kind.itemsize)


NUMPY_FLOATS = {"double": "float64", "float": "float32", "halffloat": "float16"}
"""numpy's names of pyarrow's types; integers have the same names."""
