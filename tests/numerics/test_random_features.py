"""Random features: their mean is the kernel, with the spread that theory says; structured frequencies; cosines."""

import zlib
from concurrent.futures import ThreadPoolExecutor

import naive
import numpy as np
import pytest
import scipy.sparse
import scipy.special
from allocation import peak_of
from kernel_cases import rows

from fedkernel.ground import InputError, generator
from fedkernel.numerics import RBF, Laplacian, Linear, Polynomial, RandomFeatures, SubspaceEmbedding, random_features
from fedkernel.numerics.frequencies import MOST_ORTHOGONAL, MOST_STRUCTURED, StructuredFrequencies, hadamard
from fedkernel.numerics.trigonometry import cosines, cosines_and_sines

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


@pytest.mark.parametrize(("d", "count"), [(256, 256), (300, 1100), (784, 335)])
def test_products_are_those_with_the_matrix_of_these_words(d, count):
    """Models that were saved hold the seed only."""
    kernel, seed, draw, X = RBF(gamma=0.3 / d), 5, 3, rows(70, d)
    rng = np.random.default_rng(np.random.SeedSequence([seed, draw, d, zlib.crc32(b"random features")]))
    W = naive.structured(rng, d, count) * np.sqrt(2 * kernel.gamma)
    expected = np.sqrt(2) * np.cos(X @ W + rng.uniform(0, 2 * np.pi, count))
    features = RandomFeatures(kernel, count, "cosine", seed, "structured")
    for kind in (np.array, np.asfortranarray, scipy.sparse.csr_array):
        np.testing.assert_allclose(features.map(d, draw)(kind(X)), expected, rtol=0, atol=1e-13)
        single = features.map(d, draw, np.float32)(kind(X.astype(np.float32)))
        assert single.dtype == np.float32
        np.testing.assert_allclose(single, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_row_has_the_same_bits_whatever_rows_are_with_it(dtype):
    for d in (256, 600):
        frequencies = StructuredFrequencies.draw(d, 600, 1.0, np.random.default_rng(0)).astype(dtype)
        X, order = rows(130, d).astype(dtype), np.random.default_rng(1).permutation(130)
        whole = frequencies.angles(X)
        for cuts in ([1, 2, 5, 17], [64], list(range(1, 130))):
            assert np.array_equal(np.vstack([frequencies.angles(part) for part in np.split(X, cuts)]), whole)
        assert np.array_equal(frequencies.angles(X[order]), whole[order])
        assert np.array_equal(frequencies.angles(scipy.sparse.csr_array(X)), whole)
        assert frequencies.angles(X[:0]).shape == (0, 600)


@pytest.mark.parametrize("p", [256, 512, 1024, 2048])
def test_hadamard_transforms_of_whole_numbers_are_exact(p):
    signs = np.random.default_rng(0).choice([-1.0, 1.0], p)
    Z = np.round(9 * rows(3, p))
    expected = Z * signs
    for step in range(p.bit_length() - 1):
        pairs = expected.reshape(3, -1, 2, 1 << step)
        expected = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2).reshape(3, p)
    hadamard(Z, signs)
    assert np.array_equal(Z, expected)


@every_form
def test_mean_and_spread_over_draws_are_those_of_orthogonal_frequencies(form):
    """And the spread of these is less than that of independent ones."""
    d, count, kernel = 256, 1000, RBF(gamma=0.4)
    X = rows(6, d) / np.sqrt(d)
    X[1], X[2, :2] = X[0], X[2, :2] + 1
    X[1, 5] += np.sqrt(2 / 0.8)  # rows that differ in one column, where the mean is off by most
    features = RandomFeatures(kernel, 2 * d if form == "pairs" else d, form, frequencies="structured")
    grams, spread = draws(features, X, count), variance(kernel, X, features)
    # Means of 1000 draws are normal: one of 36 entries beyond five standard errors has a probability of 2e-5.
    error = np.abs(grams.mean(axis=0) - kernel.gram(X))
    assert (error <= 5 * np.sqrt(np.maximum(spread, 0) / count) + 0.72 / d**2).all()
    np.testing.assert_allclose(grams.var(axis=0), spread, rtol=0.25, atol=1e-14)


def test_an_embedding_has_these_features():
    d, kernel, X = 300, RBF(gamma=0.001), rows(40, 300)
    features = RandomFeatures(kernel, 1000, "cosine", frequencies="structured")
    for kind in (np.array, scipy.sparse.csr_array):
        E = SubspaceEmbedding(kernel, None, 1000, frequencies="structured").map(d)(kind(X))
        np.testing.assert_allclose(E * np.sqrt(1000), features.map(d)(X), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("kernel", "columns", "count", "instead"),
    [
        (RBF(gamma=0.5), 255, 600, "orthogonal"),
        (RBF(gamma=0.5), 256, 255, "orthogonal"),
        (RBF(gamma=0.5), 784, 334, "orthogonal"),
        (RBF(gamma=0.5), MOST_ORTHOGONAL + 1, 500, "independent"),
        (RBF(gamma=0.5), 1, 2, "independent"),
        (Laplacian(gamma=0.5), 256, 256, "independent"),
    ],
)
def test_where_they_would_be_off_or_save_no_time_others_are_drawn(kernel, columns, count, instead):
    one, other = (RandomFeatures(kernel, count, "cosine", frequencies=way) for way in ("structured", instead))
    assert np.array_equal(one._draw(columns)[0], other._draw(columns)[0])
    assert one.memory_floats(columns) == other.memory_floats(columns)
    # and no site computes with more columns than it counts
    features = RandomFeatures(RBF(gamma=0.5), 512, "cosine", frequencies="structured")
    of_most, of_more = (features._frequency_kind(columns) for columns in (MOST_STRUCTURED, MOST_STRUCTURED + 1))
    assert (of_most, of_more) == ("structured", "independent")


@pytest.mark.parametrize(("columns", "count"), [(256, 3000), (5000, 5000), (MOST_STRUCTURED, 256)])
def test_no_more_memory_than_is_counted(columns, count):
    features = RandomFeatures(RBF(gamma=0.5), count, "cosine", frequencies="structured")
    X = scipy.sparse.csr_array((30, columns))
    features.map(columns)(X[:1])  # small Hadamard matrices are kept
    peak, _ = peak_of(lambda: features.map(columns)(X))
    blocks = 2**20 + 8 * 30 * count  # of rows in cache, and the features
    assert peak <= 8 * features.memory_floats(columns) + 2 * blocks


def angles(scale, shape=(40, 700)):
    """Normal angles, among them multiples of a quarter of pi: wider than what is worked on at a time."""
    x = np.random.default_rng(0).standard_normal(shape) * scale
    x[0] = np.arange(shape[1]) * np.pi / 4 * max(1, scale // 100)
    return x


def both(x, factor=1.0):
    alone = x.copy()
    cosines(alone, factor)
    return alone, cosines_and_sines(x.copy(), factor)


@pytest.mark.parametrize("scale", [1e-9, 1, 30, 1e4, 2**20, 1e9])
def test_they_are_numpy_s_to_1e_13(scale):
    x = angles(scale)
    alone, beside = both(x, 1.5)
    np.testing.assert_allclose(alone, 1.5 * np.cos(x), rtol=0, atol=1e-13)
    np.testing.assert_allclose(beside, 1.5 * np.hstack([np.cos(x), np.sin(x)]), rtol=0, atol=1e-13)
    part, expected = x[:, :3], np.cos(x[:, :3])
    cosines(part)
    np.testing.assert_allclose(x[:, :3], expected, rtol=0, atol=1e-13, err_msg="written into a part of an array")
    x = angles(min(scale, 30)).astype(np.float32)
    alone, beside = both(x)
    assert alone.dtype == beside.dtype == np.float32
    np.testing.assert_allclose(alone, np.cos(x, dtype=float), rtol=0, atol=2e-7)
    np.testing.assert_allclose(beside, np.hstack([np.cos(x, dtype=float), np.sin(x, dtype=float)]), rtol=0, atol=2e-7)
