"""Baselines of federated results: the same method on all data in one place, or on each client's data alone."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import zip_longest
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from fedkernel.ground import InputError, Rows, load_class, own_short_names, resolve_address, short_names
from fedkernel.models import KernelKMeans, Model, compare_classes, mean_over_clients, training_coordinates
from fedkernel.numerics import assign
from fedkernel.protocol import Member
from fedkernel.run import Result
from fedkernel.strategy import KernelStrategy, Rival

T = TypeVar("T")

Classes = Sequence[npt.NDArray[Any]] | None
"""Labels of each client's rows; None where the data set has none or columns are divided."""

BASELINE_KINDS = {
    "central": "All data in one place",
    "isolated": "Each client with its own data only",
    "pooled": "Each client with its own data and those of its neighbours in the network",
}


def _baselines_of(strategy: type[KernelStrategy[Any]]) -> dict[str, str]:
    """Return one sentence about each kind of a strategy's baselines. The kind begins a baseline's name."""
    if not strategy.has_central():
        return {}
    rivals = {rival.__name__: (rival.__doc__ or "").splitlines()[0].rstrip(".") for rival in strategy.rivals}
    return {place: sentence for place, sentence in BASELINE_KINDS.items() if place in strategy.places} | rivals


@cache
def methods() -> Mapping[str, type[KernelStrategy[Any]]]:
    """Return all strategies of fedkernel by the name of their central counterpart, such as ``kernel k-means``."""
    strategies = [load_class(pair, KernelStrategy, "pairs", "method") for pair in own_short_names("pairs")]
    return {name: strategy for strategy in strategies for name in vars(strategy).get("counterparts", ())}


def baselines() -> dict[str, str]:
    """Return one sentence about each baseline of fedkernel, by name. The FK paper's CK and SK are among them."""
    return {
        f"{place} {method}": sentence
        for method, strategy in methods().items()
        for place, sentence in _baselines_of(strategy).items()
    }


def check_baseline(method: str, argument: str = "method") -> None:
    """Raise InputError, with the name `argument`, unless `method` names a baseline.

    Allowed are also names such as ``central my_lab.pairs:MyPCA``, of a strategy elsewhere, which is not imported here.
    """
    if method in (ours := baselines()):
        return
    name = method.partition(" ")[2]
    if name in methods() or not (":" in name or name in short_names("pairs")):
        allowed = ", ".join([*ours, "or of a strategy elsewhere, such as central my_lab.pairs:Name"])
        raise InputError(f"{argument} = {method!r}, but must be one of {allowed}")
    resolve_address(name, "pairs", argument)


def counterpart(method: str, argument: str = "method") -> type[KernelStrategy[Any]]:
    """Return the strategy class behind a baseline. Raise InputError also if it has no baseline of this kind."""
    check_baseline(method, argument)
    place, _, name = method.partition(" ")
    strategy = methods().get(name) or load_class(name, KernelStrategy, "pairs", argument)
    if place not in (offered := _baselines_of(strategy)):
        allowed = " or ".join(offered) or "nothing, since it has no `central`"
        raise InputError(f"{argument} = {method!r}, but of {strategy.__name__} there is {allowed}")
    return strategy


class BaselineResult(NamedTuple):
    """Models, metrics and durations of a baseline. There is one model and duration, or one per client."""

    models: list[Model]
    metrics: dict[str, float]
    durations: list["Duration"]


class Duration(NamedTuple):
    """Seconds of a computation: wall clock, and processor time of its thread."""

    clock: float = 0.0
    processor: float = 0.0


class Baseline:
    """Baseline of a strategy, such as ``central kernel k-means``; `method` is as for `check_baseline`.

    `parameters`: the strategy's (``n_components``, ``kernel``, ``center``, ``n_clusters``) and a rival's own.
    """

    def __init__(self, method: str, parameters: Mapping[str, Any]) -> None:
        kind = counterpart(method)
        self.place, _, name = method.partition(" ")
        own = {**kind.counterparts.get(name, {}), **parameters}
        self.rival: Rival[Any] | None = None
        for rival in kind.rivals:
            if rival.__name__ == self.place:
                fields = {field.name for field in dataclasses.fields(rival)}  # type: ignore[arg-type] # value objects
                self.rival = rival(**{field: own.pop(field) for field in fields & own.keys()})
        self.strategy = kind(**own)

    def check(self, shards: Sequence[Any]) -> None:
        """Raise InputError early if there are too few rows for the method."""
        if self.place == "isolated":
            for shard in shards:
                self.strategy.for_site(shard.shape[0])
        if self.rival is not None:
            self.rival.check(self.strategy, sum(shard.shape[0] for shard in shards))

    def run(
        self, shards: Sequence[Any], reference: Model | None, classes: Classes = None, seed: int = 0
    ) -> BaselineResult:
        """Compute the baseline's models, metrics and durations on the clients' tables.

        Errors are against `reference`, where there is one; ``central`` is the reference itself. Where each client has a
        model, figures are means over the clients, ``worst_error`` is the largest error, and the model is client 0's.
        """
        strategy = self.strategy.settled_on(shards)  # also for clients' own models, for comparison with the central one
        if self.place in {"isolated", "pooled"}:
            tables = shards
            if self.place == "pooled":  # each client's own rows, followed by its neighbours'
                peers = zip(shards, self.strategy.peers(len(shards)), strict=True)
                tables = [np.vstack([X, *(shards[q] for q in others)]) for X, others in peers]
            timings = [timed(strategy.alone, table) for table in tables]
            models, durations = [model for model, _ in timings], [duration for _, duration in timings]
            metrics = strategy.judge_alone(models, shards, reference) | _agreement(models, classes)
            return BaselineResult(models, metrics, durations)
        model: Any
        if self.rival is not None:
            model, duration = timed(self.rival.find, strategy, shards, seed)
        else:
            model, duration = timed(strategy.central, shards) if reference is None else (reference, Duration())
            reference = model
        together = None if classes is None else [np.concatenate(classes)]
        metrics = strategy.judge(Result(model), shards, reference) | _agreement([model], together)
        return BaselineResult([model], metrics, [duration])

    def floats_up(self, shards: Sequence[Any]) -> int:
        """Return the number of floats that the baseline moves to one place or to neighbours."""
        # .size counts an array's cells, but a sparse matrix's stored numbers
        if self.place == "isolated":
            return 0
        if self.place == "pooled":
            return sum(int(shards[peer].size) for others in self.strategy.peers(len(shards)) for peer in others)
        return sum(int(shard.size) for shard in shards)


def timed(function: Callable[..., T], *arguments: Any) -> tuple[T, Duration]:
    """Call a function; return its result and the duration of the call."""
    clock, processor = time.perf_counter(), time.thread_time()
    result = function(*arguments)
    return result, Duration(time.perf_counter() - clock, time.thread_time() - processor)


def _agreement(models: Sequence[Any], classes: Classes) -> dict[str, float]:
    """Return the mean agreement between clusters and the classes of each model's training rows."""
    if classes is None or not isinstance(models[0], KernelKMeans):
        return {}
    labels = [assign(training_coordinates(model), model.centers_)[0] for model in models]
    agreement = [compare_classes(mine, own) for mine, own in zip(labels, classes, strict=True)]
    return mean_over_clients([own for own in agreement if own] or [{}])  # a client may have no labelled row


def cohort(shards: Sequence[Rows], files: Sequence[str] = ()) -> list[Member]:
    """Return one `Member` object per client, with the shape of its table and the name of its file, if any."""
    named = enumerate(zip_longest(shards, files))
    return [Member(number, number, shard.shape[0], shard.shape[1], file=file) for number, (shard, file) in named]
