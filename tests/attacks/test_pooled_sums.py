"""Sums give rows back above the limits and none below them; the short version of docs/results/pooled-sums.md."""

import sys
from pathlib import Path

import pytest
from cases import PAIRS

from fedkernel.protocol import TABLE_SHARE

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import pooled_attacks

QUICK = ("FKKMeans", "VFedPCA")
SITE, ROW = pooled_attacks.KINDS[1], pooled_attacks.KINDS[3]


def recovered(pair, share, kind):
    vertical = PAIRS[pair].partition == "vertical"
    requests = pooled_attacks.most_requests(pair, own := pooled_attacks.tables(vertical), share)
    rows = pooled_attacks.recover(own, requests, kind, vertical=vertical, seconds=20 if share > 1 else 1)
    return None if rows is None else rows.near


@pytest.mark.parametrize(
    "pair", [pytest.param(pair, marks=[pytest.mark.drill] * (pair not in QUICK)) for pair in PAIRS]
)
def test_no_row_follows_from_any_pair_s_sums_at_the_default_limit(pair):
    for kind in pooled_attacks.KINDS[:2]:
        assert (recovered(pair, TABLE_SHARE, kind) or 0.0) <= 0.1, "a guess is as near"


@pytest.mark.parametrize("pair", [pytest.param("FKKMeans", marks=pytest.mark.drill), "VFedPCA"])
def test_all_rows_follow_from_sums_of_more_numbers_than_entries(pair):
    assert recovered(pair, 8.0, SITE) == 1


def test_a_row_by_which_two_runs_differ_follows_at_any_limit():
    """Which `table.rows_apart` is for."""
    assert recovered("CentroidKPCA", TABLE_SHARE / 2, ROW) == 1
