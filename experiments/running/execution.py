"""Execution of an experiment: runs the missing runs, records each, and writes the report."""

import json
import logging
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedkernel import models
from fedkernel.data import has_label
from fedkernel.engines import ENGINES, Engine
from fedkernel.experiments import results
from fedkernel.experiments.baselines import Baseline, Duration, cohort, timed
from fedkernel.experiments.claims import Claim, check_claims
from fedkernel.experiments.config import Experiment, Sites
from fedkernel.experiments.report import write_report
from fedkernel.experiments.results import Failure, Run
from fedkernel.experiments.running.folder import FAILURES, RUNS, failures_in, open_folder
from fedkernel.experiments.running.planning import Planned, plan, run_ids, study_of
from fedkernel.experiments.running.result_additions import row_picture, with_column_info
from fedkernel.flower_apps import APPS
from fedkernel.ground import AnyArray, InputError, ProtocolError, blas_threads, stack_rows
from fedkernel.protocol.forecast import table_share
from fedkernel.run import FailedRun, Result, remove_journal
from fedkernel.wire import Job, Study

log = logging.getLogger(__name__)

MOST_EQUAL_FAILURES = 3  # of one cause, with no finished run, after which the experiment stops
Progress = Callable[[str, int, int], None]  # takes the name of a finished run, the number of them, and the total

References = dict[str, tuple[models.Model, Duration]]
"""Central answers by data and method, and the durations of computing them with a client's thread count."""


class Outcome(NamedTuple):
    """Outcome of an experiment: finished runs in order, claims, ids of missing runs, and failures."""

    rows: list[Run]
    claims: list[Claim]
    missing: list[str]
    failed: list[Failure]

    @property
    def summary(self) -> str:
        """One sentence about the failed runs, or "" if none failed."""
        total = len(self.rows) + len(self.missing) + len(self.failed)
        return results.summary_of(self.failed, total) if self.failed else ""


def run_experiment(
    experiment: Experiment,
    out: Path,
    *,
    restart: bool = False,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> Outcome:
    """Run all unfinished runs of an experiment, write results and report, and return the outcome.

    A failed run is recorded with its cause, and the next one begins. Raises InputError for anything wrong with the
    configuration, its data or the folder, and where all runs fail for such a reason; ProtocolError if all runs fail for
    other reasons; EngineError if the engine cannot go on.

    - `out`: output folder: ``config.json``, ``config.toml``, ``data.json``, ``runs.jsonl``, ``failures.jsonl``,
      ``results/<id>/``, ``plots/``, ``report.html``.
    - `restart`: delete the experiment that the folder holds; other files in it stay.
    - `engine`: in place of the configuration's engine with its default options.
    """
    if isinstance(experiment.data, Sites) and engine is None and experiment.engine != "superlink":
        source = experiment.source
        raise InputError(f"{source}: data.sites hold their own data; `fedkernel serve {source}` waits for them")
    import sklearn.cluster  # noqa: F401, PLC0415 - here, and not within the seconds that the first run is said to take

    with blas_threads(experiment.threads):
        planned = plan(experiment)
    rows = open_folder(out, experiment, restart)
    results.write_shapes(out, planned[0].shapes, planned[0].dropped)
    done = {row.id for row in rows}
    for row in rows:
        remove_journal(out / "results" / row.id)
    study = study_of(experiment, planned)
    failures = {failure.id: failure for failure in failures_in(out, experiment, rows)}
    todo, failed = [run for run in planned if run.id not in done], list[Planned]()
    try:
        for run, row_or_failure in _ended_runs(experiment, todo, study, out, engine):
            if isinstance(row_or_failure, FailedRun):
                failed.append(run)
                before = failures.pop(run.id, None)
                failures[run.id] = Failure.of(row_or_failure, run.method.name, run.point.values, run.seed, before)
                results.write_failures(out / FAILURES, list(failures.values()))
                log.info("run %s has failed: %s", run.id, row_or_failure.text, exc_info=row_or_failure.error)
                if _always_fails(failed, [failures[each.id] for each in failed], todo, len(rows) > len(done)):
                    break
                continue
            results.append_run(out / RUNS, row_or_failure)
            if failures.pop(run.id, None) is not None:
                results.write_failures(out / FAILURES, list(failures.values()))
            remove_journal(out / "results" / row_or_failure.id)
            rows.append(row_or_failure)
            if progress is not None:
                progress(row_or_failure.id, len(rows), len(planned))
    except (InputError, ProtocolError) as error:
        if not rows:
            raise
        finished = f"{len(rows)} of {len(planned)} runs are finished: fedkernel report {out}"
        raise error.reworded(f"{error}; {finished}") from error
    if not rows:
        ours = [failures[run.id] for run in failed]
        refused = all(failure.kind == InputError.__name__ for failure in ours)
        raise (InputError if refused else ProtocolError)(results.summary_of(ours, len(planned)))
    return conclude(experiment, rows, out)


def _always_fails(
    failed: Sequence[Planned], failures: Sequence[Failure], todo: Sequence[Planned], some_finished: bool
) -> bool:
    """Return whether the first runs all failed for the same cause, at different settings if there are any."""
    if some_finished or len(failed) < MOST_EQUAL_FAILURES or len({failure.cause for failure in failures}) > 1:
        return False
    tried, all_ = ({(run.method.name, run.point.suffix) for run in runs} for runs in (failed, todo))
    return len(tried) >= min(MOST_EQUAL_FAILURES, len(all_))


def conclude(experiment: Experiment, runs: Sequence[Run], out: Path) -> Outcome:
    """Check the claims against the finished runs, and write the report."""
    outcome = outcome_of(experiment, runs, out)
    rows, claims, missing, failed = outcome
    write_report(out, experiment, rows, claims=claims, missing=missing, failed=failed, environment=environment())
    return outcome


def outcome_of(experiment: Experiment, runs: Sequence[Run], out: Path) -> Outcome:
    """Check the claims against the finished runs, and return the outcome. Failures are read from the output folder."""
    rows, failed = results.in_order(runs), failures_in(out, experiment, runs)
    claims = check_claims(experiment.claim, rows, experiment.settings_and_seeds, failed)
    without = {failure.id for failure in failed}
    return Outcome(rows, claims, [id_ for id_ in unfinished(experiment, runs) if id_ not in without], failed)


def unfinished(experiment: Experiment, runs: Sequence[Run]) -> list[str]:
    """Return the ids of the runs without a row: failed, or not begun."""
    finished = {run.id for run in runs}
    return [id_ for id_ in run_ids(experiment) if id_ not in finished]


def _ended_runs(
    experiment: Experiment, todo: Sequence[Planned], study: Study | None, out: Path, engine: Engine | None
) -> Iterator[tuple[Planned, Run | FailedRun]]:
    """Yield each run's row or failure as the run ends. The engine runs strategies, and baselines run here."""
    references: References = {}
    by_id = {run.id: run for run in todo if run.baseline is None}
    if by_id:
        job = Job(
            runs=[run.spec for run in by_id.values()],
            study=study,
            signatures=experiment.data.signatures if isinstance(experiment.data, Sites) else [],
            apps=APPS,
            out=str((out / "results").resolve()),
            deadline=experiment.deadline,
            deadlines=experiment.deadlines,
            quorum=experiment.quorum,
            threads=experiment.threads,
            journals=True,
            go_on=True,
        )
        waiting = list(by_id)
        # runs are sequential: an engine's error belongs to the next one
        where = f"run {waiting[0]}: "
        try:
            for ended in (engine or ENGINES[experiment.engine])(job):
                run = by_id[ended.run if isinstance(ended, FailedRun) else ended]
                waiting.remove(run.id)
                yield run, ended if isinstance(ended, FailedRun) else _row_or_failure(run, references, out)
                where = f"run {waiting[0]}: " if waiting else ""
        except (InputError, ProtocolError) as error:
            raise error.reworded(f"{where}{error}") from error
    for run in todo:
        if run.baseline is not None:
            yield run, _row_or_failure(run, references, out)


def _row_or_failure(run: Planned, references: References, out: Path) -> Run | FailedRun:
    try:
        if run.baseline is not None:
            return _baseline_row(run, run.baseline, references, out)
        with blas_threads(run.point.experiment.threads):
            return _strategy_row(run, references, out)
    except Exception as error:
        return FailedRun.of(run.id, error)


def _reference(run: Planned, known: References) -> tuple[models.Model, Duration] | tuple[None, None]:
    """Return the central model for a run, and its duration. Both are None if the method or the report has none."""
    experiment, strategy = run.point.experiment, run.strategy
    if not strategy.has_central() or not experiment.report.reference or isinstance(experiment.data, Sites):
        return None, None
    key = repr((experiment.data, experiment.partition, experiment.prepare, run.seed, run.order, strategy.central_key))
    if key not in known:
        with blas_threads(experiment.threads):
            known[key] = timed(strategy.central, run.shards)
    return known[key]


def _strategy_row(run: Planned, references: References, out: Path) -> Run:
    strategy = run.strategy
    result = Result.load(out / "results" / run.id)
    metrics, history = result.metrics, [dict(row) for row in result.history]
    (reference, _), shards = _reference(run, references), run.shards
    if (described := with_column_info(result, run)) is not result:
        described.fitted.save(out / "results" / run.id / "model.npz")
    _store_pictures(run, [result.model], result.outputs, out)
    stability, unmeasured = _stability(run, result.model, out)
    metrics |= stability
    if shards:  # else the sites hold the data
        metrics |= strategy.judge(result, shards, reference)
        metrics |= models.compute_metrics(run.point.experiment.metrics, result.model, shards, run.all_classes, run.seed)
    figures: dict[str, float] = {}  # of every method's runs
    if members := cohort(run.tables):
        figures["table_share"] = table_share(result.ledger.floats_by_reader(), members)
    if reference is not None:
        _add_errors(history, strategy.judge_steps(result, shards, reference))
    labels = [outputs["labels"] for outputs in result.outputs.values() if "labels" in outputs]
    if labels and run.classes is not None:
        figures |= models.compare_classes(np.concatenate(labels), np.concatenate(run.classes))
    figures |= _per_iteration(history)
    # the clients' computing seconds on separate machines: the slowest client's, summed over rounds
    figures["parallel_seconds"] = float(sum(row.get("slowest_seconds", 0.0) for row in history))
    phases: dict[str, float] = {}
    for row in result.history:
        phases[row["phase"]] = phases.get(row["phase"], 0.0) + row["seconds"]
    return Run(
        **_common_fields(run),
        metrics=dict(metrics | figures),
        **result.ledger.totals(),
        seconds=result.seconds,
        phases=phases,
        history=history,
        model=f"results/{run.id}/model.npz",
        findings=[*result.findings, *unmeasured, *_label_findings(run), *_name_findings(run, metrics, figures)],
    )


def _name_findings(run: Planned, own: Mapping[str, float], figures: Mapping[str, float]) -> list[str]:
    """Return a warning for each figure or metric that is hidden by a registered one of the same name."""
    taken = [name for name in own if name in figures or models.metric_of(name).counted]
    pair, named = type(run.strategy).__name__, models.namesakes(run.point.experiment.metrics)
    return [
        *(f"{name} is the one of fedkernel list metrics; {pair}'s own is hidden until it is renamed" for name in taken),
        *(
            f"{name} is the one of fedkernel list metrics; {other} is by its address only"
            for name, other in named.items()
        ),
    ]


def _stability(run: Planned, model: models.Model, out: Path) -> tuple[dict[str, float], list[str]]:
    """Return the agreement of a run's clusters with the first seed's, or a sentence if that seed has no result."""
    experiment, first = run.point.experiment, out / "results" / run.first_seed_id / "model.npz"
    here = experiment.evaluate and bool(run.shards)
    if not here or not isinstance(model, models.KernelKMeans) or run.seed == experiment.seeds[0]:
        return {}, []
    if not first.exists():
        return {}, [f"stability is not measured: run {run.first_seed_id}, with the first seed, has no result"]
    rows = stack_rows(list(run.shards))
    clusters, others = model.predict(rows), models.load_model(first).predict(rows)
    return {"stability": models.compare_classes(clusters, others)["ari"]}, []


def _add_errors(history: list[dict[str, Any]], errors: Mapping[str, Sequence[float]]) -> None:
    """Add errors of the estimates to the last history row of each iteration, or else to each round's row."""
    rows = {row["values"]["t"]: row for row in history if "t" in row.get("values", {})}
    steps = list(rows.values()) or [row for row in history if row["round"] > 0]
    for name, values in errors.items():
        for row, value in zip(steps, values, strict=False):
            row["values"] = {**row.get("values", {}), name: value}


def _per_iteration(history: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the means of floats and Lanczos iterations over outer iterations, or nothing if there are none."""
    rows = [row for row in history if "t" in row.get("values", {})]
    if not rows:
        return {}
    iterations = len({row["values"]["t"] for row in rows})
    means = {"floats_up_per_iteration": sum(row["floats_up"] for row in rows) / iterations}
    steps = {(row["values"]["t"], row["values"]["lanczos_step"]) for row in rows if "lanczos_step" in row["values"]}
    return means | ({"lanczos_iterations": len(steps) / iterations} if steps else {})


def _baseline_row(run: Planned, baseline: Baseline, references: References, out: Path) -> Run:
    experiment, shards, (reference, spent) = run.point.experiment, run.shards, _reference(run, references)
    with blas_threads(experiment.threads):
        done = baseline.run(shards, reference, run.classes, run.seed)
    # the central answer was found before, for all runs that are compared with it
    durations = done.durations if spent is None or baseline.place != "central" else [spent]
    named, classes = experiment.metrics, run.all_classes
    own = [models.compute_metrics(named, model, shards, classes, run.seed) for model in done.models]
    metrics = done.metrics | models.mean_over_clients(own)
    _store_pictures(run, done.models, {}, out)
    metrics |= {"parallel_seconds": max(duration.processor for duration in durations)}
    path = f"results/{run.id}/model.npz"
    models.save_model(done.models[0], out / path)
    floats = baseline.floats_up(shards)
    traffic = {"floats_up": floats, "bytes_up": 8 * floats, "floats_down": 0, "bytes_down": 0, "rounds": 0}
    fields = _common_fields(run) | traffic | {"seconds": sum(duration.clock for duration in durations)}
    return Run(**fields, metrics=dict(metrics), model=path, findings=_label_findings(run))


def _label_findings(run: Planned) -> list[str]:
    """Return a warning if some rows have no label. Metrics that compare with labels leave these rows out."""
    labelled = has_label([] if run.all_classes is None else run.all_classes)
    if labelled.all():
        return []
    lacking = len(labelled) - int(labelled.sum())
    return [f"{lacking:,} of {len(labelled):,} rows have no label; metrics that compare with labels leave them out"]


def _store_pictures(
    run: Planned, run_models: Sequence[models.Model], outputs: Mapping[int, Mapping[str, AnyArray]], out: Path
) -> None:
    """Store the report's pictures: component directions where columns are pixels, and row coordinates."""
    components = [model for model in run_models if isinstance(model, models.KernelPCA)]
    if run.point.experiment.report.images and components and (directions := run.directions(components)) is not None:
        results.write_directions(out, run.id, directions)
    if (picture := row_picture(run, run_models[0], outputs)) is not None:
        results.write_row_picture(out, run.id, picture)


def _common_fields(run: Planned) -> dict[str, Any]:
    experiment, kind = run.point.experiment, "strategy" if run.baseline is None else "baseline"
    method = {"id": run.id, "kind": kind, **{key: getattr(run.method, key) for key in ("name", "method", "group")}}
    setting = {"point": run.point.values, "seed": run.seed, "clients": experiment.clients}
    engine = experiment.engine if kind == "strategy" else "none"
    return {**method, **setting, "parameters": json.loads(json.dumps(run.parameters)), "engine": engine}


def environment() -> dict[str, str]:
    """Return the versions of Python and packages, and the number of processors."""
    packages = {name: version(name) for name in ("fedkernel", "flwr", "numpy", "scipy", "scikit-learn")}
    return {"python": platform.python_version(), **packages, "processors": str(os.cpu_count())}
