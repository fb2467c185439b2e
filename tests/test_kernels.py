"""Kernels: against explicit loops and scikit-learn, over column splits, as values, and the width rules."""

import dataclasses
import json
import math
import pickle
import tracemalloc

import numpy as np
import pydantic
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist
from sklearn.metrics import pairwise

from fedkernel.arrays import ROWS
from fedkernel.errors import InputError
from fedkernel.kernels import KERNELS, RBF, ArcCosine, Kernel, Laplacian, Linear, Polynomial, Sigmoid, kernel_from
from fedkernel.widths import dimension_sigma, fk_gamma, median_sigma, moments, with_width

ADAPTER = pydantic.TypeAdapter(Kernel)

# Each kernel with its formula for two rows, by explicit loops over the columns.
CASES = [
    (Linear(), lambda x, y: sum(a * b for a, b in zip(x, y, strict=True))),
    (RBF(gamma=0.3), lambda x, y: math.exp(-0.3 * sum((a - b) ** 2 for a, b in zip(x, y, strict=True)))),
    (RBF(sigma=1.5), lambda x, y: math.exp(-sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) / (2 * 1.5**2))),
    (Laplacian(gamma=0.2), lambda x, y: math.exp(-0.2 * sum(abs(a - b) for a, b in zip(x, y, strict=True)))),
    (
        Polynomial(degree=2, gamma=0.5, coef0=0.7),
        lambda x, y: (0.5 * sum(a * b for a, b in zip(x, y, strict=True)) + 0.7) ** 2,
    ),
    (
        Sigmoid(gamma=0.1, coef0=-0.4),
        lambda x, y: math.tanh(0.1 * sum(a * b for a, b in zip(x, y, strict=True)) - 0.4),
    ),
]
KERNELS_WITH_GAMMA = [kernel for kernel, _ in CASES]
WITHOUT_GAMMA = [RBF(), Laplacian(), Polynomial(), Sigmoid()]
ARC_COSINES = [ArcCosine(degree=0), ArcCosine(degree=1), ArcCosine(degree=2)]  # their formula: test_arc_cosine.py
EVERY = [*KERNELS_WITH_GAMMA, *WITHOUT_GAMMA, Polynomial(degree=7, gamma=0.3), *ARC_COSINES]


def rows(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


# Values


@pytest.mark.parametrize(("kernel", "formula"), CASES, ids=lambda case: getattr(case, "type", ""))
@pytest.mark.parametrize("d", [1, 4])
def test_gram_and_diag_follow_the_formula(kernel, formula, d):
    X, Y = rows(7, d), rows(5, d, seed=1)
    expected = np.array([[formula(x, y) for y in Y] for x in X])
    np.testing.assert_allclose(kernel.gram(X, Y), expected, rtol=1e-12, atol=1e-13)
    itself = np.array([[formula(x, y) for y in X] for x in X])
    np.testing.assert_allclose(kernel.gram(X), itself, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(kernel.diag(X), np.diagonal(itself), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("kernel", "theirs"),
    [
        (Linear(), pairwise.linear_kernel),
        (RBF(), pairwise.rbf_kernel),
        (Laplacian(), pairwise.laplacian_kernel),
        (Polynomial(), pairwise.polynomial_kernel),
        (Sigmoid(), pairwise.sigmoid_kernel),
    ],
)
def test_defaults_agree_with_scikit_learn(kernel, theirs):
    X, Y = rows(40, 6), rows(30, 6, seed=1)
    np.testing.assert_allclose(kernel.gram(X, Y), theirs(X, Y), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(kernel.gram(X), theirs(X), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kernel", EVERY, ids=repr)
def test_gram_of_a_set_with_itself_is_exactly_symmetric(kernel):
    X = rows(600, 3)  # more than one block of the mirroring
    K = kernel.gram(X)
    assert np.array_equal(K, K.T)
    assert np.array_equal(kernel.gram(X, X), K)
    if kernel.vertical == "product":
        assert np.array_equal(np.diagonal(K), np.ones(600))


def test_rbf_keeps_its_digits_far_from_the_origin():
    X, Y = rows(20, 3), rows(15, 3, seed=1)
    expected = RBF(gamma=0.5).gram(X, Y)
    # The shift itself rounds the data by about 1e-9; squared norms of 1e14 would lose everything below 1e-2.
    np.testing.assert_allclose(RBF(gamma=0.5).gram(X + 1e7, Y + 1e7), expected, atol=1e-7)


@pytest.mark.parametrize("kernel", KERNELS_WITH_GAMMA + ARC_COSINES, ids=repr)
@pytest.mark.parametrize("kind", [scipy.sparse.csr_array, scipy.sparse.csr_matrix, scipy.sparse.coo_array])
def test_sparse_rows_give_the_same(kernel, kind):
    X, Y = np.maximum(rows(12, 5), 0), np.maximum(rows(9, 5, seed=1), 0)
    K = kernel.gram(kind(X), kind(Y))
    assert isinstance(K, np.ndarray)
    np.testing.assert_allclose(K, kernel.gram(X, Y), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(kernel.diag(kind(X)), kernel.diag(X), rtol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS_WITH_GAMMA, ids=repr)
def test_results_are_float64_and_data_stay_as_they_were(kernel):
    X = rows(6, 3).astype(np.float32)
    before = X.copy()
    assert kernel.gram(X).dtype == kernel.diag(X).dtype == kernel.part(X).dtype == np.float64
    kernel.combine([kernel.part(X), kernel.part(X)])
    assert np.array_equal(X, before)
    np.testing.assert_allclose(kernel.gram(X), kernel.gram(X.astype(np.float64)), rtol=1e-14)


def test_diag_does_not_form_the_gram_matrix():
    X = rows(2000, 2)
    tracemalloc.start()
    for kernel in EVERY:
        kernel.diag(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2000 * 2000 * 8 / 50


def test_diag_of_float32_rows_makes_no_copy_of_them():
    X = rows(2000, 500).astype(np.float32)
    for kernel in EVERY:
        tracemalloc.start()
        made = kernel.diag(X)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < X.nbytes / 2
        np.testing.assert_allclose(made, kernel.diag(X.astype(np.float64)), rtol=1e-13)


# Against fixed rows


def as_given(X):
    return X


KINDS = [as_given, scipy.sparse.csr_array, scipy.sparse.csr_matrix]
both_types = pytest.mark.parametrize(("dtype", "error"), [(np.float64, 1e-12), (np.float32, 1e-5)])


def assert_near(found, expected, error):
    np.testing.assert_allclose(found, expected, rtol=0, atol=error * np.abs(expected).max())


@pytest.mark.parametrize("kernel", EVERY, ids=repr)
@pytest.mark.parametrize("of_rows", KINDS)
@pytest.mark.parametrize("of_block", KINDS)
@both_types
def test_values_against_fixed_rows_are_those_of_gram(kernel, of_rows, of_block, dtype, error):
    X, Y = (np.where(rows(n, 5, seed=n) > 0.3, rows(n, 5), 0) for n in (40, 30))
    Y[3], X[5], X[7] = X[2], 0, Y[11]
    values = kernel.against(of_rows(Y), dtype)
    for block in (X, X[:1], X.astype(np.float32), X.astype(int)):
        K = values(of_block(block))
        assert isinstance(K, np.ndarray)
        assert K.dtype == dtype
        assert_near(K, kernel.gram(np.asarray(block, dtype=np.float64), Y), error)


@pytest.mark.parametrize("kernel", EVERY, ids=repr)
@both_types
def test_values_of_many_rows_are_those_of_gram(kernel, dtype, error):
    X, Y = rows(3000, 7).astype(dtype), rows(300, 7, seed=1)  # more than fit in cache at a time
    assert_near(kernel.against(Y, dtype)(X), kernel.gram(X, Y), error)


@pytest.mark.parametrize("kernel", EVERY, ids=repr)
@pytest.mark.parametrize("of_block", KINDS)
def test_the_rows_and_values_against_them_are_left_alone(kernel, of_block):
    X, Y = rows(20, 3), rows(10, 3, seed=1)
    before = X.copy(), Y.copy()
    block, values = of_block(X), kernel.against(Y)
    first = values(block)
    kept = first.copy()
    Y += 1
    second = values(block)
    assert np.array_equal(first, kept)
    assert np.array_equal(first, second)
    assert not np.shares_memory(first, second)
    assert np.array_equal(block if isinstance(block, np.ndarray) else block.toarray(), before[0])
    assert np.array_equal(Y, before[1] + 1)


@pytest.mark.parametrize("kernel", EVERY, ids=repr)
@pytest.mark.parametrize("of_block", KINDS)
def test_fixed_sparse_rows_too_many_to_be_dense_give_the_same(kernel, of_block, monkeypatch):
    X, Y = np.maximum(rows(40, 9), 0), np.maximum(rows(30, 9, seed=1), 0)
    monkeypatch.setattr("fedkernel.row_products._SHARED", 100)
    assert_near(kernel.against(scipy.sparse.csr_array(Y))(of_block(X)), kernel.gram(X, Y), 1e-12)


@pytest.mark.parametrize("kernel", EVERY, ids=repr)
def test_sparse_rows_of_many_columns_never_become_dense(kernel):
    made = (scipy.sparse.random_array((n, 200_000), density=1e-4, rng=np.random.default_rng(n)) for n in (300, 50))
    X, Y = (scipy.sparse.csr_array(one) for one in made)
    tracemalloc.start()
    K = kernel.against(Y)(X)
    kernel.diag(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50 * 200_000 * 8 / 2
    assert_near(K, kernel.gram(X, Y), 1e-12)


@pytest.mark.parametrize(("dtype", "error"), [(np.float64, 1e-9), (np.float32, 1e-5)])
def test_rbf_values_keep_their_digits_far_from_the_origin(dtype, error):
    X, Y = rows(40, 3), rows(30, 3, seed=1)
    values = RBF(gamma=0.5).against(Y + 1e5, dtype)
    # Blocks of float64 are centred before they are rounded. Squared norms of 1e10 would leave nothing of float32.
    assert_near(values(X + 1e5), RBF(gamma=0.5).gram(X, Y), error)


def test_rbf_values_never_exceed_1():
    X = rows(500, 30) * 100
    for dtype in (np.float32, np.float64):
        assert RBF(gamma=1e-9).against(X, dtype)(X).max() == 1


@pytest.mark.parametrize("dtype", [np.float16, int, complex])
def test_values_of_other_types_are_refused(dtype):
    with pytest.raises(InputError, match="must be float32 or float64"):
        Linear().against(rows(3, 2), dtype)


def test_fixed_rows_are_checked():
    with pytest.raises(InputError, match=r"Y of shape .* not finite"):
        RBF().against(np.full((2, 2), np.nan))


# Columns split over clients


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_combined_parts_of_any_column_split_are_the_gram_matrix(data):
    d = data.draw(st.integers(1, 8))
    cuts = sorted(data.draw(st.sets(st.integers(1, d - 1)))) if d > 1 else []
    order = data.draw(st.permutations(range(d)))
    kernel = data.draw(st.sampled_from(KERNELS_WITH_GAMMA))
    X, Y = rows(9, d, seed=d), rows(6, d, seed=d + 1)
    columns = np.split(np.array(order), cuts)
    for other in (None, Y):
        parts = (kernel.part(X[:, c], None if other is None else other[:, c]) for c in columns)
        np.testing.assert_allclose(kernel.combine(parts), kernel.gram(X, other), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS_WITH_GAMMA, ids=repr)
def test_one_clients_part_alone_is_the_gram_matrix_to_the_bit(kernel):
    X = rows(15, 4)
    assert np.array_equal(kernel.combine([kernel.part(X)]), kernel.gram(X))


@pytest.mark.parametrize("kernel", KERNELS_WITH_GAMMA, ids=repr)
def test_combine_works_in_the_first_part_and_keeps_two_arrays(kernel):
    n, size = 400, 400 * 400 * 8
    first, second = kernel.part(rows(n, 2)), kernel.part(rows(n, 2, seed=1))
    kept = second.copy()
    assert kernel.combine([first, second]) is first
    assert np.array_equal(second, kept)
    tracemalloc.start()
    kernel.combine(np.full((n, n), 0.5) for _ in range(4))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 2 * size <= peak < 2.2 * size


def test_a_read_only_first_part_is_copied():
    first = np.frombuffer(np.ones((2, 2)).tobytes()).reshape(2, 2)
    assert np.array_equal(Linear().combine([first, np.ones((2, 2))]), np.full((2, 2), 2.0))
    assert np.array_equal(first, np.ones((2, 2)))


@pytest.mark.parametrize("kernel", WITHOUT_GAMMA, ids=repr)
def test_vertical_use_requires_gamma(kernel):
    name = type(kernel).__name__
    with pytest.raises(InputError, match=rf"{name}\(gamma="):
        kernel.require_vertical()
    with pytest.raises(InputError, match="gamma is required"):
        kernel.combine([np.ones((2, 2))])
    if kernel.vertical == "product":
        with pytest.raises(InputError, match="gamma is required"):
            kernel.part(rows(3, 2))
    else:  # inner products do not depend on gamma
        X = rows(3, 2)
        np.testing.assert_allclose(kernel.part(X), X @ X.T, rtol=1e-14)


def test_linear_has_no_gamma_to_require():
    Linear().require_vertical()
    assert np.array_equal(Linear().combine([np.eye(2), np.eye(2)]), 2 * np.eye(2))


@pytest.mark.parametrize("kernel", KERNELS_WITH_GAMMA + WITHOUT_GAMMA, ids=repr)
def test_a_settled_kernel_is_the_same_on_so_many_columns(kernel):
    X = rows(6, 4)
    settled = kernel.settled(4)
    assert type(settled) is type(kernel)
    assert np.array_equal(settled.gram(X), kernel.gram(X))
    settled.require_vertical()
    assert settled.settled(9) == settled
    if kernel in KERNELS_WITH_GAMMA:
        assert settled == kernel
    else:
        assert settled == dataclasses.replace(kernel, gamma=0.25)
        assert kernel.gamma is None


def test_parts_must_fit_each_other():
    with pytest.raises(InputError, match=r"\(3, 3\).*\(2, 2\)"):
        Linear().combine([np.ones((2, 2)), np.ones((3, 3))])
    with pytest.raises(InputError, match="at least one part"):
        Linear().combine([])


# As values


@pytest.mark.parametrize("kernel", EVERY, ids=repr)
def test_round_trips_through_json_pickle_and_repr(kernel):
    text = ADAPTER.dump_json(kernel)
    assert json.loads(text)["type"] == kernel.type
    assert ADAPTER.validate_json(text) == kernel
    assert kernel_from(json.loads(text)) == kernel
    assert pickle.loads(pickle.dumps(kernel)) == kernel  # noqa: S301
    assert eval(repr(kernel)) == kernel  # noqa: S307
    assert hash(ADAPTER.validate_json(text)) == hash(kernel)


def test_equality_and_hash_follow_the_fields():
    assert RBF(sigma=2.0) == RBF(gamma=0.125)
    assert len({RBF(gamma=1.0), RBF(gamma=1.0), RBF(gamma=2.0), Laplacian(gamma=1.0), RBF()}) == 4
    assert dataclasses.replace(RBF(gamma=1.0), gamma=2.0) == RBF(gamma=2.0)


@pytest.mark.parametrize("kernel", EVERY, ids=repr)
def test_kernels_are_immutable(kernel):
    with pytest.raises(dataclasses.FrozenInstanceError):
        kernel.type = "other"


def test_registry_has_every_kernel_under_its_type():
    assert list(KERNELS) == ["linear", "rbf", "laplacian", "polynomial", "sigmoid", "arc-cosine"]
    assert all(kernel_from({"type": name}) == kernel() for name, kernel in KERNELS.items())
    assert {kernel.vertical for kernel in KERNELS.values()} == {"sum", "sum-then-map", "product", "none"}


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"type": "rfb"}, r"'rfb' is not known \(allowed: linear, rbf, laplacian, polynomial, sigmoid, arc-cosine\)"),
        ({"type": ["rbf"]}, "is not known"),
        ({"gamma": 1.0}, "type is required .*linear, rbf"),
        ({"type": "rbf", "gamma": 0}, "RBF: gamma = 0: .*greater than 0"),
        ({"type": "rbf", "gamma": 1.0, "sigma": 1.0}, "only one"),
        ({"type": "rbf", "sigma": -1.0}, "sigma = -1.0: .*greater than 0"),
        ({"type": "rbf", "sigma": 1e-200}, "not a positive number"),
        ({"type": "rbf", "sigma": 1e200}, "not a positive number"),
        ({"type": "rbf", "gama": 1.0}, r"gama is not a known name here \(allowed: gamma, sigma\)"),
        ({"type": "laplacian", "gamma": math.inf}, "gamma = inf"),
        ({"type": "polynomial", "degree": 0}, "degree = 0"),
        ({"type": "polynomial", "degree": 2.5}, "degree = 2.5"),
        ({"type": "polynomial", "coef0": -0.1}, "coef0 = -0.1"),
        ({"type": "sigmoid", "coef0": math.nan}, "coef0 = nan"),
        ({"type": "linear", "gamma": 1.0}, "gamma is not a known name"),
    ],
)
def test_bad_tables_are_refused_in_one_line(table, text):
    with pytest.raises(InputError, match=text) as caught:
        kernel_from(table)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("X", "Y", "text"),
    [
        (np.ones(3), None, "two dimensions"),
        (np.ones((0, 2)), None, "none of them 0"),
        (np.ones((2, 0)), None, "none of them 0"),
        (np.array([[1.0, np.nan]]), None, "not finite"),
        (scipy.sparse.csr_array([[1.0, np.inf]]), None, "not finite"),
        (np.array([["a"]]), None, "numbers"),
        (np.ones((2, 3)), np.ones((2, 2)), "3 columns and Y 2"),
        (np.ones((2, 3)), np.full((1, 3), np.inf), "Y of shape"),
    ],
)
@pytest.mark.parametrize("kernel", [Linear(), RBF(), Sigmoid()], ids=repr)
def test_bad_rows_are_refused(kernel, X, Y, text):
    with pytest.raises(InputError, match=text):
        kernel.gram(X, Y)


# Widths by rule


def test_median_sigma_is_the_median_over_all_pairs():
    X = rows(30, 3)
    distances = [math.dist(X[i], X[j]) for i in range(30) for j in range(i)]
    assert median_sigma(X) == pytest.approx(np.median(distances), rel=1e-13)


def test_median_sigma_draws_rows_by_its_seed():
    X = rows(500, 3)
    assert median_sigma(X, max_rows=100) == median_sigma(X, max_rows=100)
    assert median_sigma(X, max_rows=100, seed=1) != median_sigma(X, max_rows=100)
    assert median_sigma(X, max_rows=100) == pytest.approx(median_sigma(X), rel=0.1)


@pytest.mark.parametrize(
    ("X", "options"),
    [(np.zeros((5, 2)), {}), (np.ones((5, 2)), {}), (np.ones((1, 2)), {}), (rows(5, 2), {"max_rows": 1})],
)
def test_median_sigma_refuses_data_without_a_width(X, options):
    with pytest.raises(InputError, match=r"median distance"):
        median_sigma(X, **options)


def fk_gamma_of_pairs(X):
    """N^2 / (2 sum_ij ||x_i - x_j||^2), from the distances themselves: each counts twice in the sum."""
    return len(X) ** 2 / (4 * (pdist(X) ** 2).sum())


def test_fk_gamma_is_the_mean_squared_distance_of_all_pairs():
    X = rows(40, 3) + 2.0
    total = sum(math.dist(x, y) ** 2 for x in X for y in X)
    assert fk_gamma([moments(X)]) == pytest.approx(40**2 / (2 * total), rel=1e-12)
    assert with_width({"type": "rbf", "width": "mean"}, X) == {"type": "rbf", "gamma": fk_gamma([moments(X)])}


@pytest.mark.parametrize("n", [2, ROWS - 1, ROWS, ROWS + 1])
def test_moments_are_the_mean_and_the_squares_about_it(n):
    X = rows(n, 3) + np.array([0.0, 5.0, -100.0])
    count, mean, scatter = moments(X)
    expected = [sum(column) / n for column in X.T]
    assert count == n
    np.testing.assert_allclose(mean, expected, rtol=1e-12, atol=1e-14)
    assert scatter == pytest.approx(sum(math.dist(x, expected) ** 2 for x in X), rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(1, 59)), st.permutations(range(60)), st.sampled_from([0.0, 1.0, 1e4]))
def test_fk_gamma_is_the_same_however_rows_are_split(cuts, order, apart):
    """Also where a client's rows are far from the others', or it has a single one."""
    X = rows(60, 3) + apart * np.arange(60)[:, None]
    shards = np.split(X[order], sorted(cuts))
    expected = fk_gamma_of_pairs(X)
    assert fk_gamma([moments(shard) for shard in shards]) == pytest.approx(expected, rel=1e-12)
    assert fk_gamma([moments(shard) for shard in np.split(X, sorted(cuts))]) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("offset", [1e3, 1e6, -1e6])
@pytest.mark.parametrize("clients", [1, 4])
def test_fk_gamma_keeps_its_digits_far_from_the_origin(offset, clients):
    # Sums of squares are 1e12 times the spread here, so that their differences would keep 4 digits.
    X = rows(300, 3) + offset * np.array([1.0, 0.5, 2.0])
    gamma = fk_gamma([moments(shard) for shard in np.array_split(X, clients)])
    assert gamma == pytest.approx(fk_gamma_of_pairs(X), rel=1e-8)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6 / 3, -1e6 / 7, 1e-200])
@pytest.mark.parametrize("n", [600, 5000])
@pytest.mark.parametrize("cuts", [[], [1], [10, 500]])
def test_fk_gamma_refuses_constant_data(value, n, cuts):
    """However many rows have rounded their mean."""
    X = np.full((n, 3), value) * [1.0, 3.0, 1 / 3]
    with pytest.raises(InputError, match=f"{n} rows do not differ"):
        fk_gamma([moments(shard) for shard in np.split(X, cuts)])


def test_fk_gamma_sees_a_single_row_that_differs():
    X = np.full((1000, 3), 1e6 / 3)
    X[17, 1] += 1.0
    # 999 pairs of distance 1, each twice.
    assert fk_gamma([moments(X[:300]), moments(X[300:])]) == pytest.approx(1000**2 / (2 * 2 * 999), rel=1e-8)


def test_dimension_sigma():
    assert dimension_sigma(9) == 1.0
    with pytest.raises(InputError, match="d = 0"):
        dimension_sigma(0)
