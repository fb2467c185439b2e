"""A table is made of what is given, be it an array, a file or a function, or it is told what is wrong with that."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from refusals import refusing
from scipy import sparse
from small_table import CHUNK, D, N, X, chunk_of, write_parquet

from fedkernel.data import (
    ArrayTable,
    GeneratedTable,
    ParquetTable,
    SparseTable,
    Table,
    as_table,
    open_table,
    open_tables,
)
from fedkernel.data.arrow_columns import column_values
from fedkernel.ground import InputError


def test_as_table(tmp_path):
    table = ArrayTable(X)
    assert as_table(table, "other") is table
    assert isinstance(as_table(sparse.csr_matrix(X), "X"), SparseTable)
    assert isinstance(as_table(X.tolist(), "X"), ArrayTable)
    np.save(tmp_path / "X.npy", X)
    for path in (tmp_path / "X.npy", str(tmp_path / "X.npy")):
        opened = as_table(path, "X")
        assert isinstance(opened, Table)
        assert (opened.path, opened.title) == (tmp_path / "X.npy", str(tmp_path / "X.npy"))
    for wrong, text in {
        "ragged": ([[1, 2], [3]], "ragged has rows of different lengths"),
        "text": ([["a"]], "text holds values of type <U1"),
        "flat": (np.zeros(3), "flat has shape (3,)"),
        "empty": (np.zeros((0, 3)), "empty has shape (0, 3)"),
    }.values():
        with refusing(start=text):
            as_table(wrong, text.split(" ", maxsplit=1)[0])


def test_an_npz_file_may_hold_new_rows_and_files_are_known_by_their_content(tmp_path):
    np.savez(tmp_path / "both.npz", X=X, new=X[:2])
    X_there, new = open_tables(tmp_path / "both.npz")
    np.testing.assert_array_equal(X_there, X)
    np.testing.assert_array_equal(new, X[:2])
    np.save(tmp_path / "X.npy", X)
    (tmp_path / "X.npy").rename(tmp_path / "X.dat")
    np.testing.assert_array_equal(open_table(tmp_path / "X.dat"), X)


def cut(path, size):
    path.write_bytes(path.read_bytes()[:size])
    return path


def write(path, save, *arrays, **named):
    save(path, *arrays, **named)
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
        open_table(path)


def test_columns_of_a_parquet_file_are_chosen_and_read_group_by_group(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", None, a=X[:, 0], word=["x"] * N, b=X[:, 1], c=X[:, 2] > 0)
    table = ParquetTable(path, ["c", "a"])
    expected = np.column_stack([X[:, 2] > 0, X[:, 0]])
    np.testing.assert_array_equal(table, expected)
    np.testing.assert_array_equal(table.take(np.array([22, 0, 7])), expected[[22, 0, 7]])
    assert (table.shape, table.path) == ((N, 2), None)
    with pytest.raises(InputError, match="column 'word' is not numeric"):
        ParquetTable(path, ["a", "word"])


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
    table = open_table(write_parquet(tmp_path / "a.parquet", None, a=np.ones(13), b=values))
    np.testing.assert_array_equal(table.block(0, 5), np.ones((5, 2)))
    with pytest.raises(InputError, match=r"row 9 \(row 1 has the names\), column 'b' holds no value; allowed: finite"):
        table.block(5, 6)
    rng = np.random.default_rng(0)
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"a": rng.standard_normal(1000)}), path, row_group_size=500, use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[4:60] = bytes(56)
    path.write_bytes(content)
    table = open_table(path)
    assert table.block(500, 600).shape == (100, 1)
    with pytest.raises(InputError, match=r"a\.parquet cannot be read \(\w+\); allowed: \.npy"):
        table.block(0, 10)


@pytest.mark.parametrize("value", [np.ones((5, 3)), np.ones((4, 4)), np.ones(5)])
def test_a_function_that_makes_something_else(value):
    with pytest.raises(InputError, match=r"^block 1 of generated rows has shape .*; allowed: \("):
        GeneratedTable((N, D), lambda number: value, CHUNK).block(5, 6)


@pytest.mark.parametrize(("shape", "rows"), [((0, 3), 2), ((3, 0), 2), ((3, 3), 0)])
def test_a_generated_table_of_nothing(shape, rows):
    with pytest.raises(InputError, match="but all must be at least 1"):
        GeneratedTable(shape, chunk_of, rows)
