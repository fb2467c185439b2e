"""What the coordinator runs: one file per paper."""

import clients  # noqa: F401 - before its modules and fedkernel's: see clients/__init__.py
from strategies.admm_kpca import ADMMKPCA
from strategies.diskpca import DisKPCA
from strategies.dkpca import DKPCA
from strategies.fk_kmeans import FKKMeans
from strategies.peer_vfedpca import PeerVFedPCA
from strategies.rfk_kmeans import RFKKMeans
from strategies.spectral_kmeans import SpectralKMeans
from strategies.uniform_kpca import UniformKPCA
from strategies.vfedpca import VFedAKPCA, VFedPCA

__all__ = [
    "ADMMKPCA",
    "DKPCA",
    "DisKPCA",
    "FKKMeans",
    "PeerVFedPCA",
    "RFKKMeans",
    "SpectralKMeans",
    "UniformKPCA",
    "VFedAKPCA",
    "VFedPCA",
]
