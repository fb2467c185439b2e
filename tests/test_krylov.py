"""The block Krylov search, driven as a protocol drives it."""

import numpy as np
import pytest
import scipy.linalg
from spectra import RANDOM, SPECTRA, N, assert_leading, symmetric

from fedkernel.errors import InputError
from fedkernel.krylov import block_krylov
from fedkernel.linalg import (
    leading_eigenpairs,
)
from fedkernel.subspaces import fix_signs, sin_theta_error


def drive(A, start, k, tol=1e-8, max_steps=200):
    """Answer the coroutine with products; return its result and the blocks it asked for."""
    search, blocks = block_krylov(start, k, tol=tol, max_steps=max_steps), []
    try:
        Q = next(search)
        while True:
            blocks.append(Q)
            Q = search.send(A @ Q)
    except StopIteration as end:
        return end.value, blocks


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize("name", SPECTRA)
def test_blocks_as_wide_as_wanted_find_the_leading_pairs(name, k, scale):
    A = symmetric(SPECTRA[name]) * scale
    pairs, _ = drive(A, np.random.default_rng(k).standard_normal((N, k)), k, tol=0.0)
    assert_leading(pairs, A, k, tol=1e-11)
    assert np.array_equal(pairs.vectors, fix_signs(pairs.vectors))


@pytest.mark.parametrize("tol", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("name", ["decaying", "flat", "indefinite"])
def test_the_search_ends_within_the_tolerance_and_not_long_after(name, wide, tol):
    A, k = symmetric(SPECTRA[name]), 3
    exact = leading_eigenpairs(A, k).vectors
    start = np.random.default_rng(5).standard_normal((N, k if wide else 1))
    pairs, blocks = drive(A, start, k, tol)
    assert np.sqrt(sin_theta_error(pairs.vectors, exact)) <= tol
    assert len(blocks) < len(drive(A, start, k, tol=0.0)[1]) or len(np.hstack(blocks).T) == N


def test_the_gap_is_not_believed_before_its_lower_end_has_settled():
    # With the bare theta_k - theta_{k+1} as the gap 21 of these 100 searches end short of the tolerance.
    A = symmetric(np.r_[1, 0.98, 0.96, np.linspace(0, 0.9, N - 3)])
    exact = leading_eigenpairs(A, 1).vectors
    starts = (np.random.default_rng(seed).standard_normal((N, 1)) for seed in range(100))
    errors = [sin_theta_error(drive(A, start, 1, tol=0.1)[0].vectors, exact) for start in starts]
    assert sum(error > 0.1**2 for error in errors) <= 5


@pytest.mark.parametrize("b", [1, 4])
def test_the_blocks_are_one_orthonormal_krylov_basis(b):
    A, start = symmetric(SPECTRA["decaying"]), RANDOM.standard_normal((N, b))
    _, blocks = drive(A, start, 2, tol=0.0)
    basis = np.hstack(blocks)
    np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-13)
    powers = np.linalg.qr(np.hstack([start, A @ start, A @ A @ start]))[0]
    assert sin_theta_error(np.hstack(blocks[:3]), powers) < 1e-18


def test_single_vectors_go_on_past_an_invariant_subspace():
    # One vector sees two of the five: the projection's Krylov spaces have two dimensions.
    A = symmetric(SPECTRA["projection"])
    pairs, _ = drive(A, RANDOM.standard_normal((N, 1)), 4)
    assert pairs.vectors.shape == (N, 4)
    np.testing.assert_allclose(pairs.vectors.T @ pairs.vectors, np.eye(4), atol=1e-13)
    np.testing.assert_allclose(A @ pairs.vectors, pairs.vectors * pairs.values, atol=1e-13)


def test_blocks_shrink_with_the_rank():
    A = symmetric(SPECTRA["rank 3"])
    pairs, blocks = drive(A, RANDOM.standard_normal((N, 5)), 5, tol=0.0)
    assert_leading(pairs, A, 5, tol=1e-13)
    assert [Q.shape[1] for Q in blocks] == [5, 3]
    dependent = RANDOM.standard_normal((N, 2)) @ RANDOM.standard_normal((2, 4))
    assert drive(A, dependent, 1)[1][0].shape == (N, 2)


def test_rounding_is_told_by_the_products_where_rayleigh_quotients_vanish():
    B = np.outer([1.0, 1 / 3, 0.7], RANDOM.standard_normal(20))
    A = np.block([[np.zeros((3, 3)), B], [B.T, np.zeros((20, 20))]])
    assert [Q.shape[1] for Q in drive(A, np.eye(23, 3), 1, tol=0.0)[1]] == [3, 1]


def test_a_zero_rayleigh_quotient_is_not_convergence():
    pairs, blocks = drive(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[1.0], [0.0]]), 1)
    np.testing.assert_allclose(pairs.values, [1.0], atol=1e-15)
    assert len(blocks) == 2


def test_without_a_gap_in_sight_the_search_goes_on():
    # With k columns there is no theta_{k+1}: a residual of 1e-5 alone does not say that 1e-3 is reached.
    pairs, blocks = drive(np.diag([1.0, 0.0, 0.0]), np.array([[1.0], [1e-5], [0.0]]), 1, tol=1e-3)
    assert len(blocks) == 2
    np.testing.assert_allclose(pairs.vectors[:, 0], [1, 0, 0], atol=1e-12)


def test_max_steps_is_kept_and_gives_the_best_so_far():
    A, start = symmetric(SPECTRA["flat"]), RANDOM.standard_normal((N, 3))
    pairs, blocks = drive(A, start, 3, tol=0.0, max_steps=4)
    basis = np.hstack(blocks)
    assert len(blocks) == 4
    ritz = scipy.linalg.eigh(basis.T @ A @ basis, eigvals_only=True)[::-1]
    np.testing.assert_allclose(pairs.values, ritz[:3], rtol=1e-12)


def test_the_search_is_deterministic():
    A, start = symmetric(SPECTRA["repeated"]), RANDOM.standard_normal((N, 4))
    first, second = (drive(A, start, 4)[0] for _ in range(2))
    assert np.array_equal(first.vectors, second.vectors)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"k": 0}, "k = 0"),
        ({"k": 7}, "k = 7"),
        ({"start": np.zeros((6, 2))}, "not zero"),
        ({"start": np.ones(6)}, "matrix"),
        ({"start": np.full((6, 1), np.nan)}, "finite"),
        ({"tol": -1.0}, "tol = -1.0"),
        ({"tol": np.nan}, "tol = nan"),
        ({"max_steps": 0}, "max_steps = 0"),
        ({"k": 5, "max_steps": 2}, "max_steps = 2 .*blocks of 2 need at least 3 for 5"),
    ],
)
def test_bad_searches_are_refused(options, text):
    given = {"start": RANDOM.standard_normal((6, 2)), "k": 2, "tol": 1e-6, "max_steps": 9} | options
    with pytest.raises(InputError, match=text):
        next(block_krylov(given.pop("start"), given.pop("k"), **given))


@pytest.mark.parametrize("product", [np.ones((6, 1)), np.full((6, 2), np.inf)])
def test_bad_products_are_refused(product):
    search = block_krylov(np.eye(6, 2), 2, tol=0.0, max_steps=5)
    next(search)
    with pytest.raises(InputError, match="product of step 1"):
        search.send(product)
