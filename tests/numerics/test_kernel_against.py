"""A kernel's values against fixed rows are those of its gram matrix, whatever the form and type of the rows."""

import itertools

import numpy as np
import pytest
import scipy.sparse
from allocation import peak_of
from kernel_cases import EVERY, rows

from fedkernel.ground import InputError
from fedkernel.numerics import RBF, Linear


def as_given(X):
    return X


KINDS = [as_given, scipy.sparse.csr_array, scipy.sparse.csr_matrix]
both_types = pytest.mark.parametrize(("dtype", "error"), [(np.float64, 1e-12), (np.float32, 1e-5)])


def assert_near(computed, expected, error):
    np.testing.assert_allclose(computed, expected, rtol=0, atol=error * np.abs(expected).max())


@pytest.mark.parametrize("kernel", EVERY, ids=repr)
@pytest.mark.parametrize("of_rows", KINDS)
@both_types
def test_values_against_fixed_rows_are_those_of_gram(kernel, of_rows, dtype, error):
    X, Y = (np.where(rows(n, 5, seed=n) > 0.3, rows(n, 5), 0) for n in (40, 30))
    Y[3], X[5], X[7] = X[2], 0, Y[11]
    values = kernel.against(of_rows(Y), dtype)
    for of_block, block in itertools.product(KINDS, (X, X[:1], X.astype(np.float32), X.astype(int))):
        K = values(of_block(block))
        assert isinstance(K, np.ndarray)
        assert K.dtype == dtype
        assert_near(K, kernel.gram(np.asarray(block, dtype=np.float64), Y), error)


@pytest.mark.parametrize("kernel", EVERY, ids=repr)
@both_types
def test_values_of_many_rows_are_those_of_gram(kernel, dtype, error):
    X, Y = rows(3000, 7).astype(dtype), rows(300, 7, seed=1)  # more than fit in cache at a time
    assert_near(kernel.against(Y, dtype)(X), kernel.gram(X, Y), error)


@pytest.mark.parametrize("kernel", EVERY, ids=repr)
@pytest.mark.parametrize("of_block", KINDS)
def test_the_rows_and_values_against_them_are_left_alone(kernel, of_block):
    X, Y = rows(20, 3), rows(10, 3, seed=1)
    before = X.copy(), Y.copy()
    block, values = of_block(X), kernel.against(Y)
    first = values(block)
    intact = first.copy()
    Y += 1
    second = values(block)
    assert np.array_equal(first, intact)
    assert np.array_equal(first, second)
    assert not np.shares_memory(first, second)
    assert np.array_equal(block if isinstance(block, np.ndarray) else block.toarray(), before[0])
    assert np.array_equal(Y, before[1] + 1)


@pytest.mark.parametrize("kernel", EVERY, ids=repr)
def test_fixed_sparse_rows_too_many_to_be_dense_give_the_same(kernel, monkeypatch):
    X, Y = np.maximum(rows(40, 9), 0), np.maximum(rows(30, 9, seed=1), 0)
    monkeypatch.setattr("fedkernel.numerics.pairwise._SHARED_CACHE", 100)
    for of_block in KINDS:
        assert_near(kernel.against(scipy.sparse.csr_array(Y))(of_block(X)), kernel.gram(X, Y), 1e-12)


@pytest.mark.parametrize("kernel", EVERY, ids=repr)
def test_sparse_rows_of_many_columns_never_become_dense(kernel):
    tables = (scipy.sparse.random_array((n, 200_000), density=1e-4, rng=np.random.default_rng(n)) for n in (300, 50))
    X, Y = (scipy.sparse.csr_array(table) for table in tables)
    peak, (K, _) = peak_of(lambda: (kernel.against(Y)(X), kernel.diag(X)))
    assert peak < 50 * 200_000 * 8 / 2
    assert_near(K, kernel.gram(X, Y), 1e-12)


@pytest.mark.parametrize(("dtype", "error"), [(np.float64, 1e-9), (np.float32, 1e-5)])
def test_rbf_values_keep_their_digits_far_from_the_origin_and_never_exceed_1(dtype, error):
    X, Y = rows(40, 3), rows(30, 3, seed=1)
    values = RBF(gamma=0.5).against(Y + 1e5, dtype)
    # Blocks of float64 are centred before they are rounded. Squared norms of 1e10 would leave nothing of float32.
    assert_near(values(X + 1e5), RBF(gamma=0.5).gram(X, Y), error)
    many = rows(500, 30) * 100
    assert RBF(gamma=1e-9).against(many, dtype)(many).max() == 1


def test_other_types_and_rows_that_are_not_finite_are_refused():
    for dtype in (np.float16, int, complex):
        with pytest.raises(InputError, match="must be float32 or float64"):
            Linear().against(rows(3, 2), dtype)
    with pytest.raises(InputError, match=r"Y of shape .* not finite"):
        RBF().against(np.full((2, 2), np.nan))
