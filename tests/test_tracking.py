"""What MLflow is told of an experiment's runs, by a stand-in that keeps it and refuses what MLflow would."""

import json
import re
import sys
import types
from collections import namedtuple
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import configs
import pytest
from click.testing import Result
from test_report import a_run
from typer.testing import CliRunner

from experiments import cli
from experiments.config import read_config
from experiments.results import read_runs
from experiments.running import MLflowTracking, carrying_out
from fedkernel.engines import ENGINES
from fedkernel.run.job import Job

TINY = (
    configs.TINY.partition("[[strategy]]")[0]
    + """
[[strategy]]
name = "several (rounds)"
method = "VFedPCA"
merge = "eigenvalue"
rounds = 2
[[baseline]]
name = "central"
method = "central PCA"
[sweep]
"strategy.*.rounds" = [2, 3]
[report]
plots = false
"""
)


Metric, Param = namedtuple("Metric", "key value timestamp step"), namedtuple("Param", "key value")


@dataclass
class Told:
    """A run as MLflow has it."""

    experiment: str
    name: str
    tags: dict[str, str]
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[tuple[str, int], float] = field(default_factory=dict)
    artifacts: list[str] = field(default_factory=list)
    status: str = "RUNNING"


class MlflowClient:
    """The part of MLflow 3.17's client that is used: its signatures, limits of a request, names, what cannot change."""

    experiments: dict[str, str]
    runs: dict[str, Told]
    failing_after: int | None = None

    def get_experiment_by_name(self, name: str) -> Any:
        return types.SimpleNamespace(experiment_id=self.experiments[name]) if name in self.experiments else None

    def create_experiment(self, name: str, artifact_location: str | None = None, tags: Any = None) -> str:
        assert name not in self.experiments
        self.experiments[name] = str(len(self.experiments) + 1)
        return self.experiments[name]

    def search_runs(
        self, experiment_ids: list[str], filter_string: str = "", run_view_type: int = 1, max_results: int = 1000
    ) -> list[Told]:
        clauses = re.fullmatch(r"tags\.`([^`]+)` = '(\w+)' and attributes\.status = '(\w+)'", filter_string)
        assert clauses is not None
        tag, value, status = clauses.groups()
        runs = [run for run in self.runs.values() if run.experiment in experiment_ids]
        return [run for run in runs if (run.tags.get(tag), run.status) == (value, status)][:max_results]

    def create_run(
        self, experiment_id: str, start_time: int | None = None, tags: Any = None, run_name: str | None = None
    ) -> Any:
        if self.failing_after is not None and len(self.runs) >= self.failing_after:
            raise ConnectionError("no answer\nfrom the server")
        assert all(isinstance(value, str) for value in tags.values())
        key = str(len(self.runs))
        self.runs[key] = Told(experiment_id, run_name or "", dict(tags))
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=key))

    def log_batch(
        self, run_id: str, metrics: Sequence[Metric] = (), params: Sequence[Param] = (), tags: Sequence[Any] = ()
    ) -> None:
        assert len(metrics) <= 1000
        assert len(params) <= 100
        run = self.runs[run_id]
        for entry in (*metrics, *params):
            assert re.fullmatch(r"[/\w.\- :]{1,250}", entry.key)
        for param in params:
            assert run.params.setdefault(param.key, param.value) == param.value
        for metric in metrics:
            assert (metric.key, metric.step) not in run.metrics
            run.metrics[metric.key, metric.step] = metric.value

    def log_artifact(self, run_id: str, local_path: str, artifact_path: str | None = None) -> None:
        assert Path(local_path).is_file()
        self.runs[run_id].artifacts.append(Path(local_path).name)

    def set_terminated(self, run_id: str, status: str | None = None, end_time: int | None = None) -> None:
        self.runs[run_id].status = status or "FINISHED"


@pytest.fixture(autouse=True)
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[MlflowClient]:
    """A stand-in for the package, with an empty store, and a folder with an experiment to work in."""
    monkeypatch.chdir(tmp_path)
    Path("tiny.toml").write_text(TINY, encoding="utf-8")
    store = type("Store", (MlflowClient,), {"experiments": {}, "runs": {}})
    package, entities = types.ModuleType("mlflow"), types.ModuleType("mlflow.entities")
    vars(entities).update(Metric=Metric, Param=Param)
    vars(package).update(MlflowClient=store, entities=entities)
    monkeypatch.setitem(sys.modules, "mlflow", package)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    return store


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, arguments)


def test_every_row_is_a_run_with_all_that_it_measured(mlflow: type[MlflowClient]) -> None:
    done = call("run", "tiny.toml", "--track", "mlflow")
    assert (done.exit_code, done.stderr) == (0, "")
    rows, runs = read_runs("runs/tiny/runs.jsonl"), list(mlflow.runs.values())
    assert mlflow.experiments == {"tiny": "1"}
    assert [run.name for run in runs] == [row.id for row in rows]
    assert {(run.experiment, run.status, *run.artifacts) for run in runs} == {("1", "FINISHED", "config.toml")}
    for row, run in zip(rows, runs, strict=True):
        for name in ("rounds", "floats_up", "bytes_down", "seconds"):
            assert run.metrics[name, 0] == getattr(row, name)
        for name, value in row.metrics.items():
            assert run.metrics.get((name, 0)) == value
        for line in row.history:
            assert run.metrics["round/floats_up", line.round] == line.floats_up
            assert run.metrics.get(("round/error", line.round)) == line.values.get("error")
        assert len({step for name, step in run.metrics if name == "round/seconds"}) == len(row.history)
        tags = {key: run.tags[key] for key in ("name", "method", "engine", "seed", "kind")}
        assert tags == {key: str(getattr(row, key)) for key in tags}
        assert json.loads(run.tags["point"]) == row.point
        assert Path(run.tags["model"]).is_file()
        assert run.params["data.name"] == "iris"
        # MLflow takes no star
        assert run.params["strategy._.rounds"] == str(row.point["strategy.*.rounds"])
    assert runs[0].params["rounds"] == "2"


def test_what_is_there_is_not_told_again_and_else_it_is(
    mlflow: type[MlflowClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(job: Job) -> Iterator[str]:
        yield from ENGINES["local"](job.model_copy(update={"runs": job.runs[:1]}))
        raise KeyboardInterrupt

    monkeypatch.setattr(carrying_out, "ENGINES", {"local": interrupted})
    assert call("run", "tiny.toml", "--track", "mlflow").exit_code == 130
    assert len(mlflow.runs) == 1
    monkeypatch.setattr(carrying_out, "ENGINES", ENGINES)
    for _ in range(2):
        assert call("run", "tiny.toml", "--track", "mlflow").exit_code == 0
        assert [run.name for run in mlflow.runs.values()] == [row.id for row in read_runs("runs/tiny/runs.jsonl")]
    assert len(mlflow.runs) == 8
    # the same anew are other runs; what finished untracked is told once it is tracked
    assert call("run", "tiny.toml", "--out", "again").exit_code == 0
    assert len(mlflow.runs) == 8
    assert call("run", "tiny.toml", "--out", "again", "--track", "mlflow").exit_code == 0
    assert len(mlflow.runs) == 16
    mlflow.runs["3"].status = "RUNNING"  # it was not told whole
    assert call("run", "tiny.toml", "--track", "mlflow").exit_code == 0
    assert [run.name for run in mlflow.runs.values()][16:] == [mlflow.runs["3"].name]


def test_a_server_that_fails_costs_no_run(mlflow: type[MlflowClient]) -> None:
    mlflow.failing_after = 2
    done = call("run", "tiny.toml", "--track", "mlflow")
    error = "error: not all runs are in MLflow, where the same command goes on: "
    assert (done.exit_code, done.stderr) == (1, f"{error}ConnectionError: no answer from the server\n")
    assert "Report: runs/tiny/report.html" in done.stdout
    assert len(read_runs("runs/tiny/runs.jsonl")) == 8
    mlflow.failing_after = None
    assert call("run", "tiny.toml", "--track", "mlflow").exit_code == 0
    assert len(mlflow.runs) == 8


def test_long_runs_are_told_in_parts(mlflow: type[MlflowClient], tmp_path: Path) -> None:
    traffic = {"floats_up": 1, "floats_down": 1, "bytes_up": 8, "bytes_down": 8}
    history = [{"round": t, "phase": "P", "seconds": 0.1, "clients": 2, **traffic} for t in range(1, 501)]
    parameters = {"many": {f"p{number}": number for number in range(250)}}
    row = a_run(parameters=parameters, metrics={"my.own:metric": 1.0}, rounds=500, history=history)
    (tmp_path / "config.toml").touch()
    tracking = MLflowTracking(read_config(Path("tiny.toml")), tmp_path)
    tracking(row.model_copy(update={"point": {"strategy.*.rounds": 2}}))
    assert tracking.failure is None
    (run,) = mlflow.runs.values()
    assert run.params["many.p249"] == "249"
    assert run.metrics["my.own_metric", 0] == 1.0
    assert [step for name, step in run.metrics if name == "round/bytes_up"] == [*range(1, 501)]


def test_without_the_package_one_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    done = call("run", "tiny.toml", "--track", "mlflow")
    error = "error: track = 'mlflow' needs MLflow, which is not installed here: pip install 'fedkernel[mlflow]'\n"
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", error)
    assert not Path("runs").exists()
    assert call("run", "tiny.toml").exit_code == 0
