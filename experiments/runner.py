"""Carries an experiment out: plans its runs, leaves out those that are done, measures and records each."""

import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from experiments.baselines import METHODS, Baseline
from experiments.config import Experiment, Method, Point, Shards, as_json, points, run_id
from experiments.folder import open_folder
from experiments.report import write_report
from experiments.rows import Run, append_run, in_order, read_runs
from fedkernel.arrays import FloatArray
from fedkernel.cohort import Member
from fedkernel.data import check_matrix
from fedkernel.engines import ENGINES
from fedkernel.errors import InputError, ProtocolError
from fedkernel.job import Job, RunSpec
from fedkernel.models import KernelPCA
from fedkernel.result import Result
from fedkernel.site import read_shard, simulated_shards
from fedkernel.strategy import KernelStrategy
from fedkernel.subspaces import sin_theta_error
from fedkernel.widths import with_width
from strategies import REGISTRY

Progress = Callable[[str, int, int], None]
"""Told the name of the run that has just finished, how many are done, and how many there are."""


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
    def shards(self) -> list[FloatArray]:
        """The clients' tables: loaded when they are needed, since those of a large sweep do not fit side by side."""
        return _shards(self.point.experiment, self.seed)

    def strategy(self) -> KernelStrategy[KernelPCA]:
        """Build the strategy; a baseline has the one whose central counterpart it is."""
        if self.kind == "baseline":
            return self.baseline().strategy
        return REGISTRY[self.method.method](**self.parameters)

    def baseline(self) -> Baseline:
        """Build the baseline."""
        return Baseline(self.method.method, self.parameters)

    def spec(self) -> RunSpec:
        """Return what the coordinator is told."""
        experiment = self.point.experiment
        common = {"id": self.id, "strategy": self.method.method, "parameters": self.parameters, "seed": self.seed}
        if isinstance(experiment.data, Shards):
            files = [str(Path(file).resolve()) for file in experiment.data.shards]
            return RunSpec(**common, shards=files, clients=experiment.clients)
        return RunSpec(**common, data=experiment.data, partition=experiment.partition, clients=experiment.clients)


def plan(table: Mapping[str, Any], source: str) -> list[Planned]:
    """Return all runs of an experiment, checked as far as can be without running them.

    Raises
    ------
    InputError
        For anything wrong with the configuration or the data; nothing has been written then.
    """
    planned: list[Planned] = []
    for point in points(table, source):
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
                        parameters = _resolved(method.parameters, shards, _class_of(kind, method).partition)
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


def _class_of(kind: str, method: Method) -> type[KernelStrategy[KernelPCA]]:
    return REGISTRY[method.method] if kind == "strategy" else METHODS[method.method.split(" ")[1]]


def _check_partition(kind: str, method: Method, experiment: Experiment) -> None:
    """Refuse data divided the other way: with as many rows everywhere no client could notice."""
    needed = _class_of(kind, method).partition
    if not isinstance(experiment.data, Shards) and experiment.partition.kind != needed:
        raise InputError(f"partition.kind = {experiment.partition.kind!r}, but {method.method} needs {needed!r}")


def _shards(experiment: Experiment, seed: int) -> list[FloatArray]:
    if isinstance(experiment.data, Shards):
        return [check_matrix(read_shard(file)[0], file) for file in experiment.data.shards]
    return simulated_shards(experiment.data, experiment.partition, experiment.clients or 1, seed)


def _resolved(parameters: dict[str, Any], shards: Sequence[FloatArray], partition: str) -> dict[str, Any]:
    """Replace a kernel's ``width = "rule"`` by the number that the rule gives on the pooled data."""
    kernel = parameters.get("kernel")
    if not isinstance(kernel, dict) or "width" not in kernel:
        return parameters
    axis, shared = (1, "rows") if partition == "vertical" else (0, "columns")
    sizes = [shard.shape[1 - axis] for shard in shards]
    if len(set(sizes)) > 1:
        raise InputError(
            f"the clients have {', '.join(map(str, sizes))} {shared}: "
            f"with a {partition} partition all must have the same {shared}"
        )
    return parameters | {"kernel": with_width(kernel, np.concatenate(shards, axis=axis))}


def _check(run: Planned) -> None:
    members = [Member(number, number, len(shard), shard.shape[1], 0) for number, shard in enumerate(run.shards)]
    run.strategy().check_cohort(members)


def run_experiment(
    table: Mapping[str, Any],
    text: str,
    out: Path,
    *,
    source: str,
    restart: bool = False,
    progress: Progress | None = None,
) -> list[Run]:
    """Carry out what is not done yet, write rows, models and the report, and return all rows.

    Parameters
    ----------
    table : mapping
        The configuration, overrides applied.
    text : str
        The file as the user wrote it, for the report.
    out : Path
        Output folder: ``config.json``, ``config.toml``, ``runs.jsonl``, ``results/<id>/``, ``plots/``, ``report.html``.
    source : str
        Name of the file, for errors.
    restart : bool
        Throw away what the folder holds of an experiment; other files in it stay.
    progress : callable, optional
    """
    experiment = Experiment.from_table(table, source)
    planned = plan(table, source)
    done = open_folder(out, as_json(table), text, restart)
    todo = [run for run in planned if run.id not in done]
    for count, row in enumerate(_carry_out(experiment, todo, out), start=len(planned) - len(todo) + 1):
        append_run(out / "runs.jsonl", row)
        if progress is not None:
            progress(row.id, count, len(planned))
    rows = in_order(read_runs(out / "runs.jsonl"))
    title, plots = experiment.title or experiment.name, experiment.report.plots
    write_report(out, title, text, rows, environment=environment(), plots=plots)
    return rows


def _carry_out(experiment: Experiment, todo: Sequence[Planned], out: Path) -> Any:
    """Yield a row for each run as it finishes: strategies through the engine, baselines here."""
    references = References()
    by_id = {run.id: run for run in todo if run.kind == "strategy"}
    if by_id:
        job = Job(
            runs=[run.spec() for run in by_id.values()],
            out=str((out / "results").resolve()),
            deadline=experiment.deadline,
            threads=experiment.threads,
        )
        waiting = list(by_id)
        try:
            for finished in ENGINES[experiment.engine](job):
                waiting.remove(finished)
                yield _strategy_row(by_id[finished], experiment, references, out)
        except (InputError, ProtocolError) as error:
            # they run one after the other, so it is the next one's
            raise type(error)(f"run {waiting[0]}: {error}" if waiting else str(error)) from error
    for run in todo:
        if run.kind == "baseline":
            yield _baseline_row(run, experiment, references, out)


class References:
    """Exact answers by data and method, computed once for all runs that are compared with them."""

    def __init__(self) -> None:
        self._known: dict[str, KernelPCA] = {}

    def of(self, strategy: KernelStrategy[KernelPCA], run: Planned) -> KernelPCA:
        """Return what the strategy's method finds with all data in one place."""
        experiment = run.point.experiment
        asked = [getattr(strategy, name, None) for name in ("n_components", "kernel", "center")]
        key = repr((experiment.data, experiment.partition, run.seed, type(strategy).central.__qualname__, asked))
        if key not in self._known:
            self._known[key] = strategy.central(run.shards)
        return self._known[key]


def _strategy_row(run: Planned, experiment: Experiment, references: References, out: Path) -> Run:
    strategy = run.strategy()
    result = Result.load(out / "results" / run.id)
    reference = references.of(strategy, run)
    metrics = result.metrics | strategy.compare(result.model, reference, run.shards)
    phases: dict[str, float] = {}
    for row in result.history:
        phases[row["phase"]] = phases.get(row["phase"], 0.0) + row["seconds"]
    return Run(
        **_common(run, experiment),
        metrics=dict(metrics),
        **result.ledger.totals(),
        seconds=result.seconds,
        phases=phases,
        history=_history(result, reference),
        model=f"results/{run.id}/model.npz",
    )


def _history(result: Result[KernelPCA], reference: KernelPCA) -> list[Any]:
    """Return the rows of the rounds, with the error of each round's estimate where the method keeps them."""
    history = [dict(row) for row in result.history]
    if result.model.iterates_ is not None:
        rounds = [row for row in history if row["round"] > 0]
        for row, estimate in zip(rounds, result.model.iterates_, strict=False):
            error = sin_theta_error(reference.eigenvectors_, estimate)
            row["values"] = {**row.get("values", {}), "error": error}
    return history


def _baseline_row(run: Planned, experiment: Experiment, references: References, out: Path) -> Run:
    baseline = run.baseline()
    reference = references.of(baseline.strategy, run)
    began = time.perf_counter()
    model, metrics = baseline.run(run.shards, reference)
    seconds = time.perf_counter() - began
    path = f"results/{run.id}/model.npz"
    model.save(out / path)
    floats = baseline.floats_up(run.shards)
    traffic = {"floats_up": floats, "bytes_up": 8 * floats, "floats_down": 0, "bytes_down": 0, "rounds": 0}
    return Run(**_common(run, experiment), metrics=dict(metrics), **traffic, seconds=seconds, model=path)


def _common(run: Planned, experiment: Experiment) -> dict[str, Any]:
    return {
        "id": run.id,
        "name": run.method.name,
        "kind": run.kind,
        "method": run.method.method,
        "parameters": json.loads(json.dumps(run.parameters)),
        "point": run.point.values,
        "seed": run.seed,
        "engine": experiment.engine if run.kind == "strategy" else "none",
        "clients": run.point.experiment.clients,
        "group": run.method.group,
    }


def environment() -> dict[str, str]:
    """Return what the numbers may depend on: versions and the number of processors."""
    packages = {name: version(name) for name in ("fedkernel", "flwr", "numpy", "scipy", "scikit-learn")}
    return {"python": platform.python_version(), **packages, "processors": str(os.cpu_count())}
