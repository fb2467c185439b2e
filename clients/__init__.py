"""Clients of all methods, one file per paper: the code at a site, with all requests and replies."""

from typing import TYPE_CHECKING

from fedkernel.ground import lazily

if TYPE_CHECKING:
    from fedkernel.clients.admm_kpca import ADMMKPCAClient
    from fedkernel.clients.centroid_kmeans import CentroidKMeansClient
    from fedkernel.clients.centroid_kpca import CentroidKPCAClient
    from fedkernel.clients.diskpca import DisKPCAClient
    from fedkernel.clients.dkpca import DKPCAClient
    from fedkernel.clients.fk_kmeans import FKKMeansClient
    from fedkernel.clients.peer_vfedpca import PeerVFedPCAClient
    from fedkernel.clients.spectral_kmeans import SpectralKMeansClient
    from fedkernel.clients.vfedpca import VFedPCAClient
else:
    __getattr__, __all__ = lazily(__name__)
