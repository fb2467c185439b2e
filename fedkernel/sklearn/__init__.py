"""Estimators with scikit-learn's interface: landmark methods on one machine, and federations of simulated sites."""

from typing import TYPE_CHECKING

from fedkernel.ground import lazily

if TYPE_CHECKING:
    from .federated_estimators import FederatedKernelKMeans, FederatedKernelPCA, FederatedPCA
    from .landmark_estimators import LandmarkKernelKMeans, LandmarkKernelPCA
else:
    __getattr__, __all__ = lazily(__name__)
