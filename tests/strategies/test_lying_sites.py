"""A site that lies once: the run ends with finite numbers, or with one sentence that names it and no other."""

import pytest
from lying import LIES, classes, ending

# what other sites are handed on, or take from it, and what such numbers once did there: an honest one was named
FOUND = [
    ("ADMMKPCA", "OwnRows (letter)", "1e149", 1),
    ("ADMMKPCA", "Estimate (letter)", "1e149", 4),
    ("ADMMKPCA", "Projection (letter)", "-1e149", 0),
    ("ADMMKPCA, features, 2 components", "Features (letter)", "zeros", 0),
    ("DisKPCA", "DrawnRows", "times 1e-300", 3),
    ("DisKPCA, polynomial, auto", "DrawnRows", "1e149", 0),
    ("FKKMeans, lanczos", "LocalCoreset", "1e149", 0),
    ("FKKMeans, without CEM", "FeatureSums", "1e150", 0),
    ("PeerVFedPCA, relays", "RelayedVectors (letter)", "not whole", 2),
    ("RFKKMeans, median", "EmbeddedCellSums", "1e75", 0),
    ("RFKKMeans, scale", "EntrySum", "1e149", 0),
    ("UniformKPCA, batch", "DrawnRows", "1e20", 4),
    ("UniformKPCA, prepared", "Cells", "1e75", 0),
    ("UniformKPCA, prepared", "Squares", "1e149", 0),
    ("VFedAKPCA, exact", "Product", "1e149", 0),
]
"""Runs, classes of replies, lies, seeds."""


@pytest.mark.parametrize(("name", "kind", "lie", "seed"), FOUND)
def test_what_made_an_honest_site_look_like_the_liar(name, kind, lie, seed):
    end, lies, text = ending(name, kind, lie, seed)
    assert end in ("refused", "finished"), (lies, text)


@pytest.mark.parametrize("name", ["DKPCA", "VFedPCA", "PeerVFedPCA, exact", "SpectralKMeans"])
def test_a_run_with_a_lie_ends_finite_or_names_the_liar(name):
    """A lie of each class, of the pairs above there are some already; all of them: benchmarks/lying_sites.py."""
    told = 0
    for number, kind in enumerate(classes(name)):
        end, lie, text = ending(name, kind, list(LIES)[number % len(LIES)], seed=0)
        assert end in ("refused", "finished", "not told"), (lie, text)
        told += end != "not told"
    assert told
