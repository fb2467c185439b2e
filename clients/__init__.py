"""What runs at a site: one file per paper, each the whole of what can leave the site."""

from clients.dkpca import DKPCAClient
from clients.vfedpca import VFedPCAClient
from fedkernel.client import KernelClient

__all__ = ["DKPCAClient", "VFedPCAClient"]

REGISTRY: dict[str, type[KernelClient]] = {name: globals()[name] for name in __all__}
"""The clients a site is willing to run, by class name."""
