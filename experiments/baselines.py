"""What federated results are held against: the same method with all data in one place, or each client alone."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from fedkernel.clustering import assign
from fedkernel.directions import Directions
from fedkernel.errors import InputError
from fedkernel.kernel_kmeans import nystroem_kernel_kmeans
from fedkernel.metrics import compare_classes, compare_kernel_pca, training_of
from fedkernel.models import KernelKMeans, KernelPCA, LandmarkPCA, Model
from fedkernel.strategy import KernelStrategy
from strategies import ADMMKPCA, DKPCA, DisKPCA, FKKMeans, VFedAKPCA, VFedPCA

T = TypeVar("T")

Classes = Sequence[npt.NDArray[Any]] | None
"""The data set's labels of each client's rows, where it has some and rows are what is divided."""

METHODS: dict[str, type[KernelStrategy[Any]]] = {
    "PCA": VFedPCA,
    "KPCA": DKPCA,
    "AKPCA": VFedAKPCA,
    "batch KPCA": DisKPCA,
    "kernel k-means": FKKMeans,
    "network KPCA": ADMMKPCA,
}
"""Each method by the strategy whose central counterpart it is."""

PLACES = {
    "central": "all data in one place",
    "isolated": "each client with its own data only",
    "pooled": "each client with its own data and those of its neighbours in the network",
    "Nystroem": "all data in one place, the kernel matrix approximated from n_landmarks = 500 rows",
}

BASELINES = {
    f"{place} {method}": told
    for place, told in PLACES.items()
    for method in METHODS
    if method in {"Nystroem": ["kernel k-means"], "pooled": ["network KPCA"]}.get(place, list(METHODS))
    and (place, method) != ("central", "network KPCA")
}
"""Every baseline, and what it is; ``central kernel k-means`` and the Nystroem one are the FK paper's CK and SK."""


class Done(NamedTuple):
    """What a baseline came to.

    Attributes
    ----------
    model : Model
        Of an isolated baseline client 0's.
    metrics : dict of str to float
    took : list of Took
        What finding the model took, or each client's.
    """

    model: Model
    metrics: dict[str, float]
    took: list["Took"]


class Took(NamedTuple):
    """Seconds of a computation: on the clock, and of its thread's processor, as sites tell them.

    The second do not count what else the machine does.
    """

    clock: float = 0.0
    processor: float = 0.0


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
        if METHODS[name] is DisKPCA:
            own.setdefault("share_rows", True)  # of the protocol that is not run, which would refuse to begin
        if METHODS[name] is ADMMKPCA:
            own.setdefault("share_rows", True)
        self.strategy = METHODS[name](**own)

    def check(self, shards: Sequence[Any]) -> None:
        """Refuse more dimensions or landmarks than there are rows; `run` would do so only when its turn comes."""
        if not isinstance(self.strategy, FKKMeans):
            return
        rows, s = [shard.shape[0] for shard in shards], self.strategy.dimensions
        if self.place == "Nystroem" and not s <= self.n_landmarks <= sum(rows):
            raise InputError(
                f"n_landmarks = {self.n_landmarks}, but must be from n_components = {s} to the rows' number, "
                f"{sum(rows)}"
            )
        if s > (most := min(rows) if self.place == "isolated" else sum(rows)):
            whose = ", since each client clusters its own" if self.place == "isolated" else ""
            raise InputError(f"n_components = {s}, but must be at most the number of rows, {most}{whose}")

    def run(self, shards: Sequence[Any], reference: Model | None, classes: Classes = None, seed: int = 0) -> Done:
        """Return a model, its errors against the reference, where there is one, and the seconds that it took.

        ``central`` is the reference itself. For ``isolated`` the figures are means over the clients, ``worst_error`` is
        the largest error, and the model is client 0's; batch KPCA measures each client's components on all rows, and a
        client with fewer rows than components has as many components as rows.
        """
        if isinstance(self.strategy, FKKMeans):
            return self._cluster(self.strategy, shards, reference, classes, seed)
        if isinstance(self.strategy, ADMMKPCA):
            return self._network(self.strategy, shards, reference)
        if self.place == "central":
            model, took = (reference, Took()) if reference is not None else timed(self.strategy.central, shards)
            return Done(model, self._exact(model, shards), [took])
        own = [timed(self._alone, shard) for shard in shards]
        models = [model for model, _ in own]
        if isinstance(reference, KernelPCA | LandmarkPCA):
            compare = self.strategy.compare if isinstance(reference, LandmarkPCA) else _of_kernel_pca
            found = [compare(model, reference, shards) for model in models]
            metrics = _means(found) | {"worst_error": max(one["error"] for one in found)}
        else:
            metrics = _means([self.strategy.measure(model, shards) for model in models])
        return Done(models[0], metrics, [took for _, took in own])

    def _network(self, strategy: ADMMKPCA, shards: Sequence[Any], reference: Model | None) -> Done:
        """Return client 0's model, and the mean similarity of what all clients find alone or with their neighbours."""
        peers = strategy.peers(len(shards)) if self.place == "pooled" else [()] * len(shards)
        cells = [np.vstack([X, *(shards[q] for q in others)]) for X, others in zip(shards, peers, strict=True)]
        own = [timed(strategy.central, [cell]) for cell in cells]
        if not isinstance(reference, KernelPCA):
            return Done(own[0][0], {}, [took for _, took in own])
        truth = Directions(np.vstack(list(shards)), reference)
        told = [truth.similarity(X, model.eigenvectors_[: len(X)]) for X, (model, _) in zip(shards, own, strict=True)]
        return Done(own[0][0], {"similarity": float(np.mean(told))}, [took for _, took in own])

    def _exact(self, model: Model, shards: Sequence[Any]) -> dict[str, float]:
        """Return the figures of the reference itself, whose errors are 0 but for what no such model can tell."""
        if isinstance(model, LandmarkPCA):
            # its rows are all rows: of these it captures what its eigenvalues say
            total = sum(float(model.kernel.diag(shard).sum()) for shard in shards)
            least = float(1 - model.eigenvalues_.sum() / total)
            return {"reconstruction_error": least, "error_ratio": 1.0, "error": 0.0}
        return dict.fromkeys(_of_kernel_pca(model, model), 0.0)

    def _alone(self, shard: Any) -> Any:
        """Return what the method finds in one client's rows or columns."""
        strategy = self.strategy
        if isinstance(strategy, DisKPCA) and strategy.n_components > shard.shape[0]:
            strategy = dataclasses.replace(strategy, n_components=shard.shape[0])
        return strategy.central([shard])

    def _cluster(
        self,
        strategy: FKKMeans,
        shards: Sequence[Any],
        reference: Model | None,
        classes: Classes,
        seed: int,
    ) -> Done:
        if self.place == "isolated":
            models = [timed(strategy.central, [shard]) for shard in shards]
            told = zip(models, classes or (), strict=False)
            found = _means([compare_classes(_labels(model), own) for (model, _), own in told])
            return Done(models[0][0], found, [took for _, took in models])
        took = Took()
        if self.place == "Nystroem":
            X = np.vstack(list(shards))
            model, took = timed(
                lambda: nystroem_kernel_kmeans(
                    X,
                    strategy.central_kernel(X),
                    strategy.n_clusters,
                    strategy.dimensions,
                    n_landmarks=self.n_landmarks,
                    seed=seed,
                )
            )
        elif isinstance(reference, KernelKMeans):
            model = reference
        else:
            model, took = timed(strategy.central, shards)
        compared = strategy.compare(model, reference, shards) if isinstance(reference, KernelKMeans) else {}
        indices = {} if classes is None else compare_classes(_labels(model), np.concatenate(classes))
        return Done(model, compared | indices, [took])

    def floats_up(self, shards: Sequence[Any]) -> int:
        """Return what the baseline moves: all rows to one place or to neighbours, of sparse ones what is stored."""
        # .size is that of an array's cells and of a sparse matrix's stored numbers
        if self.place == "isolated":
            return 0
        if isinstance(self.strategy, ADMMKPCA):
            return sum(int(shards[peer].size) for others in self.strategy.peers(len(shards)) for peer in others)
        return sum(int(shard.size) for shard in shards)


def timed(find: Callable[..., T], *given: Any) -> tuple[T, Took]:
    """Return what a function finds, and what that took."""
    clock, processor = time.perf_counter(), time.thread_time()
    found = find(*given)
    return found, Took(time.perf_counter() - clock, time.thread_time() - processor)


def _of_kernel_pca(model: Any, reference: Any, _: Any = None) -> dict[str, float]:
    return compare_kernel_pca(model, reference)


def _labels(model: KernelKMeans) -> npt.NDArray[np.int64]:
    """Return the labels of the training rows of a central model, which holds their coordinates."""
    return assign(training_of(model), model.centers_)[0]


def _means(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]} if found else {}
