"""What federated results are held against: the same method with all data in one place, or each client alone."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt

from fedkernel.addresses import find, own_names
from fedkernel.arrays import Rows
from fedkernel.errors import InputError
from fedkernel.models import (
    KernelKMeans,
    Model,
    check_landmarks,
    compare_classes,
    nystroem_kernel_kmeans,
    over_clients,
    training_of,
)
from fedkernel.numerics import assign
from fedkernel.protocol import Member
from fedkernel.run import Result
from fedkernel.strategy import KernelStrategy
from strategies.kmeans import KMeansStrategy

T = TypeVar("T")

Classes = Sequence[npt.NDArray[Any]] | None
"""The data set's labels of each client's rows, where it has some and rows are what is divided."""

METHODS: dict[str, type[KernelStrategy[Any]]] = {
    name: strategy
    for strategy in (find(pair, KernelStrategy, "pairs", "method") for pair in own_names("pairs"))
    for name in vars(strategy).get("counterparts", ())
}
"""Each method by the strategy whose central counterpart it is."""

PLACES = {
    "central": "all data in one place",
    "isolated": "each client with its own data only",
    "pooled": "each client with its own data and those of its neighbours in the network",
    "Nystroem": "all data in one place, the kernel matrix approximated from n_landmarks = 500 rows",
}

BASELINES = {
    f"{place} {method}": sentence
    for place, sentence in PLACES.items()
    for method, strategy in METHODS.items()
    if place in strategy.places
}
"""Every baseline, and what it is; ``central kernel k-means`` and the Nystroem one are the FK paper's CK and SK."""


def counterpart(method: str, what: str = "method") -> type[KernelStrategy[Any]]:
    """Return the strategy behind one of `BASELINES`; InputError, which calls it `what`, for anything else."""
    if method not in BASELINES:
        raise InputError(f"{what} = {method!r}, but must be one of {', '.join(BASELINES)}")
    return METHODS[method.split(" ", 1)[1]]


class Answer(NamedTuple):
    """What a baseline came to.

    Attributes
    ----------
    model : Model
        Of an isolated baseline client 0's.
    metrics : dict of str to float
    durations : list of Duration
        Of finding the model, or each client's.
    """

    model: Model
    metrics: dict[str, float]
    durations: list["Duration"]


class Duration(NamedTuple):
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
        behind = counterpart(method)
        self.place, name = method.split(" ", 1)
        own = dict(parameters)
        self.n_landmarks = own.pop("n_landmarks", 500) if self.place == "Nystroem" else 0
        if type(self.n_landmarks) is not int:
            raise InputError(f"n_landmarks = {self.n_landmarks!r}, but must be a whole number")
        self.strategy = behind(**{**behind.counterparts[name], **own})

    def check(self, shards: Sequence[Any]) -> None:
        """Refuse more dimensions or landmarks than there are rows; `run` would do so only when its turn comes."""
        if self.place == "isolated":
            for member in cohort(shards):
                self.strategy.check_alone(member)
        if self.place == "Nystroem":
            rows = sum(shard.shape[0] for shard in shards)
            check_landmarks(self.n_landmarks, self._kmeans.dimensions, rows)

    def run(self, shards: Sequence[Any], reference: Model | None, classes: Classes = None, seed: int = 0) -> Answer:
        """Return a model, its errors against the reference, where there is one, and the seconds that it took.

        ``central`` is the reference itself. Where each client has a model, figures are means over the clients,
        ``worst_error`` is the largest error, and the model is client 0's.
        """
        strategy = self.strategy
        if self.place in {"isolated", "pooled"}:
            tables = self._pooled(shards) if self.place == "pooled" else shards
            timings = [timed(strategy.alone, table) for table in tables]
            models, durations = [model for model, _ in timings], [duration for _, duration in timings]
            metrics = strategy.judge_alone(models, shards, reference) | _agreement(models, classes)
            return Answer(models[0], metrics, durations)
        model: Any
        if self.place == "Nystroem":
            model, duration = timed(self._nystroem, shards, seed)
        else:
            model, duration = timed(strategy.central, shards) if reference is None else (reference, Duration())
            reference = model
        together = None if classes is None else [np.concatenate(classes)]
        metrics = strategy.judge(Result(model), shards, reference) | _agreement([model], together)
        return Answer(model, metrics, [duration])

    def _pooled(self, shards: Sequence[Any]) -> list[Any]:
        """Return each client's rows, and then its neighbours'."""
        peers = self.strategy.peers(len(shards))
        return [np.vstack([X, *(shards[q] for q in others)]) for X, others in zip(shards, peers, strict=True)]

    @property
    def _kmeans(self) -> KMeansStrategy:
        return cast(KMeansStrategy, self.strategy)  # no other offers the place

    def _nystroem(self, shards: Sequence[Any], seed: int) -> KernelKMeans:
        X, kmeans = np.vstack(list(shards)), self._kmeans
        kernel, m = kmeans.central_kernel(X), self.n_landmarks
        return nystroem_kernel_kmeans(X, kernel, kmeans.n_clusters, kmeans.dimensions, n_landmarks=m, seed=seed)

    def floats_up(self, shards: Sequence[Any]) -> int:
        """Return what the baseline moves: all rows to one place or to neighbours, of sparse ones what is stored."""
        # .size is that of an array's cells and of a sparse matrix's stored numbers
        if self.place == "isolated":
            return 0
        if self.place == "pooled":
            return sum(int(shards[peer].size) for others in self.strategy.peers(len(shards)) for peer in others)
        return sum(int(shard.size) for shard in shards)


def timed(find: Callable[..., T], *arguments: Any) -> tuple[T, Duration]:
    """Return what a function finds, and what that took."""
    clock, processor = time.perf_counter(), time.thread_time()
    result = find(*arguments)
    return result, Duration(time.perf_counter() - clock, time.thread_time() - processor)


def _agreement(models: Sequence[Any], classes: Classes) -> dict[str, float]:
    """Return the mean agreement of clusters with the classes of the rows that each model was found from."""
    if classes is None or not isinstance(models[0], KernelKMeans):
        return {}
    labels = [assign(training_of(model), model.centers_)[0] for model in models]
    return over_clients([compare_classes(mine, own) for mine, own in zip(labels, classes, strict=True)])


def cohort(shards: Sequence[Rows]) -> list[Member]:
    """Return the clients that hold these tables, as they would introduce themselves."""
    return [Member(number, number, shard.shape[0], shard.shape[1], 0) for number, shard in enumerate(shards)]
