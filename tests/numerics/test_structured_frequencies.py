"""Structured frequencies: products by Hadamard transforms, the same as with their matrix, and about orthogonal."""

import tracemalloc
import zlib

import naive
import numpy as np
import pytest
import scipy.sparse
from kernel_cases import rows
from test_random_features import FORMS, draws, variance

from fedkernel.numerics import RBF, Laplacian, RandomFeatures, SubspaceEmbedding
from fedkernel.numerics.frequencies import MOST_ORTHOGONAL, MOST_STRUCTURED, StructuredFrequencies, hadamard

every_form = pytest.mark.parametrize("form", FORMS)


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
    """And the spread of these is less than that of independent ones: test_sketch.py."""
    d, count, kernel = 256, 2000, RBF(gamma=0.4)
    X = rows(6, d) / np.sqrt(d)
    X[1], X[2, :2] = X[0], X[2, :2] + 1
    X[1, 5] += np.sqrt(2 / 0.8)  # rows that differ in one column, where the mean is off by most
    features = RandomFeatures(kernel, 2 * d if form == "pairs" else d, form, frequencies="structured")
    grams, spread = draws(features, X, count), variance(kernel, X, features)
    # Means of 2000 draws are normal: one of 36 entries beyond five standard errors has a probability of 2e-5.
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
    tracemalloc.start()
    features.map(columns)(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    blocks = 2**20 + 8 * 30 * count  # of rows in cache, and the features
    assert peak <= 8 * features.memory_floats(columns) + 2 * blocks
