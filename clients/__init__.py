"""What runs at a site: one file per paper, each the whole of what can leave the site."""

# In Flower's simulation the server's thread and the clients' import what a job names at once. A package before its
# modules: a thread that holds a module's import lock while it waits for the package's would be a deadlock, which Python
# breaks by a half-made module.
import fedkernel  # noqa: F401
from clients.admm_kpca import ADMMKPCAClient
from clients.diskpca import DisKPCAClient
from clients.dkpca import DKPCAClient
from clients.fk_kmeans import FKKMeansClient
from clients.peer_vfedpca import PeerVFedPCAClient
from clients.spectral_kmeans import SpectralKMeansClient
from clients.vfedpca import VFedPCAClient

__all__ = [
    "ADMMKPCAClient",
    "DKPCAClient",
    "DisKPCAClient",
    "FKKMeansClient",
    "PeerVFedPCAClient",
    "SpectralKMeansClient",
    "VFedPCAClient",
]
