"""Base class of clients that cluster their rows by coordinates in the span of landmarks."""

from typing import ClassVar

from fedkernel.clients.kmeans_base import CLUSTER_REQUESTS, Embedding, KMeansClient
from fedkernel.clients.landmark_base import LandmarkClient, TakeComponents, TakeLandmarks
from fedkernel.numerics import AnyKernel
from fedkernel.protocol import Answers, Done


class LandmarkKMeansClient(LandmarkClient, KMeansClient):
    """Client of k-means in the span of landmarks. Memory: the landmarks, and the rows' coordinates (n_m k floats)."""

    answers: ClassVar[Answers] = (TakeLandmarks, TakeComponents, *CLUSTER_REQUESTS)

    def take_components(self, ask: TakeComponents) -> Done:
        """Store the components' coefficients, and the rows' coordinates as the embedding for k-means."""
        receipt = super().take_components(ask)
        Embedding(self.outputs["embedding"]).save(self.memory)
        return receipt

    def _squared_lengths(self, kernel: AnyKernel) -> float:
        return float(sum(kernel.diag(block).sum() for _, block in self._blocks("float64")))
