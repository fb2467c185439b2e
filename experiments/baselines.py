"""What federated results are held against: the same method with all data in one place, or each client alone."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkernel.arrays import FloatArray
from fedkernel.clustering import assign
from fedkernel.errors import InputError
from fedkernel.kernel_kmeans import nystroem_kernel_kmeans
from fedkernel.metrics import compare_classes, compare_kernel_pca, training_of
from fedkernel.models import KernelKMeans, KernelPCA, Model
from fedkernel.strategy import KernelStrategy
from strategies import DKPCA, FKKMeans, VFedAKPCA, VFedPCA

Classes = Sequence[npt.NDArray[Any]] | None
"""The data set's labels of each client's rows, where it has some and rows are what is divided."""

METHODS: dict[str, type[KernelStrategy[Any]]] = {
    "PCA": VFedPCA,
    "KPCA": DKPCA,
    "AKPCA": VFedAKPCA,
    "kernel k-means": FKKMeans,
}
"""Each method by the strategy whose central counterpart it is."""

PLACES = {
    "central": "all data in one place",
    "isolated": "each client with its own data only",
    "Nystroem": "all data in one place, the kernel matrix approximated from n_landmarks = 500 rows",
}

BASELINES = {
    f"{place} {method}": told
    for place, told in PLACES.items()
    for method in METHODS
    if place != "Nystroem" or method == "kernel k-means"
}
"""Every baseline, and what it is; ``central kernel k-means`` and the Nystroem one are the FK paper's CK and SK."""


class Baseline:
    """A baseline with its parameters.

    Parameters
    ----------
    method : str
        One of `BASELINES`.
    parameters : mapping
        Of the strategy behind it, as far as they matter here: ``n_components``, ``kernel``, ``center``,
        ``n_clusters``; for Nystroem also ``n_landmarks``.
    """

    def __init__(self, method: str, parameters: Mapping[str, Any]) -> None:
        if method not in BASELINES:
            raise InputError(f"method = {method!r}, but must be one of {', '.join(BASELINES)}")
        self.place, name = method.split(" ", 1)
        own = dict(parameters)
        self.n_landmarks = own.pop("n_landmarks", 500) if self.place == "Nystroem" else 0
        if type(self.n_landmarks) is not int:
            raise InputError(f"n_landmarks = {self.n_landmarks!r}, but must be a whole number")
        if METHODS[name] is FKKMeans:
            own.setdefault("penalty", 0.0)  # of the iteration that is not made, whose n_features would limit n_clusters
        self.strategy = METHODS[name](**own)

    def check(self, shards: Sequence[FloatArray]) -> None:
        """Refuse more dimensions or landmarks than there are rows; `run` would do so only when its turn comes."""
        if not isinstance(self.strategy, FKKMeans):
            return
        rows, s = [len(shard) for shard in shards], self.strategy.dimensions
        if self.place == "Nystroem" and not s <= self.n_landmarks <= sum(rows):
            raise InputError(
                f"n_landmarks = {self.n_landmarks}, but must be from n_components = {s} to the rows' number, "
                f"{sum(rows)}"
            )
        if s > (most := min(rows) if self.place == "isolated" else sum(rows)):
            whose = ", since each client clusters its own" if self.place == "isolated" else ""
            raise InputError(f"n_components = {s}, but must be at most the number of rows, {most}{whose}")

    def run(
        self, shards: Sequence[FloatArray], reference: Model | None, classes: Classes = None, seed: int = 0
    ) -> tuple[Model, dict[str, float]]:
        """Return a model and its errors against the reference, where there is one.

        ``central`` is the reference itself. For ``isolated`` the figures are means over the clients, ``worst_error`` is
        the largest error, and the model is client 0's.
        """
        if isinstance(self.strategy, FKKMeans):
            return self._cluster(self.strategy, shards, reference, classes, seed)
        if self.place == "central":
            model: KernelPCA = reference if isinstance(reference, KernelPCA) else self.strategy.central(shards)
            return model, dict.fromkeys(compare_kernel_pca(model, model), 0.0)
        models: list[KernelPCA] = [self.strategy.central([shard]) for shard in shards]
        if not isinstance(reference, KernelPCA):
            return models[0], {}
        found = [compare_kernel_pca(model, reference) for model in models]
        return models[0], _means(found) | {"worst_error": max(one["error"] for one in found)}

    def _cluster(
        self,
        strategy: FKKMeans,
        shards: Sequence[FloatArray],
        reference: Model | None,
        classes: Classes,
        seed: int,
    ) -> tuple[KernelKMeans, dict[str, float]]:
        if self.place == "isolated":
            models = [strategy.central([shard]) for shard in shards]
            told = zip(models, classes or (), strict=False)
            return models[0], _means([compare_classes(_labels(model), own) for model, own in told])
        if self.place == "Nystroem":
            X = np.vstack(list(shards))
            kernel = strategy.central_kernel(X)
            model = nystroem_kernel_kmeans(
                X, kernel, strategy.n_clusters, strategy.dimensions, n_landmarks=self.n_landmarks, seed=seed
            )
        else:
            model = reference if isinstance(reference, KernelKMeans) else strategy.central(shards)
        compared = strategy.compare(model, reference, shards) if isinstance(reference, KernelKMeans) else {}
        return model, compared | ({} if classes is None else compare_classes(_labels(model), np.concatenate(classes)))

    def floats_up(self, shards: Sequence[FloatArray]) -> int:
        """Return what the baseline moves: everything to one place, or nothing."""
        return 0 if self.place == "isolated" else sum(shard.size for shard in shards)


def _labels(model: KernelKMeans) -> npt.NDArray[np.int64]:
    """Return the labels of the training rows of a central model, which holds their coordinates."""
    return assign(training_of(model), model.centers_)[0]


def _means(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]} if found else {}
