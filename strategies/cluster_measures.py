"""Cluster quality measures, from client sums, and warnings where clusters coincide with sites."""

from collections.abc import Sequence

import numpy as np

from fedkernel.clients.kmeans_base import CountClusters, MeasureClusters
from fedkernel.ground import FloatArray
from fedkernel.models import KernelKMeans
from fedkernel.numerics import AnyKernel, ratio_of_variances, site_agreement
from fedkernel.protocol import Member, Plan, Protocol, Run, any_width, once, to_all, to_sum
from fedkernel.strategy import Measures

COINCIDENT_NMI = 0.5
"""Normalised mutual information of clusters and sites above which a result warns that they coincide."""

MOST_AT_ONE_SITE, LARGE_SHARE_RATIO, LEAST_CLUSTER_ROWS = 0.9, 1.5, 20
"""Thresholds for a warning: share of a cluster at a site, its ratio to the site's share of all rows, known rows."""


def measure_clusters(run: Run, model: KernelKMeans) -> Protocol[Measures]:
    """Measure clusters on all rows; a sub-protocol, of two rounds, after `distributed_kmeans`.

    Up: M (s + 4) floats, which are summed, and M (k + 1); down none. Returns ``kmeans_objective``,
    ``calinski_harabasz`` and ``simplified_silhouette`` about the model's own centres, exact sums over all rows;
    ``site_nmi`` and ``smallest_cluster`` by the sizes that the clients send. Figures without a meaning are left out.
    """
    sums = yield from to_sum(MeasureClusters(kernel=model.embedding.kernel.settled(run.columns)))
    replies = yield from to_all(CountClusters())
    N, k = run.rows, len(model.centers_)
    scatter = sums.lengths - float(sums.sum @ sums.sum) / N
    figures: dict[str, float | None] = {"kmeans_objective": (max(sums.total - sums.lengths, 0.0) + sums.cost) / N}
    figures["calinski_harabasz"] = ratio_of_variances(scatter - sums.cost, sums.cost, k, N)
    figures["simplified_silhouette"] = sums.silhouette / N if k > 1 else None
    sizes = np.array([reply.sizes for reply in replies])
    figures["site_nmi"] = site_agreement(sizes) if np.count_nonzero(sizes.sum(axis=0)) > 1 else None
    figures["smallest_cluster"] = float(sizes.sum(axis=0).min())
    details = {
        f"cluster {cluster} at {member.label}": size
        for member, own in zip(run.members, sizes, strict=True)
        for cluster, size in enumerate(own.tolist())
    }
    named = {name: value for name, value in figures.items() if value is not None}
    return Measures(named, details, warnings=coincidence_warnings(run.members, sizes))


def measuring_plan(kernel: AnyKernel) -> Plan:
    """Return the plan of `measure_clusters`."""
    return once(MeasureClusters, kernel=any_width(kernel)), once(CountClusters, step=CountClusters().step)


def coincidence_warnings(members: Sequence[Member], sizes: FloatArray) -> list[str]:
    """Return warnings about clusters that coincide with sites, by the thresholds of this module."""
    warnings = []
    rows = np.array([member.rows for member in members], dtype=np.float64)
    shares = sizes / np.maximum(sizes.sum(axis=0), 1.0)
    for cluster, share in enumerate(shares.T):
        site = int(share.argmax())
        own = rows[site] / rows.sum()
        limit = max(MOST_AT_ONE_SITE, LARGE_SHARE_RATIO * own)
        if sizes[:, cluster].sum() >= LEAST_CLUSTER_ROWS and share[site] >= limit:
            warnings.append(
                f"{share[site]:.0%} of cluster {cluster} is at {members[site].label}, which has {own:.0%} of all rows"
                ": clusters coincide with sites (columns in other units, or measured in other ways?)"
            )
    if (agreement := site_agreement(sizes)) >= COINCIDENT_NMI:
        measure = f"their normalised mutual information is {agreement:.2f}, of 1 at most"
        warnings.append(f"clusters coincide with sites: {measure}")
    return warnings
