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
from scipy import sparse

from experiments.config import read_config
from experiments.rows import read_runs
from experiments.runner import run_experiment
from fedkernel import RBF
from fedkernel.data import DataSpec, PartitionSpec, load
from fedkernel.engines import ray
from fedkernel.engines.local import run_job as run_local
from fedkernel.errors import EngineError, InputError
from fedkernel.job import Job, RunSpec
from fedkernel.result import Result
from strategies import DisKPCA, SpectralKMeans, VFedAKPCA

pytestmark = [pytest.mark.ray, pytest.mark.xdist_group("ray")]

QUICKSTART = Path(__file__).parent.parent / "experiments" / "quickstart.toml"
WINE = {"data": DataSpec("wine", scale="standard"), "partition": PartitionSpec(clients=3), "clients": 3}

ROWS = PartitionSpec(kind="horizontal", clients=3)
CLUSTERING = {"n_clusters": 3, "n_features": 10, "iterations": 2}


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
def test_the_quickstart_has_the_same_metrics_on_both_engines(tmp_path):
    rows = {}
    for engine in ("local", "ray"):
        table, text = read_config(QUICKSTART, [f"engine={engine}", "seeds=[0]"])
        rows[engine] = run_experiment(table, text, tmp_path / engine, source="quickstart")
    assert len(rows["local"]) == len(rows["ray"]) > 10
    for one, two in zip(rows["local"], rows["ray"], strict=True):
        assert one.id == two.id
        assert one.metrics.keys() == two.metrics.keys()
        for name, value in one.metrics.items():
            if name == "parallel_seconds":
                continue  # a time
            assert two.metrics[name] == pytest.approx(value, abs=1e-12, rel=1e-12), (one.id, name)
        for name in ("rounds", "floats_up", "floats_down", "bytes_up", "bytes_down"):
            assert getattr(one, name) == getattr(two, name), (one.id, name)


@pytest.mark.usefixtures("nothing_left")
def test_one_start_carries_all_runs_until_one_fails_with_its_cause(tmp_path, monkeypatch):
    # the second run's data are of a folder that is named relative to the one this is started from
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDKERNEL_DATA", "sets")
    Path("sets").mkdir()
    np.savez("sets/mine.npz", X=load(WINE["data"]).X)
    runs = [
        RunSpec(id="first", strategy="VFedPCA", parameters={"rounds": 2}, **WINE),
        RunSpec(
            id="second", strategy="DKPCA", parameters={"n_components": 3}, seed=1, **WINE | {"data": DataSpec("mine")}
        ),
        RunSpec(id="clusters", strategy="FKKMeans", parameters=CLUSTERING, **WINE | {"partition": ROWS}),
        RunSpec(id="third", strategy="DKPCA", parameters={"n_components": 1000}, **WINE),
        RunSpec(id="fourth", strategy="DKPCA", parameters={"n_components": 3}, **WINE),
    ]
    finished = ray.run_job(Job(runs=runs, out=str(tmp_path)))
    assert next(finished) == "first"
    assert next(finished) == "second"
    assert next(finished) == "clusters"
    with pytest.raises(InputError, match="n_components = 1000, but must be at most the number of rows, 178"):
        next(finished)
    assert Result.load(tmp_path / "second").ledger.floats_up == 3 * 3 * 179
    assert sorted(Result.load(tmp_path / "first").outputs) == [0, 1, 2]
    # Memory survives the rounds of an iterative method on other processes too.
    list(run_local(Job(runs=[runs[2]], out=str(tmp_path / "local"))))
    one, two = Result.load(tmp_path / "local" / "clusters"), Result.load(tmp_path / "clusters")
    np.testing.assert_allclose(one.model.centers_, two.model.centers_, rtol=0, atol=1e-10)
    assert one.ledger == two.ledger
    for client in range(3):
        np.testing.assert_array_equal(one.outputs[client]["labels"], two.outputs[client]["labels"])


@pytest.mark.usefixtures("nothing_left")
def test_a_crash_that_leaves_no_cause_is_reported_as_a_failed_run(tmp_path):
    out = tmp_path / "out"
    out.write_text("a file stands where the results' folder should be")
    runs = [RunSpec(id="run", strategy="DKPCA", parameters={"n_components": 3}, **WINE)]
    with pytest.raises(EngineError, match="the simulation ended as finished:failed"):
        list(ray.run_job(Job(runs=runs, out=str(out))))


@pytest.mark.usefixtures("nothing_left")
def test_fit_on_arrays_gives_the_same_model_and_outputs():
    shards = np.array_split(np.random.default_rng(0).standard_normal((40, 9)), 3, axis=1)
    strategy = VFedAKPCA(2, kernel=RBF(gamma=0.1), rounds=3)
    one, two = (strategy.fit(shards, seed=5, evaluate=True, engine=engine) for engine in ("local", "ray"))
    np.testing.assert_allclose(one.model.eigenvectors_, two.model.eigenvectors_, rtol=0, atol=1e-12)
    assert one.ledger == two.ledger
    assert one.metrics == pytest.approx(two.metrics, abs=1e-12)
    assert "explained_variance_ratio" in one.metrics
    for client in range(3):
        for name in ("features", "eigenvectors"):
            np.testing.assert_allclose(one.outputs[client][name], two.outputs[client][name], rtol=0, atol=1e-12)


@pytest.mark.usefixtures("nothing_left")
def test_rows_travel_sparse_and_components_as_a_table():
    """Of disKPCA, with its clusters after it: sites read files there, and keep what they drew from round to round."""
    X = np.random.default_rng(0).standard_normal((150, 20)) * (np.random.default_rng(1).random((150, 20)) < 0.3)
    shards = [sparse.csr_array(part) for part in np.array_split(X, 3)]
    components = DisKPCA(4, RBF(gamma=0.1), n_adaptive=20, share_rows=True)
    strategy = SpectralKMeans(3, components, coreset_size=30)
    one, two = (strategy.fit(shards, seed=5, engine=engine) for engine in ("local", "ray"))
    found, expected = two.model.embedding, one.model.embedding
    np.testing.assert_array_equal(found.landmarks.toarray(), expected.landmarks.toarray())
    np.testing.assert_allclose(found.coefficients, expected.coefficients, rtol=0, atol=1e-12)
    np.testing.assert_allclose(two.model.centers_, one.model.centers_, rtol=0, atol=1e-12)
    assert one.ledger == two.ledger
    for client in range(3):
        np.testing.assert_array_equal(one.outputs[client]["labels"], two.outputs[client]["labels"])
        np.testing.assert_allclose(
            one.outputs[client]["embedding"], two.outputs[client]["embedding"], rtol=0, atol=1e-12
        )


@pytest.mark.usefixtures("nothing_left")
def test_letters_between_nodes_are_the_same_on_both_engines(tmp_path):
    """Other processes find the keys, the kernel blocks and the multipliers that earlier rounds left."""
    rows = WINE | {"partition": PartitionSpec(kind="horizontal", method="iid", clients=3)}
    admm = {"n_components": 2, "kernel": {"type": "rbf", "gamma": 0.05}, "iterations": 4, "exchange": "features"}
    runs = [
        RunSpec(id="admm", strategy="ADMMKPCA", parameters=admm | {"n_features": 50, "record": True}, **rows),
        RunSpec(id="vfedpca", strategy="PeerVFedPCA", parameters={"graph": "ring", "rounds": 2}, **WINE),
    ]
    for engine, run_job in (("local", run_local), ("ray", ray.run_job)):
        assert list(run_job(Job(runs=runs, out=str(tmp_path / engine)))) == ["admm", "vfedpca"]
    for run, names in (("admm", ("alpha", "iterates")), ("vfedpca", ("eigenvectors", "features", "iterates"))):
        one, two = (Result.load(tmp_path / engine / run) for engine in ("local", "ray"))
        assert one.ledger.letters == two.ledger.letters
        assert one.ledger.floats_up == two.ledger.floats_up
        for client, name in ((client, name) for client in range(3) for name in names):
            np.testing.assert_allclose(one.outputs[client][name], two.outputs[client][name], rtol=0, atol=1e-10)


def test_without_ray_the_error_says_what_to_install(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ray" else find(name))
    with pytest.raises(EngineError, match=r"pip install 'fedkernel\[simulation\]'"):
        next(ray.run_job(Job(runs=[RunSpec(id="run", strategy="DKPCA", **WINE)], out="unused")))


def test_a_terminated_command_ends_what_it_started(tmp_path):
    def started_here():
        marker = f"FEDKERNEL_TEST={tmp_path}".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                found += [path] if marker in path.read_bytes() else []
        return found

    fedkernel = Path(sys.executable).parent / "fedkernel"
    command = [fedkernel, "run", QUICKSTART, "--engine", "ray", "--out", tmp_path / "out"]
    # A long folder for temporary files, too: Ray's sockets would not fit in.
    (tmp_path / ("long" * 10)).mkdir()
    environment = {**os.environ, "FEDKERNEL_TEST": str(tmp_path), "TMPDIR": str(tmp_path / ("long" * 10))}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
    give_up = time.monotonic() + 90
    while not (tmp_path / "out" / "runs.jsonl").exists() and time.monotonic() < give_up:
        time.sleep(0.1)
    assert len(started_here()) > 3  # the command, the SuperLink, the simulation, Ray's
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert not started_here()
    assert len(read_runs(tmp_path / "out" / "runs.jsonl")) >= 1  # what was finished is kept
