"""Client of spectral clustering: answers the requests of disKPCA, then those of distributed k-means."""

from clients.diskpca import LOW_RANK_REQUESTS, DisKPCAClient
from clients.kmeans_base import CLUSTER_REQUESTS, Embedding, KMeansClient
from clients.landmark_base import TakeComponents
from fedkernel.numerics import AnyKernel
from fedkernel.protocol import Receipt


class SpectralKMeansClient(DisKPCAClient, KMeansClient):
    """Client of spectral clustering; memory between rounds: disKPCA's, and the rows' coordinates, n_m k floats."""

    answers = (*LOW_RANK_REQUESTS, *CLUSTER_REQUESTS)

    def take_components(self, ask: TakeComponents) -> Receipt:
        """Store the components' coefficients, and the rows' coordinates as the embedding for k-means."""
        receipt = super().take_components(ask)
        Embedding(self.outputs["embedding"]).save(self.memory)
        return receipt

    def _squared_lengths(self, kernel: AnyKernel) -> float:
        return float(sum(kernel.diag(block).sum() for _, block in self._blocks("float64")))
