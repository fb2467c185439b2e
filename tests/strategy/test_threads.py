"""BLAS threads: everything of a run has the same number, whatever the machine has, and what was before comes back."""

import threading

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp.strategy import Strategy
from test_strategy import grid_of
from threadpoolctl import threadpool_info, threadpool_limits

from fedkernel.experiments.config import Experiment
from fedkernel.experiments.running import run_experiment
from fedkernel.ground import InputError, blas_threads
from fedkernel.numerics import widths
from fedkernel.run import RunSettings
from fedkernel.run.server_app import server_app
from fedkernel.strategies import VFedPCA
from fedkernel.wire import Job, RunSpec, flower_internals

SHARDS = [np.random.default_rng(client).standard_normal((9, 3)) for client in range(3)]
MACHINE = 3


def allowed():
    (count,) = {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}
    return count


class Watched(VFedPCA):
    """Writes down how many threads its coordinator has."""

    counts = []  # noqa: RUF012 - the test's, of all objects

    def protocol(self, run):
        self.counts.append(allowed())
        model = yield from super().protocol(run)
        self.counts.append(allowed())
        return model

    def _merge(self, uploads):
        self.counts.append(allowed())
        return super()._merge(uploads)

    def evaluation(self, run, model):
        self.counts.append(allowed())
        metrics = yield from super().evaluation(run, model)
        self.counts.append(allowed())
        return metrics

    def judge(self, result, shards, reference=None):
        self.counts.append(allowed())
        return super().judge(result, shards, reference)


@pytest.fixture
def machine():
    """A machine whose BLAS has a number of threads that no run asks for."""
    Watched.counts.clear()
    with threadpool_limits(MACHINE, user_api="blas"):
        assert allowed() == MACHINE
        yield
        assert allowed() == MACHINE


def test_every_step_of_a_fit_has_the_threads_that_its_clients_have(machine):
    strategy = Watched(merge="eigenvalue", rounds=2)
    reference = strategy.central(SHARDS)
    strategy.fit(SHARDS, evaluate=True, reference=reference)
    assert Watched.counts == [1] * 7  # begin, two merges, end, two steps of the evaluation, the comparison


@pytest.mark.parametrize("threads", [1, 2])
def test_every_step_over_any_grid_has_the_threads_of_its_settings(machine, threads):
    with grid_of(VFedPCA(), SHARDS) as opened:
        Watched(merge="eigenvalue", rounds=2).run(opened, RunSettings(threads=threads), evaluate=True)
        config = ConfigRecord({"threads": threads})
        Strategy.start(Watched(merge="eigenvalue", rounds=2), opened, ArrayRecord(), num_rounds=4, train_config=config)
    assert Watched.counts == [threads] * 12


def test_a_job_tells_the_coordinator_its_threads_of_which_there_must_be_some(machine, tmp_path):
    run = RunSpec(id="a", strategy="test_threads:Watched", parameters={}, seed=0, shards=["a.npy"] * 3)
    job = Job(runs=[run], threads=2)
    with grid_of(VFedPCA(), SHARDS) as opened:
        server_app()(opened, flower_internals.new_context(0, {}, {"job": job.model_dump_json()}))
    assert set(Watched.counts) == {2}
    with pytest.raises(InputError, match="threads = 0, but must be at least 1"):
        RunSettings(threads=0)


def test_what_an_experiment_computes_around_its_runs_has_their_threads_too(machine, monkeypatch, tmp_path):
    for owner, name in ((widths, "median_sigma"), (VFedPCA, "central"), (VFedPCA, "judge")):
        real = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args, real=real: (Watched.counts.append(allowed()), real(*args))[1])
    strategy = {"name": "a", "method": "VFedAKPCA", "rounds": 1, "kernel": {"type": "rbf", "width": "median"}}
    linear = {"name": "b", "method": "VFedPCA", "rounds": 1}
    table = {"name": "tiny", "threads": 2, "data": {"name": "iris"}, "partition": {"clients": 2}}
    table |= {"strategy": [strategy, linear], "report": {"plots": False}}
    run_experiment(Experiment.from_table(table, "tiny.toml"), tmp_path / "out")
    assert len(Watched.counts) >= 4
    assert set(Watched.counts) == {2}


def test_threads_that_come_and_go_leave_each_other_their_limit(machine):
    entered, leave = threading.Event(), threading.Event()
    counts = []

    def late():
        with blas_threads(1):
            entered.set()
            assert leave.wait(10)
            counts.append(allowed())

    other = threading.Thread(target=late)
    with blas_threads(1):
        other.start()
        assert entered.wait(10)
    assert allowed() == 1  # the other is there still
    with blas_threads(2):
        assert allowed() == 2
    leave.set()
    other.join(10)
    assert counts == [1]
