"""fedkernel: federated kernel methods on Flower."""

from typing import TYPE_CHECKING

from fedkernel.ground import lazily

if TYPE_CHECKING:
    from .data import Prepare
    from .ground import EngineError, FedkernelError, FloatArray, InputError, ProtocolError, value_object
    from .models import KernelKMeans, KernelPCA, load_model
    from .numerics import RBF, ArcCosine, Kernel, Laplacian, Linear, Polynomial, Sigmoid
    from .peers import CarriesLetters, Letter, Letters, Mail, PeerClient, Topology, agree_keys, keys_plan, sort_mail
    from .protocol import (
        AtMost,
        Forecast,
        KernelClient,
        Member,
        Plan,
        Privacy,
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
    from .run import Result, show_progress
    from .strategies import (
        ADMMKPCA,
        DKPCA,
        CentroidKMeans,
        CentroidKPCA,
        DisKPCA,
        FKKMeans,
        PeerVFedPCA,
        RFKKMeans,
        SpectralKMeans,
        UniformKPCA,
        VFedAKPCA,
        VFedPCA,
    )
    from .strategy import KernelStrategy, Tags
else:
    __getattr__, _ = lazily(__name__)
import sys
from pathlib import Path

from fedkernel.ground import PACKAGES_FOLDER, FormerNames, installed_version

__all__ = [
    "ADMMKPCA",
    "DKPCA",
    "RBF",
    "ArcCosine",
    "AtMost",
    "CarriesLetters",
    "CentroidKMeans",
    "CentroidKPCA",
    "DisKPCA",
    "EngineError",
    "FKKMeans",
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
    "PeerVFedPCA",
    "Plan",
    "Polynomial",
    "Prepare",
    "Privacy",
    "Protocol",
    "ProtocolError",
    "RFKKMeans",
    "Reply",
    "Request",
    "Result",
    "Run",
    "Shape",
    "Sigmoid",
    "SpectralKMeans",
    "State",
    "Summed",
    "Tags",
    "Topology",
    "UniformKPCA",
    "VFedAKPCA",
    "VFedPCA",
    "agree_keys",
    "any_width",
    "ask",
    "instead",
    "keys_plan",
    "load_model",
    "once",
    "repeated",
    "show_progress",
    "sort_mail",
    "to_all",
    "to_each",
    "to_sum",
    "value_object",
]

__version__ = installed_version()

if not Path(__path__[0], "strategies").is_dir():  # a Flower bundle, or a clone without links: they lie beside us
    __path__.append(str(PACKAGES_FOLDER))
sys.meta_path.insert(0, FormerNames("clients", "strategies", "experiments"))
