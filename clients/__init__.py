"""Clients of all methods, one file per paper: the code at a site, with all requests and replies."""

from typing import TYPE_CHECKING

from fedkernel.ground import lazily

if TYPE_CHECKING:
    from clients.admm_kpca import ADMMKPCAClient
    from clients.centroid_kmeans import CentroidKMeansClient
    from clients.centroid_kpca import CentroidKPCAClient
    from clients.diskpca import DisKPCAClient
    from clients.dkpca import DKPCAClient
    from clients.fk_kmeans import FKKMeansClient
    from clients.peer_vfedpca import PeerVFedPCAClient
    from clients.spectral_kmeans import SpectralKMeansClient
    from clients.vfedpca import VFedPCAClient
else:
    __getattr__, __all__ = lazily(__name__)
