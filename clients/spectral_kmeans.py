"""Client of spectral clustering: answers the requests of disKPCA, then those of distributed k-means."""

from clients.diskpca import (
    DisKPCAClient,
    DrawByDistance,
    DrawByLeverage,
    DrawUniformly,
    MeasureDistances,
    MultiplyKernel,
    MultiplyPoints,
    ScoreRows,
    SketchKernel,
    SketchPoints,
    TakeComponents,
    TakeLandmarks,
)
from clients.kmeans_base import (
    CompareClusters,
    CountClusters,
    Embedding,
    KMeansClient,
    LabelRows,
    MeasureClusters,
    SampleCoreset,
    SolveLocally,
)
from fedkernel.numerics import AnyKernel
from fedkernel.protocol import Receipt


class SpectralKMeansClient(DisKPCAClient, KMeansClient):
    """Client of spectral clustering; memory between rounds: disKPCA's, and the rows' coordinates, n_m k floats."""

    answers = (
        *(SketchPoints, MultiplyPoints, ScoreRows, DrawByLeverage, MeasureDistances, DrawByDistance, DrawUniformly),
        *(TakeLandmarks, SketchKernel, MultiplyKernel, TakeComponents, SolveLocally, SampleCoreset, LabelRows),
        *(MeasureClusters, CountClusters, CompareClusters),
    )

    def take_components(self, ask: TakeComponents) -> Receipt:
        """Store the components' coefficients, and the rows' coordinates as the embedding for k-means."""
        receipt = super().take_components(ask)
        Embedding(self.outputs["embedding"]).save(self.memory)
        return receipt

    def _squared_lengths(self, kernel: AnyKernel) -> float:
        return float(sum(kernel.diag(block).sum() for _, block in self._blocks("float64")))
