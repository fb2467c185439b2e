"""Conversion of clients' tables given in Python to raw tables: frames by name, arrays by position."""

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
    """Convert clients' tables to raw ones; if rows are divided, arrays take the first frame's column names.

    - `shards`: NaN or None for a missing cell. If columns are divided, frames' rows take the first one's order.
    - `new_shards`: rows that came after training, of each client.
    - `id_`: the column of all shards, or index of that name, with the rows' ids; it is no column of the table.

    Raises InputError: a table of another kind, or a fault for `frames.aligned_arrays` or `TableToPrepare`.
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
