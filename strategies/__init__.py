"""Strategies of all methods, one file per paper: the protocol that runs at the coordinator."""

from typing import TYPE_CHECKING

from fedkernel.ground import lazily

if TYPE_CHECKING:
    from fedkernel.strategies.admm_kpca import ADMMKPCA
    from fedkernel.strategies.centroid_kmeans import CentroidKMeans
    from fedkernel.strategies.centroid_kpca import CentroidKPCA
    from fedkernel.strategies.diskpca import DisKPCA
    from fedkernel.strategies.dkpca import DKPCA
    from fedkernel.strategies.fk_kmeans import FKKMeans
    from fedkernel.strategies.peer_vfedpca import PeerVFedPCA
    from fedkernel.strategies.rfk_kmeans import RFKKMeans
    from fedkernel.strategies.spectral_kmeans import SpectralKMeans
    from fedkernel.strategies.uniform_kpca import UniformKPCA
    from fedkernel.strategies.vfedpca import VFedAKPCA, VFedPCA
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
