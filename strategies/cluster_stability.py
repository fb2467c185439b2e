"""Agreement of a run's clusters with those of an earlier run with a different seed, stored at the sites."""

import numpy as np

from fedkernel.clients.kmeans_base import CompareClusters
from fedkernel.ground import ProtocolError
from fedkernel.numerics import adjusted_rand_within
from fedkernel.protocol import Protocol, Run, to_sum
from fedkernel.strategy import Measures

LARGE_ERROR = 0.1
"""Error of the index above which a result warns of it."""


def compare_clusters(run: Run, earlier: str, n_clusters: int) -> Protocol[Measures]:
    """Compare the clusters of all rows with an earlier run's clusters; a sub-protocol, of one round, at the end.

    Up: M (k^2 + 1) floats, which are summed; down none. The labels stay at the sites, and so do overlaps of fewer than
    5 rows: the index is therefore one of a likely table, see `fedkernel.numerics.adjusted_rand_within`. ``n_clusters``
    is the most that either run has. ``stability`` is the adjusted Rand index, ``stability_error`` its largest error.
    """
    shared = yield from to_sum(CompareClusters(run=earlier, n_clusters=n_clusters))
    missing = run.rows - float(shared.sizes.sum())
    if not 0 <= missing <= shared.slack * np.size(shared.sizes):
        raise ProtocolError(f"CompareClusters: {missing:g} of {run.rows} rows are in no pair of clusters")
    if min(int(np.count_nonzero(shared.sizes.sum(axis=axis))) for axis in (0, 1)) == 1:
        return Measures({}, warnings=["stability is not measured: a run has all rows in one cluster"])
    agreement = adjusted_rand_within(shared.sizes, missing, shared.slack)
    vague = (
        f"stability is {agreement.estimate:.2f}, with an error of up to {agreement.error:.2f}: sites round the "
        f"rows that clusters share to steps, too coarse for {run.rows} rows"
    )
    figures = {"stability": agreement.estimate, "stability_error": agreement.error}
    return Measures(figures, warnings=[vague] if agreement.error >= LARGE_ERROR else [])
