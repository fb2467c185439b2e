"""Client of centroid k-means: answers the requests for centres, and labels its rows in their span."""

from typing import ClassVar

from fedkernel.clients.centroid_kpca import CentroidKPCAClient, FindLocalCenters, SumCells, SumMoments
from fedkernel.clients.kmeans_base import CompareClusters, CountClusters, LabelRows, MeasureClusters
from fedkernel.clients.landmark_base import TakeComponents, TakeLandmarks
from fedkernel.clients.landmark_kmeans_base import LandmarkKMeansClient
from fedkernel.protocol import Answers


class CentroidKMeansClient(CentroidKPCAClient, LandmarkKMeansClient):
    """Client of centroid k-means, for a table of any kind.

    Memory between rounds: the landmarks, and the rows' coordinates, n_m s floats.
    """

    answers: ClassVar[Answers] = (
        *(SumMoments, SumCells, FindLocalCenters, TakeLandmarks, TakeComponents),
        *(LabelRows, MeasureClusters, CountClusters, CompareClusters),
    )
