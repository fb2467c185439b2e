"""Kernels against loops and scikit-learn, against fixed rows and as values; widths by rule."""

import dataclasses
import itertools
import json
import math
import pickle

import numpy as np
import pydantic
import pytest
import scipy.sparse
from allocation import peak_of
from hypothesis import given
from hypothesis import strategies as st
from kernel_cases import ARC_COSINES, CASES, EVERY, KERNELS_WITH_GAMMA, WITHOUT_GAMMA, rows
from scipy.spatial.distance import pdist
from sites import drive
from sklearn.metrics import pairwise

from fedkernel import RBF, ArcCosine, Kernel, Laplacian, Linear, Polynomial, Sigmoid  # noqa: F401 - as repr gives them
from fedkernel.ground import BLOCK_ROWS, InputError, own_short_names
from fedkernel.kernel_width import WidthClient, settle_widths
from fedkernel.numerics import KERNELS, dimension_sigma, fk_gamma, kernel_from, moments, with_width
from fedkernel.numerics.widths import median_sigma
from fedkernel.protocol import Member, Run

ADAPTER = pydantic.TypeAdapter(Kernel)


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
        (RBF(width="columns"), pairwise.rbf_kernel),
        (Laplacian(width="columns"), pairwise.laplacian_kernel),
        (Polynomial(width="columns"), pairwise.polynomial_kernel),
        (Sigmoid(width="columns"), pairwise.sigmoid_kernel),
    ],
)
def test_one_over_the_columns_is_scikit_learns_default(kernel, theirs):
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


@pytest.mark.parametrize("kernel", EVERY, ids=repr)
def test_no_more_memory_is_taken_than_needed(kernel):
    """Neither a matrix for its diagonal, nor a copy of rows in float32."""
    assert peak_of(lambda: kernel.diag(rows(2000, 2)))[0] < 2000 * 2000 * 8 / 50
    X = rows(2000, 500).astype(np.float32)
    peak, diagonal = peak_of(lambda: kernel.diag(X))
    assert peak < X.nbytes / 2
    np.testing.assert_allclose(diagonal, kernel.diag(X.astype(np.float64)), rtol=1e-13)
    if kernel.type == "rbf" and kernel.width is None:
        peak, K = peak_of(lambda: kernel.part(rows(800, 3)))
        assert peak < 1.3 * K.nbytes


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
def test_combine_works_in_the_first_part_and_keeps_two_arrays(kernel):
    n, size = 400, 400 * 400 * 8
    first, second = kernel.part(rows(n, 2)), kernel.part(rows(n, 2, seed=1))
    before = second.copy()
    assert np.array_equal(kernel.combine([first.copy()]), kernel.gram(rows(n, 2))), "one client's part, to the bit"
    assert kernel.combine([first, second]) is first
    assert np.array_equal(second, before)
    assert 2 * size <= peak_of(lambda: kernel.combine(np.full((n, n), 0.5) for _ in range(4)))[0] < 2.2 * size
    read_only = np.frombuffer(np.ones((2, 2)).tobytes()).reshape(2, 2)
    kernel.combine([read_only, np.ones((2, 2))])
    assert np.array_equal(read_only, np.ones((2, 2)))


@pytest.mark.parametrize("kernel", WITHOUT_GAMMA, ids=repr)
def test_vertical_use_requires_gamma(kernel):
    name = type(kernel).__name__
    text = rf'{name}: width = "columns" is not for columns that are split over clients'
    with pytest.raises(InputError, match=text):
        kernel.require_vertical()
    with pytest.raises(InputError, match=text):
        kernel.combine([np.ones((2, 2))])
    if kernel.vertical == "product":
        with pytest.raises(InputError, match=text):
            kernel.part(rows(3, 2))
    else:  # inner products do not depend on gamma
        X = rows(3, 2)
        np.testing.assert_allclose(kernel.part(X), X @ X.T, rtol=1e-14)


@pytest.mark.parametrize("kernel", KERNELS_WITH_GAMMA + WITHOUT_GAMMA, ids=repr)
def test_a_settled_kernel_is_the_same_on_so_many_columns(kernel):
    X = rows(6, 4)
    settled = kernel.settled(4)
    assert type(settled) is type(kernel)
    assert np.array_equal(settled.gram(X), kernel.gram(X))
    settled.require_vertical()
    assert settled.settled(9) == settled
    assert settled == (kernel if kernel in KERNELS_WITH_GAMMA else dataclasses.replace(kernel, gamma=0.25, width=None))


@pytest.mark.parametrize("kernel", EVERY, ids=repr)
def test_round_trips_through_json_pickle_and_repr(kernel):
    text = ADAPTER.dump_json(kernel)
    assert json.loads(text)["type"] == kernel.type
    assert ADAPTER.validate_json(text) == kernel
    assert kernel_from(json.loads(text)) == kernel
    assert pickle.loads(pickle.dumps(kernel)) == kernel  # noqa: S301
    assert eval(repr(kernel)) == kernel  # noqa: S307
    assert hash(ADAPTER.validate_json(text)) == hash(kernel)
    with pytest.raises(dataclasses.FrozenInstanceError):
        kernel.type = "other"


def test_equality_and_hash_follow_the_fields_and_every_kernel_is_registered_under_its_type():
    assert RBF(sigma=2.0) == RBF(gamma=0.125)
    assert len({RBF(gamma=1.0), RBF(gamma=1.0), RBF(gamma=2.0), Laplacian(gamma=1.0), RBF()}) == 4
    assert dataclasses.replace(RBF(gamma=1.0), gamma=2.0) == RBF(gamma=2.0)
    assert list(KERNELS) == ["linear", "rbf", "laplacian", "polynomial", "sigmoid", "arc-cosine"]
    assert own_short_names("kernels") == {
        name: f"fedkernel.numerics.kernels:{kernel.__name__}" for name, kernel in KERNELS.items()
    }
    assert all(kernel_from({"type": name}) == kernel() for name, kernel in KERNELS.items())
    assert {kernel.vertical for kernel in KERNELS.values()} == {"sum", "sum-then-map", "product", "none"}


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"type": "rfb"}, r"'rfb' is not known \(allowed: linear, rbf, laplacian, polynomial, sigmoid, arc-cosine\)"),
        ({"type": ["rbf"]}, "is not known"),
        ({"gamma": 1.0}, "type is required .*linear, rbf"),
        ({"type": "rbf", "gamma": 0}, "RBF: gamma = 0: .*greater than 0"),
        ({"type": "rbf", "gamma": [1, 2]}, r"gamma: \[1, 2\] is not one number; widths are compared by an experiment"),
        ({"type": "rbf", "gamma": 1.0, "sigma": 1.0}, "only one"),
        ({"type": "rbf", "sigma": -1.0}, "sigma = -1.0: .*greater than 0"),
        ({"type": "rbf", "sigma": 1e-200}, "not a positive number"),
        ({"type": "rbf", "sigma": 1e200}, "not a positive number"),
        ({"type": "rbf", "gama": 1.0}, r"gama is not a known name here \(did you mean gamma\? allowed: gamma, sigma,"),
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
@pytest.mark.parametrize("kernel", [Linear(), RBF(gamma=1.0), Sigmoid(gamma=1.0)], ids=repr)
def test_bad_rows_are_refused(kernel, X, Y, text):
    with pytest.raises(InputError, match=text):
        kernel.gram(X, Y)


KINDS = [np.asarray, scipy.sparse.csr_array, scipy.sparse.csr_matrix]
both_types = pytest.mark.parametrize(("dtype", "error"), [(np.float64, 1e-12), (np.float32, 1e-5)])


def assert_near(computed, expected, error):
    np.testing.assert_allclose(computed, expected, rtol=0, atol=error * np.abs(expected).max())


@pytest.mark.parametrize("kernel", EVERY, ids=repr)
@pytest.mark.parametrize("of_rows", KINDS)
@both_types
def test_values_against_fixed_rows_are_those_of_gram(kernel, of_rows, dtype, error):
    X, Y = (np.where(rows(n, 5, seed=n) > 0.3, rows(n, 5), 0) for n in (40, 30))
    Y[3], X[5], X[7] = X[2], 0, Y[11]
    values = kernel.against(of_rows(Y), dtype)
    for of_block, block in itertools.product(KINDS, (X, X[:1], X.astype(np.float32), X.astype(int))):
        K = values(of_block(block))
        assert isinstance(K, np.ndarray)
        assert K.dtype == dtype
        assert_near(K, kernel.gram(np.asarray(block, dtype=np.float64), Y), error)
    X, Y = rows(3000, 7).astype(dtype), rows(300, 7, seed=1)  # more than fit in cache at a time
    assert_near(kernel.against(Y, dtype)(X), kernel.gram(X, Y), error)


@pytest.mark.parametrize("kernel", EVERY, ids=repr)
@pytest.mark.parametrize("of_block", KINDS)
def test_the_rows_and_values_against_them_are_left_alone(kernel, of_block):
    X, Y = rows(20, 3), rows(10, 3, seed=1)
    before = X.copy(), Y.copy()
    block, values = of_block(X), kernel.against(Y)
    first = values(block)
    intact = first.copy()
    Y += 1
    second = values(block)
    assert np.array_equal(first, intact)
    assert np.array_equal(first, second)
    assert not np.shares_memory(first, second)
    assert np.array_equal(block if isinstance(block, np.ndarray) else block.toarray(), before[0])
    assert np.array_equal(Y, before[1] + 1)


@pytest.mark.parametrize("kernel", EVERY, ids=repr)
def test_sparse_rows_too_many_to_be_dense_or_of_many_columns_give_the_same_and_never_become_dense(kernel, monkeypatch):
    X, Y = np.maximum(rows(40, 9), 0), np.maximum(rows(30, 9, seed=1), 0)
    with monkeypatch.context() as patched:
        patched.setattr("fedkernel.numerics.pairwise._SHARED_CACHE", 100)
        for of_block in KINDS:
            assert_near(kernel.against(scipy.sparse.csr_array(Y))(of_block(X)), kernel.gram(X, Y), 1e-12)
    tables = (scipy.sparse.random_array((n, 200_000), density=1e-4, rng=np.random.default_rng(n)) for n in (300, 50))
    X, Y = (scipy.sparse.csr_array(table) for table in tables)
    peak, (K, _) = peak_of(lambda: (kernel.against(Y)(X), kernel.diag(X)))
    assert peak < 50 * 200_000 * 8 / 2
    assert_near(K, kernel.gram(X, Y), 1e-12)


@pytest.mark.parametrize(("dtype", "error"), [(np.float64, 1e-9), (np.float32, 1e-5)])
def test_rbf_values_keep_their_digits_far_from_the_origin_and_never_exceed_1(dtype, error):
    X, Y = rows(40, 3), rows(30, 3, seed=1)
    values = RBF(gamma=0.5).against(Y + 1e5, dtype)
    # Blocks of float64 are centred before they are rounded. Squared norms of 1e10 would leave nothing of float32.
    assert_near(values(X + 1e5), RBF(gamma=0.5).gram(X, Y), error)
    # The shift itself rounds the data by about 1e-9; squared norms of 1e14 would lose everything below 1e-2.
    np.testing.assert_allclose(RBF(gamma=0.5).gram(X + 1e7, Y + 1e7), RBF(gamma=0.5).gram(X, Y), atol=1e-7)
    many = rows(500, 30) * 100
    assert RBF(gamma=1e-9).against(many, dtype)(many).max() == 1


def test_other_types_and_rows_that_are_not_finite_are_refused_and_parts_that_do_not_fit_each_other():
    with pytest.raises(InputError, match=r"\(3, 3\).*\(2, 2\)"):
        Linear().combine([np.ones((2, 2)), np.ones((3, 3))])
    with pytest.raises(InputError, match="at least one part"):
        Linear().combine([])
    for dtype in (np.float16, int, complex):
        with pytest.raises(InputError, match="must be float32 or float64"):
            Linear().against(rows(3, 2), dtype)
    with pytest.raises(InputError, match=r"Y of shape .* not finite"):
        RBF().against(np.full((2, 2), np.nan))


def test_median_sigma_is_the_median_over_all_pairs_and_a_kernel_s_gamma_as_its_own_reading_has_it():
    X = rows(30, 3)
    for kernel, power in ((Polynomial, 2), (Sigmoid, 2), (Laplacian, 1)):
        settled = with_width(kernel(width="median"), X)
        assert settled.gamma == pytest.approx(1 / (power * median_sigma(X) ** power))
    distances = [math.dist(X[i], X[j]) for i in range(30) for j in range(i)]
    assert median_sigma(X) == pytest.approx(np.median(distances), rel=1e-13)
    X = rows(500, 3)  # of which rows are drawn, by a seed
    assert median_sigma(X, max_rows=100) == median_sigma(X, max_rows=100) == pytest.approx(median_sigma(X), rel=0.1)
    assert median_sigma(X, max_rows=100, seed=1) != median_sigma(X, max_rows=100)
    assert dimension_sigma(9) == 1.0
    with pytest.raises(InputError, match="d = 0"):
        dimension_sigma(0)
    for X, most in ((np.zeros((5, 2)), 9), (np.ones((5, 2)), 9), (np.ones((1, 2)), 9), (rows(5, 2), 1)):
        with pytest.raises(InputError, match=r"median distance"):
            median_sigma(X, max_rows=most)


def fk_gamma_of_pairs(X):
    """N^2 / (2 sum_ij ||x_i - x_j||^2), from the distances themselves: each counts twice in the sum."""
    return len(X) ** 2 / (4 * (pdist(X) ** 2).sum())


def settled(shards, kernel):
    """As sites do that never show their own moments: the mean of all rows first, then what lies about it."""
    members = tuple(Member(number, number, *shard.shape) for number, shard in enumerate(shards))
    clients = [WidthClient(shard) for shard in shards]
    return drive(settle_widths(Run(members, 0), "horizontal", [kernel]), clients)[kernel].gamma


def test_a_laplacians_width_is_near_the_mean_difference_of_all_pairs_however_rows_are_split():
    """Between 0.71 and 1.41 times it, whatever the rows' distribution, and the columns' units."""
    heavy = np.random.default_rng(3).standard_cauchy((200, 4)) * [1e-3, 1.0, 1e3, 0.0]
    for X in (rows(50, 3), heavy, np.repeat(np.eye(2), [199, 1], axis=0)):
        gamma = settled(np.array_split(X, 3), Laplacian())
        assert gamma == pytest.approx(with_width(Laplacian(), X).gamma, rel=1e-12)
        mean = pdist(X, "cityblock").mean() * (len(X) - 1) / len(X)
        assert math.sqrt(0.5) * (1 - 1e-9) <= gamma * mean <= math.sqrt(2) * (1 + 1e-9)
    with pytest.raises(InputError, match="50 rows do not differ"):
        settled([np.full((50, 3), 1e6 / 3)], Laplacian())


@pytest.mark.parametrize("n", [2, BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 1])
def test_moments_are_the_mean_and_the_squares_about_it(n):
    X = rows(n, 3) + np.array([0.0, 5.0, -100.0])
    count, mean, scatter = moments(X)
    expected = [sum(column) / n for column in X.T]
    assert count == n
    np.testing.assert_allclose(mean, expected, rtol=1e-12, atol=1e-14)
    assert scatter == pytest.approx(sum(math.dist(x, expected) ** 2 for x in X), rel=1e-12)


@given(st.sets(st.integers(1, 59)), st.permutations(range(60)), st.sampled_from([0.0, 1.0, 1e4]))
def test_fk_gamma_is_the_same_however_rows_are_split(cuts, order, apart):
    """Also where a client's rows are far from the others', or it has a single one."""
    X = rows(60, 3) + apart * np.arange(60)[:, None]
    expected = fk_gamma_of_pairs(X)
    for table in (X[order], X):
        assert settled(np.split(table, sorted(cuts)), RBF()) == pytest.approx(expected, rel=1e-12)
    assert fk_gamma(*moments(X)) == pytest.approx(expected, rel=1e-12)
    assert with_width({"type": "rbf", "width": "mean"}, X) == {"type": "rbf", "gamma": fk_gamma(*moments(X))}


@pytest.mark.parametrize("offset", [1e3, 1e6, -1e6])
@pytest.mark.parametrize("clients", [1, 4])
def test_fk_gamma_keeps_its_digits_far_from_the_origin(offset, clients):
    # Sums of squares are 1e12 times the spread here, so that their differences would keep 4 digits.
    X = rows(300, 3) + offset * np.array([1.0, 0.5, 2.0])
    assert settled(np.array_split(X, clients), RBF()) == pytest.approx(fk_gamma_of_pairs(X), rel=1e-8)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6 / 3, -1e6 / 7, 1e-200])
@pytest.mark.parametrize("n", [600, 5000])
@pytest.mark.parametrize("cuts", [[], [1], [10, 500]])
def test_fk_gamma_refuses_constant_data(value, n, cuts):
    """However many rows have rounded their mean."""
    X = np.full((n, 3), value) * [1.0, 3.0, 1 / 3]
    with pytest.raises(InputError, match=f"{n} rows do not differ"):
        settled(np.split(X, cuts), RBF())
    X[17, 1] += 1.0  # a single row that differs: n - 1 pairs of distance 1, each twice
    if abs(value) > 1e-100:
        assert settled(np.split(X, cuts), RBF()) == pytest.approx(n**2 / (4 * (n - 1)), rel=1e-8)


@pytest.mark.parametrize("far", [1e6, 1e10, 1e20])
def test_a_row_far_from_all_others_takes_no_digits_of_their_rbf_values(far):
    """As of a missing value's code; centred by the mean, the others would be equal, or as far apart as rounding."""
    X = rows(300, 4)
    X[7, 2], others = far, np.delete(np.arange(300), 7)
    expected = pairwise.rbf_kernel(X[others], gamma=0.2)
    kernel = RBF(gamma=0.2)
    for K in (kernel.gram(X), kernel.gram(X, X.copy()), kernel.against(X)(X)):
        np.testing.assert_allclose(K[np.ix_(others, others)], expected, rtol=0, atol=1e-12)
        assert not K[7, others].any()
