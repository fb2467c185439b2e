"""Eigen solvers, subspaces and centring, against full decompositions of matrices with known spectra."""

import tracemalloc

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, aslinearoperator

from fedkernel import linalg
from fedkernel.errors import InputError
from fedkernel.krylov import block_krylov
from fedkernel.linalg import (
    Eigenpairs,
    center_gram,
    center_rows,
    eigenpairs_above,
    eigenpairs_of_factor_above,
    leading_eigenpairs,
    leading_eigenpairs_of_factor,
    power_iteration,
)
from fedkernel.subspaces import align_signs, complement, fix_signs, orthonormal_basis, sin_theta_error

N = 60
RANDOM = np.random.default_rng(7)
SPECTRA = {
    "decaying": 0.75 ** np.arange(N),
    "flat": np.linspace(1, 2, N),
    "indefinite": np.linspace(-3, 1, N),
    "negative": np.linspace(-3, -1, N),
    "repeated": np.r_[[2.0] * 4, [1.0] * 4, np.linspace(0, 0.5, N - 8)],
    "repeated first": np.r_[1.0, 1.0, 0.9, 0.8, np.linspace(0, 0.1, N - 4)],
    "rank 3": np.r_[3.0, 2.0, 1.0, np.zeros(N - 3)],
    "projection": np.r_[[1.0] * 5, np.zeros(N - 5)],
    "identity": np.ones(N),
    "zero": np.zeros(N),
    "nearly repeated": 1 + 1e-12 * np.arange(N),
}


def symmetric(spectrum, seed=0):
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(spectrum), len(spectrum))))[0]
    A = (Q * spectrum) @ Q.T
    return (A + A.T) / 2


def assert_leading(pairs, A, k, tol=1e-12):
    """Values as of a full decomposition, vectors orthonormal, each a solution: true for repeated values as well."""
    true = scipy.linalg.eigh(A, eigvals_only=True)[::-1]
    scale = max(np.abs(true).max(), np.finfo(float).tiny)
    assert isinstance(pairs, Eigenpairs)
    assert pairs.values.shape == (k,)
    assert pairs.vectors.shape == (len(A), k)
    assert (np.diff(pairs.values) <= 0).all()
    np.testing.assert_allclose(pairs.values / scale, true[:k] / scale, atol=tol)
    np.testing.assert_allclose(pairs.vectors.T @ pairs.vectors, np.eye(k), atol=tol)
    np.testing.assert_allclose((A / scale) @ pairs.vectors, pairs.vectors * (pairs.values / scale), atol=tol)


@pytest.fixture
def lanczos(monkeypatch):
    """Make Lanczos the choice at the sizes of these tests."""
    monkeypatch.setattr(linalg, "LANCZOS_SIZE", 10)
    monkeypatch.setattr(linalg, "LANCZOS_PART", 6)


@pytest.fixture(params=["lapack", "lanczos"])
def solver(request):
    if request.param == "lanczos":
        request.getfixturevalue("lanczos")
    return request.param


# Leading eigenpairs


@pytest.mark.parametrize("k", [1, 2, 5, 10, N])
@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("kind", [np.asarray, aslinearoperator, np.asfortranarray])
def test_leading_pairs_of_known_spectra(solver, name, k, kind):
    A = symmetric(SPECTRA[name])
    assert_leading(leading_eigenpairs(kind(A), k), A, k)


@pytest.mark.parametrize("scale", [1e-200, 1e-20, 1e200])
@pytest.mark.parametrize("kind", [np.asarray, aslinearoperator])
def test_scale_does_not_matter(solver, scale, kind):
    A = symmetric(SPECTRA["indefinite"]) * scale
    assert_leading(leading_eigenpairs(kind(A), 4), A, 4)


def test_one_row():
    for value in (-2.0, 0.0, 3.0):
        values, vectors = leading_eigenpairs(np.array([[value]]), 1)
        assert (values.tolist(), vectors.tolist()) == ([value], [[1.0]])


@settings(max_examples=40, deadline=None)
@given(hnp.arrays(float, st.integers(1, 12), elements=st.integers(-3, 3)), st.integers(0, 5), st.data())
def test_integer_spectra_with_many_ties(spectrum, seed, data):
    k = data.draw(st.integers(1, len(spectrum)))
    A = symmetric(spectrum, seed)
    assert_leading(leading_eigenpairs(A, k), A, k)


@pytest.mark.parametrize("kind", [np.asarray, aslinearoperator])
def test_the_same_call_gives_the_same_bits_and_fixed_signs(solver, kind):
    A = symmetric(SPECTRA["repeated"])
    first, second = (leading_eigenpairs(kind(A), 6) for _ in range(2))
    assert np.array_equal(first.values, second.values)
    assert np.array_equal(first.vectors, second.vectors)
    assert np.array_equal(first.vectors, fix_signs(first.vectors))


def test_the_solver_follows_size_and_number(monkeypatch):
    used = []
    monkeypatch.setattr(linalg, "_lanczos", lambda A, n, k: used.append((n, k)))  # None: not converged
    monkeypatch.setattr(linalg, "LANCZOS_SIZE", 40)
    monkeypatch.setattr(linalg, "LANCZOS_PART", 10)
    for n, k in [(39, 1), (40, 4), (40, 5)]:
        A = symmetric(np.arange(n))
        assert_leading(leading_eigenpairs(A, k), A, k, tol=1e-12)
    assert used == [(40, 4)]


@pytest.mark.parametrize("kind", [np.asarray, aslinearoperator])
def test_lapack_decides_where_lanczos_does_not_converge(lanczos, monkeypatch, kind):
    calls = []

    def stuck(*args, **options):
        calls.append(options["tol"])
        raise ArpackNoConvergence("stuck", np.zeros(0), np.zeros((0, 0)))

    monkeypatch.setattr(linalg, "eigsh", stuck)
    A = symmetric(SPECTRA["flat"])
    assert_leading(leading_eigenpairs(kind(A), 3), A, 3)
    assert calls == [0.0]


@pytest.mark.parametrize("name", ["decaying", "flat", "indefinite", "negative", "rank 3"])
def test_lanczos_needs_no_help_with_ordinary_spectra(lanczos, monkeypatch, name):
    monkeypatch.setattr(linalg, "_lapack", None)
    A = symmetric(SPECTRA[name])
    assert_leading(leading_eigenpairs(A, 3), A, 3)


def test_a_missed_copy_of_an_eigenvalue_is_noticed(lanczos, monkeypatch):
    A = symmetric(SPECTRA["repeated first"])
    found = scipy.linalg.eigh(A)[1][:, [-1, -3, -4]]
    real, calls = linalg.eigsh, []

    def careless(operator, k, **options):
        calls.append(k)
        if options["tol"] == 0:  # finds 1, 0.9, 0.8 and not the second 1
            return np.diagonal(found.T @ (operator @ found)), found
        return real(operator, k, **options)

    monkeypatch.setattr(linalg, "eigsh", careless)
    assert_leading(leading_eigenpairs(A * 8.0, 3), A * 8.0, 3)
    assert calls == [3, 1]


def test_the_matrix_is_kept(solver):
    for order in "CF":
        A = np.array(symmetric(SPECTRA["flat"]), order=order)
        before = A.copy()
        for k in (3, N):
            leading_eigenpairs(A, k)
            leading_eigenpairs_of_factor(A, k)
        eigenpairs_above(A, 0.9)
        eigenpairs_of_factor_above(A, 0.9)
        assert np.array_equal(A, before)


def test_memory_is_one_more_matrix_for_lapack_and_none_for_lanczos(monkeypatch):
    n, size = 700, 700 * 700 * 8
    A = symmetric(0.9 ** np.arange(n))

    def peak():
        tracemalloc.start()
        leading_eigenpairs(A, 5)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak / size

    assert 1.0 <= peak() < 1.15
    monkeypatch.setattr(linalg, "LANCZOS_SIZE", 500)
    assert peak() < 0.15


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("copies", [2, 30, N])
def test_repeated_eigenvalues_in_any_rotation(solver, seed, copies):
    """Whether a solver loses a copy depends on the last bits, so many rotations are tried."""
    values = np.where(np.arange(N) < copies, 1.0, 0.5)
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((N, N)))[0]
    A = (Q * values) @ Q.T
    for k in (1, 2, 5):
        assert_leading(leading_eigenpairs(A, k), A, k)


def test_pairs_that_lapack_leaves_rough_are_not_believed(monkeypatch):
    A = symmetric(SPECTRA["flat"])
    eigh = scipy.linalg.eigh
    drivers = []

    def losing(matrix, driver, **options):
        drivers.append(driver)
        values, vectors = eigh(matrix, driver=driver, **options)
        return (values[1:], vectors[:, 1:]) if driver == "evx" else (values, vectors)

    monkeypatch.setattr(linalg.scipy.linalg, "eigh", losing)
    pairs = leading_eigenpairs(A, 3)
    monkeypatch.undo()
    assert drivers == ["evx", "evd"]
    assert_leading(pairs, A, 3)


@pytest.mark.parametrize(
    ("A", "k", "text"),
    [
        (np.eye(3), 0, "k = 0 .*between 1 and n = 3"),
        (np.eye(3), 4, "k = 4 .*between 1 and n = 3"),
        (np.ones((2, 3)), 1, r"\(2, 3\).*square"),
        (np.ones(3), 1, r"\(3,\).*square"),
        (np.diag([1.0, np.nan]), 1, "not finite"),
        (np.diag([1.0, -np.inf]), 1, "not finite"),
        (aslinearoperator(np.ones((2, 3))), 1, "square"),
        (aslinearoperator(np.diag([1.0, np.nan])), 1, "not finite"),
    ],
)
def test_bad_matrices_are_refused(A, k, text):
    with pytest.raises(InputError, match=text):
        leading_eigenpairs(A, k)


def test_lanczos_refuses_an_operator_that_is_not_finite(lanczos):
    with pytest.raises(InputError, match="not finite"):
        leading_eigenpairs(LinearOperator((N, N), matvec=lambda x: x * np.nan, dtype=float), 1)


# Leading eigenpairs of a factor


@pytest.mark.parametrize(("n", "r"), [(20, 1), (20, 6), (20, 20), (6, 20), (1, 3), (20, 0)])
def test_factor_agrees_with_the_full_product(n, r):
    F = np.random.default_rng(1).standard_normal((n, r))
    for k in {1, min(3, n), n}:
        pairs = leading_eigenpairs_of_factor(F, k)
        assert_leading(pairs, F @ F.T, k)
        assert (pairs.values >= 0).all()


def test_factor_beyond_its_rank_is_completed():
    F = np.outer(np.arange(1.0, 31), [1.0, 2.0, -1.0])
    pairs = leading_eigenpairs_of_factor(F, 12)
    assert_leading(pairs, F @ F.T, 12)
    assert (pairs.values[3:] == 0).all()
    assert_leading(leading_eigenpairs_of_factor(np.zeros((5, 2)), 4), np.zeros((5, 5)), 4)


def test_factor_keeps_the_digits_of_small_eigenvalues():
    # The eigenvalue 1e-18 beside 1 is far below what F F^T can hold.
    Q, P = (np.linalg.qr(RANDOM.standard_normal((n, 3)))[0] for n in (40, 5))
    F = (Q * [1.0, 1e-4, 1e-9]) @ P.T
    pairs = leading_eigenpairs_of_factor(F, 3)
    np.testing.assert_allclose(pairs.values, [1.0, 1e-8, 1e-18], rtol=1e-6)
    assert sin_theta_error(pairs.vectors, Q) < 1e-12


def test_lanczos_serves_a_factor_only_where_its_digits_suffice(lanczos, monkeypatch):
    used = []
    svd = scipy.linalg.svd
    monkeypatch.setattr(scipy.linalg, "svd", lambda *args, **options: (used.append("svd"), svd(*args, **options))[1])
    Q, P = (np.linalg.qr(RANDOM.standard_normal((n, 20)))[0] for n in (N, 20))
    for root, expected in ((0.7, []), (0.005, ["svd"])):
        used.clear()
        pairs = leading_eigenpairs_of_factor((Q * root ** np.arange(20)) @ P.T, 3)
        np.testing.assert_allclose(pairs.values, root ** (2 * np.arange(3)), rtol=1e-9)
        assert used == expected


def test_factor_does_not_form_the_product():
    F = RANDOM.standard_normal((2000, 4))
    tracemalloc.start()
    leading_eigenpairs_of_factor(F, 6)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2000 * 2000 * 8 / 20


@pytest.mark.parametrize("scale", [1e-200, 1e-100, 1e100])
def test_factor_of_any_scale_has_right_vectors(scale):
    F = RANDOM.standard_normal((12, 3))
    expected, pairs = leading_eigenpairs_of_factor(F, 3), leading_eigenpairs_of_factor(F * scale, 3)
    np.testing.assert_allclose(pairs.vectors, expected.vectors, atol=1e-13)
    np.testing.assert_allclose(pairs.values, expected.values * scale * scale, rtol=1e-12)


def test_bad_factors_are_refused():
    for F, k, text in [
        (np.ones((3, 2)), 4, "k = 4"),
        (np.ones((3, 2)), 0, "k = 0"),
        (np.ones(3), 1, "two dimensions"),
        (np.full((3, 2), np.nan), 1, "not finite"),
        (np.full((3, 2), 1e200), 1, "overflows"),
    ]:
        with pytest.raises(InputError, match=text):
            leading_eigenpairs_of_factor(F, k)


# The adaptive number of components


@pytest.mark.parametrize("ratio", [0.9, 0.3, 0.04, 0.0005, 0.0])
@pytest.mark.parametrize("name", ["decaying", "rank 3", "repeated", "projection", "zero", "indefinite", "negative"])
def test_adaptive_number_is_the_smallest_allowed(solver, name, ratio):
    spectrum = np.sort(SPECTRA[name])[::-1] + 0.0
    A = symmetric(spectrum)
    threshold = ratio * spectrum[0]
    # Straight from the definition: D = 1, 2, ... until lambda_{D+1} is small enough.
    D = 1
    while D < N and spectrum[D] > threshold:
        D += 1
    assert_leading(eigenpairs_above(A, ratio), A, D)
    assert_leading(eigenpairs_above(aslinearoperator(A), ratio), A, D)
    if spectrum[-1] >= 0:
        root = np.linalg.qr(np.random.default_rng(0).standard_normal((N, N)))[0] * np.sqrt(spectrum)
        assert_leading(eigenpairs_of_factor_above(root, ratio), A, D)
        wide = np.hstack([root, np.zeros((N, 5))])
        assert len(eigenpairs_of_factor_above(wide, ratio).values) == D


def test_adaptive_number_doubles_before_it_asks_for_all(monkeypatch):
    asked = []
    solve = leading_eigenpairs
    monkeypatch.setattr(linalg, "leading_eigenpairs", lambda A, k: (asked.append(k), solve(A, k))[1])
    monkeypatch.setattr(linalg, "LANCZOS_SIZE", 10)
    monkeypatch.setattr(linalg, "LANCZOS_PART", 2)
    A = symmetric(SPECTRA["decaying"])
    for ratio, expected in [(0.5, [8]), (0.04, [8, 16]), (1e-6, [8, 16, N])]:
        asked.clear()
        eigenpairs_above(A, ratio)
        assert asked == expected


def test_ratio_out_of_range_is_refused():
    for ratio in (-0.1, 1.0, np.nan):
        with pytest.raises(InputError, match=r"ratio = .*at least 0 and less than 1"):
            eigenpairs_above(np.eye(3), ratio)
        with pytest.raises(InputError, match=r"ratio = "):
            eigenpairs_of_factor_above(np.eye(3), ratio)


# Power iteration


def test_one_vector_is_the_classic_power_method():
    A, v = symmetric(SPECTRA["decaying"]), RANDOM.standard_normal(N)
    count = []
    pairs = power_iteration(lambda x: (count.append(1), A @ x)[1], v[:, None], 7)
    for _ in range(7):
        v = A @ v / np.linalg.norm(A @ v)
    np.testing.assert_allclose(pairs.vectors[:, 0], v, atol=1e-13)
    np.testing.assert_allclose(pairs.values, [v @ A @ v], rtol=1e-13)
    assert len(count) == 8  # seven move the vector, one gives its Rayleigh quotient


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_block_iteration_reaches_the_leading_pairs(scale):
    A = symmetric(SPECTRA["decaying"]) * scale
    assert_leading(power_iteration(lambda x: A @ x, RANDOM.standard_normal((N, 4)), 150), A, 4, tol=1e-11)


def test_block_iteration_spans_the_power_of_the_start():
    A, S = symmetric(SPECTRA["flat"]), RANDOM.standard_normal((N, 3))
    pairs = power_iteration(lambda x: A @ x, S, 4)
    expected = orthonormal_basis(np.linalg.matrix_power(A, 4) @ S)
    assert sin_theta_error(pairs.vectors, expected) < 1e-24
    ritz = scipy.linalg.eigh(expected.T @ A @ expected, eigvals_only=True)[::-1]
    np.testing.assert_allclose(pairs.values, ritz, rtol=1e-12)


@pytest.mark.parametrize("k", [1, 3])
def test_a_zero_operator_gives_back_the_start(k):
    S = -np.abs(RANDOM.standard_normal((8, k)))
    pairs = power_iteration(np.zeros_like, S, 5)
    assert (pairs.values == 0).all()
    np.testing.assert_allclose(pairs.vectors, orthonormal_basis(S), atol=1e-14)
    np.testing.assert_allclose(pairs.vectors[:, 0], S[:, 0] / np.linalg.norm(S[:, 0]), atol=1e-14)


def test_more_vectors_than_the_rank_stay_orthonormal():
    A = symmetric(SPECTRA["rank 3"])
    assert_leading(power_iteration(lambda x: A @ x, RANDOM.standard_normal((N, 5)), 80), A, 5)


def test_bad_starts_are_refused():
    for start, iterations in [(np.zeros((3, 1)), 1), (np.ones((2, 3)), 1), (np.ones(3), 1), (np.ones((3, 1)), -1)]:
        with pytest.raises(InputError):
            power_iteration(lambda x: x, start, iterations)


# Signs, bases, subspaces


@given(hnp.arrays(float, (5, 3), elements=st.floats(-10, 10)), hnp.arrays(bool, 3))
def test_fixed_signs_do_not_depend_on_the_signs_given(V, flips):
    fixed = fix_signs(V)
    assert np.array_equal(np.abs(fixed), np.abs(V))
    assert (fixed.max(axis=0) >= np.abs(fixed).max(axis=0) * (1 - 1e-6)).all()
    assert np.array_equal(fix_signs(V * np.where(flips, -1, 1)), fixed)


def test_rounding_does_not_decide_a_sign():
    v = np.array([[-0.5], [0.5], [0.5], [-0.5]])
    for noise in ([1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, -1], [0, 0, 0, 0]):
        assert fix_signs(v + 1e-14 * np.array(noise)[:, None])[0, 0] > 0


def test_aligned_signs():
    reference = RANDOM.standard_normal((6, 4))
    flips = np.array([1, -1, 1, -1])
    V = reference + 0.1 * RANDOM.standard_normal((6, 4))
    assert np.array_equal(align_signs(V * flips, reference), V)
    with pytest.raises(InputError, match=r"\(6, 4\) and \(6, 3\)"):
        align_signs(V, reference[:, :3])


def test_orthonormal_basis_is_gram_schmidt():
    V = RANDOM.standard_normal((9, 3))
    expected = []
    for v in V.T:
        rest = v - sum((v @ q) * q for q in expected)
        expected.append(rest / np.linalg.norm(rest))
    np.testing.assert_allclose(orthonormal_basis(V), np.array(expected).T, atol=1e-14)


@pytest.mark.parametrize(("n", "k"), [(5, 0), (5, 2), (30, 29)])
def test_complement_completes_a_basis(n, k):
    V = orthonormal_basis(RANDOM.standard_normal((n, k))) if k else np.zeros((n, 0))
    whole = np.hstack([V, complement(V, n - k)])
    np.testing.assert_allclose(whole.T @ whole, np.eye(n), atol=1e-14)
    assert np.array_equal(complement(V, n - k), whole[:, k:])


@pytest.mark.parametrize("angle", [0.5, 1e-3, 1e-10, 1e-14, 0.0])
def test_sin_theta_error_resolves_tiny_angles(angle):
    Q = np.linalg.qr(RANDOM.standard_normal((10, 4)))[0] if angle else np.eye(10)[:, :4]
    V, W = Q[:, :2], np.column_stack([Q[:, 0], np.cos(angle) * Q[:, 1] + np.sin(angle) * Q[:, 2]])
    mixed = W @ np.array([[0.6, -0.8], [0.8, 0.6]]) if angle > 1e-3 else W
    assert sin_theta_error(V, mixed) == pytest.approx(np.sin(angle) ** 2, rel=0.2, abs=0.0)
    if angle == 0.5:
        assert sin_theta_error(V, mixed) == pytest.approx(2 - np.linalg.norm(V.T @ mixed) ** 2, rel=1e-12)
    with pytest.raises(InputError):
        sin_theta_error(V, W[:, :1])


# Centring


@pytest.mark.parametrize("n", [1, 5, 300])
def test_centring_is_that_of_the_features(n):
    X, Y = RANDOM.standard_normal((n, 4)) + 3, RANDOM.standard_normal((7, 4)) + 3
    K, K_new, before = X @ X.T, Y @ X.T, X @ X.T
    column_means, mean = center_gram(K)
    center_rows(K_new, column_means, mean)
    Xc, Yc = X - X.mean(axis=0), Y - X.mean(axis=0)
    np.testing.assert_allclose(K, Xc @ Xc.T, atol=1e-12)
    np.testing.assert_allclose(K_new, Yc @ Xc.T, atol=1e-12)
    np.testing.assert_allclose(column_means, before.mean(axis=0), rtol=1e-13)
    assert mean == pytest.approx(before.mean(), rel=1e-13)
    assert np.array_equal(K, K.T)


def test_centring_allocates_no_matrix():
    K = np.ones((1500, 1500))
    tracemalloc.start()
    center_rows(K, *center_gram(K))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < K.nbytes / 2


# Block Krylov


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
