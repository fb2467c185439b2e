"""Positions of the common rows in a site's table, and check of its rows against earlier runs."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkernel.data import RawTable, Table
from fedkernel.ground import AnyArray, Positions, ProtocolError, ShareableError, load_npy, write_atomic
from fedkernel.preparing import TableToPrepare
from fedkernel.protocol import blocks_of
from fedkernel.wire import HASH_BYTES, Hashes, are_hashes, as_keys, hash_ids


def find_rows(own: Hashes, common: npt.NDArray[Any]) -> Positions:
    """Return common rows' positions (n,) in a table. Raises ProtocolError if one is missing, repeated or unsorted."""
    if not are_hashes(common) or not len(common):
        raise ProtocolError(
            f"the hashes of the common rows have shape {common.shape} and type {common.dtype}, but must have "
            f"(n, {HASH_BYTES}) and uint8"
        )
    common_keys, own_keys = as_keys(common), as_keys(own)
    order = np.argsort(own_keys)
    places = np.minimum(np.searchsorted(own_keys, common_keys, sorter=order), len(own_keys) - 1)
    positions = order[places]
    if not np.all(common_keys[:-1] < common_keys[1:]) or not np.array_equal(own_keys[positions], common_keys):
        raise ProtocolError("the common rows must be among this site's own, in order and each once")
    return positions.astype(np.int64)


def row_hashes(ids: Sequence[str] | None, key: bytes, positions: Positions | None, rows: int) -> Hashes:
    """Hash the ids, or without ids the positions, of a run's rows (None: all). Returns (n, 16), equal in every run."""
    names = [str(row) for row in range(rows)] if ids is None else ids
    chosen = range(rows) if positions is None else positions.tolist()
    return hash_ids([names[row] for row in chosen], key, "", 0)


ROWS_APART = "{} rows more", "{} rows fewer", "rows"
VALUES_APART = "other values in {} rows", "other values in {} rows", "values"
"""Error phrases for rows added since an earlier run, rows removed since then, and equal rows."""


def check_rows_apart(
    folder: Path, rows: Hashes, least: int, *, note: bool = True, wording: tuple[str, str, str] = ROWS_APART
) -> int:
    """Return the smallest number of rows added and removed between a run and another, or 0 if none differs.

    Raises ShareableError if a run's rows differ from an earlier run's in some, but fewer than `least`. Differences over
    more than two runs are not checked. `rows` (n, 16): from `row_hashes` or `fedkernel.site.row_order.row_contents`.
    `note`: store them in `folder` for later runs.
    """
    keys = np.sort(as_keys(rows))
    path, (new, gone, same) = folder / f"{hashlib.sha256(keys.tobytes()).hexdigest()}.npy", wording
    known, apart = path.exists(), []
    for earlier in sorted(folder.glob("*.npy")):
        before = as_keys(load_npy(earlier))
        apart.append(len(np.setxor1d(keys, before)))
        for what, differing in ((new, np.setdiff1d(keys, before)), (gone, np.setdiff1d(before, keys))):
            if 0 < len(differing) < least and not known:
                raise ShareableError(
                    f"the run has {what.format(len(differing))} than an earlier run, so their results' difference "
                    f"would show these; allowed: the same {same} or {least} others at least (table.rows_apart)"
                )
    if note and not known:
        write_atomic(path, lambda file: np.save(file, rows), 0o600)
    return min(filter(None, apart), default=0)


def row_contents(X: Table | TableToPrepare, positions: Positions | None, secret: bytes) -> Hashes:
    """Return hashes (n, 16) of the contents of a table's rows, independent of their positions and ids.

    Equal rows get different hashes, by their number so far; -0.0 counts as 0.0. `positions` (n,): of the rows in X (N,
    d), whose hashes stay in memory until a different table is hashed; None: all.
    """
    hashes = _all_contents(X, secret)
    contents = hashes if positions is None else hashes[positions]
    order = np.argsort(keys := as_keys(contents), kind="stable")
    repeated = np.append(False, keys[order[1:]] == keys[order[:-1]])
    if repeated.any():
        contents, places = contents.copy(), np.arange(len(order))
        before = places - np.maximum.accumulate(np.where(repeated, 0, places))
        for place in np.flatnonzero(repeated):
            row = _hash(contents[order[place]].tobytes() + int(before[place]).to_bytes(8), secret)
            contents[order[place]] = np.frombuffer(row, np.uint8)
    return contents


@lru_cache(maxsize=1)
def _all_contents(X: Table | TableToPrepare, secret: bytes) -> Hashes:
    hashes = bytearray()  # a list of bytes would take three times the memory
    for row in _raw_rows(X.raw, X.prepare.clip) if isinstance(X, TableToPrepare) else _rows(X):
        hashes += _hash(row, secret)
    return np.frombuffer(hashes, np.uint8).reshape(-1, HASH_BYTES)


def _hash(content: bytes, secret: bytes) -> bytes:
    return hashlib.blake2b(content, key=secret, digest_size=HASH_BYTES).digest()


def _rows(X: Table) -> Iterator[bytes]:
    """Yield the bytes of each row of a numeric table. Those of sparse rows are column indices and entries."""
    for block in blocks_of(X):
        if isinstance(block, np.ndarray):
            yield from _numbers(block)
        else:
            for first, last in zip(block.indptr[:-1], block.indptr[1:], strict=True):
                entries = block.indices[first:last].astype(np.int64), block.data[first:last] + 0.0
                yield b"".join(entry.tobytes() for entry in entries)


def _raw_rows(raw: RawTable, clip: Mapping[str, tuple[float, float]]) -> Iterator[bytes]:
    """Yield the bytes of each row of a raw table: its numbers, clipped as in sums, then its texts."""
    columns = [np.clip(column, *clip[name]) if name in clip else column for name, column in raw.columns.items()]
    numbers = np.column_stack([column for column in columns if column.dtype.kind == "f"] or [np.empty((raw.rows, 0))])
    texts = [column for column in columns if column.dtype.kind != "f"]
    for row, cells in zip(_numbers(numbers), zip(*texts, strict=True) if texts else [()] * raw.rows, strict=True):
        yield row + (repr(cells).encode() if cells else b"")


def _numbers(block: AnyArray) -> Iterator[bytes]:
    normalised = np.where(np.isnan(block), np.nan, block + 0.0)
    return (row.tobytes() for row in normalised)
