"""Reading and checking of row ids, unique texts, from a site's table."""

import importlib
from pathlib import Path
from typing import Any

from fedkernel.ground import InputError


def ids_of(name: str | None, path: Path, read: Any, header: int = 1) -> tuple[str, ...] | None:
    """Return the row ids in a column of a pyarrow table; InputError if they are missing or not unique.

    `header`: the file's row with the names.
    """
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
    """Check that every row has a unique id and return the ids.

    Error texts give row numbers, never an id: from `begin`, for a file its first row below the names.
    """
    first: dict[str, int] = {}
    counted = "counted from 0" if begin == 0 else f"row {begin - 1} has the names"
    for row, id_ in enumerate(ids, begin):
        if not id_.strip():
            raise InputError(f"{title}: row {row} ({counted}) has no id; allowed: an id for each row")
        if (other := first.setdefault(id_, row)) != row:
            raise InputError(f"{title}: rows {other} and {row} ({counted}) have the same id; allowed: unique ids")
    return tuple(ids)
