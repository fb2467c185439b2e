"""Tables give the same rows wherever these are: in an array, a file, a sparse matrix, or made by a function."""

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from refusals import refusing
from scipy import sparse
from small_table import CHUNK, D, N, X, chunk_of, spoilt, write_parquet

from fedkernel.data import ArrayTable, GeneratedTable, ParquetTable, SparseTable, check_matrix, open_table
from fedkernel.ground import InputError

DTYPES = (np.float64, np.float32)


def mapped(path, X):
    np.save(path, X)
    return np.load(path, mmap_mode="r")


MAKE = {
    "array": lambda folder: ArrayTable(X),
    "array in columns": lambda folder: ArrayTable(np.asfortranarray(X)),
    "float32": lambda folder: ArrayTable(X.astype(np.float32)),
    "big-endian": lambda folder: ArrayTable(X.astype(">f8")),
    "memory-mapped": lambda folder: ArrayTable(mapped(folder / "X.npy", X)),
    "npy": lambda folder: open_table((np.save(folder / "X.npy", X), folder / "X.npy")[1]),
    "npz": lambda folder: open_table((np.savez(folder / "X.npz", X=X), folder / "X.npz")[1]),
    "sparse": lambda folder: SparseTable(sparse.csr_array(X)),
    "sparse npz": lambda folder: open_table(
        (sparse.save_npz(folder / "X.npz", sparse.csc_matrix(X)), folder / "X.npz")[1]
    ),
    "parquet": lambda folder: ParquetTable(write_parquet(folder / "X.parquet", X)),
    "parquet of float32": lambda folder: open_table(write_parquet(folder / "X.parquet", X.astype(np.float32))),
    "generated": lambda folder: GeneratedTable((N, D), chunk_of, CHUNK),
}


@pytest.fixture(scope="module")
def every(tmp_path_factory):
    return {kind: make(tmp_path_factory.mktemp("tables")) for kind, make in MAKE.items()}


def assert_rows(rows, expected, table, dtype):
    assert rows.dtype == dtype
    assert rows.shape == expected.shape
    if table.sparse:
        assert isinstance(rows, sparse.csr_array)
        assert rows.has_canonical_format
        assert rows.indices.dtype == rows.indptr.dtype == np.int32
        rows.check_format(full_check=True)
        rows = rows.toarray()
    else:
        assert type(rows) is np.ndarray
        assert rows.flags.c_contiguous
    np.testing.assert_array_equal(rows, expected)


@pytest.mark.parametrize("kind", MAKE)
@given(ends=st.tuples(st.integers(0, N), st.integers(0, N)), dtype=st.sampled_from(DTYPES))
def test_blocks(every, kind, ends, dtype):
    table, (first, last) = every[kind], sorted(ends)
    assert_rows(table.block(first, last, dtype), X[first:last], table, dtype)


@pytest.mark.parametrize("kind", MAKE)
@given(positions=st.lists(st.integers(0, N - 1), max_size=40), dtype=st.sampled_from(DTYPES))
def test_rows_at_positions_in_any_order_and_again(every, kind, positions, dtype):
    table, positions = every[kind], np.array(positions, dtype=int)
    assert_rows(table.take(positions, dtype), X[positions], table, dtype)


@pytest.mark.parametrize("kind", MAKE)
def test_the_whole_and_rows_that_are_not_there(every, kind):
    table = every[kind]
    assert (len(table), table.shape) == (N, (N, D))
    assert table.sparse == ("sparse" in kind)
    if table.sparse:
        for read in (np.asarray, lambda t: check_matrix(t, "the data")):
            with pytest.raises(InputError, match=r"is a sparse table; allowed: a dense table of numbers$"):
                read(table)
    else:
        np.testing.assert_array_equal(np.asarray(table), X)
        np.testing.assert_array_equal(check_matrix(table, "X"), X)
        assert np.asarray(table).dtype == np.float64
        assert np.asarray(table, dtype=np.float32).dtype == np.float32
        copied = np.array(table)
        copied[:] = 7.0  # writable, and nobody else's
        np.testing.assert_array_equal(np.asarray(table), X)
    for first, last in ((-1, 3), (4, 3), (0, N + 1)):
        with pytest.raises(InputError, match=f"rows {first} to {last} of .*: allowed are 0 to {N}$"):
            every[kind].block(first, last)
    for positions in ([-1], [N], [0.5]):
        with pytest.raises(InputError, match=f"allowed are whole numbers from 0 to {N - 1}$"):
            every[kind].take(np.array(positions))


@pytest.mark.parametrize("kind", ["array", "memory-mapped", "npy", "sparse", "generated"])
def test_a_block_that_is_as_it_must_be_is_no_copy_and_cannot_be_written_to(every, kind):
    table = every[kind]
    block, again = (table.block(5, 10) for _ in range(2))
    if table.sparse:
        block, again = block.data, again.data
    assert np.shares_memory(block, again)
    with pytest.raises(ValueError, match="read-only"):
        block[:] = 0
    np.testing.assert_array_equal(X, np.random.default_rng(0).integers(-2, 3, size=(N, D)) / 4)


def test_a_dense_file_is_read_into_memory_whole_only_when_asked(tmp_path):
    table = open_table((np.save(tmp_path / "X.npy", X), tmp_path / "X.npy")[1])
    whole, block = np.asarray(table), table.block(0, N)
    assert whole.flags.owndata, "in memory, though the file may go"
    assert not block.flags.owndata
    assert not np.shares_memory(whole, block)
    given_table = ArrayTable(X)
    assert np.shares_memory(np.asarray(given_table), X)


def test_a_memory_mapped_file_is_not_read_whole(tmp_path):
    rows = 2**21  # 2 GiB of float64 in 128 columns, nearly all of it a hole in the file
    path = tmp_path / "large.npy"
    large = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=(rows, 128))
    large[rows - 1] = np.arange(128)
    del large
    assert path.stat().st_size > 2**31
    tracemalloc.start()
    try:
        table = open_table(path)
        block = table.block(rows - 1000, rows, np.float32)
        chosen = table.take(np.array([rows - 1, 0, rows - 1]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(block[-1], np.arange(128))
    np.testing.assert_array_equal(chosen, [np.arange(128), np.zeros(128), np.arange(128)])
    assert peak < 4 * block.nbytes  # 0.5 MB


class Counting:
    """A function that makes rows, and remembers which blocks were asked for."""

    def __init__(self):
        self.asked = []

    def __call__(self, number):
        self.asked.append(number)
        return chunk_of(number)


def test_generated_rows_are_made_once_per_pass_and_only_where_needed():
    generate = Counting()
    table = GeneratedTable((N, D), generate, CHUNK)
    for first in range(N):
        table.block(first, first + 1)
    assert generate.asked == [0, 1, 2, 3, 4]
    generate.asked.clear()
    table.take(np.array([11, 3, 12, 3, 0]))
    assert generate.asked == [0, 2]
    table.block(12, 17)
    assert generate.asked == [0, 2, 3]


def test_row_groups_are_read_once_per_pass_and_only_where_needed(tmp_path, monkeypatch):
    places = []
    read = parquet.ParquetFile.read_row_group
    monkeypatch.setattr(
        parquet.ParquetFile,
        "read_row_group",
        lambda self, number, columns: places.append(number) or read(self, number, columns),
    )
    table = ParquetTable(write_parquet(tmp_path / "X.parquet", X))
    assert places == []
    for first in range(0, N, 2):
        table.block(first, min(first + 2, N))
    assert places == [0, 1, 2, 3, 4]
    places.clear()
    table.take(np.array([22, 0, 22]))
    assert places == [0, 4]


def test_row_groups_of_other_sizes_empty_ones_and_blocks_of_different_types(tmp_path):
    path = tmp_path / "X.parquet"
    schema = pa.schema([("a", pa.int8()), ("b", pa.bool_()), ("c", pa.float32())])
    with parquet.ParquetWriter(path, schema) as writer:
        for n in (0, 3, 0, 0, 1, 5, 0):
            writer.write_table(pa.table({"a": range(n), "b": [True] * n, "c": [0.5] * n}, schema=schema))
    table = ParquetTable(path)
    whole = np.column_stack([[0, 1, 2, 0, 0, 1, 2, 3, 4], np.ones(9), np.full(9, 0.5)])
    np.testing.assert_array_equal(np.asarray(table), whole)
    for first in range(9):
        np.testing.assert_array_equal(table.block(first, first + 1), whole[first : first + 1])
    np.testing.assert_array_equal(table.take(np.array([8, 3, 0])), whole[[8, 3, 0]])
    table = GeneratedTable((4, 1), lambda k: np.array([[k], [k + 1]], dtype=np.int8) if k == 0 else [[0.5], [1.5]], 2)
    np.testing.assert_array_equal(table.take(np.array([0, 2, 1, 3]))[:, 0], [0, 0.5, 1, 1.5])
    np.testing.assert_array_equal(table.block(0, 4)[:, 0], [0, 1, 0.5, 1.5])


BAD = {
    "array": lambda bad, folder: ArrayTable(bad, "mine"),
    "npy": lambda bad, folder: open_table((np.save(folder / "X.npy", bad), folder / "X.npy")[1]),
    "parquet": lambda bad, folder: ParquetTable(write_parquet(folder / "X.parquet", bad)),
    "generated": lambda bad, folder: GeneratedTable((N, D), lambda number: chunk_of(number, bad), CHUNK, "mine"),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_positions_of_numbers_that_are_not_finite_are_those_of_the_table(kind, value, tmp_path):
    table = BAD[kind](spoilt(value, 17, 2), tmp_path)
    np.testing.assert_array_equal(table.block(0, 17), X[:17])
    np.testing.assert_array_equal(table.block(18, N), X[18:])
    text = f"{table.title}: the value in row 17, column 2 (counted from 0) is {value}; allowed: finite numbers only"
    for act, where in (
        (lambda: table.block(12, 20), ""),
        (lambda: table.take(np.array([22, 17, 3])), ""),
        (lambda: check_matrix(table, "the data of client 3"), "the data of client 3: "),
    ):
        with refusing(whole=where + text):
            act()


def test_sparse_numbers_that_are_not_finite_are_found_at_once(tmp_path):
    bad = sparse.csc_array(spoilt(np.nan, 17, 2))
    with refusing(start="mine: the value in row 17, column 2 (counted from 0) is nan; allowed: finite"):
        SparseTable(bad, "mine")
    sparse.save_npz(tmp_path / "bad.npz", bad)
    with pytest.raises(InputError, match=r"bad\.npz: the value in row 17, column 2"):
        open_table(tmp_path / "bad.npz")


@pytest.mark.parametrize("make", [ArrayTable, lambda bad, what: SparseTable(sparse.csr_array(bad), what)])
def test_numbers_too_large_for_the_dtype(make):
    table = make(spoilt(-1e300, 17, 2), "mine")
    assert table.block(17, 18)[0, 2] == -1e300
    with pytest.raises(InputError) as caught:
        table.block(15, 20, np.float32)
    text = "mine: the value in row 17, column 2 (counted from 0) is too large for float32"
    assert str(caught.value) == text
