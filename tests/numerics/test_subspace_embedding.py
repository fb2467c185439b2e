"""Subspace embeddings and what they are made of: unbiased, with the spread that theory says, the same for everyone."""

import dataclasses
import itertools
import json

import numpy as np
import pydantic
import pytest
import scipy.sparse
from kernel_cases import rows
from sklearn.kernel_approximation import PolynomialCountSketch

from fedkernel.ground import InputError, generator
from fedkernel.numerics import RBF, ArcCosine, Laplacian, Linear, Polynomial, RandomFeatures, Sigmoid, SubspaceEmbedding
from fedkernel.numerics.subspace_embedding import count_sketch

POLYNOMIALS = [
    Polynomial(degree=1, gamma=0.7, coef0=0.0),
    Polynomial(degree=2, gamma=0.5, coef0=0.4),
    Polynomial(degree=4, gamma=0.2, coef0=1.0),
]
ARC_COSINES = [ArcCosine(degree=0), ArcCosine(degree=1), ArcCosine(degree=2)]
KERNELS = [Linear(), RBF(gamma=0.4), Laplacian(gamma=0.2), *POLYNOMIALS, *ARC_COSINES]
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=repr)
every_arc_cosine = pytest.mark.parametrize("kernel", ARC_COSINES, ids=repr)
every_polynomial = pytest.mark.parametrize("kernel", POLYNOMIALS, ids=repr)
every_size = pytest.mark.parametrize("size", [None, 4])
MAPS = [
    *(SubspaceEmbedding(kernel, size, 40) for kernel in KERNELS for size in (None, 4)),
    *(RandomFeatures(kernel, 40, form) for kernel in KERNELS[1:3] for form in ("pairs", "cosine")),
]
every_map = pytest.mark.parametrize("features", MAPS, ids=repr)


def products(maps, X, factor=1.0):
    """E E^T of many maps: (count, n, n)."""
    embedded = (map_(X) for map_ in maps)
    return np.array([E @ E.T * factor for E in embedded])


def unbiased(grams, K):
    """Whether the mean of many is K, to six standard errors as found: heavy tails of high degrees need the sixth."""
    spread = grams.std(axis=0, ddof=1) / np.sqrt(len(grams))
    return (np.abs(grams.mean(axis=0) - K) <= 6 * spread + 1e-12).all()


def of_one_feature(kernel, X):
    """Variance of a(x) a(y) for one feature a, where it has a short form."""
    K = kernel.gram(X)
    if isinstance(kernel, RBF | Laplacian):  # see test_sketch.py
        return (1 + kernel.gram(2 * X)) / 2 - K**2 + 0.5
    # 4 E[(w x)^2n (w y)^2n; both positive] is twice the kernel of degree 2 n.
    return 2 * ArcCosine(degree=2 * kernel.degree).gram(X) - K**2


def variance(kernel, X, m, t):
    """Variance of E E^T: of the m features, and of the products of different ones that meet in a sum."""
    K = kernel.gram(X)
    meeting = (m / t - 1) / m * (np.outer(kernel.diag(X), kernel.diag(X)) + K**2)
    return of_one_feature(kernel, X) / m + meeting


def of_count_sketch(X, t):
    """Variance of X S^T S X^T: two different columns meet with probability 1 / t."""
    squares = X**2
    lengths = squares.sum(axis=1)
    return (np.outer(lengths, lengths) + (X @ X.T) ** 2 - 2 * squares @ squares.T) / t


@every_kernel
@every_size
def test_the_mean_over_seeds_is_the_kernel(kernel, size):
    X = rows(5, 6)
    grams = products((SubspaceEmbedding(kernel, size, 16, seed).map(6) for seed in range(150)), X)
    assert unbiased(grams, kernel.gram(X))


@pytest.mark.parametrize(
    ("kernel", "m", "t"),
    [*((kernel, 12, 4) for kernel in (*KERNELS[1:3], *ARC_COSINES[:2])), (KERNELS[1], 12, 12), (KERNELS[1], 24, 2)],
)
def test_the_spread_over_seeds_is_as_derived(kernel, m, t):
    X = rows(5, 4)
    grams = products((SubspaceEmbedding(kernel, t, m, seed).map(4) for seed in range(1500)), X)
    np.testing.assert_allclose(grams.var(axis=0), variance(kernel, X, m, t), rtol=0.25)


@every_arc_cosine
def test_arc_cosine_features_are_rectified_powers(kernel):
    X = rows(50, 3)
    # the same w, whatever the degree
    A, first = (SubspaceEmbedding(own, None, 30).map(3)(X) * np.sqrt(15) for own in (kernel, ArcCosine(degree=1)))
    assert (A >= 0).all()
    expected = (first > 0).astype(float) if kernel.degree == 0 else first**kernel.degree
    np.testing.assert_allclose(A, expected, rtol=1e-12)


def theirs(kernel, m, seed, X):
    """scikit-learn's of the same hashes and signs."""
    rng = generator("tensor sketch", seed, X.shape[1])
    drawn = [count_sketch(X.shape[1] + 1, m, rng) for _ in range(kernel.degree)]
    model = PolynomialCountSketch(gamma=kernel.gamma, degree=kernel.degree, coef0=kernel.coef0, n_components=m).fit(X)
    columns = X.shape[1] + (kernel.coef0 != 0)
    dense = np.array([S.toarray() for S in drawn])[:, :, :columns]
    model.indexHash_ = np.abs(dense).argmax(axis=1)
    model.bitHash_ = dense.sum(axis=1)
    return model.transform(X)


@every_polynomial
@pytest.mark.parametrize("m", [1, 7, 32])
def test_tensor_sketch_is_scikit_learns_with_the_same_hashes(kernel, m):
    X = rows(20, 9)
    A = SubspaceEmbedding(kernel, None, m, seed=4).map(9)(X)
    assert A.shape == (20, m)
    np.testing.assert_allclose(A, theirs(kernel, m, 4, X), rtol=1e-10, atol=1e-12)


def test_a_count_sketch_adds_each_row_to_one_sum_and_keeps_products_on_average():
    S = count_sketch(50, 8, np.random.default_rng(0))
    assert isinstance(S, scipy.sparse.csr_array)
    assert S.shape == (8, 50)
    assert (np.abs(S.toarray()).sum(axis=0) == 1).all()
    assert set(np.unique(S.toarray())) == {-1.0, 0.0, 1.0}
    again = count_sketch(50, 8, np.random.default_rng(0))
    assert np.array_equal(again.toarray(), S.toarray())
    B = rows(30, 3)
    sketches = (count_sketch(30, 6, np.random.default_rng(seed)) @ B for seed in range(1500))
    grams = np.array([SB.T @ SB for SB in sketches])
    assert unbiased(grams, B.T @ B)
    np.testing.assert_allclose(grams.var(axis=0), of_count_sketch(B.T, 6), rtol=0.2)


@pytest.mark.parametrize("kernel", KERNELS[:3], ids=repr)  # the others' features are tested above
def test_without_a_size_features_are_the_kernels_own(kernel):
    X, d = rows(300, 5), 5
    E = SubspaceEmbedding(kernel, None, 40, seed=3).map(d)(X)
    if isinstance(kernel, Linear):
        expected = SubspaceEmbedding(kernel, 9).map(d)(X)  # of more sums than columns, too
        assert np.array_equal(expected, X)
        assert not np.shares_memory(E, X)
    else:
        expected = RandomFeatures(kernel, 40, "cosine", seed=3).map(d)(X) / np.sqrt(40)
    np.testing.assert_allclose(E, expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("kernel", KERNELS[1:], ids=repr)
def test_sums_are_of_consecutive_features_with_signs(kernel):
    X, m, t = rows(300, 5), 30, 6
    A = SubspaceEmbedding(kernel, None, m, seed=3).map(5)(X)
    E = SubspaceEmbedding(kernel, t, m, seed=3).map(5)(X)
    for group in range(t):
        own = A[:, group * 5 : group * 5 + 5]
        sums = (own @ signs for signs in itertools.product([-1, 1], repeat=5))
        assert min(np.abs(total - E[:, group]).max() for total in sums) < 1e-12 * (1 + np.abs(own).max())


@pytest.mark.parametrize(
    ("kernel", "size", "columns", "width"),
    [
        (Linear(), None, 7, 7),
        (Linear(), 7, 7, 7),
        (Linear(), 5, 7, 5),
        (Linear(), 70, 7, 7),
        (RBF(gamma=1.0), None, 7, 60),
        (RBF(gamma=1.0), 50, 7, 50),
        (RBF(gamma=1.0), 60, 7, 60),
        (Polynomial(gamma=1.0), 11, 7, 11),
        (ArcCosine(), 1, 1, 1),
    ],
)
@pytest.mark.parametrize("n", [0, 1, 3000])
def test_width_is_what_the_map_gives(kernel, size, columns, width, n):
    embedding = SubspaceEmbedding(kernel, size, 60)
    assert embedding.width(columns) == width
    E = embedding.map(columns, np.float32)(rows(n, columns))
    assert E.shape == (n, width)
    assert E.dtype == np.float32


def test_the_number_of_features_is_rounded_up_to_whole_groups():
    X = rows(20, 3)
    E, whole = (SubspaceEmbedding(RBF(gamma=1.0), 7, m).map(3)(X) for m in (50, 56))
    assert np.array_equal(E, whole)


@every_map
def test_rows_have_their_coordinates_in_whatever_form_and_company(features):
    X = np.where(rows(300, 9, seed=1) > 0.8, rows(300, 9), 0).astype(np.float32).astype(float)
    X[7] = 0
    exact, order = features.map(9)(X), np.random.default_rng(1).permutation(300)
    scale = np.abs(exact).max()
    for dtype, rounding in ((np.float32, 2e-6), (np.float64, 1e-13)):
        embed = features.map(9, dtype=dtype)
        dense, sparse = embed(X.astype(dtype)), embed(scipy.sparse.csr_array(X.astype(dtype)))
        assert isinstance(sparse, np.ndarray)
        assert dense.dtype == sparse.dtype == dtype
        np.testing.assert_allclose(sparse, dense, atol=scale * rounding)
        np.testing.assert_allclose(embed(X[order].astype(dtype)), dense[order], atol=scale * rounding)
        far = np.abs(dense - exact) > 1e-5 * scale
        # A feature of degree 0 is a step, which rounding can move; some frequencies of the Laplacian kernel are in the
        # hundreds or thousands, and angles have as many digits less.
        rare = isinstance(features.kernel, Laplacian) or features.kernel == ArcCosine(degree=0)
        assert far.mean() <= (0.05 if rare else 0)


@every_kernel
@every_size
def test_each_row_has_its_coordinates_whatever_rows_are_with_it(kernel, size):
    X = rows(700, 5)
    embed = SubspaceEmbedding(kernel, size, 2000).map(5)
    whole, order = embed(X), np.random.default_rng(1).permutation(700)
    np.testing.assert_allclose(np.vstack([embed(X[:77]), embed(X[77:78]), embed(X[78:])]), whole, atol=1e-11)
    np.testing.assert_allclose(embed(X[order]), whole[order], atol=1e-11)


@every_kernel
def test_csr_rows_with_many_columns_are_the_same_in_stripes(kernel, monkeypatch):
    X = scipy.sparse.random_array((40, 300), density=0.05, format="csr", rng=np.random.default_rng(0))
    embedding = SubspaceEmbedding(kernel, 20, 200)
    whole = embedding.map(300)(X)
    monkeypatch.setattr("fedkernel.numerics.pairwise._SHARED_CACHE", 1000)
    for block in (X, X.toarray()):
        np.testing.assert_allclose(embedding.map(300)(block), whole, atol=1e-11)


@every_map
def test_round_trips_through_json(features):
    features, adapter = dataclasses.replace(features, seed=2**53 + 1), pydantic.TypeAdapter(type(features))
    text = adapter.dump_json(features)
    again = adapter.validate_json(text)
    assert again == features
    assert hash(again) == hash(features)
    assert json.loads(text)["kernel"]["type"] == features.kernel.type
    assert adapter.validate_python(adapter.dump_python(features, mode="json")) == features
    assert np.array_equal(again.map(2)(rows(3, 2)), features.map(2)(rows(3, 2)))
    before = {name: value for name, value in json.loads(text).items() if name != "frequencies"}
    assert adapter.validate_python(before) == features, "models of versions without a choice are of independent ones"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"kernel": Sigmoid(gamma=1.0)}, "kernel: the sigmoid kernel is not positive semidefinite"),
        ({"kernel": {"type": "sigmoid"}}, "kernel: the sigmoid kernel is not positive semidefinite"),
        ({"kernel": {"type": "rfb"}}, "'rfb' is not known .allowed: linear, rbf, laplacian, polynomial, arc-cosine"),
        ({"kernel": {"type": "polynomial", "degree": 0}}, "degree = 0"),
        ({"kernel": "rbf"}, "kernel.gamma must be a number"),
        ({"kernel": RBF()}, "kernel.gamma must be a number"),
        ({"kernel": Laplacian()}, "kernel.gamma must be a number"),
        ({"kernel": Polynomial()}, "kernel.gamma must be a number"),
        ({"size": 0}, "size = 0: .*greater than or equal to 1"),
        ({"size": 9}, "n_features = 8, but must be at least size = 9"),
        ({"n_features": 0}, "n_features = 0: "),
        ({"seed": -1}, "seed = -1: "),
        ({"form": "pairs"}, "form is not a known name"),
    ],
)
def test_what_has_no_embedding_is_refused_in_one_line(options, text):
    with pytest.raises(InputError, match=text) as caught:
        SubspaceEmbedding(**{"kernel": RBF(gamma=1.0), "size": 4, "n_features": 8} | options)
    assert "\n" not in str(caught.value)
    for dtype in (np.float16, np.int64, "complex64"):
        with pytest.raises(InputError, match="must be float32 or float64"):
            SubspaceEmbedding(RBF(gamma=1.0), 4).map(3, dtype)
