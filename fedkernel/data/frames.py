"""Frames, as pandas has them, among the clients' tables: columns are known by their names, rows by their index.

A frame is recognised by what it has (``columns``, ``to_numpy``, perhaps ``index``), so that none of their libraries is
needed. What stands in a default order, 0 to n - 1, says no more than a position does.
"""

import logging
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedkernel.errors import InputError, and_more

log = logging.getLogger(__name__)

Order = npt.NDArray[np.intp]


def is_frame(table: Any) -> bool:
    """Whether a table tells the names of its columns, as a frame does."""
    return hasattr(table, "columns") and hasattr(table, "to_numpy")


def without_names(
    shards: Sequence[Any],
    partition: Literal["vertical", "horizontal"],
    what: str = "shards",
    trained: Sequence[Any] = (),
) -> list[Any]:
    """Return clients' tables with an array in place of each frame, whose rows and columns fit those of the others.

    Horizontal: columns are put in the order of the first frame's. Vertical: rows are put in the order of the first
    frame's index, where frames have one of their own. Tables without names are taken as they stand.

    Parameters
    ----------
    shards : sequence of tables
    partition : {"vertical", "horizontal"}
    what : str
        How error texts call `shards`.
    trained : sequence of tables
        The clients' tables before, where `shards` are new rows: their columns are put in the order of these.

    Raises
    ------
    InputError
        Frames of other columns or other rows than the first, or rows of which only some tables have an index.
    """
    tables = {f"{what}[{number}]": shard for number, shard in enumerate(shards)}
    if not any(map(is_frame, tables.values())):
        return list(shards)
    before = {f"shards[{number}]": shard for number, shard in enumerate(trained)}
    columns: dict[str, Order] = {}
    rows: dict[str, Order] = {}
    if partition == "horizontal":
        columns = _columns(before | tables)
    else:
        for old, new in zip(before, tables, strict=False):
            columns |= _columns({old: before[old], new: tables[new]})
        rows = _rows(tables)
    return [
        _ordered(shard.to_numpy(), rows.get(name), columns.get(name)) if is_frame(shard) else shard
        for name, shard in tables.items()
    ]


def _ordered(X: Any, rows: Order | None, columns: Order | None) -> Any:
    X = X if rows is None else X[rows]
    # last bits of sums depend on how an array lies in memory, which must not tell the order that was
    return np.ascontiguousarray(X if columns is None else X[:, columns])


def _columns(tables: Mapping[str, Any]) -> dict[str, Order]:
    """Return the order of the columns of those frames where it is another than the first's."""
    labels = {name: list(table.columns) for name, table in tables.items() if is_frame(table)}
    if not labels:
        return {}
    numbered = {name for name, own in labels.items() if set(own) == set(range(len(own)))}
    first = next((name for name in labels if name not in numbered), next(iter(labels)))
    orders = {}
    for name, own in labels.items():
        if own == labels[first] or (first not in numbered and own == list(range(len(own)))):
            continue
        if name in numbered and first in numbered and len(own) != len(labels[first]):
            continue  # of another width, which is said elsewhere
        allowed = "allowed: the same columns everywhere, each once, in any order"
        counts = {frame: Counter(labels[frame]) for frame in (first, name)}
        for frame, count in counts.items():
            if repeated := [label for label, times in count.items() if times > 1]:
                raise InputError(
                    f"{frame} has several columns {repeated[0]!r}, so they cannot be put in order; {allowed}"
                )
        if lacking := [label for label in labels[first] if label not in counts[name]]:
            more = and_more(len(lacking) - 1)
            raise InputError(f"{name} has no column {lacking[0]!r}{more}, which {first} has; {allowed}")
        if surplus := [label for label in own if label not in counts[first]]:
            more = and_more(len(surplus) - 1)
            raise InputError(f"{name} has a column {surplus[0]!r}{more}, which {first} has not; {allowed}")
        orders[name] = _places(own, labels[first])
        log.info("the columns of %s are put in the order of %s", name, first)
    return orders


def _rows(tables: Mapping[str, Any]) -> dict[str, Order]:
    """Return the order of the rows of those frames where it is another than the first's."""
    labels = {name: list(table.index) for name, table in tables.items() if is_frame(table) and hasattr(table, "index")}
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
                raise InputError(
                    f"the index of {name} has the same label in rows {other} and {row} (counted from 0); "
                    f"allowed: each label once, or {drop}"
                )
        if index == labels[first]:
            continue
        if len(index) != len(labels[first]) or seen.keys() != set(labels[first]):
            common = len(seen.keys() & set(labels[first]))
            raise InputError(
                f"the index of {name} has {len(index)} labels, that of {first} {len(labels[first])}, and "
                f"{common} are common to both; allowed: the same labels in any order, or {drop}"
            )
        orders[name] = _places(index, labels[first])
        log.info("the rows of %s are put in the order of the index of %s, which results have too", name, first)
    return orders


def _places(own: Sequence[Hashable], wanted: Sequence[Hashable]) -> Order:
    """Return where labels stand in a list of their own, in the order that is wanted."""
    place = {label: number for number, label in enumerate(own)}
    return np.array([place[label] for label in wanted], dtype=np.intp)
