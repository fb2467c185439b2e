"""The power method against powers of matrices and full decompositions, and in a factor's coordinates against itself."""

import numpy as np
import pytest
import scipy.linalg
from spectra import RANDOM, SPECTRA, N, assert_leading, symmetric

from fedkernel.ground import InputError
from fedkernel.numerics import LowRank, low_rank, low_rank_pays, orthonormal_basis, power_iteration, sin_theta_error


def test_one_vector_is_the_classic_power_method_and_a_block_spans_the_power_of_the_start():
    A, v = symmetric(SPECTRA["decaying"]), RANDOM.standard_normal(N)
    count = []
    pairs = power_iteration(lambda x: (count.append(1), A @ x)[1], v[:, None], 7)
    for _ in range(7):
        v = A @ v / np.linalg.norm(A @ v)
    np.testing.assert_allclose(pairs.vectors[:, 0], v, atol=1e-13)
    np.testing.assert_allclose(pairs.values, [v @ A @ v], rtol=1e-13)
    assert len(count) == 8  # seven move the vector, one gives its Rayleigh quotient
    A, S = symmetric(SPECTRA["flat"]), RANDOM.standard_normal((N, 3))
    pairs = power_iteration(lambda x: A @ x, S, 4)
    expected = orthonormal_basis(np.linalg.matrix_power(A, 4) @ S)
    assert sin_theta_error(pairs.vectors, expected) < 1e-24
    ritz = scipy.linalg.eigh(expected.T @ A @ expected, eigvals_only=True)[::-1]
    np.testing.assert_allclose(pairs.values, ritz, rtol=1e-12)


@pytest.mark.parametrize(
    ("spectrum", "scale", "k"),
    [("decaying", 1e-200, 4), ("decaying", 1.0, 4), ("decaying", 1e200, 4), ("rank 3", 1.0, 5)],
)
def test_block_iteration_reaches_the_leading_pairs_also_of_fewer_than_it_looks_for(spectrum, scale, k):
    A = symmetric(SPECTRA[spectrum]) * scale
    assert_leading(power_iteration(lambda x: A @ x, RANDOM.standard_normal((N, k)), 150), A, k, tol=1e-11)


def test_bad_starts_are_refused_and_only_tall_tables_and_enough_iterations_are_shortened():
    for start, iterations in [(np.zeros((3, 1)), 1), (np.ones((2, 3)), 1), (np.ones(3), 1), (np.ones((3, 1)), -1)]:
        with pytest.raises(InputError):
            power_iteration(lambda x: x, start, iterations)
    assert low_rank_pays((2000, 100), 5, 10)
    assert not low_rank_pays((1000, 100), 5, 10)  # F^T F and its eigenvectors take as long
    assert not low_rank_pays((20000, 1000), 5, 10)
    assert not low_rank_pays((2000, 100), 5, 2)  # what is left out would show
    assert not low_rank_pays((2000, 4), 5, 10)


def factor(singular_values, n=200):
    """Make a tall matrix with these singular values."""
    d = len(singular_values)
    U, V = orthonormal_basis(RANDOM.standard_normal((n, d))), orthonormal_basis(RANDOM.standard_normal((d, d)))
    return (U * singular_values) @ V.T


def of_factor(F, k):
    return low_rank(F.T @ F, k, lambda S: F @ S, lambda V: F.T @ V)


@pytest.mark.parametrize(("k", "iterations"), [(1, 3), (1, 10), (4, 3), (4, 4), (4, 10)])
@pytest.mark.parametrize("singular_values", [0.8 ** np.r_[:8], 1 - 0.01 * np.r_[:8], 10.0 ** -np.r_[:8], np.ones(8)])
@pytest.mark.parametrize("scale", [1e-120, 1e120])
def test_in_a_factors_coordinates_power_iteration_finds_the_same(singular_values, scale, iterations, k):
    F, start = factor(singular_values) * scale, RANDOM.standard_normal((200, k))
    low = of_factor(F, k)
    if singular_values[k - 1] < 0.1:  # its square beside the first's is below 1e-2
        assert low is None
        return
    expected = power_iteration(lambda V: F @ (F.T @ V), start, iterations)
    pairs = power_iteration(low, start, iterations)
    np.testing.assert_allclose(pairs.vectors.T @ pairs.vectors, np.eye(k), atol=1e-12)
    np.testing.assert_allclose(pairs.values, expected.values, rtol=1e-12)
    assert sin_theta_error(pairs.vectors, expected.vectors) < 1e-24
    if singular_values[0] > singular_values[-1]:  # of equal values no vectors are told apart
        np.testing.assert_allclose(pairs.vectors, expected.vectors, atol=1e-10)


@pytest.mark.parametrize(
    "F", [np.zeros((50, 4)), np.full((50, 4), 1e200), np.full((50, 4), 1e-200), np.ones((50, 4)), np.ones((50, 2))]
)
def test_a_factor_that_its_squares_do_not_tell_has_no_coordinates(F):
    with np.errstate(over="ignore"):
        assert of_factor(F, 3) is None


def test_operators_and_cores_that_are_zero_small_or_indefinite():
    for k in (1, 3):
        S = -np.abs(RANDOM.standard_normal((8, k)))
        pairs = power_iteration(np.zeros_like, S, 5)
        assert (pairs.values == 0).all()
        np.testing.assert_allclose(pairs.vectors, orthonormal_basis(S), atol=1e-14)
    B = orthonormal_basis(RANDOM.standard_normal((30, 3)))
    low = LowRank(np.diag([1.0, -3.0, 0.5]), lambda V: B.T @ V, lambda S: B @ S)
    pairs = power_iteration(low, RANDOM.standard_normal((30, 1)), 60)
    np.testing.assert_allclose(pairs.values, [-3.0], rtol=1e-12)
    assert abs(pairs.vectors[:, 0] @ B[:, 1]) == pytest.approx(1, abs=1e-12)
    start = RANDOM.standard_normal((8, 3))
    B = np.eye(8, 2)
    for core in np.zeros((2, 2)), np.diag([2.0, 1.0]):
        low = LowRank(core, lambda V: B.T @ V, lambda S: B @ S)
        expected = power_iteration(lambda V, core=core: B @ (core @ (B.T @ V)), start, 5)
        pairs = power_iteration(low, start, 5)
        np.testing.assert_allclose(pairs.values, expected.values, atol=1e-14)
        np.testing.assert_allclose(pairs.vectors[:, :2], expected.vectors[:, :2], atol=1e-13)
