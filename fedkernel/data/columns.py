"""Columns: what frames call them; whether those that pyarrow reads hold numbers, and these put side by side."""

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkernel.data.frames import frame_columns, is_frame
from fedkernel.ground import AnyArray, InputError, row_of_file


def column_names(tables: Sequence[Any]) -> tuple[str, ...]:
    """Return the names of the columns of the first frame among tables with the same columns; () if these have none."""
    labels = (frame_columns(table) for table in tables if is_frame(table))
    return next((tuple(map(str, own)) for own in labels if set(own) != set(range(len(own)))), ())


def is_numeric(kind: Any) -> bool:
    """Whether a column of this pyarrow type holds numbers; true and false are 1 and 0."""
    types = importlib.import_module("pyarrow.types")
    return any(is_kind(kind) for is_kind in (types.is_integer, types.is_floating, types.is_boolean))


def stack_columns(read: Any, dtype: npt.DTypeLike, what: str, first: int = 0, header: int = 1) -> AnyArray:
    """Return the columns of a pyarrow table of numbers side by side, or an InputError that names an empty cell.

    `what`: how the error text calls it. `first`: the number of its first row, for the error text. `header`: the row of
    its file that has the names. Returns ndarray of shape (n, d).
    """
    table = np.empty(read.shape, dtype)
    for place, (name, column) in enumerate(zip(read.column_names, read.columns, strict=True)):
        if column.null_count:
            row = int(np.flatnonzero(entries_of(column.is_null()))[0]) + first
            raise InputError(
                f"{what}: {row_of_file(row, header)}, column {name!r} holds no value; allowed: finite numbers only"
            )
        table[:, place] = entries_of(column)
    return table


def entries_of(column: Any) -> AnyArray:
    """Return what a column of pyarrow's holds, which is numeric: anything where it has a null.

    So does pyarrow's own ``to_numpy``; but that imports pandas where it is installed, for a quarter of a second.
    """
    array = column.combine_chunks()
    data, first, count = array.buffers()[1], array.offset, len(array)
    if str(array.type) == "bool":  # eight to a byte
        bits = np.unpackbits(np.frombuffer(data or b"", np.uint8), count=first + count, bitorder="little")
        return bits[first:].astype(bool)
    kind = np.dtype(FLOATS.get(str(array.type), str(array.type)))
    return np.frombuffer(data or b"", kind, count, first * kind.itemsize)


FLOATS = {"double": "float64", "float": "float32", "halffloat": "float16"}
"""NumPy's names of types, by pyarrow's; integers are called the same."""
