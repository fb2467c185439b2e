"""Flower's simulation gives the local engine's numbers, fails with the cause, and leaves nothing behind."""

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from refusals import refusing
from scipy import sparse

from fedkernel import EngineError, InputError, Result
from fedkernel.data import DataSpec, PartitionSpec, as_table, load
from fedkernel.engines import ray
from fedkernel.engines.local import run_job as run_local
from fedkernel.experiments.config import read_config
from fedkernel.experiments.results import read_runs
from fedkernel.experiments.running import run_experiment
from fedkernel.flower_apps import APPS
from fedkernel.strategy.simulation import as_file
from fedkernel.wire import Job, RunSpec

pytestmark = [pytest.mark.ray, pytest.mark.xdist_group("ray")]

QUICKSTART = Path(__file__).parents[2] / "experiments" / "quickstart.toml"
WINE = {"data": DataSpec("wine", scale="standard"), "partition": PartitionSpec(clients=3), "clients": 3}

KERNEL = {"type": "rbf", "gamma": 0.05}
MERGED = {"n_components": 2, "kernel": KERNEL, "rounds": 3}
CLUSTERING = {"n_clusters": 3, "n_features": 10, "iterations": 2, "clusters": "lloyd"}
CHOSEN = {"n_clusters": "auto", "n_features": 20, "max_clusters": 4}
SPECTRAL = {"n_clusters": 3, "components": {"n_components": 4, "kernel": KERNEL, "n_adaptive": 20, "share_rows": True}}
ADMM = {"n_components": 2, "kernel": KERNEL, "iterations": 4, "exchange": "features", "n_features": 50, "record": True}


@pytest.fixture
def nothing_left(monkeypatch):
    """Fails a test after which a process of its SuperLinks is alive or one of their folders is there."""
    homes = []
    stop = ray._stop
    monkeypatch.setattr(ray, "_stop", lambda process, home: (homes.append(home), stop(process, home)))
    yield
    assert homes, "no SuperLink was started"
    for home in homes:
        assert ray._descendants(home, {}) == {}
        assert not home.exists()


@pytest.mark.usefixtures("nothing_left")
def test_one_start_carries_all_runs_until_one_fails_with_its_cause(tmp_path, monkeypatch):
    """Other processes find what earlier rounds left; sparse rows are read by sites from files of their own."""
    # paths of the job and of a folder of data sets are relative to the folder that this is started from
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDKERNEL_DATA", "sets")
    Path("sets").mkdir()
    np.savez("sets/mine.npz", X=load(WINE["data"]).X)
    dense = np.random.default_rng(0).standard_normal((150, 20)) * (np.random.default_rng(1).random((150, 20)) < 0.3)
    parts = [sparse.csr_array(part) for part in np.array_split(dense, 3)]
    files = [as_file(as_table(part, "the rows"), Path(f"sparse-{number}")) for number, part in enumerate(parts)]
    landmarks = {"n_components": 4, "kernel": {"type": "rbf", "gamma": 0.1}, "n_adaptive": 20, "share_rows": True}
    mine = WINE | {"data": DataSpec("mine")}
    horizontal = WINE | {"partition": PartitionSpec(kind="horizontal", method="iid", clients=3)}
    runs = [
        RunSpec(id="merged", strategy="VFedAKPCA", parameters=MERGED, **WINE),
        RunSpec(id="one-shot", strategy="DKPCA", parameters={"n_components": 3}, seed=1, **mine),
        RunSpec(id="clusters", strategy="FKKMeans", parameters=CLUSTERING, sums="masked", **horizontal),
        RunSpec(id="centres", strategy="CentroidKMeans", parameters={"n_clusters": 3}, sums="masked", **horizontal),
        RunSpec(id="spectral", strategy="SpectralKMeans", parameters=SPECTRAL, **horizontal),
        RunSpec(id="chosen", strategy="RFKKMeans", parameters=CHOSEN, **horizontal),
        RunSpec(id="nodes", strategy="ADMMKPCA", parameters=ADMM, **horizontal),
        RunSpec(id="sparse", strategy="DisKPCA", parameters=landmarks, shards=files, clients=3, evaluate=True, seed=5),
        RunSpec(id="peers", strategy="PeerVFedPCA", parameters={"graph": "ring", "rounds": 2}, **WINE),
        RunSpec(id="impossible", strategy="DKPCA", parameters={"n_components": 1000}, **WINE),
        RunSpec(id="after", strategy="DKPCA", parameters={"n_components": 3}, **WINE),
    ]
    names = [run.id for run in runs[:-2]]
    finished = ray.run_job(Job(runs=runs, apps=APPS, out="ray", whole=True))  # as `fit` asks for
    assert [next(finished) for _ in names] == names
    with pytest.raises(InputError, match="n_components = 1000, but must be at most the number of rows, 178"):
        next(finished)
    assert list(run_local(Job(runs=runs[:-2], apps=APPS, out=str(tmp_path / "local"), whole=True))) == names
    for name in names:
        one, two = (Result.load(tmp_path / engine / name) for engine in ("local", "ray"))
        assert one.ledger == two.ledger, name
        assert one.ledger.letters == two.ledger.letters
        assert one.metrics == pytest.approx(two.metrics, abs=1e-12)
        assert bool(one.metrics) == (name in ("sparse", "chosen"))
        assert sorted(one.outputs) == sorted(two.outputs) == ([] if name == "one-shot" else [0, 1, 2])
        for client, outputs in one.outputs.items():
            assert outputs.keys() == two.outputs[client].keys()
            for output, expected in outputs.items():
                np.testing.assert_allclose(two.outputs[client][output], expected, rtol=0, atol=1e-10)
        for key, expected in vars(one.model).items():
            assert type(getattr(two.model, key)) is type(expected), (name, key)
            if isinstance(expected, np.ndarray):
                np.testing.assert_allclose(getattr(two.model, key), expected, rtol=0, atol=1e-10)
    chosen = Result.load(tmp_path / "ray" / "chosen").model
    assert chosen.coreset_ is not None
    assert chosen.choice_ is not None
    assert bool(one.ledger.letters), "the last ones wrote to each other"


@pytest.mark.parametrize(
    ("statuses", "says"),
    [
        ([("running", ""), ("finished:failed", "no memory")], "the simulation ended as finished:failed: no memory"),
        ([("finished:stopped", "")], "the simulation ended as finished:stopped: its log has the cause"),
        ([("finished:completed", "")], "the simulation ended without a result for run second"),
    ],
)
def test_an_end_that_leaves_no_cause_is_told_with_the_status(tmp_path, monkeypatch, statuses, says):
    monkeypatch.setattr(ray, "STATUS_SECONDS", 0.0)
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "result.json").touch()
    runs = [RunSpec(id=name, strategy="DKPCA", **WINE) for name in ("first", "second")]
    finished = ray._results(Job(runs=runs), tmp_path, iter(statuses).__next__)
    assert next(finished) == "first"
    with refusing(whole=says, error=EngineError):
        next(finished)


def test_without_ray_the_error_says_what_to_install(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ray" else find(name))
    with pytest.raises(EngineError, match=r"pip install 'fedkernel\[simulation\]'"):
        next(ray.run_job(Job(apps=APPS, runs=[RunSpec(id="run", strategy="DKPCA", **WINE)], out="unused")))


@pytest.mark.drill
def test_a_terminated_command_keeps_what_is_finished_and_ends_what_it_started(tmp_path):
    """The quickstart, whose first rows have the local engine's figures."""

    def started_here():
        marker = f"FEDKERNEL_TEST={tmp_path}".encode()
        paths = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                paths += [path] if marker in path.read_bytes() else []
        return paths

    fedkernel = Path(sys.executable).parent / "fedkernel"
    command = [fedkernel, "run", QUICKSTART, "--engine", "ray", "--out", tmp_path / "out"]
    # A long folder for temporary files, too: Ray's sockets would not fit in.
    (tmp_path / ("long" * 10)).mkdir()
    environment = {**os.environ, "FEDKERNEL_TEST": str(tmp_path), "TMPDIR": str(tmp_path / ("long" * 10))}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
    rows, give_up = tmp_path / "out" / "runs.jsonl", time.monotonic() + 150
    while not (rows.exists() and len(read_runs(rows)) > 2) and time.monotonic() < give_up:
        time.sleep(0.1)
    assert len(started_here()) > 3  # the command, the SuperLink, the simulation, Ray's
    process.terminate()
    process.communicate(timeout=150)
    assert process.returncode == 128 + signal.SIGTERM
    assert not started_here()
    finished = read_runs(rows)
    assert len(finished) > 2
    local = {row.id: row for row in run_experiment(read_config(QUICKSTART, ["seeds=[0]"]), tmp_path / "local").rows}
    for row in finished:
        expected = local[row.id]
        assert row.metrics.keys() == expected.metrics.keys()
        for name, value in expected.metrics.items():
            if name != "parallel_seconds":  # a time
                assert row.metrics[name] == pytest.approx(value, abs=1e-12, rel=1e-12), (row.id, name)
        for name in ("rounds", "floats_up", "floats_down", "bytes_up", "bytes_down"):
            assert getattr(row, name) == getattr(expected, name), (row.id, name)
