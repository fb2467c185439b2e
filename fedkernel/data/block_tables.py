"""Tables that are read block by block: arrays, array files, sparse matrices, parquet, or generated rows.

| source | table |
|---|---|
| array, `.npy` (memory-mapped), `.npz` with an array `X` | `ArrayTable` |
| scipy sparse matrix, `.npz` written by `scipy.sparse.save_npz` | `SparseTable` |
| `.parquet` | `ParquetTable` |
| a function that makes block k | `GeneratedTable` |

`as_table` wraps an object, `open_table` opens a file. Blocks are converted and checked when read; only a sparse table
is brought into canonical order as a whole.
"""

import csv
import importlib
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fedkernel.data.arrow_columns import is_numeric, stack_columns
from fedkernel.data.matrix import as_array, check_rows, first_not_finite, not_finite
from fedkernel.ground import READ_ERRORS, AnyArray, InputError, Positions, Rows, load_npy, load_sparse, open_npz

Raw: TypeAlias = AnyArray | sparse.csr_array

ALLOWED = ".npy, .npz with an array X or from scipy.sparse.save_npz, .parquet"


class Table(ABC):
    """Base class of tables whose rows are read block by block.

    `title`: name in error texts. `sparse`: whether blocks are CSR. `path`: file from which `open_table` reads the same.
    """

    on_disk = False
    """True if blocks share memory with a file."""

    def __init__(self, title: str, shape: tuple[int, int], *, sparse: bool = False, path: Path | None = None) -> None:
        self.title = title
        self.shape = shape
        self.sparse = sparse
        self.path = path

    @abstractmethod
    def _block(self, first: int, last: int) -> Raw:
        """Return rows first to last - 1, in any dtype, as a copy or a read-only view. There is at least one."""

    @abstractmethod
    def _take(self, positions: Positions) -> Raw:
        """Return the rows at these positions, at least one."""

    def block(self, first: int, last: int, dtype: npt.DTypeLike = np.float64) -> Rows:
        """Read rows first, ..., last - 1 as a C-contiguous ndarray or csr_array of shape (last - first, d).

        A block that needs no conversion is a read-only view. Raises InputError for a number that is not finite or too
        large for `dtype`; the text names its place.
        """
        if not 0 <= first <= last <= self.shape[0]:
            raise InputError(f"rows {first} to {last} of {self.title}: allowed are 0 to {self.shape[0]}")
        if first == last:
            return self._nothing(dtype)
        return self._checked(self._block(first, last), dtype, np.arange(first, last))

    def take(self, positions: Positions, dtype: npt.DTypeLike = np.float64) -> Rows:
        """Read the rows at positions (k,), in that order and as often as listed. Types and errors are as in `block`."""
        positions = np.asarray(positions)
        if positions.size == 0:
            return self._nothing(dtype)
        if positions.dtype.kind not in "iu" or positions.min() < 0 or positions.max() >= self.shape[0]:
            raise InputError(f"positions in {self.title}: allowed are whole numbers from 0 to {self.shape[0] - 1}")
        return self._checked(self._take(positions), dtype, positions)

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> AnyArray:
        """Read a whole dense table into memory."""
        if self.sparse:
            raise InputError(f"{self.title} is a sparse table; allowed: a dense table of numbers")
        whole = cast(AnyArray, self.block(0, len(self), np.float64 if dtype is None else dtype))
        return whole.copy() if (copy or self.on_disk) and not whole.flags.owndata else whole

    def _nothing(self, dtype: npt.DTypeLike) -> Rows:
        shape = (0, self.shape[1])
        return cast(Rows, sparse.csr_array(shape, dtype=dtype) if self.sparse else np.empty(shape, dtype))

    def _checked(self, raw: Raw, dtype: npt.DTypeLike, rows: Positions) -> Rows:
        with np.errstate(over="ignore"):  # overflow gives infinity, which is found below
            dense = isinstance(raw, np.ndarray)
            converted = cast(Rows, np.ascontiguousarray(raw, dtype) if dense else raw.astype(dtype, copy=False))
        if (place := first_not_finite(converted)) is None:
            return converted
        value, row, column = raw[place], int(rows[place[0]]), place[1]
        if np.isfinite(value):
            position = f"row {row}, column {column} (counted from 0)"
            raise InputError(f"{self.title}: the value in {position} is too large for {np.dtype(dtype)}")
        raise not_finite(self.title, row, column, value)


class ArrayTable(Table):
    """Table of a real array X (n, d) of any dtype, in memory or memory-mapped. Blocks are converted when read."""

    def __init__(self, X: npt.ArrayLike, title: str = "X", path: Path | None = None) -> None:
        self.X = as_array(X, title)
        self.on_disk = isinstance(X, np.memmap)
        super().__init__(title, (self.X.shape[0], self.X.shape[1]), path=path)

    def _block(self, first: int, last: int) -> AnyArray:
        return _view(self.X[first:last])

    def _take(self, positions: Positions) -> AnyArray:
        return self.X[positions]


class SparseTable(Table):
    """Rows of a scipy sparse matrix X (n, d), kept as CSR in canonical order (`check_rows`)."""

    def __init__(self, X: sparse.sparray | sparse.spmatrix, title: str = "X", path: Path | None = None) -> None:
        rows = check_rows(X, title)
        if isinstance(rows, np.ndarray):
            raise InputError(f"{title} is dense; allowed: a sparse matrix")
        self.X = rows
        super().__init__(title, (rows.shape[0], rows.shape[1]), sparse=True, path=path)

    def _block(self, first: int, last: int) -> sparse.csr_array:
        starts = self.X.indptr[first : last + 1]
        stored = slice(starts[0], starts[-1])
        # scipy's slices are copies, as are its matrices around a small part of an array
        block = sparse.csr_array((last - first, self.shape[1]), dtype=self.X.dtype)
        block.data, block.indices = _view(self.X.data[stored]), _view(self.X.indices[stored])
        block.indptr = starts - starts[0]
        block.has_canonical_format = True
        return block

    def _take(self, positions: Positions) -> sparse.csr_array:
        return self.X[positions]


class _ChunkedTable(Table):
    """Base class of tables read by chunk. Chunk k has rows starts[k] to starts[k + 1] - 1; the last read is cached."""

    def _cut(self, starts: npt.NDArray[np.int64]) -> None:
        self._starts = starts
        self._last: tuple[int, AnyArray] | None = None
        self._lock = threading.Lock()  # `_read` need not be thread-safe

    @abstractmethod
    def _read(self, number: int) -> AnyArray:
        """Return the rows of a chunk."""

    def _block(self, first: int, last: int) -> AnyArray:
        parts = []
        for number in range(self._of(first), self._of(last - 1) + 1):
            start = self._starts[number]
            parts.append(_view(self._chunk(number)[max(first - start, 0) : last - start]))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _take(self, positions: Positions) -> AnyArray:
        numbers = self._of(positions)
        order = np.argsort(numbers, kind="stable")
        parts = []
        for number in np.unique(numbers):
            in_chunk = positions[order[numbers[order] == number]]
            parts.append(self._chunk(int(number))[in_chunk - self._starts[number]])
        in_file_order = np.concatenate(parts)
        rows = np.empty_like(in_file_order)
        rows[order] = in_file_order
        return rows

    def _of(self, rows: Any) -> Any:
        """Return the number of the chunk that holds each row, skipping empty chunks."""
        return np.searchsorted(self._starts, rows, side="right") - 1

    def _chunk(self, number: int) -> AnyArray:
        with self._lock:
            if self._last is None or self._last[0] != number:
                self._last = None  # frees the old chunk first
                self._last = (number, self._read(number))
            return self._last[1]


class ParquetTable(_ChunkedTable):
    """Rows of a parquet file with numeric columns and no nulls, read by row group.

    The last group is cached. `columns`: names of the columns to read, in this order; None: all.
    """

    def __init__(self, path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> None:
        parquet = importlib.import_module("pyarrow.parquet")
        with file_errors(path):
            self._file = parquet.ParquetFile(path, memory_map=True)
        meta, schema = self._file.metadata, self._file.schema_arrow
        self._chosen = None if columns is None else list(columns)
        fields = list(schema) if columns is None else [schema.field(name) for name in columns]
        if others := [field.name for field in fields if not is_numeric(field.type)]:
            raise InputError(f"{path}: column {others[0]!r} is not numeric; allowed: columns of numbers only")
        shape = (meta.num_rows, len(fields))
        if 0 in shape:
            raise InputError(f"{path} has shape {shape}; allowed: (rows, columns) with at least 1 x 1")
        self._dtype = np.result_type(*(field.type.to_pandas_dtype() for field in fields))
        sizes = [meta.row_group(number).num_rows for number in range(meta.num_row_groups)]
        self._cut(np.cumsum([0, *sizes]))
        super().__init__(str(path), shape, path=Path(path) if columns is None else None)

    def _read(self, number: int) -> AnyArray:
        with file_errors(self.title):
            group = self._file.read_row_group(number, columns=self._chosen)
        if self._chosen is not None:
            group = group.select(self._chosen)  # row groups come in the file's order
        return stack_columns(group, self._dtype, self.title, int(self._starts[number]))


class GeneratedTable(_ChunkedTable):
    """Rows generated by a function on each read; the last block is cached.

    ``generate(k)`` returns rows k * rows_per_block, ... as an array (rows_per_block, d), the last of them perhaps
    fewer, the same on each call.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        generate: Callable[[int], npt.ArrayLike],
        rows_per_block: int,
        title: str = "generated rows",
    ) -> None:
        if min(*shape, rows_per_block) < 1:
            raise InputError(f"{title}: shape = {shape}, rows_per_block = {rows_per_block}, but all must be at least 1")
        super().__init__(title, shape)
        self._generate = generate
        self._cut(np.append(np.arange(0, shape[0], rows_per_block), shape[0]))

    def _read(self, number: int) -> AnyArray:
        block = as_array(self._generate(number), f"block {number} of {self.title}")
        first, last = self._starts[number : number + 2]
        if block.shape != (shape := (int(last - first), self.shape[1])):
            raise InputError(f"block {number} of {self.title} has shape {block.shape}; allowed: {shape}")
        return block


def _view(part: AnyArray) -> AnyArray:
    part = part.view()
    part.flags.writeable = False
    return part


TableLike: TypeAlias = npt.ArrayLike | sparse.sparray | sparse.spmatrix | Table | os.PathLike[str]
"""Type of an argument of `as_table`; a text is a path."""


def as_table(X: TableLike, title: str) -> Table:
    """Return a sparse matrix, array-like (n, d), file path or Table as a Table. `title`: name in error texts."""
    if isinstance(X, Table):
        return X
    if isinstance(X, str | os.PathLike):
        return open_table(X)
    if isinstance(X, sparse.sparray | sparse.spmatrix):
        return SparseTable(X, title)
    return ArrayTable(X, title)


def open_table(path: str | os.PathLike[str]) -> Table:
    """Open a table's file by its content, not its name. Raises InputError if missing, damaged or of another kind."""
    return open_tables(path).X


class OpenedTables(NamedTuple):
    """Table of a file, with the rows that came after training (array ``new`` of an npz file)."""

    X: Table
    new: Table | None


def open_tables(path: str | os.PathLike[str]) -> OpenedTables:
    """Open a file's table and, if it has any, the rows that came after training."""
    path = Path(path).expanduser()
    with file_errors(path):
        with path.open("rb") as stream:
            begins = stream.read(6)
        if begins == b"\x93NUMPY":
            return OpenedTables(ArrayTable(load_npy(path, mapped=True), str(path), path), None)
        if begins[:2] == b"PK":
            with open_npz(path) as archive:
                new = ArrayTable(archive["new"], f"new in {path}") if "new" in archive else None
                if "X" in archive:
                    return OpenedTables(ArrayTable(archive["X"], str(path), path), new)
                if is_sparse_file(archive):
                    X = load_sparse(path)
                    return OpenedTables(SparseTable(X, str(path), path), new)
        elif begins[:4] == b"PAR1":
            return OpenedTables(ParquetTable(path), None)
    raise InputError(f"{path} holds no table; allowed: {ALLOWED}")


def is_sparse_file(keys: Iterable[str]) -> bool:
    """Return whether an npz file's arrays are those of `scipy.sparse.save_npz`."""
    return {"format", "data", "shape"} <= set(keys)


@contextmanager
def file_errors(path: str | os.PathLike[str], allowed: str = f"{ALLOWED}, of numbers") -> Iterator[None]:
    """Turn errors in reading a file into an InputError of one sentence, which quotes no content."""
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (csv.Error, *READ_ERRORS) as error:
        raise InputError(f"{path} cannot be read ({type(error).__name__}); allowed: {allowed}") from None
