"""What a site does, and all that can leave it, in distributed k-means of embedded rows.

Source: Balcan, Ehrlich, Liang: Distributed k-Means and k-Median Clustering on General Topologies, NIPS 2013,
algorithm 1. A pair whose client embeds its rows inherits these requests; where the embedding is kernel-made,
this is kernel k-means.
"""

from typing import Annotated

import numpy as np
from pydantic import Field

from fedkernel.arrays import FloatArray
from fedkernel.client import KernelClient
from fedkernel.clustering import assign, coreset, k_means
from fedkernel.messages import Count, Done, Reply, Request, Shape


class LocalCost(Reply):
    """Sum of squared distances of the site's embedded rows to its own k centres: 1 float."""

    cost: Annotated[FloatArray, Shape("one")]


class SolveLocally(Request[LocalCost]):
    """Asks for a local k-means solution, of which only the cost leaves the site."""

    n_clusters: Count

    def known_dimensions(self) -> dict[str, int]:
        """Settle that the cost is one number."""
        return {"one": 1}


class LocalCoreset(Reply):
    """Weighted points that stand for the site's rows: (samples + k) (s + 1) floats, n_m (s + 1) at most.

    Reveals the coordinates of some embedded rows as they are, and the site's cluster centres and sizes. From s
    coordinates of a row its attributes do not follow, but rows that are alike are seen to be.
    """

    points: Annotated[FloatArray, Shape("c_m", "s")]
    weights: Annotated[FloatArray, Shape("c_m")]


class SampleCoreset(Request[LocalCoreset]):
    """Asks for so many sampled points, and the local centres."""

    samples: Annotated[int, Field(ge=0, le=1_000_000)]


class LabelRows(Request[Done]):
    """Hands the common centres over, by which the site labels its rows; the labels stay there."""

    centers: Annotated[FloatArray, Shape("k", "s")]


class KMeansClient(KernelClient):
    """Answers for the rows that ``memory["embedding"]``, (n_m, s), holds, which a subclass puts there.

    Memory between rounds: besides these, the k local centres.
    """

    def solve_locally(self, ask: SolveLocally) -> LocalCost:
        """Compute a local solution of constant approximation ratio: k-means++ and Lloyd's iterations."""
        H = self._embedded()
        centers = k_means(H, ask.n_clusters, self.rng("local k-means"))
        self.memory["local_centers"] = centers
        return LocalCost(cost=np.array([assign(H, centers)[1].sum()]))

    def sample_coreset(self, ask: SampleCoreset) -> LocalCoreset:
        """Sample by cost, and add the centres with what the samples do not stand for."""
        points, weights = coreset(self._embedded(), self.remembered("local_centers"), ask.samples, self.rng("coreset"))
        return LocalCoreset(points=points, weights=weights)

    def label_rows(self, ask: LabelRows) -> Done:
        """Keep labels of shape (n_m,) and the embedding on the site."""
        H = self._embedded()
        self.outputs["labels"] = assign(H, ask.centers)[0]
        self.outputs["embedding"] = H
        return Done()

    def _embedded(self) -> FloatArray:
        return self.remembered("embedding")
