"""Conversion of one Python table, frame or array, to a raw table."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from fedkernel.data.block_tables import Table
from fedkernel.data.frame_alignment import frame_columns, is_frame, is_missing
from fedkernel.data.raw import RawTable
from fedkernel.ground import AnyArray, InputError


def raw_table(table: Any, title: str, names: Sequence[str] = (), id_: str | None = None) -> RawTable:
    """Convert a frame or array to a raw table.

    - `table` (n, d): NaN or None for missing cells.
    - `title`: its name in error texts.
    - `names`: names of an array's columns; unused if their number differs, then the names are "0", "1", ...
    - `id_`: a frame's column of row ids, which is left out.

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
    texts = np.empty(len(cells), dtype=object)
    texts[:] = cells
    return texts
