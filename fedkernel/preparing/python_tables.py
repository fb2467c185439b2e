"""Conversion of all clients' tables given in Python to raw tables: frames by column name, arrays by position."""

from collections.abc import Sequence
from typing import Any

from fedkernel.data import Prepare, RawTable, is_frame, raw_table, rows_in_order
from fedkernel.ground import Division, InputError
from fedkernel.preparing.raw_table import TableToPrepare


def tables_to_prepare(
    shards: Sequence[Any],
    prepare: Prepare,
    partition: Division,
    new_shards: Sequence[Any] | None = None,
    *,
    id_: str | None = None,
) -> list[TableToPrepare]:
    """Convert clients' tables to raw tables; with a horizontal partition, arrays get the first frame's names.

    - `shards`: NaN or None for a missing cell. With a vertical partition, frames' rows get the first one's order.
    - `new_shards`: rows that came after training, of each client.
    - `id_`: name of the column, or index, with the row ids in all shards; it is not a column of the tables.

    Raises InputError for a table of an unknown type, and like `frames.aligned_arrays` and `TableToPrepare`.
    """
    if not len(shards):
        raise InputError("shards is empty, but at least one client is needed")
    orders = rows_in_order(shards, partition, "shards", id_)
    with_names = (shard for shard in shards if isinstance(shard, RawTable) or is_frame(shard))
    named = next((raw_table(shard, "shards", id_=id_).names for shard in with_names), ())
    common = named if partition == "horizontal" else ()
    raws = [_checked(raw_table(shard, f"shards[{number}]", common, id_)) for number, shard in enumerate(shards)]
    raws = [raw if order is None else raw.take(order) for raw, order in zip(raws, orders, strict=True)]
    news: list[RawTable | None] = [None] * len(raws)
    if new_shards is not None:
        news = [
            _checked(raw_table(shard, f"new_shards[{number}]", raw.names))
            for number, (shard, raw) in enumerate(zip(new_shards, raws, strict=True))
        ]
    return [TableToPrepare(raw, prepare, new) for raw, new in zip(raws, news, strict=True)]


def _checked(raw: RawTable) -> RawTable:
    if not raw.columns or not raw.rows:
        raise InputError(f"{raw.title} has no {'rows' if raw.columns else 'columns'}; allowed: at least one")
    return raw
