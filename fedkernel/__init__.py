"""fedkernel: federated kernel methods on Flower. The strategies live in the package `strategies`."""

from fedkernel.arrays import FloatArray
from fedkernel.client import KernelClient
from fedkernel.errors import EngineError, FedkernelError, InputError, ProtocolError, value_object
from fedkernel.kernels import RBF, Laplacian, Linear, Polynomial, Sigmoid
from fedkernel.messages import Reply, Request, Shape
from fedkernel.models import KernelKMeans, KernelPCA, load_model
from fedkernel.protocol import Protocol, to_all, to_each
from fedkernel.result import Result
from fedkernel.strategy import KernelStrategy

__all__ = [
    "RBF",
    "EngineError",
    "FedkernelError",
    "FloatArray",
    "InputError",
    "KernelClient",
    "KernelKMeans",
    "KernelPCA",
    "KernelStrategy",
    "Laplacian",
    "Linear",
    "Polynomial",
    "Protocol",
    "ProtocolError",
    "Reply",
    "Request",
    "Result",
    "Shape",
    "Sigmoid",
    "load_model",
    "to_all",
    "to_each",
    "value_object",
]
