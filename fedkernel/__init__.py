"""fedkernel: federated kernel methods on Flower. The strategies live in the package `strategies`."""

from typing import TYPE_CHECKING

from fedkernel.ground import lazily

if TYPE_CHECKING:
    from fedkernel.data import Prepare
    from fedkernel.ground import EngineError, FedkernelError, FloatArray, InputError, ProtocolError, value_object
    from fedkernel.models import KernelKMeans, KernelPCA, load_model
    from fedkernel.numerics import RBF, ArcCosine, Kernel, Laplacian, Linear, Polynomial, Sigmoid
    from fedkernel.peers import (
        CarriesLetters,
        Letter,
        Letters,
        Mail,
        PeerClient,
        Topology,
        agree_keys,
        keys_plan,
        sort_mail,
    )
    from fedkernel.protocol import (
        AtMost,
        Forecast,
        KernelClient,
        Member,
        Plan,
        Protocol,
        Reply,
        Request,
        Run,
        Shape,
        State,
        Summed,
        any_width,
        ask,
        instead,
        once,
        repeated,
        to_all,
        to_each,
        to_sum,
    )
    from fedkernel.run import Result
    from fedkernel.strategy import KernelStrategy, Tags
else:
    __getattr__, _ = lazily(__name__)
from fedkernel.ground import check_packages, installed_version

__all__ = [
    "RBF",
    "ArcCosine",
    "AtMost",
    "CarriesLetters",
    "EngineError",
    "FedkernelError",
    "FloatArray",
    "Forecast",
    "InputError",
    "Kernel",
    "KernelClient",
    "KernelKMeans",
    "KernelPCA",
    "KernelStrategy",
    "Laplacian",
    "Letter",
    "Letters",
    "Linear",
    "Mail",
    "Member",
    "PeerClient",
    "Plan",
    "Polynomial",
    "Prepare",
    "Protocol",
    "ProtocolError",
    "Reply",
    "Request",
    "Result",
    "Run",
    "Shape",
    "Sigmoid",
    "State",
    "Summed",
    "Tags",
    "Topology",
    "agree_keys",
    "any_width",
    "ask",
    "instead",
    "keys_plan",
    "load_model",
    "once",
    "repeated",
    "sort_mail",
    "to_all",
    "to_each",
    "to_sum",
    "value_object",
]

__version__ = installed_version()

# These top-level names are common: other packages under them would make later imports fail obscurely.
check_packages("clients", "strategies", "experiments")
