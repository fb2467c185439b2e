"""Kernels: against explicit loops and scikit-learn, over column splits, and as values."""

import dataclasses
import json
import math
import pickle

import numpy as np
import pydantic
import pytest
import scipy.sparse
from allocation import peak_of
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import ARC_COSINES, CASES, EVERY, KERNELS_WITH_GAMMA, WITHOUT_GAMMA, rows
from sklearn.metrics import pairwise

from fedkernel.ground import InputError, own_short_names
from fedkernel.numerics import (
    KERNELS,
    RBF,
    ArcCosine,  # noqa: F401 - a test evaluates what repr gives
    Kernel,
    Laplacian,
    Linear,
    Polynomial,
    Sigmoid,
    kernel_from,
)

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


def test_parts_must_fit_each_other():
    with pytest.raises(InputError, match=r"\(3, 3\).*\(2, 2\)"):
        Linear().combine([np.ones((2, 2)), np.ones((3, 3))])
    with pytest.raises(InputError, match="at least one part"):
        Linear().combine([])


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


def test_equality_and_hash_follow_the_fields():
    assert RBF(sigma=2.0) == RBF(gamma=0.125)
    assert len({RBF(gamma=1.0), RBF(gamma=1.0), RBF(gamma=2.0), Laplacian(gamma=1.0), RBF()}) == 4
    assert dataclasses.replace(RBF(gamma=1.0), gamma=2.0) == RBF(gamma=2.0)


def test_registry_has_every_kernel_under_its_type():
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
