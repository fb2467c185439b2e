"""Strategies of all methods, one file per paper: the protocol that runs at the coordinator."""

from typing import TYPE_CHECKING

from fedkernel.ground import lazily

if TYPE_CHECKING:
    from strategies.admm_kpca import ADMMKPCA
    from strategies.centroid_kmeans import CentroidKMeans
    from strategies.centroid_kpca import CentroidKPCA
    from strategies.diskpca import DisKPCA
    from strategies.dkpca import DKPCA
    from strategies.fk_kmeans import FKKMeans
    from strategies.peer_vfedpca import PeerVFedPCA
    from strategies.rfk_kmeans import RFKKMeans
    from strategies.spectral_kmeans import SpectralKMeans
    from strategies.uniform_kpca import UniformKPCA
    from strategies.vfedpca import VFedAKPCA, VFedPCA
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
