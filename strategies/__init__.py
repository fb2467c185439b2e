"""Strategies of all methods, one file per paper: the protocol that runs at the coordinator."""

from typing import TYPE_CHECKING

from fedkernel.ground import lazily

if TYPE_CHECKING:
    from .admm_kpca import ADMMKPCA
    from .centroid_kmeans import CentroidKMeans
    from .centroid_kpca import CentroidKPCA
    from .diskpca import DisKPCA
    from .dkpca import DKPCA
    from .fk_kmeans import FKKMeans
    from .peer_vfedpca import PeerVFedPCA
    from .rfk_kmeans import RFKKMeans
    from .spectral_kmeans import SpectralKMeans
    from .uniform_kpca import UniformKPCA
    from .vfedpca import VFedAKPCA, VFedPCA
else:
    __getattr__, _ = lazily(__name__)

__all__ = [
    "ADMMKPCA",
    "DKPCA",
    "CentroidKMeans",
    "CentroidKPCA",
    "DisKPCA",
    "FKKMeans",
    "PeerVFedPCA",
    "RFKKMeans",
    "SpectralKMeans",
    "UniformKPCA",
    "VFedAKPCA",
    "VFedPCA",
]
