"""fedkernel: federated kernel methods on Flower. Strategies live in the package `strategies`."""

from fedkernel.kernels import RBF, Laplacian, Linear, Polynomial, Sigmoid
from fedkernel.models import KernelPCA

__all__ = ["RBF", "KernelPCA", "Laplacian", "Linear", "Polynomial", "Sigmoid"]
