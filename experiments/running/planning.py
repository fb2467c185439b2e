"""Expansion of a configuration into its list of runs, each checked before the first begins."""

import copy
import hashlib
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedkernel.data import DataSpec, Partition
from fedkernel.experiments.baselines import Baseline, Classes, cohort, counterpart
from fedkernel.experiments.config import Experiment, Method, Shards, Sites, with_value
from fedkernel.experiments.running import file_tables
from fedkernel.experiments.running.joint_tables import Widths, prepared_shards, raw_shards, with_pooled_widths
from fedkernel.ground import AnyArray, Division, FloatArray, InputError, Rows, checked_address, load_class
from fedkernel.models import KernelPCA
from fedkernel.protocol import KernelClient, is_seeded
from fedkernel.site import simulated_partition
from fedkernel.strategy import KernelStrategy, check_phases, settled_privacy, strategy_of
from fedkernel.wire import RunSpec, Study

LONGEST_ID = 150  # most bytes of a run's id, which names a folder


@dataclass(frozen=True)
class Point:
    """One combination of swept values, with the resulting experiment."""

    values: dict[str, Any]
    experiment: Experiment

    @property
    def where(self) -> str:
        """Swept values as text, for error messages."""
        return "".join(f": sweep {key} = {value!r}" for key, value in self.values.items())

    @property
    def suffix(self) -> str:
        """Part of a run's id with the swept values."""
        return "".join(f"__{_slug(key)}={_slug(str(value))}" for key, value in self.values.items())


def points(experiment: Experiment) -> Iterator[Point]:
    """Yield the experiment at every combination of swept values, or the experiment itself without a sweep."""
    where = f"{experiment.source}: sweep"
    for point in experiment.settings:
        swept = copy.deepcopy(experiment.table)
        for key, value in experiment.changes(point).items():
            swept = with_value(swept, key, value, where)
        yield Point(point, Experiment.from_table(swept, where) if point else experiment)


def run_id(method: Method, point: Point, seed: int) -> str:
    """Return a run's id: readable, and fit for a folder's name."""
    whole = f"{_slug(method.name)}{point.suffix}__seed={seed}"
    if len(whole.encode()) <= LONGEST_ID:
        return whole
    beginning = whole.encode()[: LONGEST_ID - 13].decode(errors="ignore")
    return f"{beginning}...{hashlib.sha256(whole.encode()).hexdigest()[:10]}"


RUN_SET_SECTIONS = ("strategy", "baseline", "seeds", "sweep", "case")  # decide which runs there are, not their content
PRESENTATION_SECTIONS = ("title", "claim", "report", "paper", "quick")  # decide no run


def run_ids(experiment: Experiment) -> list[str]:
    """Return the ids of all runs of an experiment, in order, without reading its data."""
    return list(run_fingerprints(experiment))


def run_fingerprints(experiment: Experiment) -> dict[str, str]:
    """Return for each run, by id and in order, a text of everything that decides its result."""
    texts: dict[str, str] = {}
    for point in points(experiment):
        its = point.experiment
        shared = {key: value for key, value in its.table.items() if key not in RUN_SET_SECTIONS + PRESENTATION_SECTIONS}
        shared |= {"reference": its.report.reference}
        for seed in its.seeds:
            for method in (*its.strategy, *its.baseline):
                run = {**shared, "seed": seed, "method": method.model_dump()}
                texts[run_id(method, point, seed)] = json.dumps(run, sort_keys=True, default=str)
    return texts


@dataclass(frozen=True)
class Planned:
    """Planned run, with settled parameters, checked before it begins.

    - `parameters`: those of the method, kernel widths by rule settled unless sites hold the data.
    - `strategy`: for a baseline, the strategy that has it as its central counterpart.
    - `shapes`: of the clients' tables; none where sites hold their own.
    """

    id: str
    method: Method
    parameters: dict[str, Any]
    point: Point
    seed: int
    strategy: KernelStrategy[Any]
    baseline: Baseline | None = None
    shapes: tuple[tuple[int, int], ...] = ()

    @property
    def shards(self) -> list[Rows]:
        """Tables of the clients, empty where sites hold their own. Loaded on access, since a sweep's exceed memory."""
        return _shards(self.point.experiment, self.seed, self.strategy.partition, self.id)

    @property
    def tables(self) -> Sequence[Any]:
        """Tables of the clients before the run, which may prepare them."""
        experiment = self.point.experiment
        if (prepare := experiment.prepare) is None or isinstance(data := experiment.data, Sites):
            return self.shards
        source = data, experiment.partition, experiment.clients or 1, self.seed
        return raw_shards(source, prepare, self.strategy.partition, self.id)

    @property
    def dropped(self) -> list[int]:
        """Number of rows left out of each client's file for an empty cell, if rows are divided."""
        data, prepare = self.point.experiment.data, self.point.experiment.prepare
        drops = prepare is not None and prepare.missing == "drop" and self.strategy.partition == "horizontal"
        if not drops or not isinstance(data, Shards):
            return []
        raws = file_tables.raw_tables(data, "horizontal")
        return [raw.rows - rows for raw, (rows, _) in zip(raws, self.shapes, strict=True)]

    @property
    def order(self) -> str:
        """Key for the order of the rows: the run's id if rows are aligned by ids, and "" otherwise."""
        data = self.point.experiment.data
        return self.id if isinstance(data, Shards) and file_tables.are_aligned(data, self.strategy.partition) else ""

    @property
    def classes(self) -> Classes:
        """Labels of each client's rows, if rows are divided; float labels are measurements, and no classes."""
        labels = None if self._partition is None else self._partition.labels
        if self._file_labels is not None and self.strategy.partition == "horizontal":
            labels = tuple(self._file_labels)
        return None if labels is None or labels[0].dtype.kind == "f" else labels

    @property
    def all_classes(self) -> AnyArray | None:
        """Labels of all rows, if any; where rows are divided, client after client."""
        labels = None if self._partition is None else self._partition.all_labels
        if self._file_labels is not None:
            labels = np.concatenate(self._file_labels)
        return None if labels is None or labels.dtype.kind == "f" else labels

    def directions(self, models: Sequence[KernelPCA]) -> FloatArray | None:
        """Return each component's direction over the columns, X^T u (VFedPCA paper, equation 10), as square pictures.

        From one model, or from each client's for its own columns: shape (k, side, side). None unless the data are a
        divided data set.
        """
        if (partition := self._partition) is None:
            return None
        vectors = [model.eigenvectors_ for model in models] * (1 if len(models) > 1 else len(partition.shards))
        parts = [U.T @ X for U, X in zip(vectors, self.shards, strict=True)]
        over_columns = np.hstack(parts)[:, np.argsort(np.concatenate(partition.indices))]
        side = math.isqrt(over_columns.shape[1])
        return over_columns.reshape(-1, side, side)

    @property
    def _file_labels(self) -> list[AnyArray] | None:
        data = self.point.experiment.data
        if not isinstance(data, Shards):
            return None
        return file_tables.labels_of(data, self.strategy.partition, self.id, self.seed, self.point.experiment.prepare)

    @property
    def _partition(self) -> Partition | None:
        experiment = self.point.experiment
        if not isinstance(experiment.data, DataSpec):
            return None
        return simulated_partition(experiment.data, experiment.partition, experiment.clients or 1, self.seed)

    @property
    def first_seed_id(self) -> str:
        """Id of the same method's run at the same settings with the first seed, for comparing clusters."""
        return run_id(self.method, self.point, self.point.experiment.seeds[0])

    @property
    def spec(self) -> RunSpec:
        """Run as an entry of a job for an engine."""
        experiment, kind = self.point.experiment, type(self.strategy)
        common: dict[str, Any] = {"id": self.id, "parameters": self.parameters, "seed": self.seed}
        common |= {"strategy": checked_address(kind), "pair": checked_address(kind.client)}
        common |= {"clients": experiment.clients, "evaluate": experiment.evaluate and experiment.privacy is None}
        common |= {"prepare": experiment.prepare, "wire": experiment.wire, "sums": experiment.sums}
        common |= {"privacy": settled_privacy(self.strategy, experiment.privacy)}
        if isinstance(experiment.data, Shards):
            files = file_tables.files_of(experiment.data, kind.partition)
            return RunSpec(**common, shards=files, missing=experiment.data.missing)
        if isinstance(experiment.data, Sites):
            common |= {"parameters": self.strategy.hyperparameters, "missing": experiment.data.missing}
            sites, joint, evaluate = experiment.data.sites, experiment.data.joint_seed, common["evaluate"]
            first, prepare = self.first_seed_id, experiment.prepare
            is_compared = evaluate and first != self.id and self.strategy.comparison_plan(first)
            compare = first if is_compared else None
            steps = self.strategy.plan_of_run(len(sites), self.seed, prepare, evaluate=evaluate, compare=compare)
            joint = is_seeded(steps) if joint is None else joint
            common |= {"align": kind.partition == "vertical", "plan": steps, "joint_seed": joint}
            keys = [experiment.data.identities[name] for name in sites] if experiment.data.identities else None
            return RunSpec(**common, sites=sites, compare=compare, identities=keys)
        return RunSpec(**common, data=experiment.data, partition=experiment.partition)


def study_of(experiment: Experiment, planned: Sequence[Planned]) -> Study | None:
    """Return the study of an experiment's runs for the sites' approval, or None if no sites hold the data."""
    if not isinstance(experiment.data, Sites):
        return None
    return Study(name=experiment.name, runs=[run.spec for run in planned if run.baseline is None])


def plan(experiment: Experiment) -> list[Planned]:
    """Return all runs of an experiment, checked without running them.

    Raises InputError for anything wrong with the configuration or the data; nothing has been written then.
    """
    planned: list[Planned] = []
    widths, source = Widths(), experiment.source
    for point in points(experiment):
        for seed in point.experiment.seeds:
            where = f"{source}{point.where}"
            try:
                _check_data_exists(point.experiment, seed)  # errors of the data name no method
                for kind in ("strategy", "baseline"):
                    for method in getattr(point.experiment, kind):
                        where = f"{source}{point.where}: {kind} {method.name!r}"
                        planned.append(_planned_run(kind, method, point, seed, widths))
            except InputError as error:
                raise InputError(f"{where}: {error}") from None
    try:
        check_phases(experiment.deadlines, [run.strategy for run in planned if run.baseline is None])
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    first: dict[str, Planned] = {}
    for run in planned:
        if (other := first.setdefault(run.id, run)) is not run:
            raise InputError(
                f"{source}: {other.method.name!r} and {run.method.name!r} would both have runs with the id {run.id!r}; "
                "choose names and swept values that differ in letters or digits"
            )
    return planned


def _planned_run(kind: str, method: Method, point: Point, seed: int, widths: Widths) -> Planned:
    """Return one run of a method, checked against the clients' tables, with kernel widths settled."""
    experiment, id_ = point.experiment, run_id(method, point, seed)
    pair: type[KernelStrategy[Any]]
    if kind == "baseline":
        pair = counterpart(method.method)
    else:
        pair = load_class(method.method, KernelStrategy, "pairs", "method")
    shards = _shards(experiment, seed, pair.partition, id_)
    _check_data(method, pair, experiment, shards)
    data = repr((experiment.data, experiment.partition, experiment.clients, experiment.prepare, seed))
    parameters = with_pooled_widths(method.parameters, shards, pair.partition, data, widths)
    baseline = Baseline(method.method, parameters) if kind == "baseline" else None
    strategy = strategy_of(method.method, parameters, "method") if baseline is None else baseline.strategy
    if shards:
        strategy.check_cohort(cohort(shards, experiment.file_names))
        if baseline is not None:
            baseline.check(shards)
    shapes = tuple((shard.shape[0], shard.shape[1]) for shard in shards)
    planned = Planned(id_, method, parameters, point, seed, strategy, baseline, shapes)
    _ = planned.all_classes  # refuses files if only some have labels
    return planned


def _check_data_exists(experiment: Experiment, seed: int) -> None:
    if isinstance(experiment.data, DataSpec):
        simulated_partition(experiment.data, experiment.partition, experiment.clients or 1, seed)
    elif isinstance(experiment.data, Shards):
        file_tables.check_files(experiment.data)


def _check_data(
    method: Method, pair: type[KernelStrategy[Any]], experiment: Experiment, shards: Sequence[Rows]
) -> None:
    """Raise InputError for data divided the wrong way, unfit for the report's images, or sparse at a dense client."""
    if isinstance(experiment.data, DataSpec) and experiment.partition.kind != pair.partition:
        kind = experiment.partition.kind
        raise InputError(f"partition.kind = {kind!r}, but {method.method} needs {pair.partition!r}")
    columns = sum(shard.shape[1] for shard in shards)
    if experiment.report.images and (pair.partition != "vertical" or math.isqrt(columns) ** 2 < columns):
        here = f"there are {columns}" if pair.partition == "vertical" else "rows are"
        raise InputError(
            f"report.images = true needs divided columns that are the pixels of square images; here {here}"
        )
    sparse = [number for number, shard in enumerate(shards) if not isinstance(shard, np.ndarray)]
    if sparse and pair.client.table is KernelClient.table:
        whose = dict(enumerate(experiment.file_names)).get(sparse[0], f"the data of client {sparse[0]}")
        raise InputError(
            f"{whose} is sparse, but {method.method} takes dense rows only; "
            "allowed: data.sparse = false, or files of dense tables"
        )


def _shards(experiment: Experiment, seed: int, divided: Division, run: str) -> list[Rows]:
    """Return the clients' tables, prepared and aligned as in the run with this id."""
    data, parts, clients = experiment.data, experiment.partition, experiment.clients or 1
    if isinstance(data, Sites):
        return []
    if experiment.prepare is not None:
        kind = divided if isinstance(data, Shards) else parts.kind
        order = run if isinstance(data, Shards) and kind == "vertical" else ""  # all other runs have the same
        return list(prepared_shards((data, parts, clients, seed), experiment.prepare, kind, order))
    if isinstance(data, Shards):
        return file_tables.tables_of(data, divided, run, seed)
    return list(simulated_partition(data, parts, clients, seed).shards)


def _slug(text: str) -> str:
    return re.sub(r"[^\w.+=,]+", "-", text).strip("-")
