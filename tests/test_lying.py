"""A site that lies once: the run ends with finite numbers, or with one sentence that names it and no other."""

import pytest
from lying import LIES, RUNS, classes, ending

# what other sites are handed on, or take from it, and what such numbers once did there: an honest one was named
FOUND = [
    ("ADMMKPCA", "PenaltyBound", "1e149"),
    ("ADMMKPCA", "OwnRows (letter)", "1e149"),
    ("ADMMKPCA", "Estimate (letter)", "1e149"),
    ("ADMMKPCA", "Projection (letter)", "-1e149"),
    ("ADMMKPCA, features, 2 components", "Features (letter)", "zeros"),
    ("DisKPCA, polynomial, auto", "DrawnRows", "1e149"),
    ("FKKMeans, lanczos", "LocalCoreset", "1e149"),
    ("RFKKMeans, scale", "EntrySum", "1e149"),
    ("RFKKMeans, widths", "LocalCosts", "misshapen"),
    ("UniformKPCA, prepared", "Cells", "1e75"),
    ("UniformKPCA, prepared", "Squares", "1e149"),
    ("VFedAKPCA, exact", "Product", "1e149"),
]
"""Runs, classes of replies, lies."""


@pytest.mark.parametrize(("name", "kind", "lie"), FOUND, ids=str)
def test_what_made_an_honest_site_look_like_the_liar(name, kind, lie):
    for seed in range(2):
        end, told, text = ending(name, kind, lie, seed)
        assert end in ("refused", "finished", "not told"), (told, text)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_with_a_lie_ends_finite_or_names_the_liar(name):
    """One lie of every second class: all of them, benchmarks/lying_sites.py."""
    told = 0
    for number, kind in enumerate(classes(name)):
        if number % 2 == 0:
            end, lie, text = ending(name, kind, list(LIES)[number % len(LIES)], seed=0)
            assert end in ("refused", "finished", "not told"), (lie, text)
            told += end != "not told"
    assert told
