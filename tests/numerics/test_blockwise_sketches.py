"""Sketches and draws that see a table a block at a time give what they would of the whole."""

import itertools
from collections import Counter

import numpy as np
import pytest
import scipy.stats

from fedkernel.numerics import RowSketch, draw_distinct

B = np.random.default_rng(0).standard_normal((90, 4)) * [5, 2, 1, 0.1]


def sketched(blocks, columns, seed=0):
    sketch = RowSketch(sum(len(block) for block in blocks), columns, np.random.default_rng(seed))
    for block in blocks:
        sketch.add(block)
    return sketch


def cut(X, size):
    return [X[first : first + size] for first in range(0, len(X), size)]


@pytest.mark.parametrize(("size", "columns"), [(7, None), (90, None), (1, None), (40, 46), (40, 90), (40, 10**9)])
def test_without_a_sketch_or_with_fewer_than_two_rows_for_a_column_it_is_the_product(size, columns):
    """A sketch of as many columns as rows would be the rows."""
    sketch = sketched(cut(B, size), columns)
    np.testing.assert_allclose(sketch.product, B.T @ B, rtol=1e-13)
    assert sketch.factor is None
    assert sketched(cut(B, size), 45).product is None


@pytest.mark.parametrize("size", [7, 90])
def test_every_row_is_added_once_with_a_sign_to_one_of_the_sums(size):
    """The sketch of the identity is the sketch itself."""
    S = sketched(cut(np.eye(90), size), 12).factor
    assert S.shape == (90, 12)
    assert set(np.unique(S)) == {-1.0, 0.0, 1.0}
    np.testing.assert_array_equal(np.count_nonzero(S, axis=1), 1)
    np.testing.assert_allclose(sketched(cut(B, size), 12).factor, B.T @ S, atol=1e-13)


def test_the_mean_of_sketched_products_is_the_product_and_float32_blocks_are_summed_in_float64():
    products = []
    for seed in range(250):
        F = sketched(cut(B, 40), 10, seed).factor
        products.append(F @ F.T)
    spread = np.std(products, axis=0) / np.sqrt(len(products))
    assert np.all(np.abs(np.mean(products, axis=0) - B.T @ B) < 5 * spread + 1e-12)
    # in float32 the tenth digit of the first block would be lost in the sum
    large, small = np.full((1, 1), 2.0**13, np.float32), np.full((1, 1), 1.0, np.float32)
    blocks = [large, *[small] * 5]
    assert sketched(blocks, None).product == 2.0**26 + 5
    assert sketched([large, small], 1).factor.dtype == np.float64


BLOCKS = [np.array([3.0, 0.5]), np.zeros(2), np.array([0.25]), np.array([1.0, 0.0, 6.0])]
SUMS = np.array([block.sum() for block in BLOCKS])


def drawn_distinct(samples, seed, weigh=BLOCKS.__getitem__):
    drawn = draw_distinct(SUMS, samples, weigh, np.random.default_rng(seed))
    return {(block, int(row)) for block, rows in drawn.items() for row in rows}


def test_rows_are_drawn_without_replacement_and_only_blocks_with_one_of_them_are_weighed():
    """Of all pairs by the definition."""
    weights = {(block, row): w for block, rows in enumerate(BLOCKS) for row, w in enumerate(rows) if w}
    total, draws = SUMS.sum(), 1500
    expected = {}
    for (a, v), (b, w) in itertools.combinations(weights.items(), 2):
        expected[frozenset((a, b))] = draws * v * w / total * (1 / (total - v) + 1 / (total - w))
    assert sum(expected.values()) == pytest.approx(draws)
    pairs = Counter(frozenset(drawn_distinct(2, seed)) for seed in range(draws))
    assert set(pairs) <= set(expected)
    assert scipy.stats.chisquare([pairs[pair] for pair in expected], list(expected.values())).pvalue > 1e-3
    for samples, count in ((1, 1), (4, 4), (5, 5), (50, 5)):
        assert len(drawn_distinct(samples, 0)) == count, "as many as asked for, where so many have a weight"
    for seed in range(50):
        weighed = []
        drawn = drawn_distinct(3, seed, lambda block, seen=weighed: (seen.append(block), BLOCKS[block])[1])
        assert sorted(weighed) == sorted({block for block, _ in drawn})
