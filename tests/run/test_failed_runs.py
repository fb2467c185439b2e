"""One bad run is one bad run: it is written down, the others go on, and the same command tries it again."""

import json
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from command_line import call
from counting import Process, job_node
from sklearn.datasets import load_wine

from fedkernel import DKPCA, EngineError, InputError, ProtocolError, RFKKMeans, VFedPCA, value_object
from fedkernel.clients.dkpca import DKPCAClient
from fedkernel.engines.grpc.coordinator import serve
from fedkernel.engines.grpc.run_attempts import RunRetries
from fedkernel.experiments.config import read_config
from fedkernel.experiments.results import read_failures, read_runs
from fedkernel.experiments.running import run_experiment
from fedkernel.flower_apps import APPS
from fedkernel.run import FailedRun
from fedkernel.wire import Job, RunSpec

TEXT = """
name = "tiny"
seeds = [0, 1]
report = { plots = false }
data.name = "iris"
partition.clients = 2
strategy = [
  { name = "good", method = "VFedPCA", merge = "eigenvalue", rounds = 2, local_iterations = 1 },
  { name = "bad", method = "test_failed_runs:Fickle", rounds = 2, local_iterations = 1 },
]
claim = [{ text = "Few rounds", check = "value", metric = "rounds", of = "bad", at_most = 5 }]
"""
BAD = {}
"""With which seeds runs fail, and of what; some tests mend them."""


def wrong():
    return ProtocolError("client 1 sends\nwrong numbers")


@pytest.fixture(autouse=True)
def _mended():
    yield
    BAD.clear()


class Unreliable:
    """Fails at its end with some seeds."""

    def protocol(self, run):
        model = yield from super().protocol(run)
        if run.seed in BAD:
            raise BAD[run.seed]
        return model


@value_object()
class Fickle(Unreliable, VFedPCA):
    """Of columns."""


@value_object()
class FickleClusters(Unreliable, RFKKMeans):
    """Of rows."""


def experiment(folder, text=TEXT):
    (folder / "tiny.toml").write_text(text, encoding="utf-8")
    return read_config(folder / "tiny.toml")


def ids(outcome):
    return [row.id for row in outcome.rows], [failure.id for failure in outcome.failed], outcome.missing


def test_the_others_go_on_and_the_same_command_tries_the_failed_ones_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    BAD.update({0: wrong(), 1: ZeroDivisionError("of 1")})
    experiment(tmp_path)
    command = ["run", "tiny.toml", "--out", "out"]
    for tries in ("once", "twice"):
        done = call(*command, code=1)
        assert done.stderr.splitlines() == [
            "run bad__seed=0 has failed: client 1 sends wrong numbers",
            "run bad__seed=1 has failed: ZeroDivisionError: of 1 (this is a defect)",
            "error: 2 of 4 runs have failed: run bad__seed=0: client 1 sends wrong numbers; run bad__seed=1: "
            "ZeroDivisionError: of 1 (this is a defect); the same command tries them again; --debug shows tracebacks",
        ]
        assert f"failed, and in no figure: bad__seed=0, tried {tries}: client 1 sends wrong numbers\n" in done.stdout
        assert "not finished" not in done.stdout
        page = Path("out/report.html").read_text(encoding="utf-8")
        assert "client 1 sends wrong numbers" in page
        assert f"tried {tries}" in page
    # a run that failed of the replies that it had is begun anew: these would only make it fail again
    assert not list(Path("out").rglob("journal*"))
    first, second = read_failures(Path("out/failures.jsonl"))
    assert (first.id, first.kind, first.tried, first.seed) == ("bad__seed=0", "ProtocolError", 2, 0)
    assert (second.kind, second.when[-6:]) == ("ZeroDivisionError", "+00:00")
    claim = "not testable here   Few rounds: 2 of 2 runs of 'bad' are missing; bad__seed=0 has failed (and 1 more): "
    reported = call("report", "out").stdout
    assert claim in reported
    assert reported == done.stdout

    del BAD[0]
    good = read_runs("out/runs.jsonl")
    assert "error: 1 of 4 runs has failed: run bad__seed=1: " in call(*command, code=1).stderr
    assert read_runs("out/runs.jsonl")[:2] == good  # just the failed ones
    assert [failure.id for failure in read_failures(Path("out/failures.jsonl"))] == ["bad__seed=1"]
    BAD.clear()
    call(*command)
    assert not Path("out/failures.jsonl").exists()
    assert "have failed" not in Path("out/report.html").read_text(encoding="utf-8")


def test_what_concerns_all_runs_ends_them(tmp_path):
    only = "".join(line for line in TEXT[: TEXT.index("claim")].splitlines(True) if '"good"' not in line)
    seeds = only.replace("seeds = [0, 1]", "seeds = [0, 1, 2, 3, 4]")
    BAD.update(dict.fromkeys(range(5), wrong()))
    summary = "^3 of 5 runs have failed: run bad__seed=0 \\(and 2 more\\): client 1 sends wrong numbers$"
    with pytest.raises(ProtocolError, match=summary):
        run_experiment(experiment(tmp_path, seeds), tmp_path / "out")
    rows = (tmp_path / "out" / "failures.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(row)["seed"] for row in rows] == [0, 1, 2]

    swept = f"{seeds}\n[sweep]\n'strategy.bad.rounds' = [2, 3]\n"  # the second setting may be a better one
    with pytest.raises(ProtocolError, match=r"^6 of 10 runs have failed"):
        run_experiment(experiment(tmp_path, swept), tmp_path / "swept")
    one = seeds.replace("seeds = [0, 1, 2, 3, 4]", "seeds = [0]")
    with pytest.raises(ProtocolError, match=r"^run bad__seed=0 has failed: client 1 sends wrong numbers$"):
        run_experiment(experiment(tmp_path, one), tmp_path / "one")
    BAD.pop(1)
    rows, failed, missing = ids(run_experiment(experiment(tmp_path, seeds), tmp_path / "but one"))
    assert (len(rows), len(failed), missing) == (1, 4, [])

    BAD.update({0: EngineError("the engine is gone")})  # no run's fault
    with pytest.raises(EngineError, match=r"^the engine is gone$"):
        run_experiment(experiment(tmp_path), tmp_path / "gone")


@value_object()
class GoingOn(DKPCA):
    """Does without a site that fails."""

    on_missing = "continue"


@value_object()
class Defective(DKPCA):
    """Fails at the coordinator, through nobody's fault."""

    def protocol(self, run):
        raise ZeroDivisionError


NAMES = ["a", "b", "c"]


class Served:
    """Runs of three sites in threads of this process, over gRPC; those in `broken` fail at the second, by seed."""

    def __init__(self, folder, monkeypatch, strategies):
        self.files = [folder / f"{name}.npy" for name in NAMES]
        for file, columns in zip(self.files, np.array_split(load_wine().data, 3, axis=1), strict=True):
            np.save(file, columns)
        own = {"parameters": {"n_components": 2}, "shards": [str(file) for file in self.files], "clients": 3}
        runs = [RunSpec(id=f"r{seed}", strategy=name, seed=seed, **own) for seed, name in enumerate(strategies)]
        self.job = Job(runs=runs, apps=APPS, out=str(folder / "out"), go_on=True)
        self.broken, self.told, self.sites = set(), [], {name: [] for name in NAMES}
        find_pairs = DKPCAClient.find_local_eigenpairs

        def find(client, ask):
            if client.client == 1 and client.seed in self.broken:
                raise InputError("something of site 'a' is wrong")  # so it says
            return find_pairs(client, ask)

        monkeypatch.setattr(DKPCAClient, "find_local_eigenpairs", find)

    def start(self, name):
        self.sites[name].append(Process(name, self.port, node=job_node))

    def carry_out(self, **options):
        def begin(port):
            self.port = port
            for name in NAMES:
                self.start(name)

        return list(serve(self.job, NAMES, "127.0.0.1:0", None, report=self.told.append, ready=begin, **options))


def test_a_site_with_which_runs_fail_in_a_row_is_set_aside(tmp_path, monkeypatch):
    strategies = [*["DKPCA"] * 3, "test_failed_runs:Defective", "DKPCA", "test_failed_runs:GoingOn", "DKPCA"]
    served = Served(tmp_path, monkeypatch, strategies)
    served.broken = {0, 2, 4, 5}
    ended = served.carry_out(set_aside=2)
    texts = [failed.text for failed in ended if isinstance(failed, FailedRun)]
    assert [each if isinstance(each, str) else each.kind for each in ended] == [
        *("ProtocolError", "r1", "ProtocolError", "ZeroDivisionError", "ProtocolError", "r5", "NotRun")
    ]
    assert "client 1" in texts[0]
    assert texts[-1].startswith("it was skipped, since site 'b' is excluded, because 2 runs in a row failed by its")
    assert "b is excluded from further runs, because 2 runs in a row failed by its fault" in served.told
    for name in NAMES:
        assert "the server ended the work: " in str(served.sites[name][0].end())


def test_a_site_that_comes_back_as_it_went_or_not_at_all(tmp_path, monkeypatch):
    served = Served(tmp_path, monkeypatch, ["DKPCA", "DKPCA"])
    np.save(served.files[1], np.load(served.files[1])[:-1])

    served.told = Told(lambda: threading.Timer(0.3, served.start, ["b"]).start())
    ended = served.carry_out()
    assert [failed.run for failed in ended] == ["r0", "r1"]
    assert ended[0].text == ended[1].text
    refusal = str(served.sites["b"][0].end())
    assert refusal.startswith('the server ended the work: "b cannot take part: client 1 has 177 rows, but client 0 has')
    assert len([text for text in served.told if "cannot take part" in text]) == 1, "once more is enough"

    again = Served(tmp_path, monkeypatch, ["DKPCA", "DKPCA"])
    np.save(again.files[1], np.load(again.files[1])[:-1])
    first, second = again.carry_out(repair_seconds=0.5)
    assert first.text.endswith("(b did not come back in 0.5 s)")
    assert second.kind == "NotRun"
    assert second.text.startswith("it was skipped, since site 'b' could not take part and has not come")


class Told(list[str]):
    """What was said, by which somebody is called."""

    def __init__(self, heed):
        super().__init__()
        self._heed = heed

    def append(self, text):
        super().append(text)
        if text.startswith("b cannot take part"):
            self._heed()


def test_where_the_first_seed_failed_others_finish_without_stability(tmp_path):
    clusters = """
name = "tiny"
seeds = [0, 1]
evaluate = true
report = { plots = false }
data.name = "iris"
partition = { clients = 2, kind = "horizontal" }
strategy = [{ name = "clusters", method = "test_failed_runs:FickleClusters", n_clusters = 3 }]
"""
    BAD.update({0: wrong()})
    outcome = run_experiment(experiment(tmp_path, clusters), tmp_path / "out")
    (row,) = outcome.rows
    finding = "stability is not measured: run clusters__seed=0, with the first seed, has no result"
    assert ("stability" in row.metrics, finding in row.findings) == (False, True)


def test_a_failure_of_the_joining_that_no_site_can_repair_is_told_at_once():
    error, begun = InputError("the columns differ").at([], mendable=True), []
    error.joining = True
    grid = SimpleNamespace(names_of=lambda nodes: [], instances={"a": "1", "b": "1"}, missing=[], lost=[])

    def begin():
        begun.append("once")
        raise error

    failed = RunRetries(grid, 0.0, 0, begun.append).carry_out(RunSpec(id="one", strategy="DKPCA", sites=["a"]), begin)
    assert (failed, begun) == (FailedRun.of("one", error), ["once"])
