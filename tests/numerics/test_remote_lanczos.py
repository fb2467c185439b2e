"""The block Krylov search, driven as a protocol drives it."""

import itertools

import numpy as np
import pytest
import scipy.linalg
from scipy.sparse.linalg import aslinearoperator
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale
from spectra import RANDOM, SPECTRA, N, assert_leading, symmetric

from fedkernel.ground import InputError
from fedkernel.numerics import components_by_gap, fix_signs, leading_eigenpairs, remote_lanczos, sin_theta_error
from fedkernel.numerics.remote_lanczos import block_krylov, block_krylov_above, block_krylov_gap


def answer(A, search):
    """Answer the coroutine with products; return its result and the blocks it asked for."""
    blocks = []
    try:
        Q = next(search)
        while True:
            blocks.append(Q)
            Q = search.send(A @ Q)
    except StopIteration as end:
        return end.value, blocks


def drive(A, start, k, tol=1e-8, max_steps=200):
    return answer(A, block_krylov(start, k, tol=tol, max_steps=max_steps))


def drive_above(A, start, threshold, tol=1e-10, max_steps=200):
    return answer(A, block_krylov_above(start, threshold, tol=tol, max_steps=max_steps))


@pytest.mark.parametrize("name", SPECTRA)
def test_blocks_as_wide_as_wanted_find_the_leading_pairs(name):
    for k, scale_ in itertools.product((1, 3, 5), (1e-200, 1.0, 1e200)):
        A = symmetric(SPECTRA[name]) * scale_
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
    fewer, _ = drive(A, start, k, tol=0.0, max_steps=len(blocks) - 5)
    assert np.sqrt(sin_theta_error(fewer.vectors, exact)) > tol


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


def test_single_vectors_go_on_past_an_invariant_subspace_and_blocks_shrink_with_the_rank():
    # One vector sees two of the five: the projection's Krylov spaces have two dimensions.
    A = symmetric(SPECTRA["projection"])
    pairs, _ = drive(A, RANDOM.standard_normal((N, 1)), 4)
    assert pairs.vectors.shape == (N, 4)
    np.testing.assert_allclose(pairs.vectors.T @ pairs.vectors, np.eye(4), atol=1e-13)
    np.testing.assert_allclose(A @ pairs.vectors, pairs.vectors * pairs.values, atol=1e-13)
    A = symmetric(SPECTRA["rank 3"])
    pairs, blocks = drive(A, RANDOM.standard_normal((N, 5)), 5, tol=0.0)
    assert_leading(pairs, A, 5, tol=1e-13)
    assert [Q.shape[1] for Q in blocks] == [5, 3]
    dependent = RANDOM.standard_normal((N, 2)) @ RANDOM.standard_normal((2, 4))
    assert drive(A, dependent, 1)[1][0].shape == (N, 2)


def test_vanishing_rayleigh_quotients_and_a_gap_out_of_sight_are_no_convergence():
    B = np.outer([1.0, 1 / 3, 0.7], RANDOM.standard_normal(20))
    A = np.block([[np.zeros((3, 3)), B], [B.T, np.zeros((20, 20))]])
    assert [Q.shape[1] for Q in drive(A, np.eye(23, 3), 1, tol=0.0)[1]] == [3, 1]
    pairs, blocks = drive(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[1.0], [0.0]]), 1)
    np.testing.assert_allclose(pairs.values, [1.0], atol=1e-15)
    assert len(blocks) == 2
    # With k columns there is no theta_{k+1}: a residual of 1e-5 alone does not say that 1e-3 is reached.
    pairs, blocks = drive(np.diag([1.0, 0.0, 0.0]), np.array([[1.0], [1e-5], [0.0]]), 1, tol=1e-3)
    assert len(blocks) == 2
    np.testing.assert_allclose(pairs.vectors[:, 0], [1, 0, 0], atol=1e-12)


@pytest.mark.parametrize("above", [False, True])
def test_max_steps_is_kept_and_gives_the_best_so_far(above):
    A, start = symmetric(SPECTRA["flat"]), RANDOM.standard_normal((N, 3))
    search, wanted = (drive_above, 1.6) if above else (drive, 3)
    pairs, blocks = search(A, start, wanted, tol=0.0, max_steps=4)
    basis = np.hstack(blocks)
    assert len(blocks) == 4
    assert isinstance(pairs, remote_lanczos.Unconverged)
    ritz = scipy.linalg.eigh(basis.T @ A @ basis, eigvals_only=True)[::-1]
    expected = ritz[ritz > 1.6] if above else ritz[:3]
    assert 0 < len(expected) < 12
    np.testing.assert_allclose(pairs.values, expected, rtol=1e-12)
    assert drive_above(A, start, 5.0, tol=0.0, max_steps=1)[0].vectors.shape == (N, 0)


@pytest.mark.parametrize(("name", "max_steps"), [("decaying", 200), ("flat", 5), ("rank 3", 200)])
def test_a_search_that_is_resumed_at_every_step_is_the_same(name, max_steps):
    """Where no coroutine can be kept: by its blocks and their products."""
    A, start = symmetric(SPECTRA[name]), np.random.default_rng(1).standard_normal((N, 3))
    pairs, blocks = drive(A, start, 3, max_steps=max_steps)
    seen, resumed = [], None
    while resumed is None:
        try:
            Q = next(block_krylov(start, 3, tol=1e-8, max_steps=max_steps, seen=seen))
            seen.append((Q, A @ Q))
        except StopIteration as end:
            resumed = end.value
    assert [Q.shape for Q, _ in seen] == [Q.shape for Q in blocks]
    assert type(resumed) is type(pairs) is (remote_lanczos.Unconverged if max_steps == 5 else remote_lanczos.Eigenpairs)
    np.testing.assert_allclose(resumed.values, pairs.values, rtol=0, atol=1e-13 * abs(pairs.values).max())
    assert sin_theta_error(resumed.vectors, pairs.vectors) < 1e-20


BAD = [
    ({"start": np.zeros((6, 2))}, "not zero"),
    ({"start": np.ones(6)}, "matrix"),
    ({"start": np.full((6, 1), np.nan)}, "finite"),
    ({"tol": -1.0}, "tol = -1.0"),
    ({"tol": np.nan}, "tol = nan"),
    ({"max_steps": 0}, "max_steps = 0"),
]
BAD_NUMBERS = [
    ({"k": 0}, "k = 0"),
    ({"k": 7}, "k = 7"),
    ({"k": 5, "max_steps": 2}, "max_steps = 2, but must be at least 3, for 5"),
]


@pytest.mark.parametrize(
    ("search", "options", "text"),
    [*((block_krylov, *bad) for bad in BAD + BAD_NUMBERS), *((block_krylov_above, *bad) for bad in BAD)],
)
def test_bad_searches_are_refused(search, options, text):
    arguments = {"start": RANDOM.standard_normal((6, 2)), "k": 2, "tol": 1e-6, "max_steps": 9} | options
    start, k = arguments.pop("start"), arguments.pop("k")
    with pytest.raises(InputError, match=text):
        next(search(start, k if search is block_krylov else 0.5, **arguments))


@pytest.mark.parametrize("product", [np.ones((6, 1)), np.full((6, 2), np.inf)])
def test_bad_products_are_refused(product):
    for begin, wanted in ((block_krylov, 4), (block_krylov_above, 0.3), (block_krylov_gap, 4)):
        search = begin(np.eye(6, 2), wanted, tol=1e-8, max_steps=200)
        next(search)
        with pytest.raises(InputError, match="product of step 1"):
            search.send(product)


def drive_gap(A, start, most, tol=1e-8, max_steps=200):
    pairs, blocks = answer(A, block_krylov_gap(start, most, tol=tol, max_steps=max_steps))
    return pairs, components_by_gap(pairs.values, most, len(A))[0], blocks


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_the_pairs_before_the_largest_fall_are_found_though_those_after_it_are_not(scale):
    """Eigenvalues 16, 14, 7 and then many that are nearly the same, of which ten pairs take long to find."""
    values = np.r_[16.0, 14.0, 7.0, np.linspace(0.02, 0.015, N - 3)]
    A, start = symmetric(values) * scale, np.random.default_rng(0).standard_normal((N, 3))
    pairs, number, blocks = drive_gap(A, start, 10)
    assert (number, len(pairs.values)) == (3, 11)
    assert sin_theta_error(pairs.vectors[:, :3], leading_eigenpairs(A, 3).vectors) <= 1e-16
    _, all_blocks = drive(A, start, 10)
    assert 2 * len(blocks) <= len(all_blocks)
    assert drive_gap(A, start[:, :2], 2)[1] == 2, "of no more than were allowed"


def test_a_number_is_not_believed_before_no_other_can_be_it():
    """Falls by 1.9 after the first and by 2 after the fourth eigenvalue; of a start of one vector, and few digits."""
    A = symmetric(np.r_[1.9, 1.0, 0.9, 0.8, np.linspace(0.4, 0.0, N - 4)])
    starts = (np.random.default_rng(seed).standard_normal((N, 1)) for seed in range(100))
    assert [drive_gap(A, start, 6, tol=0.5)[1] for start in starts].count(4) >= 99


@pytest.mark.parametrize("rank", [0, 1, 3, N])
def test_where_eigenvalues_end_the_search_does(rank):
    values = np.r_[np.arange(rank, 0, -1.0), np.zeros(N - rank)]
    A = symmetric(values)
    _, number, _ = drive_gap(A, np.random.default_rng(0).standard_normal((N, 3)), N, tol=0.0)
    assert number == components_by_gap(values, N, N)[0]
    if rank == 1:  # all rows alike: the next eigenvalue is 0 to the last digit, and no ratio is there to compare
        pairs, number, _ = drive_gap(np.ones((N, N)), np.eye(N, 2), 1)
        assert number == 1
        np.testing.assert_allclose(pairs.values, [N, 0], atol=1e-12)


def near(threshold, exponents, rng):
    """Eigenvalues on both sides of a threshold, at distances of so many powers of ten."""
    return threshold + rng.choice([-1, 1], len(exponents)) * 10.0**exponents


# Spectra of N single eigenvalues, and a threshold that lies among them.
THRESHOLDS = {
    "decaying": lambda rng: (rng.uniform(0.5, 0.95) ** np.arange(N), rng.uniform(1e-3, 0.8)),
    "indefinite": lambda rng: (rng.uniform(-1, 1, N), rng.uniform(-0.5, 0.9)),
    "low rank": lambda rng: (np.r_[rng.uniform(0.1, 2, 6), np.zeros(N - 6)], 0.3),
    "a cluster at the threshold": lambda rng: (
        np.r_[rng.uniform(0.5, 2, 5), near(0.3, rng.uniform(-6, -1, 8), rng), rng.uniform(0, 0.2, N - 13)],
        0.3,
    ),
    "three a millionth above": lambda rng: (
        np.r_[rng.uniform(1, 2, 4), 0.3 + 1e-6 * np.r_[3, 2, 1, -1, -2, -3], rng.uniform(0, 0.25, N - 10)],
        0.3,
    ),
    "the top of a bulk below a large one": lambda rng: (
        np.r_[50.0, bulk := np.sort(rng.uniform(0, 1, N - 1))[::-1]],
        bulk[(last := rng.integers(0, 8)) : last + 2].mean(),
    ),
}


@pytest.mark.parametrize("name", THRESHOLDS)
def test_none_above_the_threshold_is_missed(name):
    # With a test of only the pairs above, a sixth of these 120 searches ends before they have all.
    for seed in range(20):
        rng = np.random.default_rng(seed)
        spectrum, threshold = THRESHOLDS[name](rng)
        A = symmetric(spectrum, seed)
        true = np.linalg.eigvalsh(A)[::-1]
        pairs, blocks = drive_above(A, rng.standard_normal((N, 1)), threshold)
        assert_leading(pairs, A, int((true > threshold).sum()), tol=2e-10 * max(1, true[0]))
        assert np.array_equal(pairs.vectors, fix_signs(pairs.vectors))
        assert len(blocks) <= N


@pytest.mark.parametrize("b", [1, 3])
@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_none_all_and_some_are_above(b, scale):
    A, start = symmetric(SPECTRA["indefinite"]) * scale, RANDOM.standard_normal((N, b))
    for threshold, count in [(1.1, 0), (1e9, 0), (np.inf, 0), (0.9, 2), (-3.1, N), (-np.inf, N)]:
        pairs, blocks = drive_above(A, start, threshold * scale)
        assert_leading(pairs, A, count, tol=1e-9)
        assert sum(Q.shape[1] for Q in blocks) <= N


def test_what_is_above_is_not_believed_at_first_sight():
    # The start is almost an eigenvector, of 0.1 or of 1: the first Ritz pair is there, with a small residual.
    A = np.diag(np.r_[1.0, 0.5, np.linspace(0.01, 0.1, N - 2)])
    for place, share, tol in ((-1, 1e-1, 1e-10), (-1, 1e-3, 1e-10), (-1, 1e-5, 1e-10), (0, 1e-5, 1e-3)):
        start = np.full((N, 1), share)
        start[place] = 1.0
        assert_leading(drive_above(A, start, 0.3, tol=tol)[0], A, 2, tol=max(tol, 1e-9))


def test_a_matrix_of_low_rank_takes_as_many_steps_as_it_has_dimensions():
    n, rank = 500, 5
    Q = np.linalg.qr(RANDOM.standard_normal((n, rank)))[0]
    A = (Q * [5.0, 4.0, 3.0, 2.0, 1.0]) @ Q.T
    for b, threshold, count in [(1, 1e-8, 5), (1, 2.5, 3), (1, 9.0, 0), (2, 1e-8, 5), (8, 0.5, 5)]:
        pairs, blocks = drive_above(A, RANDOM.standard_normal((n, b)), threshold, tol=0.0, max_steps=n)
        assert_leading(pairs, A, count, tol=1e-13)
        # The Krylov space holds the start too, and what rounding leaves of it may take one step more.
        assert len(blocks) <= -(-rank // b) + 2
    inside = Q @ RANDOM.standard_normal((rank, 1))
    assert len(drive_above(A, inside, 1e-8, tol=0.0, max_steps=n)[1]) <= rank + 1


@pytest.mark.parametrize("b", [1, 2, 4, 6])
def test_as_many_columns_as_copies_find_repeated_eigenvalues(b):
    A = symmetric(SPECTRA["repeated"])  # four of 2, four of 1, and the next is 0.5
    pairs, _ = drive_above(A, np.random.default_rng(b).standard_normal((N, b)), 0.7)
    np.testing.assert_allclose(A @ pairs.vectors, pairs.vectors * pairs.values, atol=1e-9)
    np.testing.assert_allclose(pairs.vectors.T @ pairs.vectors, np.eye(len(pairs.values)), atol=1e-12)
    for value in (2.0, 1.0):
        copies = np.isclose(pairs.values, value, atol=1e-9).sum()
        assert min(b, 4) <= copies <= 4  # rounding may show more than the start block does
    assert (pairs.values > 0.7).all()


@pytest.mark.parametrize("seed", range(10))
def test_rounding_becomes_no_direction_where_the_rank_is_used_up(seed):
    """Two directions of the start, and as many as the table has columns: every third search went on to one more."""
    X = scale(load_wine().data)
    start = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(X), 2)))[0]
    gram = aslinearoperator(X) @ aslinearoperator(X.T)
    _, blocks = answer(gram, block_krylov(start, 2, tol=0.0, max_steps=100))
    assert sum(block.shape[1] for block in blocks) == 2 + X.shape[1]
