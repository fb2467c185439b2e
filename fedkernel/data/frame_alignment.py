"""Alignment of clients' frames: columns by name, rows by index or a column of ids.

Frames are recognised by their attributes, without their libraries: ``columns`` and ``to_numpy``, perhaps ``index``, as
in pandas and polars, or ``column_names``, as in pyarrow. Default indices and names, 0 to n - 1, are positions.
"""

import logging
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkernel.ground import AnyArray, Division, InputError, and_more, listed

log = logging.getLogger(__name__)

Order = npt.NDArray[np.intp]


def is_frame(table: Any) -> bool:
    """Return whether a table has column names, as a frame does."""
    return hasattr(table, "column_names") or (hasattr(table, "columns") and hasattr(table, "to_numpy"))


def frame_columns(frame: Any) -> list[Hashable]:
    """Return a frame's column names in order."""
    return list(frame.column_names if hasattr(frame, "column_names") else frame.columns)


def column_names(tables: Sequence[Any]) -> tuple[str, ...]:
    """Return the column names of the first frame whose columns are not just numbered, or () without one."""
    labels = (frame_columns(table) for table in tables if is_frame(table))
    return next((tuple(map(str, own)) for own in labels if set(own) != set(range(len(own)))), ())


@dataclass(frozen=True)
class _Frame:
    """Frame with its column names and its rows' ids. `index` is None if rows are known by position."""

    frame: Any
    columns: list[Hashable]
    index: list[Hashable] | None

    def to_numpy(self) -> Any:
        """Return the named columns as an array of shape (n, d)."""
        if hasattr(self.frame, "column_names"):
            return np.asarray(self.frame.select(self.columns))
        named = [*self.frame.columns]
        return (self.frame if self.columns == named else self.frame[self.columns]).to_numpy()

    def values(self, column: Hashable) -> list[Any]:
        """Return a column's values."""
        cells = self.frame[column]
        listed = next((name for name in ("to_list", "to_pylist", "tolist") if hasattr(cells, name)), None)
        return list(cells) if listed is None else list(getattr(cells, listed)())


def is_missing(cell: Any) -> bool:
    """Return whether a cell is None, NaN or pandas' NA or NaT."""
    return cell is None or type(cell).__name__ in ("NAType", "NaTType") or cell != cell  # noqa: PLR0124 - only NaN differs from itself


def _as_frame(table: Any, name: str, id_: str | None) -> Any:
    """Return a frame as a `_Frame` without its id column, and any other table unchanged."""
    if not is_frame(table):
        if id_ is not None:
            raise InputError(f"id = {id_!r}, but {name} is no frame; allowed: frames that all have that column")
        return table
    columns = frame_columns(table)
    index = table.index if hasattr(table, "index") else None
    if id_ is None:
        return _Frame(table, columns, None if index is None else list(index))
    if id_ in columns:
        frame = _Frame(table, [column for column in columns if column != id_], None)
        ids = frame.values(id_)
    elif index is not None and index.name == id_:
        frame, ids = _Frame(table, columns, None), list(index)
    else:
        raise InputError(f"id = {id_!r}, but {name} has no such column; there are: {listed([*map(str, columns)])}")
    if blank := [row for row, label in enumerate(ids) if is_missing(label) or not str(label).strip()]:
        raise InputError(f"{name}: row {blank[0]} (counted from 0) has no id in {id_!r}; allowed: an id for each row")
    return replace(frame, index=ids)


def aligned_arrays(
    shards: Sequence[Any],
    partition: Division,
    what: str = "shards",
    trained: Sequence[Any] = (),
    id_: str | None = None,
) -> list[Any]:
    """Convert clients' frames to arrays that are aligned across clients. Other tables are unchanged.

    Horizontal: columns take the order of the first frame's. Vertical: rows take the order of the first frame's ids or
    index, if frames have one of their own. `what`: name of `shards` in error texts. `trained`: the clients' training
    tables if `shards` are new rows: columns take their order. `id_`: column, or index, with row ids; it is dropped.
    Raises InputError: one table in place of a list; frames that differ in columns or rows, or an index on only some
    tables; for vertical tables, a column of several frames that looks like ids in different orders.
    """
    if getattr(shards, "ndim", 0) == 2:
        split = f"numpy.array_split(X, 3, axis={0 if partition == 'horizontal' else 1})"
        raise InputError(f"{what} is one table, but must be a list with one for each client, such as {split}")
    tables = {f"{what}[{number}]": _as_frame(shard, f"{what}[{number}]", id_) for number, shard in enumerate(shards)}
    columns, rows = _orders(tables, partition, trained, id_)
    return [
        _ordered(shard.to_numpy(), rows.get(name), columns.get(name)) if isinstance(shard, _Frame) else shard
        for name, shard in tables.items()
    ]


def rows_in_order(
    shards: Sequence[Any], partition: Division, what: str = "shards", id_: str | None = None
) -> list[Order | None]:
    """Return each table's row order in `aligned_arrays`, or None if unchanged. Parameters and errors are as there.

    Horizontal tables keep their rows and may differ in columns.
    """
    tables = {f"{what}[{number}]": _as_frame(shard, f"{what}[{number}]", id_) for number, shard in enumerate(shards)}
    rows = _orders(tables, partition, (), id_)[1] if partition == "vertical" else {}
    return [rows.get(name) for name in tables]


def labels_in_order(
    labels: Sequence[Any], shards: Sequence[Any], partition: Division, id_: str | None = None
) -> list[AnyArray | None]:
    """Return the clients' labels in the row order of `aligned_arrays`, or None for a client without labels.

    `labels` (n_m,): per shard, in the order of its rows, or of a series' own index. Raises InputError: another number
    of entries than shards, or of labels than rows; a missing label; an index that is not the shard's.
    """
    if len(labels) != len(shards):
        raise InputError(f"y has {len(labels)} entries, but there are {len(shards)} shards; allowed: one for each")
    orders = rows_in_order(shards, partition, id_=id_)
    pairs = enumerate(zip(labels, shards, strict=True))
    checked = [None if own is None else _labels(own, shard, number) for number, (own, shard) in pairs]
    return [y if y is None or order is None else y[order] for y, order in zip(checked, orders, strict=True)]


def _labels(own: Any, shard: Any, number: int) -> AnyArray:
    y = np.asarray(own)
    if y.ndim != 1 or (hasattr(shard, "shape") and len(y) != shard.shape[0]):
        raise InputError(f"y[{number}] has shape {y.shape}; allowed: one label for each row of shards[{number}]")
    if missing := [row for row, value in enumerate(y.tolist()) if is_missing(value)]:
        raise InputError(f"y[{number}]: row {missing[0]} (counted from 0) has no label; allowed: one for each row")
    y = np.array(y.tolist()) if y.dtype == object else y
    if not (hasattr(own, "index") and hasattr(own, "to_numpy") and is_frame(shard) and hasattr(shard, "index")):
        return y
    index, rows = list(own.index), list(shard.index)
    if index == rows:
        return y
    if len(set(index)) < len(index) or set(index) != set(rows):
        raise InputError(f"the index of y[{number}] is not that of shards[{number}]; allowed: the same labels")
    return y[_places(index, rows)]


def _orders(
    tables: Mapping[str, Any], partition: Division, trained: Sequence[Any], id_: str | None
) -> tuple[dict[str, Order], dict[str, Order]]:
    """Return, by name, the column and row orders that align tables with the first. Tables that agree have none."""
    if not any(isinstance(table, _Frame) for table in tables.values()):
        return {}, {}
    before = {f"shards[{number}]": _as_frame(shard, f"shards[{number}]", id_) for number, shard in enumerate(trained)}
    if partition == "horizontal":
        return _columns({**before, **tables}), {}
    columns: dict[str, Order] = {}
    for old, new in zip(before, tables, strict=False):
        columns |= _columns({old: before[old], new: tables[new]})
    if id_ is None:
        _check_no_ids(tables)
    return columns, _rows(tables)


def _check_no_ids(tables: Mapping[str, Any]) -> None:
    """Refuse a column of several frames that looks like ids in different orders."""
    first: dict[Hashable, str] = {}
    for name, table in tables.items():
        for column in table.columns if isinstance(table, _Frame) else ():
            if isinstance(column, int) or (other := first.setdefault(column, name)) == name:
                continue
            values = [frame.values(column) for frame in (tables[other], table)]
            if values[0] != values[1] and all(map(_look_like_ids, values)) and set(values[0]) & set(values[1]):
                both = f"{other} and {name} both have a column {column!r} with unique values in different orders"
                allowed = f"id = {column!r} if it identifies the rows, or different column names"
                raise InputError(f"{both}; allowed: {allowed}")


def _look_like_ids(values: Sequence[Any]) -> bool:
    kinds = all(isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)) for value in values)
    return kinds and len(values) > 1 and len(set(values)) == len(values)


def _ordered(X: Any, rows: Order | None, columns: Order | None) -> Any:
    X = X if rows is None else X[rows]
    # last bits of sums depend on the memory layout, which must not depend on the original order
    return np.ascontiguousarray(X if columns is None else X[:, columns])


def _columns(tables: Mapping[str, Any]) -> dict[str, Order]:
    """Return the column orders that align frames with the first. Frames that agree have none."""
    labels = {name: list(table.columns) for name, table in tables.items() if isinstance(table, _Frame)}
    if not labels:
        return {}
    numbered = {name for name, own in labels.items() if set(own) == set(range(len(own)))}
    first = next((name for name in labels if name not in numbered), next(iter(labels)))
    orders = {}
    for name, own in labels.items():
        if own == labels[first] or (first not in numbered and own == list(range(len(own)))):
            continue
        if name in numbered and first in numbered and len(own) != len(labels[first]):
            continue  # another width is reported elsewhere
        allowed = "allowed: the same columns everywhere, each once, in any order"
        counts = {frame: Counter(labels[frame]) for frame in (first, name)}
        for frame, count in counts.items():
            if repeated := [label for label, times in count.items() if times > 1]:
                raise InputError(f"{frame} has several columns {repeated[0]!r} and cannot be put in order; {allowed}")
        if lacking := [label for label in labels[first] if label not in counts[name]]:
            more = and_more(len(lacking) - 1)
            raise InputError(f"{name} has no column {lacking[0]!r}{more}, which {first} has; {allowed}")
        if surplus := [label for label in own if label not in counts[first]]:
            more = and_more(len(surplus) - 1)
            raise InputError(f"{name} has a column {surplus[0]!r}{more}, which {first} lacks; {allowed}")
        orders[name] = _places(own, labels[first])
        log.info("the columns of %s are put in the order of %s", name, first)
    return orders


def _rows(tables: Mapping[str, Any]) -> dict[str, Order]:
    """Return the row orders that align frames with the first by index label. Frames that agree have none."""
    frames = {name: table for name, table in tables.items() if isinstance(table, _Frame)}
    labels = {name: table.index for name, table in frames.items() if table.index is not None}
    own = [name for name, index in labels.items() if index != list(range(len(index)))]
    if not own or len(tables) == 1:
        return {}
    drop = "frame.reset_index(drop=True) where rows belong together by their position"
    if without := [name for name in tables if name not in labels]:
        raise InputError(f"{without[0]} has no index, but {own[0]} has; allowed: an index of all tables, or {drop}")
    first = next(iter(labels))
    orders = {}
    for name, index in labels.items():
        seen: dict[Hashable, int] = {}
        for row, label in enumerate(index):
            if (other := seen.setdefault(label, row)) != row:
                rows = f"rows {other} and {row} (counted from 0)"
                raise InputError(f"the index of {name} has a label twice, in {rows}; allowed: unique ones, or {drop}")
        if index == labels[first]:
            continue
        if len(index) != len(labels[first]) or seen.keys() != set(labels[first]):
            common = len(seen.keys() & set(labels[first]))
            sizes = f"the index of {name} has {len(index)} labels, that of {first} {len(labels[first])}"
            allowed = f"the same labels in any order, or {drop}"
            raise InputError(f"{sizes}, and {common} are common to both; allowed: {allowed}")
        orders[name] = _places(index, labels[first])
        log.info("the rows of %s are put in the order of the index of %s, which results have too", name, first)
    return orders


def _places(own: Sequence[Hashable], wanted: Sequence[Hashable]) -> Order:
    place = {label: number for number, label in enumerate(own)}
    return np.array([place[label] for label in wanted], dtype=np.intp)
