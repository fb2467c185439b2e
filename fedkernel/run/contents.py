"""By what a site knows the content of its rows again: hashes under its secret, which stay with it."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from fedkernel.arrays import AnyArray, Positions, row_blocks
from fedkernel.data import RawTable
from fedkernel.data.tables import TableLike, as_table
from fedkernel.preparing import TableToPrepare
from fedkernel.run.alignment import SIZE, Hashes


def row_contents(X: TableLike | TableToPrepare, positions: Positions | None, secret: bytes) -> Hashes:
    """Return hashes of rows, the same wherever a row stands and whatever it is called: shape (n, 16).

    Equal rows are told apart by how many came before. Takes one pass over the table, and is kept in memory until
    another table is asked for; zeros have one sign.

    Parameters
    ----------
    X : table of shape (N, d)
    positions : ndarray of shape (n,) or None
        Of the rows; None: all.
    secret : bytes
    """
    hashes = _all_contents(_Same(X), secret)
    seen = Counter[bytes]()
    chosen = []
    for row in hashes if positions is None else map(hashes.__getitem__, positions.tolist()):
        again, seen[row] = seen[row], seen[row] + 1
        chosen.append(_hash(row + again.to_bytes(8), secret) if again else row)
    return np.frombuffer(b"".join(chosen), np.uint8).reshape(-1, SIZE)


class _Same:
    """A table, known by which object it is: sites keep what they have read."""

    def __init__(self, X: TableLike | TableToPrepare):
        self.X = X

    def __hash__(self) -> int:
        return id(self.X)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.X is self.X


@lru_cache(maxsize=4)
def _all_contents(table: _Same, secret: bytes) -> list[bytes]:
    rows = _raw_rows(table.X.raw) if isinstance(table.X, TableToPrepare) else _rows(table.X)
    return [_hash(row, secret) for row in rows]


def _hash(content: bytes, secret: bytes) -> bytes:
    return hashlib.blake2b(content, key=secret, digest_size=SIZE).digest()


def _rows(X: TableLike) -> Iterator[bytes]:
    """Yield what each row of numbers holds: of a sparse one its entries and their columns."""
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
    """Yield what each row of a raw table holds: its numbers, as `_rows` has them, and then its texts."""
    columns = list(raw.columns.values())
    numbers = np.column_stack([column for column in columns if column.dtype.kind == "f"] or [np.empty((raw.rows, 0))])
    texts = [column for column in columns if column.dtype.kind != "f"]
    for row, cells in zip(_numbers(numbers), zip(*texts, strict=True) if texts else [()] * raw.rows, strict=True):
        yield row + (repr(cells).encode() if cells else b"")


def _numbers(block: AnyArray) -> Iterator[bytes]:
    whole = np.where(np.isnan(block), np.nan, block + 0.0)
    return (row.tobytes() for row in whole)
