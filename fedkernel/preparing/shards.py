"""Clients' tables as they are given in Python, as raw tables: frames with their names, arrays by position."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from fedkernel.arrays import AnyArray
from fedkernel.data import Prepare, RawTable, Table
from fedkernel.data.frames import is_frame, without_names
from fedkernel.errors import InputError
from fedkernel.preparing.protocol import Partition
from fedkernel.preparing.table import TableToPrepare


def tables_to_prepare(
    shards: Sequence[Any],
    prepare: Prepare,
    partition: Partition,
    new_shards: Sequence[Any] | None = None,
    what: str = "shards",
) -> list[TableToPrepare]:
    """Return clients' tables as raw ones; arrays have the names of the first frame's columns, where rows are divided.

    Parameters
    ----------
    shards : sequence of RawTable, frame or array-like
        NaN or None where a cell is missing. Frames are taken by their rows as they stand.
    prepare : Prepare
    partition : {"vertical", "horizontal"}
    new_shards : sequence, optional
        Rows that came after training, of each client.
    what : str
        How error texts call `shards`.

    Raises
    ------
    InputError
        A table of another kind, or see `TableToPrepare`.
    """
    if not len(shards):
        raise InputError(f"{what} is empty, but at least one client is needed")
    named = next((raw_table(shard, what).names for shard in shards if _has_names(shard)), ())
    common = named if partition == "horizontal" else ()
    raws = [raw_table(shard, f"{what}[{number}]", common) for number, shard in enumerate(shards)]
    if partition == "vertical":
        raws = [raw.take(places) for raw, places in zip(raws, _places(shards, what), strict=True)]
    news: list[RawTable | None] = [None] * len(raws)
    if new_shards is not None:
        news = [
            raw_table(shard, f"new_{what}[{number}]", raw.names)
            for number, (shard, raw) in enumerate(zip(new_shards, raws, strict=True))
        ]
    return [TableToPrepare(raw, prepare, new) for raw, new in zip(raws, news, strict=True)]


def _has_names(shard: Any) -> bool:
    return isinstance(shard, RawTable) or is_frame(shard)


class _Places:
    """A frame's rows by their positions, for what puts frames' rows in the first one's order."""

    columns = ("position",)

    def __init__(self, frame: Any) -> None:
        self.rows = len(frame)
        if hasattr(frame, "index"):
            self.index = frame.index

    def to_numpy(self) -> AnyArray:
        return np.arange(self.rows)[:, None]


def _places(shards: Sequence[Any], what: str) -> list[AnyArray]:
    """Return where each table has the rows of the first frame's index, as `fit` finds them without preparing."""
    places = without_names([_Places(shard) if is_frame(shard) else shard for shard in shards], "vertical", what)
    return [
        place[:, 0] if is_frame(shard) else np.arange(shard.rows if isinstance(shard, RawTable) else len(shard))
        for shard, place in zip(shards, places, strict=True)
    ]


def raw_table(shard: Any, what: str, names: Sequence[str] = ()) -> RawTable:
    """Return one table as a raw one; an array with so many columns has these names."""
    if isinstance(shard, RawTable):
        return shard
    if is_frame(shard):
        labels = list(shard.columns)
        if len({str(label) for label in labels}) < len(labels):
            raise InputError(f"{what} has two columns of one name; allowed: names that differ")
        cells = {str(label): _cells(shard[label], f"{what}: column {str(label)!r}") for label in labels}
        return _checked(RawTable(cells, what))
    if isinstance(shard, Table) or sparse.issparse(shard):
        raise InputError(f"{what} is a {type(shard).__name__}; allowed where it is prepared: frames, arrays of numbers")
    try:
        X = np.asarray(shard, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{what} is no array of numbers; allowed: frames, arrays of numbers with NaN") from None
    if X.ndim != 2:
        raise InputError(f"{what} has shape {X.shape}; allowed: rows and columns")
    own = names if len(names) == X.shape[1] else [str(place) for place in range(X.shape[1])]
    return _checked(RawTable.of_array(X, own, what) if X.shape[1] else RawTable({}, what))


def _checked(raw: RawTable) -> RawTable:
    if not raw.columns or not raw.rows:
        raise InputError(f"{raw.what} has no {'rows' if raw.columns else 'columns'}; allowed: at least one")
    return raw


def _cells(column: Any, what: str) -> AnyArray:
    """Return a frame's column as floats with NaN, or as texts with None; what is not known to be missing is not."""
    values = np.asarray(column.to_numpy())
    if values.dtype.kind in "biuf":
        return np.asarray(values, dtype=np.float64)
    cells = [None if _is_missing(cell) else cell for cell in values.tolist()]
    if all(cell is None or isinstance(cell, int | float) for cell in cells):
        return np.array([np.nan if cell is None else float(cell) for cell in cells])
    if not all(cell is None or isinstance(cell, str) for cell in cells):
        raise InputError(f"{what} holds {values.dtype}; allowed: numbers or text")
    texts = np.empty(len(cells), dtype=object)
    texts[:] = cells
    return texts


def _is_missing(cell: Any) -> bool:
    """Tell None, NaN, and what pandas has for them, all of which equal nothing, themselves included."""
    return cell is None or type(cell).__name__ in ("NAType", "NaTType") or cell != cell  # noqa: PLR0124 - only NaN is not itself
