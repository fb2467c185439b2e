"""Random features: their mean is the kernel, with the spread that theory says, and a seed is all that is shared."""

import zlib
from concurrent.futures import ThreadPoolExecutor

import naive
import numpy as np
import pytest
import scipy.sparse
import scipy.special
from kernel_cases import rows

from fedkernel.ground import InputError, generator
from fedkernel.numerics import RBF, Laplacian, Linear, Polynomial, RandomFeatures, random_features
from fedkernel.numerics.frequencies import MOST_ORTHOGONAL

FORMS = ["pairs", "cosine"]
KERNELS = [RBF(gamma=0.4), RBF(sigma=2.0), Laplacian(gamma=0.3)]
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=repr)
every_form = pytest.mark.parametrize("form", FORMS)
every_way = pytest.mark.parametrize("frequencies", ["independent", "orthogonal"])


def draws(features, X, count):
    """A A^T / D of so many draws: (count, n, n)."""
    estimates = (features.map(X.shape[1], draw)(X) for draw in range(1, count + 1))
    return np.array([A @ A.T / features.n_features for A in estimates])


def variance(kernel, X, features):
    """Variance of the entries of A A^T / D, derived from cos a cos b = (cos(a - b) + cos(a + b)) / 2.

    With z the difference of two rows, a pair adds cos(w z), of mean k(z) and mean square (1 + k(2 z)) / 2. A cosine
    with its offset adds cos(w z) + cos(w (x + y) + 2 b), whose second term has the mean square 1 / 2 and is
    uncorrelated with the first.

    With v orthogonal to w, w + v and w - v are as long as two independent normal vectors are together, R, and point
    anywhere: cos(w z) cos(v z) has the mean of the sphere's characteristic function 0F1(d/2, -R^2 |z|^2 / 4), which
    with R^2 of 2 d degrees of freedom is 1F1(d, d/2, log k(z)).
    """
    K, K_twice, D, d = kernel.gram(X), kernel.gram(2 * X), features.n_features, X.shape[1]
    count = D // 2 if features.form == "pairs" else D
    of_one = (1 + K_twice) / 2 - K**2 + (0 if features.form == "pairs" else 0.5)
    if features.frequencies == "independent" or isinstance(kernel, Laplacian):
        return of_one / count
    together = scipy.special.hyp1f1(d, d / 2, np.log(K)) - K**2
    others = [min(d, count - first) - 1 for first in range(0, count, d) for _ in range(min(d, count - first))]
    return of_one / count + sum(others) * together / count**2


@every_kernel
@every_form
@every_way
def test_the_mean_over_draws_is_the_kernel_and_the_spread_as_derived(kernel, form, frequencies):
    """Of which follows that pairs, and orthogonal frequencies, have the smaller error, and that it falls as 1 / D."""
    X, count = rows(6, 3), 600
    features = RandomFeatures(kernel, 20, form, frequencies=frequencies)
    grams, spread = draws(features, X, count), variance(kernel, X, features)
    error = np.abs(grams.mean(axis=0) - kernel.gram(X))
    # Means of 600 draws are normal: one of 36 entries beyond five standard errors has a probability of 2e-5.
    assert (error <= 5 * np.sqrt(np.maximum(spread, 0) / count) + 1e-14).all()
    # A draw repeated would leave the mean, but not this.
    np.testing.assert_allclose(grams.var(axis=0), spread, rtol=0.25, atol=1e-14)


def test_orthogonal_frequencies_are_the_independent_ones_turned_block_by_block():
    for d, count in [(4, 4), (4, 10), (30, 7), (MOST_ORTHOGONAL, 2)]:
        one, other = (draw_of(RBF(gamma=0.5), count, way, d) for way in ("independent", "orthogonal"))
        np.testing.assert_allclose(np.linalg.norm(other, axis=0), np.linalg.norm(one, axis=0), rtol=1e-12)
        for first in range(0, count, d):
            block = other[:, first : first + d]
            inner = block.T @ block
            np.testing.assert_allclose(inner, np.diag(np.diag(inner)), atol=1e-11 * inner.max())
    assert RandomFeatures(RBF(gamma=0.5), 40, "cosine", 0, "orthogonal").memory_floats(30) == 30 * (40 + 3 * 30)


@pytest.mark.parametrize(
    ("kernel", "columns"), [(RBF(gamma=0.5), 1), (RBF(gamma=0.5), MOST_ORTHOGONAL + 1), (Laplacian(gamma=0.5), 4)]
)
def test_where_no_direction_can_be_changed_or_need_be_frequencies_stay_independent(kernel, columns):
    one, other = (draw_of(kernel, 6, way, columns) for way in ("independent", "orthogonal"))
    assert np.array_equal(one, other)


def draw_of(kernel, count, frequencies, columns):
    return RandomFeatures(kernel, count, "cosine", seed=3, frequencies=frequencies)._draw(columns)[0]


@pytest.mark.parametrize(("columns", "times"), [(7, 1), (random_features.MOST_CACHED_ENTRIES, 2)])
def test_sites_of_a_process_share_few_frequencies_which_nobody_can_change(monkeypatch, columns, times):
    purposes = []
    monkeypatch.setattr(random_features, "generator", lambda *parts: purposes.append(parts) or generator(*parts))
    one, other = (RandomFeatures(RBF(gamma=0.5), 4, seed=11)._draw(columns, draw=2) for _ in range(2))
    assert len(purposes) == times
    assert all(np.array_equal(*arrays) for arrays in zip(one, other, strict=True))
    assert not any(array.flags.writeable for array in one)


@every_kernel
@every_form
@every_way
def test_the_numbers_are_numpy_s_of_these_words(kernel, form, frequencies):
    """Models that were saved hold the seed only."""
    X, seed, draw, d, count = rows(30, 4), 5, 3, 4, 12 if form == "cosine" else 6
    rng = np.random.default_rng(np.random.SeedSequence([seed, draw, d, zlib.crc32(b"random features")]))
    if isinstance(kernel, RBF):
        normal = rng.standard_normal((d, count))
        if frequencies == "orthogonal":
            normal = naive.orthogonal_in_blocks(normal)
        angles = X @ (normal * np.sqrt(2 * kernel.gamma))
    else:
        angles = X @ (rng.standard_cauchy((d, count)) * kernel.gamma)
    if form == "cosine":
        expected = np.cos(angles + rng.uniform(0, 2 * np.pi, count))
    else:
        expected = np.hstack([np.cos(angles), np.sin(angles)])
    features = RandomFeatures(kernel, 12, form, seed, frequencies).map(d, draw)(X)
    atol = 1e-13 if frequencies == "independent" else 1e-12  # Gram and Schmidt keep fewer digits than LAPACK
    np.testing.assert_allclose(features, expected * np.sqrt(2), rtol=0, atol=atol)


@every_kernel
@every_form
def test_a_width_that_float32_cannot_hold_is_refused(kernel, form):
    features = RandomFeatures(kernel.with_gamma(1e100), 40, form)
    with pytest.raises(InputError, match=r"^kernel.gamma = 1e\+100 is too large for float32; allowed: float64, or a"):
        features.map(4, dtype=np.float32)


@every_form
def test_threads_share_a_map_and_get_the_same_bits(form):
    X = rows(300, 6)
    before = X.copy()
    features = RandomFeatures(Laplacian(gamma=0.2), 40, form, seed=9)
    shared = features.map(6, 2)
    expected = shared(X)
    with ThreadPoolExecutor(8) as pool:
        of_one_map = list(pool.map(lambda _: shared(X), range(40)))
        of_own_maps = list(pool.map(lambda draw: features.map(6, draw)(X), [1, 2] * 20))
    assert all(np.array_equal(A, expected) for A in of_one_map + of_own_maps[1::2])
    assert not any(np.array_equal(A, expected) for A in of_own_maps[::2])
    assert np.array_equal(X, before)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"n_features": 7}, 'n_features = 7, .*even with features = "pairs"'),
        ({"n_features": 1}, "n_features = 1, .*even"),
        ({"n_features": 0}, "n_features = 0: .*greater than or equal to 1"),
        ({"n_features": 0, "form": "cosine"}, "n_features = 0: .*greater than or equal to 1"),
        ({"n_features": 2.5}, "n_features = 2.5: "),
        ({"kernel": RBF()}, "kernel.gamma must be a number"),
        ({"kernel": Laplacian()}, "kernel.gamma must be a number"),
        ({"kernel": Linear()}, "kernel.*(rbf|RBF)"),
        ({"kernel": Polynomial(gamma=1.0)}, "kernel.*(rbf|RBF)"),
        ({"kernel": {"type": "sigmoid"}}, "kernel.*rbf"),
        ({"frequencies": "even"}, "frequencies = 'even': .*'independent', 'orthogonal' or 'structured'"),
        ({"form": "sines"}, "form = 'sines': .*'pairs' or 'cosine'"),
        ({"seed": -1}, "seed = -1: "),
        ({"draws": 1}, "draws is not a known name"),
    ],
)
def test_what_has_no_features_is_refused_in_one_line(options, text):
    with pytest.raises(InputError, match=text) as caught:
        RandomFeatures(**{"kernel": RBF(gamma=1.0), "n_features": 8} | options)
    assert "\n" not in str(caught.value)
