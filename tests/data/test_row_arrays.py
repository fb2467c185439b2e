"""Rows as plain arrays: the way there and back for dense and sparse ones, and a ValueError for anything else."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from fedkernel.data import ROW_ARRAYS, rows_from_arrays, rows_to_arrays

numbers = st.floats(allow_nan=False, allow_infinity=False) | st.just(0.0)
tables = arrays(np.float64, st.tuples(st.integers(0, 6), st.integers(1, 6)), elements=numbers)


@given(tables)
def test_dense_rows_come_back_bit_for_bit_and_sparse_ones_with_what_is_not_zero(X):
    for given_ in (X, np.asfortranarray(X), X[::-1]):
        held = rows_to_arrays(given_)
        assert list(held) == ["dense"]
        assert held["dense"].flags.c_contiguous
        assert rows_from_arrays(held, X.shape[1]).tobytes() == np.ascontiguousarray(given_).tobytes()
    held = rows_to_arrays(sparse.csr_array(X))
    assert tuple(held) == ROW_ARRAYS[1:]
    assert held["values"].size == np.count_nonzero(X)
    assert held["indices"].dtype == held["starts"].dtype == np.int32
    again = rows_from_arrays(held, X.shape[1])
    assert isinstance(again, sparse.csr_array)
    np.testing.assert_array_equal(again.toarray(), X)


GOOD = {"values": np.ones(2), "indices": np.array([0, 2], np.int32), "starts": np.array([0, 1, 2], np.int32)}


@pytest.mark.parametrize(
    "held",
    [
        {},
        {"dense": np.ones((2, 4))},
        {"dense": np.ones(3)},
        {"dense": np.ones((2, 3), np.float32)},
        GOOD | {"starts": np.array([0.0, 1.0, 2.0])},
        {"dense": np.ones((2, 3)), **GOOD},
        {"values": GOOD["values"], "indices": GOOD["indices"]},
        GOOD | {"more": np.ones(2)},
        GOOD | {"starts": np.empty(0, np.int32)},
        GOOD | {"starts": np.array([0, 1, 3], np.int32)},
        GOOD | {"starts": np.array([0, 2, 1], np.int32)},
        GOOD | {"indices": np.array([0, 3], np.int32)},
        GOOD | {"indices": np.array([-1, 2], np.int32)},
        GOOD | {"indices": np.array([0], np.int32)},
    ],
    ids=lambda held: "-".join(f"{name}{array.shape}" for name, array in held.items()) or "nothing",
)
def test_what_does_not_fit_together_is_refused(held):
    rows_from_arrays(GOOD, 3)
    with pytest.raises(ValueError, match=r"\w"):
        rows_from_arrays(held, 3)
