"""Products by blocks, packed and symmetric matrices, and centring, against their plain formulas."""

import numpy as np
import pytest
from allocation import peak_of
from spectra import RANDOM, symmetric

from fedkernel import InputError, numerics


@pytest.mark.parametrize("n", [1, 5, 300])
def test_centring_is_that_of_the_features_and_allocates_no_matrix(n):
    X, Y = RANDOM.standard_normal((n, 4)) + 3, RANDOM.standard_normal((7, 4)) + 3
    K, K_new, before = X @ X.T, Y @ X.T, X @ X.T
    column_means, mean = numerics.center_gram(K)
    numerics.center_rows(K_new, column_means, mean)
    Xc, Yc = X - X.mean(axis=0), Y - X.mean(axis=0)
    np.testing.assert_allclose(K, Xc @ Xc.T, atol=1e-12)
    np.testing.assert_allclose(K_new, Yc @ Xc.T, atol=1e-12)
    np.testing.assert_allclose(column_means, before.mean(axis=0), rtol=1e-13)
    assert mean == pytest.approx(before.mean(), rel=1e-13)
    assert np.array_equal(K, K.T)
    K = np.ones((1500, 1500))
    assert peak_of(lambda: numerics.center_rows(K, *numerics.center_gram(K)))[0] < K.nbytes / 2


@pytest.mark.parametrize("n", [0, 1, 1024, 2500])
def test_a_product_of_tall_arrays_is_that_of_their_blocks(n):
    A, B = RANDOM.standard_normal((n, 7)), RANDOM.standard_normal((n, 3))
    for tall in (A, np.asfortranarray(A)):
        np.testing.assert_allclose(numerics.transposed_product(tall, B), A.T @ B, atol=1e-12)


@pytest.mark.parametrize("n", [0, 1, 2, 7, 60])
def test_a_packed_matrix_comes_back_bit_for_bit(n):
    A = symmetric(RANDOM.standard_normal(n)) if n else np.zeros((0, 0))
    upper = numerics.pack_symmetric(A)
    assert upper.shape == (n * (n + 1) // 2,)
    again = numerics.unpack_symmetric(upper)
    assert (again.shape, again.dtype) == ((n, n), np.float64)
    assert again.tobytes() == A.tobytes()
    assert np.array_equal(upper, A[np.triu_indices(n)]), "its upper triangle, row after row"


def test_what_is_no_triangle_is_refused():
    triangles = {n * (n + 1) // 2 for n in range(8)}
    for size in set(range(30)) - triangles:
        with pytest.raises(InputError, match=rf"upper of shape \({size},\) .*n \(n \+ 1\) / 2 entries"):
            numerics.unpack_symmetric(np.ones(size))
    with pytest.raises(InputError, match=r"upper of shape \(2, 3\)"):
        numerics.unpack_symmetric(np.ones((2, 3)))


@pytest.mark.parametrize("n", [1, 256, 300, 700])
def test_a_symmetric_matrix_is_made_of_its_upper_triangle_and_some_rows(n):
    F = np.random.default_rng(0).standard_normal((n, 3))
    peak, K = peak_of(lambda: numerics.symmetric_by_rows(n, lambda rows, columns: F[rows] @ F[columns].T))
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_allclose(K, F @ F.T, rtol=0, atol=1e-13)
    assert peak <= K.nbytes + 3 * 8 * 256 * n + 10**5
    with pytest.raises(InputError, match=rf"shape \(2, {n}\) is not that of rows 0 to {min(n, 256)}"):
        numerics.symmetric_by_rows(n, lambda rows, columns: np.ones((2, n)))
