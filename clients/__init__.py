"""Clients of all methods, one file per paper: the code at a site, with all requests and replies."""

from typing import TYPE_CHECKING

from fedkernel.ground import lazily

if TYPE_CHECKING:
    from .admm_kpca import ADMMKPCAClient
    from .centroid_kmeans import CentroidKMeansClient
    from .centroid_kpca import CentroidKPCAClient
    from .diskpca import DisKPCAClient
    from .dkpca import DKPCAClient
    from .fk_kmeans import FKKMeansClient
    from .peer_vfedpca import PeerVFedPCAClient
    from .spectral_kmeans import SpectralKMeansClient
    from .vfedpca import VFedPCAClient
else:
    __getattr__, __all__ = lazily(__name__)
