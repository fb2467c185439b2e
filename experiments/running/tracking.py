"""Finished runs shown in MLflow, an extra: each row of runs.jsonl as a run there, and no row twice."""

import hashlib
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.config import Experiment, by_path
from experiments.results import Run, measured
from fedkernel.errors import InputError, one_line
from fedkernel.models import METRICS

MOST_METRICS, MOST_PARAMETERS = 1000, 100
"""How many of each a request to MLflow may have."""

MARK = "fedkernel.row"
"""The tag by which a row is found again."""

OF_ROUNDS = ("seconds", "slowest_seconds", "clients", "floats_up", "floats_down", "bytes_up", "bytes_down", "rows_up")


class MLflowTracking:
    """Shows an experiment's rows in MLflow, where its own environment variables say, such as MLFLOW_TRACKING_URI.

    Each row becomes a finished run of the MLflow experiment of the experiment's name: hyper-parameters, data, partition
    and swept values as parameters; metrics and what the run took as metrics, what its rounds tell as metrics
    ``round/NAME`` by step; engine, seed, point and the path of the saved model as tags; the configuration as its
    artifact. Models stay where they are, since some hold rows of data. A row that is there already is left out, also
    where the same experiment is continued or tracked later.

    What MLflow refuses ends no experiment: `failure` says it, and the rows from there on are not shown.

    Written for the `MlflowClient` of MLflow 3 (read and tried: 3.17).

    Parameters
    ----------
    experiment : Experiment
    out : Path
        Its output folder.

    Raises
    ------
    InputError
        If MLflow is not installed.
    """

    def __init__(self, experiment: Experiment, out: Path) -> None:
        try:
            import mlflow  # noqa: PLC0415 - an extra, and seconds to import
            import mlflow.entities  # noqa: PLC0415
        except ImportError:
            raise InputError(
                "track = 'mlflow' needs MLflow, which is not installed here: pip install 'fedkernel[mlflow]'"
            ) from None
        self.failure: str | None = None
        self._entities, self._make_client = mlflow.entities, mlflow.MlflowClient
        self._experiment, self._out = experiment, out
        self._client: Any = None
        self._id = ""

    def __call__(self, row: Run) -> None:
        """Show a row unless it is there already."""
        if self.failure is not None:
            return
        try:
            self._show(row)
        except Exception as error:  # whatever a store, a server or a network raises
            self.failure = one_line(f"{type(error).__name__}: {error}")

    def _show(self, row: Run) -> None:
        if self._client is None:  # not before a run is finished, or a bad configuration would leave something there
            self._client = self._make_client()
            known = self._client.get_experiment_by_name(self._experiment.name)
            self._id = known.experiment_id if known else self._client.create_experiment(self._experiment.name)
        mark = hashlib.sha256(row.model_dump_json().encode()).hexdigest()
        shown = f"tags.`{MARK}` = '{mark}' and attributes.status = 'FINISHED'"
        if self._client.search_runs([self._id], filter_string=shown, max_results=1):
            return
        now = int(1000 * time.time())
        run = self._client.create_run(
            self._id, start_time=now - int(1000 * row.seconds), tags=self._tags(row, mark), run_name=row.id
        )
        key: str = run.info.run_id
        parameters = [self._entities.Param(name, str(value)) for name, value in _named(self._parameters(row)).items()]
        metrics = [self._entities.Metric(name, value, now, step) for name, value, step in _metrics(row)]
        for start in range(0, len(parameters), MOST_PARAMETERS):
            self._client.log_batch(key, params=parameters[start : start + MOST_PARAMETERS])
        for start in range(0, len(metrics), MOST_METRICS):
            self._client.log_batch(key, metrics=metrics[start : start + MOST_METRICS])
        self._client.log_artifact(key, str(self._out / "config.toml"))
        self._client.set_terminated(key, status="FINISHED", end_time=now)

    def _parameters(self, row: Run) -> dict[str, Any]:
        table, changed = self._experiment.table, self._experiment.changes(row.point)
        of_data = by_path({key: table[key] for key in ("data", "partition") if key in table})
        of_data |= {key: value for key, value in changed.items() if key.partition(".")[0] in ("data", "partition")}
        return of_data | row.point | by_path(row.parameters)

    def _tags(self, row: Run, mark: str) -> dict[str, str]:
        tags = {"name": row.name, "kind": row.kind, "method": row.method, "engine": row.engine, "seed": str(row.seed)}
        tags |= {"point": json.dumps(row.point, default=str), "clients": str(row.clients), MARK: mark}
        if row.group is not None:
            tags["group"] = row.group
        if row.model is not None:
            tags["model"] = str((self._out / row.model).resolve())
        return tags


def _metrics(row: Run) -> Iterator[tuple[str, float, int]]:
    """Yield name, value and step of all that a row measured, those of the whole run at step 0."""
    counted = [name for name, metric in METRICS.items() if metric.counted]
    for name, value in _named({name: measured(row, name) for name in (*row.metrics, *counted)}).items():
        if value is not None:
            yield name, value, 0
    for line in row.history:
        for name, value in _named({name: getattr(line, name) for name in OF_ROUNDS} | line.values).items():
            if value is not None:
                yield f"round/{name}", value, line.round


def _named(values: dict[str, Any]) -> dict[str, Any]:
    """Return values by names that MLflow takes."""
    return {re.sub(r"[^\w. -]", "_", name)[:200]: value for name, value in values.items()}
