"""The runs that follow from a configuration, each settled and checked before any of them begins."""

import copy
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.baselines import METHODS, Baseline, Classes, cohort
from experiments.config import Experiment, Method, Shards, Sites, with_value
from fedkernel.addresses import address_of, find, names
from fedkernel.arrays import Rows, stack_rows
from fedkernel.coordinator import strategy_of
from fedkernel.data import DataSpec, open_table
from fedkernel.errors import InputError
from fedkernel.numerics import KERNELS, with_width
from fedkernel.protocol import KernelClient
from fedkernel.run import RunSpec, simulated_partition
from fedkernel.strategy import KernelStrategy

LONGEST_ID = 150
"""Bytes of a run's id, which names a folder."""


@dataclass(frozen=True)
class Point:
    """One combination of the swept values, and the experiment it makes."""

    values: dict[str, Any]
    experiment: Experiment

    @property
    def where(self) -> str:
        """Say for errors which point it is."""
        return "".join(f": sweep {key} = {value!r}" for key, value in self.values.items())

    @property
    def suffix(self) -> str:
        """Part of a run's id."""
        return "".join(f"__{_slug(key)}={_slug(str(value))}" for key, value in self.values.items())


def points(experiment: Experiment) -> Iterator[Point]:
    """Yield the experiment at every combination of swept values; itself if nothing is swept."""
    where = f"{experiment.source}: sweep"
    for point in experiment.settings:
        swept = copy.deepcopy(experiment.table)
        for key, value in experiment.changes(point).items():
            swept = with_value(swept, key, value, where)
        yield Point(point, Experiment.from_table(swept, where) if point else experiment)


def run_id(method: Method, point: Point, seed: int) -> str:
    """Return the id of one run: readable, and fit for a folder's name."""
    whole = f"{_slug(method.name)}{point.suffix}__seed={seed}"
    if len(whole.encode()) <= LONGEST_ID:
        return whole
    kept = whole.encode()[: LONGEST_ID - 13].decode(errors="ignore")
    return f"{kept}...{hashlib.sha256(whole.encode()).hexdigest()[:10]}"


@dataclass(frozen=True)
class Planned:
    """One run to carry out, everything about it settled and checked."""

    id: str
    kind: str
    method: Method
    parameters: dict[str, Any]
    point: Point
    seed: int

    @property
    def shards(self) -> list[Rows]:
        """The clients' tables: loaded when they are needed, since those of a large sweep do not fit side by side.

        None are here where sites hold their own.
        """
        return _shards(self.point.experiment, self.seed)

    @property
    def classes(self) -> Classes:
        """The labels of each client's rows, where rows are divided and have labels: floats are measurements."""
        experiment = self.point.experiment
        if not isinstance(experiment.data, DataSpec):
            return None
        partition = experiment.partition
        labels = simulated_partition(experiment.data, partition, experiment.clients or 1, self.seed).labels
        return None if labels is None or labels[0].dtype.kind == "f" else labels

    def strategy(self) -> KernelStrategy[Any]:
        """Build the strategy; a baseline has the one whose central counterpart it is."""
        if self.kind == "baseline":
            return self.baseline().strategy
        return strategy_of(self.method.method, self.parameters, "method")

    def baseline(self) -> Baseline:
        """Build the baseline."""
        return Baseline(self.method.method, self.parameters)

    def spec(self) -> RunSpec:
        """Return what the coordinator is told."""
        experiment = self.point.experiment
        kind = _class_of(self.kind, self.method)
        common: dict[str, Any] = {"id": self.id, "parameters": self.parameters, "seed": self.seed}
        common |= {"strategy": address_of(kind), "pair": address_of(kind.client)}
        if isinstance(experiment.data, Shards):
            return RunSpec(**common, shards=experiment.data.shards, clients=experiment.clients)
        if isinstance(experiment.data, Sites):
            return RunSpec(**common, sites=experiment.data.sites, missing=experiment.data.missing)
        return RunSpec(**common, data=experiment.data, partition=experiment.partition, clients=experiment.clients)


def plan(experiment: Experiment) -> list[Planned]:
    """Return all runs of an experiment, checked as far as can be without running them.

    Raises
    ------
    InputError
        For anything wrong with the configuration or the data; nothing has been written then.
    """
    planned: list[Planned] = []
    widths, source = Widths(), experiment.source
    for point in points(experiment):
        for seed in point.experiment.seeds:
            try:
                shards = _shards(point.experiment, seed)
            except InputError as error:
                raise InputError(f"{source}{point.where}: {error}") from None
            for kind in ("strategy", "baseline"):
                for method in getattr(point.experiment, kind):
                    where = f"{source}{point.where}: {kind} {method.name!r}"
                    try:
                        _check_partition(kind, method, point.experiment)
                        _check_sparse(kind, method, shards)
                        data = (point.experiment.data, point.experiment.partition, point.experiment.clients, seed)
                        divided = _class_of(kind, method).partition
                        parameters = widths.resolved(method.parameters, shards, divided, repr(data))
                        run = Planned(run_id(method, point, seed), kind, method, parameters, point, seed)
                        _check(run)
                    except InputError as error:
                        raise InputError(f"{where}: {error}") from None
                    planned.append(run)
    first: dict[str, Planned] = {}
    for run in planned:
        if (other := first.setdefault(run.id, run)) is not run:
            raise InputError(
                f"{source}: {other.method.name!r} and {run.method.name!r} would both have runs with the id {run.id!r}; "
                "choose names and swept values that differ in letters or digits"
            )
    return planned


def _class_of(kind: str, method: Method) -> type[KernelStrategy[Any]]:
    if kind == "baseline":
        return METHODS[method.method.split(" ", 1)[1]]
    strategy: type[KernelStrategy[Any]] = find(method.method, KernelStrategy, "pairs", "method")
    return strategy


def _check_partition(kind: str, method: Method, experiment: Experiment) -> None:
    """Refuse data divided the other way: with as many rows everywhere no client could notice."""
    needed = _class_of(kind, method).partition
    if isinstance(experiment.data, DataSpec) and experiment.partition.kind != needed:
        raise InputError(f"partition.kind = {experiment.partition.kind!r}, but {method.method} needs {needed!r}")


def _check_sparse(kind: str, method: Method, shards: Sequence[Rows]) -> None:
    """Refuse sparse rows where the method's clients work on dense ones."""
    taken = _class_of(kind, method).client.table is not KernelClient.table
    if not taken and (at := [number for number, shard in enumerate(shards) if not isinstance(shard, np.ndarray)]):
        raise InputError(
            f"the data of client {at[0]} is sparse, but {method.method} takes dense rows only; "
            "allowed: data.sparse = false, or files of dense tables"
        )


def _shards(experiment: Experiment, seed: int) -> list[Rows]:
    if isinstance(experiment.data, Sites):
        return []
    if isinstance(experiment.data, Shards):
        tables = [open_table(file) for file in experiment.data.shards]
        return [table.block(0, len(table)) if table.sparse else np.asarray(table) for table in tables]
    return list(simulated_partition(experiment.data, experiment.partition, experiment.clients or 1, seed).shards)


class Widths:
    """Kernel widths by rule, computed once for each data set, division of it, and seed."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Any]] = {}

    def resolved(
        self, parameters: Mapping[str, Any], shards: Sequence[Rows], divided: str, data: str
    ) -> dict[str, Any]:
        """Replace each kernel's ``width = "rule"`` by the number that the rule gives on the pooled data.

        Parameters
        ----------
        parameters : mapping
            A method's; kernels of methods within it count too, such as ``components.kernel``.
        shards : sequence of ndarray or CSR array
        divided : {"vertical", "horizontal"}
        data : str
            The shards' name: the same for the same shards only.
        """
        found = dict(parameters)
        for name, value in parameters.items():
            if name == "kernel" and isinstance(value, Mapping) and _is_ruled(value):
                if not shards:
                    asked = ", ".join(f"{key} = {value[key]!r}" for key in ("width", "factor") if key in value)
                    raise InputError(f"{name}: {asked} needs the data, which sites hold; allowed: gamma or sigma")
                key = repr((sorted(value.items(), key=str), divided, data))
                if key not in self._known:
                    self._known[key] = with_width(value, _pooled(shards, divided))
                found[name] = self._known[key]
            elif isinstance(value, Mapping):
                found[name] = self.resolved(value, shards, divided, data)
        return found


def _is_ruled(kernel: Mapping[str, Any]) -> bool:
    """Tell whether a kernel's table may say a width by rule; fields of somebody else's kernel are its own."""
    name = str(kernel.get("type"))
    others = ":" in name or name in names("kernels").keys() - KERNELS.keys()
    return not others and bool({"width", "factor"} & kernel.keys())


def _pooled(shards: Sequence[Any], divided: str) -> Rows:
    axis, shared = (1, "rows") if divided == "vertical" else (0, "columns")
    sizes = [shard.shape[1 - axis] for shard in shards]
    if len(set(sizes)) > 1:
        raise InputError(
            f"the clients have {', '.join(map(str, sizes))} {shared}: "
            f"with a {divided} partition all must have the same {shared}"
        )
    return np.hstack(shards) if divided == "vertical" else stack_rows(shards)


def _check(run: Planned) -> None:
    strategy = run.strategy()
    if not run.shards:
        return
    strategy.check_cohort(cohort(run.shards))
    if run.kind == "baseline":
        run.baseline().check(run.shards)


def _slug(text: str) -> str:
    return re.sub(r"[^\w.+=,]+", "-", text).strip("-")
