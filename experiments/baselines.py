"""What federated results are held against: the same method with all data in one place, or each client alone."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedkernel.arrays import FloatArray
from fedkernel.errors import InputError
from fedkernel.metrics import compare_kernel_pca
from fedkernel.models import KernelPCA
from fedkernel.strategy import KernelStrategy
from strategies import DKPCA, VFedAKPCA, VFedPCA

METHODS: dict[str, type[KernelStrategy[KernelPCA]]] = {"PCA": VFedPCA, "KPCA": DKPCA, "AKPCA": VFedAKPCA}
"""Each method by the strategy whose central counterpart it is."""

BASELINES = [f"{place} {method}" for place in ("central", "isolated") for method in METHODS]
"""``central X``: all columns in one place. ``isolated X``: each client with its own columns only."""


class Baseline:
    """A baseline with its parameters.

    Parameters
    ----------
    method : str
        One of `BASELINES`.
    parameters : mapping
        Of the strategy behind it, as far as they matter here: ``n_components``, ``kernel``, ``center``.
    """

    def __init__(self, method: str, parameters: Mapping[str, Any]) -> None:
        if method not in BASELINES:
            raise InputError(f"method = {method!r}, but must be one of {', '.join(BASELINES)}")
        self.place, name = method.split(" ")
        self.strategy = METHODS[name](**parameters)

    def run(self, shards: Sequence[FloatArray], reference: KernelPCA) -> tuple[KernelPCA, dict[str, float]]:
        """Return a model and its errors against the reference.

        ``central`` is the reference itself. For ``isolated`` the errors are means over the clients, ``worst_error`` is
        the largest, and the model is client 0's.
        """
        if self.place == "central":
            return reference, dict.fromkeys(compare_kernel_pca(reference, reference), 0.0)
        models = [self.strategy.central([shard]) for shard in shards]
        found = [compare_kernel_pca(model, reference) for model in models]
        means = {name: float(np.mean([one[name] for one in found])) for name in found[0]}
        return models[0], means | {"worst_error": max(one["error"] for one in found)}

    def floats_up(self, shards: Sequence[FloatArray]) -> int:
        """Return what the baseline moves: every column to one place, or nothing."""
        return sum(shard.size for shard in shards) if self.place == "central" else 0
