"""Whoever sets nothing gets a good answer, or is told; the short version of docs/results/defaults.md."""

import dataclasses
import importlib.util
import sys
from pathlib import Path

import pytest
from grids import in_turn

PATH = Path(__file__).parents[2] / "benchmarks" / "defaults.py"
SPEC = importlib.util.spec_from_file_location("defaults", PATH)
defaults = importlib.util.module_from_spec(SPEC)
sys.modules["defaults"] = defaults
SPEC.loader.exec_module(defaults)

TABLES = {"digits": (800, False), "breast_cancer": (400, True)}
SLACK = 0.05
"""Errors that nobody minds, of which a setting may have more than twice as much as another."""
COSTS = {"floats", "rows", "table"}
"""Findings that say nothing of the error."""


def run(name, data, careful):
    pair, (rows, standardised) = defaults.PAIRS[name], TABLES[data]
    strategy = pair.make(defaults.BUNDLED[data])
    if careful:
        strategy = dataclasses.replace(strategy, **pair.careful)
    rows = rows if pair.figure == "error_ratio" else min(rows, 160)
    table = defaults.table_of(data, standardised=standardised, rows=rows)
    shards = defaults.sites_of(table, strategy.partition, few=standardised)
    return defaults.outcome(strategy, shards, pair.figure), shards


@pytest.mark.parametrize(("name", "data"), in_turn(defaults.PAIRS, TABLES, every=2))
def test_no_pair_is_worse_than_twice_its_best_or_sends_more_than_pooling_unless_it_says_so(name, data):
    (usual, shards), (best, _) = run(name, data, careful=False), run(name, data, careful=True)
    if not usual.kinds.keys() - COSTS:
        assert usual.error <= 2 * best.error + SLACK
    assert (usual.floats > 1) == ("floats" in usual.kinds)
    assert usual.rounds < 30 or name != "FKKMeans"
    if "n_adaptive" in str(defaults.PAIRS[name].careful) or "n_samples" in defaults.PAIRS[name].careful:
        assert "rows" not in usual.kinds
        assert 10 * usual.rows <= sum(map(len, shards))
        # and who names twice as many is told
        assert "rows" in best.kinds
