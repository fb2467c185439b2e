"""Stability over seeds where labels stay at sites: what these tell of two runs, what follows, what they refuse."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from fedkernel.numerics import adjusted_rand, adjusted_rand_within

STEP = 5


def overlaps(rng, rows, clusters, moved, sites=3):
    """Labels of rows in two runs, of which a share has others in the second, and each site's overlaps."""
    first = rng.integers(0, clusters, rows)
    second = np.where(rng.random(rows) < moved, rng.integers(0, clusters, rows), first)
    table = np.zeros((sites, clusters, clusters))
    np.add.at(table, (rng.integers(0, sites, rows), first, second), 1)
    return first, second, table


@pytest.mark.parametrize("clusters", [1, 2, 3, 8])
@pytest.mark.parametrize("moved", [0.0, 0.02, 0.1, 0.3, 1.0])
def test_of_rounded_overlaps_the_index_is_no_further_off_than_is_said(clusters, moved):
    """Of whole ones it is scikit-learn's; where sites are large the bound is close, and where they are small it holds.

    The rounded table's own index is too large, and further off than the likely one's.
    """
    rng = np.random.default_rng(clusters)
    for rows, times in ((12, 10), (60, 10), (600, 10), (20_000, 2)):
        off = []
        for _ in range(times):
            first, second, table = overlaps(rng, rows, clusters, moved)
            index, told = adjusted_rand_score(first, second), (table - table % STEP).sum(axis=0)
            assert adjusted_rand(table.sum(axis=0)) == pytest.approx(index, abs=1e-12)
            assert adjusted_rand_within(table.sum(axis=0), 0, 4) == (pytest.approx(index, abs=1e-12), 0)
            estimate, error = adjusted_rand_within(told, rows - told.sum(), 3 * (STEP - 1))
            assert abs(estimate - index) <= error + 1e-12
            assert error < 0.02 or rows < 20_000
            off.append((estimate - index, adjusted_rand(told) - index))
        likely, rounded = np.mean(off, axis=0)
        if rows == 600 and clusters == 8 and 0.02 < moved < 1:
            assert rounded > 0.1 > 3 * abs(likely)
