"""Widths by rule: the median distance, the mean squared distance, and the number of columns."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import rows
from scipy.spatial.distance import pdist
from sites import drive

from fedkernel.ground import BLOCK_ROWS, InputError
from fedkernel.kernel_width import WidthClient, settle_widths
from fedkernel.numerics import RBF, Laplacian, Polynomial, Sigmoid, dimension_sigma, fk_gamma, moments, with_width
from fedkernel.numerics.widths import median_sigma
from fedkernel.protocol import Member, Run


def test_median_sigma_is_the_median_over_all_pairs():
    X = rows(30, 3)
    distances = [math.dist(X[i], X[j]) for i in range(30) for j in range(i)]
    assert median_sigma(X) == pytest.approx(np.median(distances), rel=1e-13)
    X = rows(500, 3)  # of which rows are drawn, by a seed
    assert median_sigma(X, max_rows=100) == median_sigma(X, max_rows=100) == pytest.approx(median_sigma(X), rel=0.1)
    assert median_sigma(X, max_rows=100, seed=1) != median_sigma(X, max_rows=100)
    assert dimension_sigma(9) == 1.0
    with pytest.raises(InputError, match="d = 0"):
        dimension_sigma(0)


@pytest.mark.parametrize(("kernel", "power"), [(Polynomial, 2), (Sigmoid, 2), (Laplacian, 1)])
def test_a_distance_is_a_kernel_s_gamma_as_its_own_reading_has_it(kernel, power):
    X = rows(30, 3)
    assert with_width(kernel(width="median"), X).gamma == pytest.approx(1 / (power * median_sigma(X) ** power))


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


@settings(max_examples=60, deadline=None)
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
