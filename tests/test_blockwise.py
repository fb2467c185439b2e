"""Sketches and draws that see a table a block at a time give what they would of the whole."""

import numpy as np
import pytest
import scipy.stats

from fedkernel.numerics.blockwise import RowSketch, draw_blocks

B = np.random.default_rng(0).standard_normal((90, 4)) * [5, 2, 1, 0.1]


def sketched(blocks, columns, seed=0):
    sketch = RowSketch(sum(len(block) for block in blocks), columns, np.random.default_rng(seed))
    for block in blocks:
        sketch.add(block)
    return sketch


def cut(X, size):
    return [X[first : first + size] for first in range(0, len(X), size)]


@pytest.mark.parametrize("size", [7, 90, 1])
def test_without_a_sketch_it_is_the_product(size):
    sketch = sketched(cut(B, size), None)
    np.testing.assert_allclose(sketch.product, B.T @ B, rtol=1e-13)
    assert sketch.factor is None


@pytest.mark.parametrize("columns", [46, 90, 10**9])
def test_with_fewer_than_two_rows_for_a_column_it_is_the_product(columns):
    """A sketch of as many columns as rows would be the rows."""
    sketch = sketched(cut(B, 40), columns)
    np.testing.assert_allclose(sketch.product, B.T @ B, rtol=1e-13)
    assert sketch.factor is None
    assert sketched(cut(B, 40), 45).product is None


@pytest.mark.parametrize("size", [7, 90])
def test_every_row_is_added_once_with_a_sign_to_one_of_the_sums(size):
    """The sketch of the identity is the sketch itself."""
    S = sketched(cut(np.eye(90), size), 12).factor
    assert S.shape == (90, 12)
    assert set(np.unique(S)) == {-1.0, 0.0, 1.0}
    np.testing.assert_array_equal(np.count_nonzero(S, axis=1), 1)
    np.testing.assert_allclose(sketched(cut(B, size), 12).factor, B.T @ S, atol=1e-13)


def test_sums_and_signs_are_drawn_alike_and_anew_for_every_block():
    S = np.array([sketched(cut(np.eye(90), 30), 6, seed).factor for seed in range(100)])
    counts = np.count_nonzero(S, axis=0).sum(axis=0)
    assert scipy.stats.chisquare(counts).pvalue > 1e-3
    positive = (S > 0).sum()
    assert scipy.stats.binomtest(int(positive), 90 * 100).pvalue > 1e-3
    first, second = S[:, :30], S[:, 30:60]
    # of equal maps all, of independent ones a twelfth agree in place and sign
    assert abs(np.mean((first * second).sum(axis=2) == 1) - 1 / 12) < 0.02


def test_the_mean_of_sketched_products_is_the_product():
    products = []
    for seed in range(2000):
        F = sketched(cut(B, 40), 10, seed).factor
        products.append(F @ F.T)
    spread = np.std(products, axis=0) / np.sqrt(len(products))
    assert np.all(np.abs(np.mean(products, axis=0) - B.T @ B) < 5 * spread + 1e-12)


def test_float32_blocks_are_summed_in_float64():
    """In float32 the tenth digit of the first block would be lost in the sum."""
    large, small = np.full((1, 1), 2.0**13, np.float32), np.full((1, 1), 1.0, np.float32)
    blocks = [large, *[small] * 5]
    assert sketched(blocks, None).product == 2.0**26 + 5
    assert sketched([large, small], 1).factor.dtype == np.float64


def test_blocks_are_drawn_in_proportion_to_their_sums():
    sums, samples = np.array([3.0, 0.0, 1.0, 0.5, 5.5]), 4000
    drawn = draw_blocks(sums, samples, np.random.default_rng(0))
    assert 1 not in drawn
    assert sum(drawn.values()) == samples
    nonzero = np.flatnonzero(sums)
    distinct = [drawn[number] for number in nonzero]
    assert scipy.stats.chisquare(distinct, sums[nonzero] / sums.sum() * samples).pvalue > 1e-3
    assert draw_blocks(np.array([0.0, 1e-300]), 3, np.random.default_rng(0)) == {1: 3}
    assert all(draw_blocks(sums, 1, np.random.default_rng(seed)) != {} for seed in range(20))
