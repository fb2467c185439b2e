"""Hashes of row contents under a site's secret, to recognise equal rows in later runs."""

import hashlib
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from fedkernel.data import RawTable, TableLike, as_table
from fedkernel.ground import AnyArray, Positions, row_blocks
from fedkernel.preparing import TableToPrepare
from fedkernel.wire import HASH_BYTES, Hashes, as_keys


def row_contents(X: TableLike | TableToPrepare, positions: Positions | None, secret: bytes) -> Hashes:
    """Return hashes (n, 16) of the contents of a table's rows, independent of their positions and ids.

    Equal rows get different hashes, by their number so far; -0.0 counts as 0.0. `positions` (n,): of the rows in X (N,
    d), whose hashes stay in memory until a different table is hashed; None: all.
    """
    hashes = _all_contents(_IdentityKey(X), secret)
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


class _IdentityKey:
    """Cache key of a table, equal only for the same object."""

    def __init__(self, X: TableLike | TableToPrepare):
        self.X = X

    def __hash__(self) -> int:
        return id(self.X)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _IdentityKey) and other.X is self.X


@lru_cache(maxsize=1)
def _all_contents(table: _IdentityKey, secret: bytes) -> Hashes:
    hashes = bytearray()  # a list of bytes would take three times the memory
    for row in _raw_rows(table.X.raw) if isinstance(table.X, TableToPrepare) else _rows(table.X):
        hashes += _hash(row, secret)
    return np.frombuffer(hashes, np.uint8).reshape(-1, HASH_BYTES)


def _hash(content: bytes, secret: bytes) -> bytes:
    return hashlib.blake2b(content, key=secret, digest_size=HASH_BYTES).digest()


def _rows(X: TableLike) -> Iterator[bytes]:
    """Yield the bytes of each row of a numeric table; of sparse rows, column indices and entries."""
    table = as_table(X, "the table")
    for place in row_blocks(table.shape[0]):
        block = table.block(place.start, place.stop)
        if isinstance(block, np.ndarray):
            yield from _numbers(block)
        else:
            for first, last in zip(block.indptr[:-1], block.indptr[1:], strict=True):
                entries = block.indices[first:last].astype(np.int64), block.data[first:last] + 0.0
                yield b"".join(entry.tobytes() for entry in entries)


def _raw_rows(raw: RawTable) -> Iterator[bytes]:
    """Yield the bytes of each row of a raw table: its numbers, then its texts."""
    columns = list(raw.columns.values())
    numbers = np.column_stack([column for column in columns if column.dtype.kind == "f"] or [np.empty((raw.rows, 0))])
    texts = [column for column in columns if column.dtype.kind != "f"]
    for row, cells in zip(_numbers(numbers), zip(*texts, strict=True) if texts else [()] * raw.rows, strict=True):
        yield row + (repr(cells).encode() if cells else b"")


def _numbers(block: AnyArray) -> Iterator[bytes]:
    normalised = np.where(np.isnan(block), np.nan, block + 0.0)
    return (row.tobytes() for row in normalised)
