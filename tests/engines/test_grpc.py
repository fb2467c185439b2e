"""Every pair between processes of this machine, over gRPC: the local engine's numbers; and nothing is left running."""

import dataclasses
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from cases import CASES, PAIRS, WINE
from networks import digits

from fedkernel import ADMMKPCA, FKKMeans, PeerVFedPCA, Result, RFKKMeans, UniformKPCA, VFedPCA
from fedkernel.engines import grpc
from fedkernel.engines.app_execution import short_folder
from fedkernel.engines.grpc import coordinator, serving
from fedkernel.engines.local import run_job as run_local
from fedkernel.flower_apps import APPS
from fedkernel.ground import EngineError, InputError, load_parts
from fedkernel.strategy.simulation import as_file
from fedkernel.wire import Job, RunSpec

pytestmark = pytest.mark.xdist_group("grpc")

CLIENTS = 3


def own_processes():
    """The processes of clients that this one has started."""
    processes = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if parent == os.getpid() and b"fedkernel.engines.grpc.client_process" in command:
            processes.append(int(entry.name))
    return processes


@pytest.fixture(autouse=True)
def _nothing_left():
    yield
    assert own_processes() == []


def spec(name, strategy, shards, folder):
    folder.mkdir(parents=True, exist_ok=True)
    files = [as_file(np.asarray(shard), folder / f"{number}") for number, shard in enumerate(shards)]
    own = {"strategy": type(strategy).__name__, "parameters": strategy.hyperparameters, "shards": files, "seed": 3}
    return RunSpec(id=name, **own, clients=CLIENTS, sums="masked" if len(name) % 2 else "plain")


def tried():
    """Cases until all pairs and messages are there, and pairs that choose a number, of which a file has less."""
    tables, there = {}, set()
    for case in CASES:
        messages = {ask.reply for step in case.strategy.plan_of_run(CLIENTS, 0) for ask in step.requests}
        if not {type(case.strategy), *messages} <= there:
            short = {"iterations": 1} if isinstance(case.strategy, FKKMeans) else {}
            tables[case.name] = dataclasses.replace(case.strategy, **short), case.table, case.axis
        there |= {type(case.strategy), *messages}
    return tables | {
        "chosen clusters": (RFKKMeans("auto", 20, max_clusters=4), WINE, 0),
        "chosen components": (UniformKPCA("auto", n_samples=20, share_rows=True), WINE, 0),
        "one round": (VFedPCA(2, rounds=1), WINE, 1),
        "too many": (ADMMKPCA(100, share_rows=True), np.vstack(digits(20, 3)), 0),
    }


def test_all_pairs_give_the_local_engine_s_numbers_until_one_fails_with_its_cause(tmp_path):
    """Also what no file of a model has: what was chosen, and why, the points that centres were found from."""
    pairs = {name: (strategy, np.array_split(X, CLIENTS, axis=axis)) for name, (strategy, X, axis) in tried().items()}
    runs = [spec(f"run-{number}", *pair, tmp_path / f"data-{number}") for number, pair in enumerate(pairs.values())]
    assert {run.strategy for run in runs} == set(PAIRS)
    ids = [run.id for run in runs[:-1]]
    for engine, carry_out in (("local", run_local), ("grpc", grpc.run_job)):
        finished = carry_out(Job(runs=runs, apps=APPS, out=str(tmp_path / engine), whole=True))  # as `fit` asks for
        assert [next(finished) for _ in ids] == ids
        with pytest.raises(InputError, match="n_components = 100"):
            next(finished)
    for name, run in zip(pairs, ids, strict=False):
        one, two = (Result.load(tmp_path / engine / run) for engine in ("local", "grpc"))
        assert one.ledger.totals() == two.ledger.totals(), name
        assert one.metrics == two.metrics
        assert one.findings == two.findings
        compare(name, vars(one.model), vars(two.model))
        if name == "chosen clusters":  # both went through files: what has no place in one is compared with no file's
            strategy, shards = pairs[name]
            compare(name, vars(strategy.fit(shards, seed=3).model), vars(two.model))
        compare(name, *(load_parts(tmp_path / engine / run / "model.npz").arrays for engine in ("local", "grpc")))
        assert one.outputs.keys() == two.outputs.keys(), name
        for client, outputs in one.outputs.items():
            compare(name, outputs, two.outputs[client])


def compare(name, one, two):
    assert one.keys() == two.keys(), name
    for key, value in one.items():
        assert type(two[key]) is type(value), f"{name}: {key}"
        if isinstance(value, np.ndarray):
            np.testing.assert_allclose(two[key], value, rtol=1e-12, atol=1e-12, err_msg=f"{name}: {key}")
        else:
            np.testing.assert_equal(plain(two[key]), plain(value), err_msg=f"{name}: {key}")


def plain(value):
    return value.parts() if hasattr(value, "parts") else value


@pytest.mark.parametrize("has_sockets", [True, False])
def test_processes_meet_where_no_other_user_comes_and_nothing_of_that_stays(has_sockets, tmp_path, monkeypatch, caplog):
    meetings = []

    def listening(hub, address, tls):
        meetings.append((address, tls, [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()]))
        return serving.listening(hub, address, tls)

    monkeypatch.setattr(coordinator, "listening", listening)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(coordinator, "SOCKET_BYTES", 1000)  # so that the folder stays below pytest's
    if not has_sockets:
        monkeypatch.setattr(coordinator, "SOCKET", "s" * 108)
    strategy, shards = VFedPCA(merge="eigenvalue", rounds=1), np.array_split(WINE, 2, axis=1)
    local, remote = (strategy.fit(shards, engine=engine, wire="float32") for engine in ("local", "grpc"))
    assert local.wire == remote.wire == "float32"
    assert local.ledger.totals() == remote.ledger.totals()
    np.testing.assert_allclose(local.outputs[0]["eigenvectors"], remote.outputs[0]["eigenvectors"], rtol=0, atol=1e-12)
    [(address, tls, modes)] = meetings
    assert set(modes) == {0o700}
    assert address.startswith("unix:") == has_sockets == (tls is None)
    assert ("connect over loopback, with TLS: a Unix socket at" in caplog.text) != has_sockets
    assert not list(tmp_path.glob("fedkernel-*"))


def test_where_the_usual_folder_is_too_deep_for_a_socket_another_is_taken(tmp_path, monkeypatch):
    for usual, taken in ((tmp_path, None), (tmp_path / ("d" * 100), "/tmp")):  # noqa: S108
        monkeypatch.setattr(tempfile, "tempdir", str(usual))
        assert short_folder(len(str(tmp_path))) == taken


def test_a_process_that_cannot_start_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "flwr.py").write_text("raise ImportError('no Flower here')")
    with pytest.raises(EngineError, match=r"the process of client-\d has ended with code 1: .*no Flower here"):
        PeerVFedPCA(rounds=3).fit(np.array_split(WINE, 2, axis=1), engine="grpc")
