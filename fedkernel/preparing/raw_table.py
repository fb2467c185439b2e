"""Raw table of a site in a run with preparation: its usable rows, and its prepared form."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedkernel.data import LARGEST, Preparation, Prepare, RawTable, is_frame, is_text, raw_table, rows_in_order
from fedkernel.ground import AnyArray, Division, FloatArray, InputError


class TableToPrepare:
    """Raw table of a site without dropped rows, together with a cache of the form that was last prepared.

    `new`: rows that came after training. `kept` (n,): positions of the usable rows in the given table; None: all.
    Raises InputError: a refused empty cell, a number beyond `LARGEST`, no usable row; see `Prepare`.
    """

    def __init__(self, raw: RawTable, prepare: Prepare, new: RawTable | None = None) -> None:
        for table in (raw, new):
            if table is not None:
                _check_finite(table)
        whole = prepare.usable_rows(raw)
        if not whole.any():
            raise InputError(f"{raw.title} has no row without an empty cell, but needs at least one")
        self.prepare, self.new = prepare, new
        self.kept: AnyArray | None = None if whole.all() else np.flatnonzero(whole)
        self.raw = raw if self.kept is None else raw.take(self.kept)
        self._ready: tuple[tuple[str, bytes | None], FloatArray] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of usable rows and of columns of the raw table."""
        return self.raw.shape

    @property
    def title(self) -> str:
        """Name of the table in error texts."""
        return self.raw.title

    def rows(self, positions: AnyArray | None) -> RawTable:
        """Return the raw rows at positions among the usable ones. None stands for all rows."""
        return self.raw if positions is None else self.raw.take(positions)

    def prepared(self, preparation: str, positions: AnyArray | None = None) -> FloatArray:
        """Return rows prepared by a `Preparation`, given as text. `positions`: among the usable rows; None: all."""
        key = preparation, None if positions is None else positions.tobytes()
        ready = self._ready
        if ready is None or ready[0] != key:
            self._ready = ready = key, from_text(preparation).apply(self.rows(positions))[0]
        return ready[1]

    def prepared_new(self, preparation: str) -> FloatArray | None:
        """Return the prepared new rows, or None without any. InputError: one would be dropped for its empty cells."""
        if self.new is None:
            return None
        X, positions = from_text(preparation).apply(self.new)
        if len(positions) < self.new.rows:
            empty = self.new.rows - len(positions)
            raise InputError(f"{self.new.title} has {empty} rows with empty cells; allowed: none")
        return X


def to_text(preparation: Preparation) -> str:
    """Write a preparation as JSON that keeps every bit of its numbers, for `from_text`."""
    return json.dumps(preparation.to_table())


def from_text(text: str) -> Preparation:
    """Read a preparation that `to_text` wrote."""
    return Preparation.from_table(json.loads(text))


def _check_finite(raw: RawTable) -> None:
    for name, column in raw.columns.items():
        if not is_text(column) and (beyond := np.abs(column) > LARGEST).any():
            cell = f"{raw.title}: {raw.row(int(np.argmax(beyond)))}, column {name!r}"
            raise InputError(f"{cell} is not finite, or beyond {LARGEST:g}; allowed: numbers up to it, empty cells")


def tables_to_prepare(
    shards: Sequence[Any],
    prepare: Prepare,
    partition: Division,
    new_shards: Sequence[Any] | None = None,
    *,
    id_: str | None = None,
) -> list[TableToPrepare]:
    """Convert clients' tables to raw tables. With a horizontal partition, arrays get the first frame's column names.

    `shards`: NaN or None for a missing cell. With a vertical partition, frames' rows get the first one's order.
    `new_shards`: rows that came after training, of each client. `id_`: name of the column, or index, with the row ids
    in all shards; it is not a column of the tables. Raises InputError for a table of an unknown type, and like
    `fedkernel.data.aligned_arrays` and `TableToPrepare`.
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
