"""Client of spectral clustering: answers the requests of disKPCA, then those of distributed k-means."""

from fedkernel.clients.diskpca import LOW_RANK_REQUESTS, DisKPCAClient
from fedkernel.clients.kmeans_base import CLUSTER_REQUESTS
from fedkernel.clients.landmark_kmeans_base import LandmarkKMeansClient


class SpectralKMeansClient(DisKPCAClient, LandmarkKMeansClient):
    """Client of spectral clustering. Memory between rounds: disKPCA's, and the rows' coordinates (n_m k floats)."""

    answers = (*LOW_RANK_REQUESTS, *CLUSTER_REQUESTS)
