"""Sparse rows are brought into order, never in the caller's object, and refused where they cannot be."""

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusing
from scipy import sparse
from small_table import D, X, spoilt

from fedkernel.data import check_rows
from fedkernel.ground import InputError


def scrambled(dtype=np.float64, index=np.int64):
    """Return a CSR matrix with columns out of order, a duplicate, a stored zero, and its dense counterpart."""
    data, columns, starts = [3, 1, 2, 0, 5], [2, 0, 2, 1, 1], [0, 3, 4, 5]
    csr = sparse.csr_array((np.array(data, dtype), np.array(columns, index), np.array(starts, index)), shape=(3, 4))
    return csr, np.array([[1, 0, 5, 0], [0, 0, 0, 0], [0, 5, 0, 0.0]])


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int8])
@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix])
def test_sparse_rows_in_order(dtype, kind):
    given_rows, dense = scrambled(dtype)
    given_rows = kind(given_rows)
    before = [part.copy() for part in (given_rows.data, given_rows.indices, given_rows.indptr)]
    checked = check_rows(given_rows, "X")
    assert isinstance(checked, sparse.csr_array)
    assert checked.dtype == np.float64
    assert checked.indices.dtype == checked.indptr.dtype == np.int32
    np.testing.assert_array_equal(checked.data, [1, 5, 5])
    np.testing.assert_array_equal(checked.indices, [0, 2, 1])
    np.testing.assert_array_equal(checked.toarray(), dense)
    for part, old in zip((given_rows.data, given_rows.indices, given_rows.indptr), before, strict=True):
        np.testing.assert_array_equal(part, old)
    given_rows.has_canonical_format = True  # which says nothing
    np.testing.assert_array_equal(check_rows(given_rows, "X").data, [1, 5, 5])
    assert np.shares_memory(check_rows(checked, "X").data, checked.data), "in order, they are not copied"
    assert check_rows(X, "X") is X
    with pytest.raises(InputError, match="row 17, column 2"):  # of dense rows, as of a matrix
        check_rows(spoilt(np.inf, 17, 2), "X")


def test_explicit_zeros_alone_are_dropped_from_a_copy():
    given_rows = sparse.csr_array(np.array([[1.0, 2.0], [3.0, 4.0]]))
    given_rows.data[1] = 0
    checked = check_rows(given_rows, "X")
    np.testing.assert_array_equal(checked.data, [1, 3, 4])
    np.testing.assert_array_equal(given_rows.data, [1, 0, 3, 4])
    cancelled = sparse.csr_array((np.array([1.0, -1.0, 2.0]), np.array([0, 0, 1]), np.array([0, 3])), shape=(1, 2))
    np.testing.assert_array_equal(check_rows(cancelled, "X").data, [2])
    assert cancelled.nnz == 3


@given(
    dense=hnp.arrays(
        np.float64, st.tuples(st.integers(1, 6), st.integers(1, 6)), elements=st.sampled_from([0.0, -0.0, 1.5, -2.0])
    ),
    form=st.sampled_from(["csr", "csc", "coo", "lil", "dok", "dia", "bsr"]),
    matrix=st.booleans(),
)
def test_every_sparse_format_gives_the_same_rows(dense, form, matrix):
    checked = check_rows((sparse.csr_matrix if matrix else sparse.csr_array)(dense).asformat(form), "X")
    assert isinstance(checked, sparse.csr_array)
    assert checked.has_canonical_format
    assert checked.nnz == np.count_nonzero(dense)
    np.testing.assert_array_equal(checked.toarray(), dense)


def broken():
    csr = sparse.csr_array(X)
    csr.indices = csr.indices.copy()
    csr.indices[3] = D + 1
    return csr


@pytest.mark.parametrize(
    ("given_rows", "text"),
    [
        (sparse.csr_array(X * 1j), "X holds values of type complex128; allowed: real numbers only"),
        (sparse.csr_array((0, 3)), "X has shape (0, 3); allowed: (rows, columns) with at least 1 x 1"),
        (sparse.coo_array(np.ones(3)), "X has shape (3,); allowed: (rows, columns) with at least 1 x 1"),
        (broken(), "X is a damaged sparse matrix ("),
    ],
)
def test_sparse_rows_that_are_refused(given_rows, text):
    with refusing(start=text):
        check_rows(given_rows, "X")
