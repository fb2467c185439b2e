"""Eigenpairs against full decompositions, on ordinary and on hard cases."""

import itertools

import numpy as np
import pytest
import scipy.linalg
from allocation import peak_of
from scipy.sparse.linalg import LinearOperator, aslinearoperator
from spectra import RANDOM, SPECTRA, N, assert_leading, symmetric

from fedkernel import numerics
from fedkernel.ground import InputError, all_finite
from fedkernel.numerics.block_lanczos import block_lanczos


@pytest.fixture
def lanczos(monkeypatch):
    """Make Lanczos the choice at the sizes of these tests."""
    low = {"LANCZOS_SIZE": 10, "FACTOR_LANCZOS_SIZE": 10, "LANCZOS_PART": 6, "LANCZOS_PRODUCTS": 40, "LANCZOS_WIDTH": 4}
    for name, size in low.items():
        monkeypatch.setattr(numerics.eigenpairs, name, size)


@pytest.fixture(params=["lapack", "lanczos"])
def solver(request):
    if request.param == "lanczos":
        request.getfixturevalue("lanczos")
    return request.param


@pytest.mark.parametrize("name", SPECTRA)
def test_leading_pairs_of_known_spectra(solver, name):
    A = symmetric(SPECTRA[name])
    for kind, k in itertools.product((np.asarray, aslinearoperator, np.asfortranarray), (1, 2, 5, 10, N)):
        assert_leading(numerics.leading_eigenpairs(kind(A), k), A, k)


@pytest.mark.parametrize("scale", [1e-200, 1e-20, 1e200])
@pytest.mark.parametrize("kind", [np.asarray, aslinearoperator, lambda A: np.kron(A, np.eye(2))[::2, ::2]])
def test_scale_does_not_matter(solver, scale, kind):
    A = symmetric(SPECTRA["indefinite"]) * scale
    assert_leading(numerics.leading_eigenpairs(kind(A), 4), A, 4)


@pytest.mark.parametrize("kind", [np.asarray, aslinearoperator])
def test_the_same_call_gives_the_same_bits_and_fixed_signs(solver, kind):
    A = symmetric(SPECTRA["repeated"])
    first, second = (numerics.leading_eigenpairs(kind(A), 6) for _ in range(2))
    assert np.array_equal(first.values, second.values)
    assert np.array_equal(first.vectors, second.vectors)
    assert np.array_equal(first.vectors, numerics.fix_signs(first.vectors))


@pytest.mark.parametrize("kind", [np.asarray, aslinearoperator])
def test_lapack_decides_where_lanczos_does_not_converge(lanczos, monkeypatch, kind):
    calls = []
    monkeypatch.setattr(numerics.eigenpairs, "block_lanczos", lambda *args, **options: calls.append(options))
    A = symmetric(SPECTRA["flat"])
    assert_leading(numerics.leading_eigenpairs(kind(A), 3), A, 3)
    assert calls == [{"width": 4, "products": 40 * N}]


@pytest.mark.parametrize("name", ["decaying", "flat", "indefinite", "negative", "rank 3"])
def test_lanczos_needs_no_help_with_ordinary_spectra(lanczos, monkeypatch, name):
    monkeypatch.setattr(numerics.eigenpairs, "_lapack", None)
    A = symmetric(SPECTRA[name])
    assert_leading(numerics.leading_eigenpairs(A, 3), A, 3)


def test_lanczos_ends_soon_after_the_pairs_have_converged():
    spectrum, products = np.zeros(400), []
    spectrum[:12] = 0.5 ** np.arange(12)
    values, _ = block_lanczos(lambda B: products.append(len(B)) or B * spectrum, 400, 3, width=1, products=400)
    np.testing.assert_allclose(values, spectrum[:3], atol=1e-14)
    assert sum(products) <= 15, "13 distinct eigenvalues"


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_above_where_all_was_found_and_a_copy_that_was_missed_is(seed):
    A = symmetric(np.r_[[1.0, 1.0, 0.6], 0.3 * 0.5 ** np.arange(N - 3)])
    found, start = scipy.linalg.eigh(A)[1][:, :-4:-1].copy(), np.random.default_rng(seed).standard_normal((1, N))
    for V, is_above in ((found, False), (found[:, 1:], True)):
        assert numerics.eigenpairs._overlooks_larger(0.6, lambda q: q @ A, V, start, size=1.0, products=30) == is_above


def test_a_missed_copy_of_an_eigenvalue_is_noticed(lanczos, monkeypatch):
    A = symmetric(np.r_[[1.0] * 6, 0.9, np.linspace(0.5, 0, N - 7)])
    missing = scipy.linalg.eigh(A)[1][:, [-1, -2, -3, -4, -7]]
    # four copies of 1, and 0.9 in place of the others
    monkeypatch.setattr(
        numerics.eigenpairs, "block_lanczos", lambda *_, **__: (np.array([1, 1, 1, 1, 0.9]) / 8, missing.T)
    )
    monkeypatch.setattr(numerics.eigenpairs, "_power_of_two", lambda A: 8.0)
    assert_leading(numerics.leading_eigenpairs(A, 5), A, 5)


# Spectra of M eigenvalues with copies, and how many are asked for: Lanczos from one start sees one copy, and rounding
# shows it the others after a time that is long where others are near.
M = 300
COPIES = {
    "near a dense bulk": (np.r_[1, 0.9, [0.5000001] * 12, np.linspace(0.5, 0, M - 14)], 14),
    "less near a dense bulk": (np.r_[1, 0.9, [0.51] * 12, np.linspace(0.5, 0, M - 14)], 14),
    "near a dense bulk, not all asked": (np.r_[1, 0.9, [0.5001] * 12, np.linspace(0.5, 0, M - 14)], 8),
    "well separated": (np.r_[[2] * 4, [1] * 4, np.linspace(0.2, 0, M - 8)], 8),
    "all but one asked": (np.r_[3, 2, [1] * 5, np.linspace(0.9, 0, M - 7)], 6),
    "all asked": (np.r_[3, 2, [1] * 5, np.linspace(0.9, 0, M - 7)], 7),
    "one more asked": (np.r_[3, 2, [1] * 5, np.linspace(0.9, 0, M - 7)], 8),
    "everywhere": (np.ones(M), 5),
    "of zero alone": (np.zeros(M), 5),
    "of zero beyond the rank": (np.r_[np.arange(7, 0, -1), np.zeros(M - 7)], 12),
    "of one and zero": (np.r_[np.ones(M // 2), np.zeros(M // 2)], 5),
    "negative": (np.r_[[-1] * 6, np.linspace(-1.01, -3, M - 6)], 6),
    "above a large negative part": (np.r_[[1] * 6, np.linspace(0.99, -30, M - 6)], 6),
    "two of each": (np.repeat(0.9 ** np.arange(M // 2), 2), 20),
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", COPIES)
def test_no_copy_is_missed(lanczos, name, seed):
    spectrum, k = COPIES[name]
    A = symmetric(spectrum, seed)
    assert_leading(numerics.leading_eigenpairs(A, k), A, k)


def test_few_products_settle_a_kernel_matrix_and_one_that_is_not_finite_is_refused(lanczos, monkeypatch):
    # Ten clusters: what is left of such a spectrum is far smaller than its first eigenvalues.
    monkeypatch.setattr(numerics.eigenpairs, "LANCZOS_WIDTH", 8)
    X = np.random.default_rng(0).standard_normal((600, 10)) + 9 * np.repeat(np.eye(10), 60, axis=0)
    A, products = numerics.RBF(gamma=0.001).gram(X), []
    count = {"matmat": lambda X: (products.append(X.shape[1]), A @ X)[1], "dtype": float}
    assert_leading(numerics.leading_eigenpairs(LinearOperator(A.shape, lambda x: A @ x, **count), 10), A, 10)
    assert sum(products) < 120  # of which 10 check the pairs
    with pytest.raises(InputError, match="not finite"):
        numerics.leading_eigenpairs(LinearOperator((N, N), matvec=lambda x: x * np.nan, dtype=float), 1)


def test_the_matrix_is_kept(solver):
    for order in "CF":
        A = np.array(symmetric(SPECTRA["flat"]), order=order)
        before = A.copy()
        for k in (3, N):
            numerics.leading_eigenpairs(A, k)
            numerics.leading_eigenpairs_of_factor(A, k)
        numerics.eigenpairs_above(A, 0.9)
        numerics.eigenpairs_of_factor_above(A, 0.9)
        assert np.array_equal(A, before)


def test_memory_is_one_more_matrix_for_lapack_and_none_for_lanczos_and_a_factor(monkeypatch):
    n, size = 700, 700 * 700 * 8
    A = symmetric(0.9 ** np.arange(n))

    def peak(solve, matrix):
        return peak_of(lambda: solve(matrix, 5))[0] / size

    assert 1.0 <= peak(numerics.leading_eigenpairs, A) < 1.15
    assert peak(numerics.leading_eigenpairs_of_factor, A[:, :4]) < 0.1
    monkeypatch.setattr(numerics.eigenpairs, "LANCZOS_SIZE", 500)
    assert peak(numerics.leading_eigenpairs, A) < 0.3  # some 130 vectors


def test_pairs_that_lapack_leaves_rough_are_not_believed(monkeypatch):
    A = symmetric(SPECTRA["flat"])
    eigh, drivers = scipy.linalg.eigh, []

    def losing(matrix, driver, **options):
        drivers.append(driver)
        values, vectors = eigh(matrix, driver=driver, **options)
        return (values[1:], vectors[:, 1:]) if driver == "evx" else (values, vectors)

    monkeypatch.setattr(numerics.eigenpairs.scipy.linalg, "eigh", losing)
    pairs = numerics.leading_eigenpairs(A, 3)
    monkeypatch.undo()
    assert drivers == ["evx", "evd"]
    assert_leading(pairs, A, 3)


OUT_OF_RANGE = "ratio = .*at least 0 and less than 1"


@pytest.mark.parametrize(
    ("solve", "A", "k", "text"),
    [
        (numerics.leading_eigenpairs, np.eye(3), 0, "k = 0 .*between 1 and n = 3"),
        (numerics.leading_eigenpairs, np.eye(3), 4, "k = 4 .*between 1 and n = 3"),
        (numerics.leading_eigenpairs, np.ones((2, 3)), 1, r"\(2, 3\).*square"),
        (numerics.leading_eigenpairs, np.ones(3), 1, r"\(3,\).*square"),
        (numerics.leading_eigenpairs, np.diag([1.0, np.nan]), 1, "not finite"),
        (numerics.leading_eigenpairs, np.diag([1.0, -np.inf]), 1, "not finite"),
        (numerics.leading_eigenpairs, aslinearoperator(np.ones((2, 3))), 1, "square"),
        (numerics.leading_eigenpairs, aslinearoperator(np.diag([1.0, np.nan])), 1, "not finite"),
        (numerics.leading_eigenpairs_of_factor, np.ones((3, 2)), 4, "k = 4"),
        (numerics.leading_eigenpairs_of_factor, np.ones((3, 2)), 0, "k = 0"),
        (numerics.leading_eigenpairs_of_factor, np.ones(3), 1, "two dimensions"),
        (numerics.leading_eigenpairs_of_factor, np.full((3, 2), np.nan), 1, "not finite"),
        (numerics.leading_eigenpairs_of_factor, np.full((3, 2), 1e200), 1, "overflows"),
        *((numerics.eigenpairs_above, np.eye(3), ratio, OUT_OF_RANGE) for ratio in (-0.1, 1.0, np.nan)),
        *((numerics.eigenpairs_of_factor_above, np.eye(3), ratio, OUT_OF_RANGE) for ratio in (-0.1, 1.0, np.nan)),
    ],
)
def test_bad_matrices_and_numbers_are_refused(solve, A, k, text):
    with pytest.raises(InputError, match=text):
        solve(A, k)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, complex(1, np.nan), complex(-1, np.inf), complex(1, -np.inf)])
def test_every_entry_that_is_not_finite_is_seen_whatever_stands_beside_it(bad):
    good = np.array([[2.0, 3.0], [-4.0, 0.0]], dtype=type(bad))
    assert all_finite(good)
    for place in np.ndindex(good.shape):
        values = good.copy()
        values[place] = bad
        assert not all_finite(values)


@pytest.mark.parametrize(("n", "r"), [(20, 1), (20, 6), (20, 20), (6, 20), (1, 3), (20, 0)])
def test_factor_agrees_with_the_full_product(n, r):
    F = np.random.default_rng(1).standard_normal((n, r))
    for k in {1, min(3, n), n}:
        pairs = numerics.leading_eigenpairs_of_factor(F, k)
        assert_leading(pairs, F @ F.T, k)
        assert (pairs.values >= 0).all()


def test_a_factor_beyond_its_rank_is_completed_and_keeps_the_digits_of_small_eigenvalues():
    F = np.outer(np.arange(1.0, 31), [1.0, 2.0, -1.0])
    pairs = numerics.leading_eigenpairs_of_factor(F, 12)
    assert_leading(pairs, F @ F.T, 12)
    assert (pairs.values[3:] == 0).all()
    assert_leading(numerics.leading_eigenpairs_of_factor(np.zeros((5, 2)), 4), np.zeros((5, 5)), 4)
    # The eigenvalue 1e-18 beside 1 is far below what F F^T can hold.
    Q, P = (np.linalg.qr(RANDOM.standard_normal((n, 3)))[0] for n in (40, 5))
    F = (Q * [1.0, 1e-4, 1e-9]) @ P.T
    pairs = numerics.leading_eigenpairs_of_factor(F, 3)
    np.testing.assert_allclose(pairs.values, [1.0, 1e-8, 1e-18], rtol=1e-6)
    assert numerics.sin_theta_error(pairs.vectors, Q) < 1e-12


def test_lanczos_serves_a_factor_only_where_its_digits_suffice(lanczos, monkeypatch):
    used, svd = [], scipy.linalg.svd
    monkeypatch.setattr(scipy.linalg, "svd", lambda *args, **options: (used.append("svd"), svd(*args, **options))[1])
    Q, P = (np.linalg.qr(RANDOM.standard_normal((n, 20)))[0] for n in (N, 20))
    for root, k, expected in ((0.7, 3, []), (0.7, 1, []), (0.005, 3, ["svd"])):
        used.clear()
        pairs = numerics.leading_eigenpairs_of_factor((Q * root ** np.arange(20)) @ P.T, k)
        np.testing.assert_allclose(pairs.values, root ** (2 * np.arange(k)), rtol=1e-9)
        assert used == expected


@pytest.mark.parametrize("scale", [1e-200, 1e-100, 1e100])
def test_factor_of_any_scale_has_right_vectors(scale):
    F = RANDOM.standard_normal((12, 3))
    expected, pairs = numerics.leading_eigenpairs_of_factor(F, 3), numerics.leading_eigenpairs_of_factor(F * scale, 3)
    np.testing.assert_allclose(pairs.vectors, expected.vectors, atol=1e-13)
    np.testing.assert_allclose(pairs.values, expected.values * scale * scale, rtol=1e-12)


@pytest.mark.parametrize("name", ["decaying", "rank 3", "repeated", "projection", "zero", "indefinite", "negative"])
def test_adaptive_number_is_the_smallest_allowed(solver, name):
    spectrum = np.sort(SPECTRA[name])[::-1] + 0.0
    A = symmetric(spectrum)
    for ratio in (0.9, 0.3, 0.04, 0.0005, 0.0):
        # Straight from the definition: D = 1, 2, ... until lambda_{D+1} is small enough.
        D = 1
        while D < N and spectrum[D] > ratio * spectrum[0]:
            D += 1
        assert_leading(numerics.eigenpairs_above(A, ratio), A, D)
        assert_leading(numerics.eigenpairs_above(aslinearoperator(A), ratio), A, D)
        if spectrum[-1] >= 0:
            root = np.linalg.qr(np.random.default_rng(0).standard_normal((N, N)))[0] * np.sqrt(spectrum)
            assert_leading(numerics.eigenpairs_of_factor_above(root, ratio), A, D)
            wide = np.hstack([root, np.zeros((N, 5))])
            assert len(numerics.eigenpairs_of_factor_above(wide, ratio).values) == D


@pytest.mark.parametrize(("tol", "rank"), [(0.1, 2), (1e-6, 5), (0.0, 7), (1e-20, 7)])
def test_whitening_makes_what_is_left_the_identity(tol, rank):
    # The last two are below the floor of n eps = 1.3e-14, which holds whatever the tolerance.
    spectrum = np.r_[4.0, 1.0, 1e-2, 1e-3, 1e-4, 1e-7, 1e-11, 1e-14, 0.0, np.zeros(N - 9)]
    A = np.diag(spectrum)
    R = numerics.whitening(A, tol)
    assert R.shape == (N, rank)
    np.testing.assert_allclose(R.T @ A @ R, np.eye(rank), atol=1e-12)
    np.testing.assert_allclose(R.T @ R, np.diag(1 / spectrum[:rank]), rtol=1e-9)
    turned = symmetric(SPECTRA["decaying"])
    R = numerics.whitening(turned, 1e-3)
    assert R.shape == (N, np.count_nonzero(SPECTRA["decaying"] > 1e-3))
    np.testing.assert_allclose(R.T @ turned @ R, np.eye(R.shape[1]), atol=1e-11)
    assert numerics.whitening(np.zeros((4, 4)), 0.0).shape == (4, 0)
    with pytest.raises(InputError, match=r"^products of rows fall to 1e-301, below 1e-300; use a"):
        numerics.whitening(np.diag([1e-298, 1e-301]), 0.0)
