"""Clients' tables as they are given in Python, as raw tables: frames with their names, arrays by position."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedkernel.arrays import AnyArray
from fedkernel.data import Divided, Prepare, RawTable
from fedkernel.data.frames import is_frame, without_names
from fedkernel.data.raw_frames import raw_table
from fedkernel.errors import InputError
from fedkernel.preparing.table import TableToPrepare


def tables_to_prepare(
    shards: Sequence[Any],
    prepare: Prepare,
    partition: Divided,
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
    raws = [_checked(raw_table(shard, f"{what}[{number}]", common)) for number, shard in enumerate(shards)]
    if partition == "vertical":
        raws = [raw.take(places) for raw, places in zip(raws, _places(shards, what), strict=True)]
    news: list[RawTable | None] = [None] * len(raws)
    if new_shards is not None:
        news = [
            _checked(raw_table(shard, f"new_{what}[{number}]", raw.names))
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


def _checked(raw: RawTable) -> RawTable:
    if not raw.columns or not raw.rows:
        raise InputError(f"{raw.what} has no {'rows' if raw.columns else 'columns'}; allowed: at least one")
    return raw
