"""Tables give the same rows in arrays, files, sparse matrices or functions, or are told what is wrong with these."""

import numpy as np
import pyarrow as pa
import pytest
from allocation import peak_of
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from refusals import refusing
from scipy import sparse
from small_table import CHUNK, D, N, X, chunk_of, spoilt, write_parquet

from fedkernel import InputError, data
from fedkernel.data.arrow_columns import column_values

DTYPES = (np.float64, np.float32)


def write(path, save, *arrays, **named):
    save(path, *arrays, **named)
    return path


MAKE = {
    "array": lambda folder: data.ArrayTable(X),
    "array in columns": lambda folder: data.ArrayTable(np.asfortranarray(X)),
    "float32": lambda folder: data.ArrayTable(X.astype(np.float32)),
    "big-endian": lambda folder: data.ArrayTable(X.astype(">f8")),
    "memory-mapped": lambda folder: data.ArrayTable(np.load(write(folder / "X.npy", np.save, X), mmap_mode="r")),
    "npy": lambda folder: data.open_table(write(folder / "X.npy", np.save, X)),
    "npz": lambda folder: data.open_table(write(folder / "X.npz", np.savez, X=X)),
    "sparse": lambda folder: data.SparseTable(sparse.csr_array(X)),
    "sparse npz": lambda folder: data.open_table(write(folder / "X.npz", sparse.save_npz, sparse.csc_matrix(X))),
    "parquet": lambda folder: data.ParquetTable(write_parquet(folder / "X.parquet", X)),
    "parquet of float32": lambda folder: data.open_table(write_parquet(folder / "X.parquet", X.astype(np.float32))),
    "generated": lambda folder: data.GeneratedTable((N, D), chunk_of, CHUNK),
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
        for read in (np.asarray, lambda t: data.check_matrix(t, "the data")):
            with pytest.raises(InputError, match=r"is a sparse table; allowed: a dense table of numbers$"):
                read(table)
    else:
        np.testing.assert_array_equal(np.asarray(table), X)
        np.testing.assert_array_equal(data.check_matrix(table, "X"), X)
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
    table = data.open_table(write(tmp_path / "X.npy", np.save, X))
    whole, block = np.asarray(table), table.block(0, N)
    assert whole.flags.owndata, "in memory, though the file may go"
    assert not block.flags.owndata
    assert not np.shares_memory(whole, block)
    assert np.shares_memory(np.asarray(data.ArrayTable(X)), X)


def test_a_memory_mapped_file_is_not_read_whole(tmp_path):
    rows = 2**21  # 2 GiB of float64 in 128 columns, nearly all of it a hole in the file
    path = tmp_path / "large.npy"
    large = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=(rows, 128))
    large[rows - 1] = np.arange(128)
    del large
    assert path.stat().st_size > 2**31

    def parts():
        table = data.open_table(path)
        return table.block(rows - 1000, rows, np.float32), table.take(np.array([rows - 1, 0, rows - 1]))

    peak, (block, chosen) = peak_of(parts)
    np.testing.assert_array_equal(block[-1], np.arange(128))
    np.testing.assert_array_equal(chosen, [np.arange(128), np.zeros(128), np.arange(128)])
    assert peak < 4 * block.nbytes  # 0.5 MB


def test_rows_are_generated_and_row_groups_read_once_per_pass_and_only_where_needed(tmp_path, monkeypatch):
    asked, places, read = [], [], parquet.ParquetFile.read_row_group
    table = data.GeneratedTable((N, D), lambda number: (asked.append(number), chunk_of(number))[1], CHUNK)
    for first in range(N):
        table.block(first, first + 1)
    assert asked == [0, 1, 2, 3, 4]
    asked.clear()
    table.take(np.array([11, 3, 12, 3, 0]))
    assert asked == [0, 2]
    table.block(12, 17)
    assert asked == [0, 2, 3]

    def counted(self, number, columns):
        places.append(number)
        return read(self, number, columns)

    monkeypatch.setattr(parquet.ParquetFile, "read_row_group", counted)
    table = data.ParquetTable(write_parquet(tmp_path / "X.parquet", X))
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
    table = data.ParquetTable(path)
    whole = np.column_stack([[0, 1, 2, 0, 0, 1, 2, 3, 4], np.ones(9), np.full(9, 0.5)])
    np.testing.assert_array_equal(np.asarray(table), whole)
    for first in range(9):
        np.testing.assert_array_equal(table.block(first, first + 1), whole[first : first + 1])
    np.testing.assert_array_equal(table.take(np.array([8, 3, 0])), whole[[8, 3, 0]])
    chunks = [np.array([[0], [1]], dtype=np.int8), [[0.5], [1.5]]]
    table = data.GeneratedTable((4, 1), chunks.__getitem__, 2)
    np.testing.assert_array_equal(table.take(np.array([0, 2, 1, 3]))[:, 0], [0, 0.5, 1, 1.5])
    np.testing.assert_array_equal(table.block(0, 4)[:, 0], [0, 1, 0.5, 1.5])


BAD = {
    "array": lambda bad, folder: data.ArrayTable(bad, "mine"),
    "npy": lambda bad, folder: data.open_table(write(folder / "X.npy", np.save, bad)),
    "parquet": lambda bad, folder: data.ParquetTable(write_parquet(folder / "X.parquet", bad)),
    "generated": lambda bad, folder: data.GeneratedTable((N, D), lambda number: chunk_of(number, bad), CHUNK, "mine"),
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
        (lambda: data.check_matrix(table, "the data of client 3"), "the data of client 3: "),
    ):
        with refusing(whole=where + text):
            act()


def test_sparse_numbers_that_are_not_finite_are_found_at_once(tmp_path):
    bad = sparse.csc_array(spoilt(np.nan, 17, 2))
    with refusing(start="mine: the value in row 17, column 2 (counted from 0) is nan; allowed: finite"):
        data.SparseTable(bad, "mine")
    with pytest.raises(InputError, match=r"bad\.npz: the value in row 17, column 2"):
        data.open_table(write(tmp_path / "bad.npz", sparse.save_npz, bad))


@pytest.mark.parametrize("make", [data.ArrayTable, lambda bad, what: data.SparseTable(sparse.csr_array(bad), what)])
def test_numbers_too_large_for_the_dtype(make):
    table = make(spoilt(-1e300, 17, 2), "mine")
    assert table.block(17, 18)[0, 2] == -1e300
    with refusing(whole="mine: the value in row 17, column 2 (counted from 0) is too large for float32"):
        table.block(15, 20, np.float32)


def test_as_table(tmp_path):
    table = data.ArrayTable(X)
    assert data.as_table(table, "other") is table
    assert isinstance(data.as_table(sparse.csr_matrix(X), "X"), data.SparseTable)
    assert isinstance(data.as_table(X.tolist(), "X"), data.ArrayTable)
    np.save(tmp_path / "X.npy", X)
    for path in (tmp_path / "X.npy", str(tmp_path / "X.npy")):
        opened = data.as_table(path, "X")
        assert isinstance(opened, data.Table)
        assert (opened.path, opened.title) == (tmp_path / "X.npy", str(tmp_path / "X.npy"))
    for wrong, text in (
        ([[1, 2], [3]], "wrong has rows of different lengths"),
        ([["a"]], "wrong holds values of type <U1"),
        (np.zeros(3), "wrong has shape (3,)"),
        (np.zeros((0, 3)), "wrong has shape (0, 3)"),
    ):
        with refusing(start=text):
            data.as_table(wrong, "wrong")


def test_an_npz_file_may_hold_new_rows_and_files_are_known_by_their_content(tmp_path):
    np.savez(tmp_path / "both.npz", X=X, new=X[:2])
    X_there, new = data.open_tables(tmp_path / "both.npz")
    np.testing.assert_array_equal(X_there, X)
    np.testing.assert_array_equal(new, X[:2])
    path = write(tmp_path / "X.npy", np.save, X).rename(tmp_path / "X.dat")
    np.testing.assert_array_equal(data.open_table(path), X)


def cut(path, size):
    path.write_bytes(path.read_bytes()[:size])
    return path


WRONG = {
    "missing": (lambda f: f / "none.npy", "there is no file {path}"),
    "folder": (lambda f: f, "{path} cannot be read (IsADirectoryError); allowed: .npy, .npz"),
    "text": (lambda f: write(f / "a.csv", lambda path: path.write_text("a,b\n1,2")), "{path} holds no table; allowed"),
    "nothing": (lambda f: write(f / "a.npy", lambda path: path.touch()), "{path} holds no table; allowed: .npy"),
    "npz without X": (lambda f: write(f / "a.npz", np.savez, Z=X), "{path} holds no table; allowed: .npy, .npz with"),
    "cut npy": (lambda f: cut(write(f / "a.npy", np.save, X), 300), "{path} cannot be read (ValueError)"),
    "cut npz": (lambda f: cut(write(f / "a.npz", np.savez, X=X), 300), "{path} is damaged or is no npz file"),
    "cut parquet": (lambda f: cut(write_parquet(f / "a.parquet", X), 300), "{path} cannot be read (ArrowInvalid)"),
    "objects": (
        lambda f: write(f / "a.npy", np.save, np.array([[None]]), allow_pickle=True),
        "{path} cannot be read (ValueError)",
    ),
    "one dimension": (lambda f: write(f / "a.npy", np.save, np.ones(3)), "{path} has shape (3,); allowed"),
    "words": (
        lambda f: write_parquet(f / "a.parquet", None, a=[1, 2], b=["x", "y"]),
        "{path}: column 'b' is not numeric; allowed: columns of numbers only",
    ),
    "no rows": (lambda f: write_parquet(f / "a.parquet", np.zeros((0, 2))), "{path} has shape (0, 2); allowed: (rows"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_files_that_hold_no_table(kind, tmp_path):
    make, text = WRONG[kind]
    path = make(tmp_path)
    with refusing(start=text.format(path=path)):
        data.open_table(path)


def test_columns_of_a_parquet_file_are_chosen_and_read_group_by_group(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", None, a=X[:, 0], word=["x"] * N, b=X[:, 1], c=X[:, 2] > 0)
    table = data.ParquetTable(path, ["c", "a"])
    expected = np.column_stack([X[:, 2] > 0, X[:, 0]])
    np.testing.assert_array_equal(table, expected)
    np.testing.assert_array_equal(table.take(np.array([22, 0, 7])), expected[[22, 0, 7]])
    assert (table.shape, table.path) == ((N, 2), None)
    with pytest.raises(InputError, match="column 'word' is not numeric"):
        data.ParquetTable(path, ["a", "word"])


@pytest.mark.parametrize("kind", ["int8", "uint16", "int64", "uint64", "float16", "float32", "float64", "bool"])
def test_columns_are_those_that_pyarrow_would_hand_over(kind):
    """In chunks, some empty, and parts of these, which begin within a byte of truths."""
    values = [np.arange(size) % 3 for size in (17, 0, 40)]
    column = pa.chunked_array([pa.array(part.astype(kind)) for part in values])
    for part in (column, column.slice(3), column.slice(15, 9), column.slice(57), column.is_null()):
        entries = column_values(part)
        assert entries.dtype == part.to_numpy().dtype
        np.testing.assert_array_equal(entries, part.to_numpy())


def test_a_parquet_file_without_a_value_or_with_a_damaged_row_group(tmp_path):
    values = pa.array([1.0] * 7 + [None] + [2.0] * 5)
    table = data.open_table(write_parquet(tmp_path / "a.parquet", None, a=np.ones(13), b=values))
    np.testing.assert_array_equal(table.block(0, 5), np.ones((5, 2)))
    with pytest.raises(InputError, match=r"row 9 \(row 1 has the names\), column 'b' holds no value; allowed: finite"):
        table.block(5, 6)
    rng = np.random.default_rng(0)
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"a": rng.standard_normal(1000)}), path, row_group_size=500, use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[4:60] = bytes(56)
    path.write_bytes(content)
    table = data.open_table(path)
    assert table.block(500, 600).shape == (100, 1)
    with pytest.raises(InputError, match=r"a\.parquet cannot be read \(\w+\); allowed: \.npy"):
        table.block(0, 10)


def test_a_function_that_makes_something_else_and_a_generated_table_of_nothing():
    for value in (np.ones((5, 3)), np.ones((4, 4)), np.ones(5)):
        with pytest.raises(InputError, match=r"^block 1 of generated rows has shape .*; allowed: \("):
            data.GeneratedTable((N, D), lambda number, value=value: value, CHUNK).block(5, 6)
    for shape, rows in (((0, 3), 2), ((3, 0), 2), ((3, 3), 0)):
        with pytest.raises(InputError, match="but all must be at least 1"):
            data.GeneratedTable(shape, chunk_of, rows)
