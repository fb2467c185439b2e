"""An experiment is carried out once, whatever interrupts it, and its folder holds what the rows say."""

import contextlib
import functools
import json
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris

from fedkernel import InputError, KernelKMeans, KernelPCA, KernelStrategy, SpectralKMeans, VFedPCA, to_all, value_object
from fedkernel.clients.dkpca import DKPCAClient, FindLocalEigenpairs
from fedkernel.engines import ENGINES
from fedkernel.engines.local import LocalGrid
from fedkernel.experiments.config import Experiment, read_config
from fedkernel.experiments.results import read_runs
from fedkernel.experiments.running import execution, plan, run_experiment
from fedkernel.experiments.running.folder import EXPERIMENT_FILES, FAILURES, open_folder, read_folder
from fedkernel.numerics import Linear, sin_theta_error
from fedkernel.run import Journal, Result
from fedkernel.site import simulated_sites

N, M, K, ROUNDS = 150, 2, 2, 3
HEAD = f"""
name = "tiny"
title = "A tiny experiment"
seeds = [0, 1]
data.name = "iris"
partition = {{ clients = {M}, shuffle = true }}
"""
METHODS = f"""
strategy = [
  {{ name = "DKPCA", method = "DKPCA", n_components = {K}, local_components = 1 }},
  {{ name = "VFedPCA", method = "VFedPCA", merge = "eigenvalue", rounds = {ROUNDS}, local_iterations = 1 }},
]
baseline = [
  {{ name = "central", method = "central KPCA", n_components = {K} }},
  {{ name = "isolated", method = "isolated KPCA", n_components = {K} }},
]
"""
TINY = HEAD + METHODS
LOCAL = ", local_components = 1"
BARE = "[report]\nplots = false\n"
IDS = [f"{name}__seed={seed}" for seed in (0, 1) for name in ("DKPCA", "VFedPCA", "central", "isolated")]


def outcome(folder, *overrides, text=TINY + BARE, **options):
    path = folder.parent / "tiny.toml"
    path.write_text(text, encoding="utf-8")
    return run_experiment(read_config(path, overrides), folder, **options)


def carry_out(folder, *overrides, **options):
    return outcome(folder, *overrides, **options).rows


def numbers(rows):
    """Return all that must be the same whenever the same is run."""
    rounds = {"__all__": {"seconds", "slowest_seconds"}}
    timed = {"seconds": True, "phases": True, "history": rounds, "metrics": {"parallel_seconds"}}
    return [row.model_dump(exclude=timed) for row in rows]  # type: ignore[arg-type]


def snapshot(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "out"
    return folder, carry_out(folder, text=TINY)


@pytest.fixture
def started(monkeypatch):
    """Collect the ids that the local engine is asked to run."""
    ids: list[str] = []

    def counting(job):
        for run in job.runs:
            ids.append(run.id)
            yield from ENGINES["local"](job.model_copy(update={"runs": [run]}))

    monkeypatch.setattr(execution, "ENGINES", {"local": counting})
    return ids


def test_rows_are_in_order_with_the_traffic_that_the_papers_count_and_errors_by_round(whole):
    folder, rows = whole
    assert [row.id for row in rows] == IDS
    assert rows[0].metrics != rows[4].metrics, "another seed shuffles the columns otherwise"
    assert sorted(read_runs(folder / "runs.jsonl"), key=lambda row: IDS.index(row.id)) == rows
    for row in rows:
        up, down, rounds = {
            "DKPCA": (M * (N + 1), 0, 1),
            "VFedPCA": (ROUNDS * M * (N + 1), ROUNDS * M * N, ROUNDS + 1),
            "central": (N * 4, 0, 0),
            "isolated": (0, 0, 0),
        }[row.name]
        assert (row.floats_up, row.floats_down, row.rounds) == (up, down, rounds), row.id
        assert row.bytes_up >= 8 * up
        assert row.bytes_down >= 8 * down
        assert (row.engine, row.clients) == ("local" if row.kind == "strategy" else "none", M)
        errors = [round_.values["error"] for round_ in row.history if "error" in round_.values]
        assert len(errors) == (ROUNDS if row.name == "VFedPCA" else 0)
        if errors:
            assert errors[-1] == row.metrics["error"]
            np.testing.assert_allclose(sum(row.phases.values()), sum(round_.seconds for round_ in row.history))


def test_the_central_baseline_is_the_reference_and_others_are_measured_against_it(whole):
    folder, rows = whole
    for row in rows:
        error = row.metrics["error"]
        assert error == 0 if row.name == "central" else 1e-9 < error < K, row.id
        if row.name == "isolated":
            assert row.metrics["worst_error"] >= error  # type: ignore[operator]
        if row.name == "DKPCA":
            ids = row.id, row.id.replace("DKPCA", "central")
            model, central = (KernelPCA.load(folder / "results" / id_ / "model.npz") for id_ in ids)
            expected = sin_theta_error(central.eigenvectors_, model.eigenvectors_)
            np.testing.assert_allclose(row.metrics["error"], expected)  # type: ignore[arg-type]
            assert 0 < expected <= row.metrics["bound"] ** 2  # type: ignore[operator]


def test_the_folder_holds_the_configuration_a_model_per_run_and_the_report(whole):
    folder, rows = whole
    assert {path.name for path in folder.iterdir()} == {*EXPERIMENT_FILES} - {FAILURES, "files.json"}
    assert len(list((folder / "plots").glob("*.png"))) >= 3
    assert (folder / "config.toml").read_text(encoding="utf-8") == TINY
    assert json.loads((folder / "config.json").read_text(encoding="utf-8"))["partition"]["clients"] == M
    assert {path.name for path in (folder / "results").iterdir()} == set(IDS)
    assert "A tiny experiment" in (folder / "report.html").read_text(encoding="utf-8")
    for row in rows:
        assert row.model == f"results/{row.id}/model.npz"
        model = KernelPCA.load(folder / row.model)
        V = model.eigenvectors_
        np.testing.assert_allclose(V.T @ V, np.eye(V.shape[1]), atol=1e-10)
        if row.kind == "strategy":
            result = Result.load(folder / "results" / row.id)
            np.testing.assert_array_equal(result.model.eigenvectors_, V)
            assert result.ledger.totals() == {name: getattr(row, name) for name in result.ledger.totals()}


def test_a_run_is_what_the_strategy_does_with_its_seed_alone(tmp_path):
    rows = carry_out(tmp_path / "out", "partition.shuffle=false", "baseline=[]")
    strategy, X = VFedPCA(merge="eigenvalue", rounds=ROUNDS, local_iterations=1), load_iris().data
    vectors = [KernelPCA.load(tmp_path / "out" / str(row.model)).eigenvectors_ for row in rows if row.name == "VFedPCA"]
    for seed, V in enumerate(vectors):
        np.testing.assert_array_equal(V, strategy.fit([X[:, :2], X[:, 2:]], seed=seed).model.eigenvectors_)
    assert not np.array_equal(*vectors)


SPECTRAL = """
name = "spectral"
data.name = "iris"
partition = { kind = "horizontal", clients = 3, shuffle = true }
"""
FOUND = [
    '{ share_rows = true, n_components = 3, n_adaptive = 10, kernel = { type = "rbf", gamma = 0.5 } }',
    '{ share_rows = true, n_components = 3, n_adaptive = 10, kernel = { type = "linear" } }',
    '{ share_rows = true, n_components = 2, n_adaptive = 10, kernel = { type = "linear" } }',
    '{ share_rows = true, n_components = 2, n_adaptive = 20, kernel = { type = "linear" } }',
]


def test_every_run_is_compared_with_the_central_answer_of_its_own_method(tmp_path, monkeypatch):
    """Components differ in their kernel or their number, and at last in what their central answer does not know of."""
    methods = "".join(
        f'[[strategy]]\nname = "s{number}"\nmethod = "SpectralKMeans"\nn_clusters = 3\ncomponents = {components}\n'
        for number, components in enumerate(FOUND)
    )
    answers, central = [], SpectralKMeans.central

    def counted(self, shards):
        answers.append(central(self, shards))
        return answers[-1]

    monkeypatch.setattr(SpectralKMeans, "central", functools.wraps(central)(counted))
    rows = carry_out(tmp_path / "out", text=SPECTRAL + methods + BARE)
    assert len(answers) == 3
    for row, answer in zip(rows, [*answers, answers[-1]], strict=True):
        (run,) = [planned for planned in plan(read_config(tmp_path / "tiny.toml")) if planned.id == row.id]
        model = KernelKMeans.load(tmp_path / "out" / str(row.model))
        expected = run.strategy.judge(Result(model), run.shards, answer)
        assert {name: row.metrics[name] for name in expected} == expected
    np.testing.assert_array_equal([len(answer.eigenvalues_) for answer in answers], [3, 3, 2])  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [2, 6])
def test_an_interrupted_experiment_goes_on_where_it_stopped(whole, tmp_path, started, count):
    folder = tmp_path / "out"

    def interrupt(name, done, total):
        assert total == len(IDS)
        if done == count:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        carry_out(folder, progress=interrupt)
    done = read_runs(folder / "runs.jsonl")
    assert len(done) == count
    assert not (folder / "report.html").exists()
    with (folder / "runs.jsonl").open("ab") as file:
        file.write(b'{"id": "torn')
    models = {row.id: (folder / str(row.model)).stat().st_mtime_ns for row in done}

    progress = []
    rows = carry_out(folder, progress=lambda *seen: progress.append(seen))
    assert sorted(started) == sorted(id_ for id_ in IDS if id_.startswith(("DKPCA", "VFedPCA")))
    assert [at for _, at, _ in progress] == list(range(count + 1, len(IDS) + 1))
    assert models == {id_: (folder / "results" / id_ / "model.npz").stat().st_mtime_ns for id_ in models}
    assert numbers(rows) == numbers(whole[1])
    assert (folder / "report.html").exists()


def test_a_run_that_was_stopped_between_rounds_is_resumed(whole, tmp_path, monkeypatch):
    """By the same command; the replies that were written down for that are gone once there is a result."""
    folder, own = tmp_path / "out", Journal.add

    def add(journal, exchange, checkpoint):
        own(journal, exchange, checkpoint)
        if journal.path.parent.name == IDS[1] and len(journal) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Journal, "add", add)
    monkeypatch.setattr(LocalGrid, "write_every", 0.0)
    with pytest.raises(KeyboardInterrupt):
        carry_out(folder)
    assert list(folder.rglob("journal*")) == [folder / "results" / IDS[1] / "journal"]
    rows = carry_out(folder)
    sentence = "the run was stopped, and resumed at round 2"
    assert [text for row in rows for text in row.findings if "resumed" in text] == [sentence]
    others = [[text for text in row.findings if text != sentence] for row in rows]
    resumed = [row.model_copy(update={"findings": told}) for row, told in zip(rows, others, strict=True)]
    assert numbers(resumed) == numbers(whole[1])
    assert not list(folder.rglob("journal*"))


@value_object()
class Bare(VFedPCA):
    """Its model is a dictionary."""

    def protocol(self, run):
        return vars((yield from super().protocol(run)))


def test_a_model_that_cannot_be_kept_is_told_of_its_own_run(tmp_path, monkeypatch):
    """Not of the run that would come next."""
    text = TINY.replace('method = "DKPCA"', 'method = "test_runner:Bare"').replace(LOCAL, "") + BARE
    failed = outcome(tmp_path / "out", text=text).failed
    assert {failure.id for failure in failed} == {"DKPCA__seed=0", "DKPCA__seed=1"}
    assert failed[0].cause.startswith("the protocol's result, of type dict, cannot be saved; allowed: an array, a ")

    def losing(job):
        for run in ENGINES["local"](job):
            (tmp_path / "lost" / "results" / run / "model.npz").unlink()
            yield run

    monkeypatch.setattr(execution, "ENGINES", {"local": losing})
    (first, *_) = outcome(tmp_path / "lost").failed
    assert (first.id, first.kind) == ("DKPCA__seed=0", "InputError")
    assert re.fullmatch(r"there is no model file .*DKPCA__seed=0/model.npz", first.cause)


@value_object()
class Uncompared(KernelStrategy[KernelPCA]):
    """It has no central counterpart."""

    n_components: int = 2

    client = DKPCAClient
    partition = "vertical"

    def protocol(self, run):
        uploads = yield from to_all(FindLocalEigenpairs(kernel=Linear(), n_components=self.n_components))
        return KernelPCA(uploads[0].values, uploads[0].vectors, Linear())


def test_a_pair_without_a_central_counterpart_is_run_and_compared_with_nothing(tmp_path):
    text = HEAD + 'strategy = [{ name = "bare", method = "test_runner:Uncompared" }]\n' + BARE
    rows = carry_out(tmp_path / "out", text=text)
    assert [row.id for row in rows] == ["bare__seed=0", "bare__seed=1"]
    assert [[*row.metrics] for row in rows] == [["table_share", "parallel_seconds"]] * 2


CLAIM = 'claim=[{text="It is exact.", check="value", metric="error", of="central", at_most=0}]'


@pytest.mark.parametrize(
    "changes",
    [
        ["title=Another title"],
        [CLAIM],
        ["report.metric=distance"],
        ["report={}", "report.plots=false", "report.reference=true"],
        ["title=Another title", CLAIM, 'report={plots = false, by_iteration = ["error"]}'],
    ],
    ids=lambda changes: " ".join(change.partition("=")[0] for change in changes),
)
def test_what_changes_no_run_keeps_the_runs(tmp_path, started, changes):
    folder = tmp_path / "out"
    first = carry_out(folder, "seeds=[0]")
    before = snapshot(folder)
    assert carry_out(folder, "seeds=[0]", *changes) == first
    assert started == IDS[:2]
    after = snapshot(folder)
    assert {name for name in before if after[name] != before[name]} == {"config.json", "config.toml", "report.html"}
    recorded = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert recorded == read_config(tmp_path / "tiny.toml", ["seeds=[0]", *changes]).table
    assert all(change in (folder / "config.toml").read_text(encoding="utf-8") for change in changes)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert ("<h1>Another title</h1>" in page) == ("title=Another title" in changes)
    assert ("It is exact." in page.partition("<h2>Claims")[2]) == (CLAIM in changes)
    assert carry_out(folder, "seeds=[0]") == first  # and back again
    assert started == IDS[:2]


@pytest.mark.parametrize(
    "change",
    [
        "seeds=[1]",
        "report.reference=false",
        "threads=2",
        "deadline=60",
        "name=other",
        "strategy.DKPCA.local_components=2",
        "data.scale=center",
        "sweep.partition.clients=[2]",
        'baseline=[{name="central", method="central PCA", n_components=2}]',
    ],
)
def test_what_may_change_a_run_is_refused(tmp_path, change):
    folder = tmp_path / "out"
    carry_out(folder, "seeds=[0]", "strategy.*.n_components=1")
    before = snapshot(folder)
    says = r"holds an experiment with another configuration, of which [1-4] .*--out.*--restart"
    with pytest.raises(InputError, match=says):
        carry_out(folder, "seeds=[0]", "strategy.*.n_components=1", CLAIM, change)
    assert snapshot(folder) == before


def test_seeds_methods_and_settings_are_added_to_what_is_finished(tmp_path, started):
    folder, more = tmp_path / "out", 'name="more", method="DKPCA", n_components=1, local_components=1'
    small = "sweep.strategy.*.n_components=[1]"
    first = carry_out(folder, "seeds=[0]", small)
    strategies = TINY.replace("]\nbaseline", f"  {{ {more} }},\n]\nbaseline") + BARE
    wider = ["seeds=[0, 1]", "sweep.strategy.*.n_components=[1, 2]"]
    rows = carry_out(folder, *wider, text=strategies)
    assert [row for row in rows if row.id in {row.id for row in first}] == first
    assert len(rows) == 2 * 2 * 5
    assert len(started) == len(set(started)) == 2 * 2 * 3
    fresh = carry_out(tmp_path / "fresh", *wider, text=strategies)
    assert numbers(rows) == numbers(fresh)
    with pytest.raises(InputError, match=r"another configuration, of which 16 finished runs, such as \S+, are missing"):
        carry_out(folder, "seeds=[0]", small)


def test_a_folder_holds_what_the_file_says_in_its_order(tmp_path):
    """The first value of a case stands for it, in claims too: in another order it would be another one."""
    case = 'case=[{"strategy.DKPCA.local_components" = 1, "partition.clients" = 2}]'
    claim = CLAIM.replace("at_most", 'where={"strategy.DKPCA.local_components"=1}, at_most')
    carry_out(tmp_path / "out", "seeds=[0]", case, claim)
    experiment, runs = read_folder(tmp_path / "out")
    assert experiment.settings == [{"strategy.DKPCA.local_components": 1}]
    assert {run.id for run in runs} == {run.id for run in plan(experiment)}


def test_figures_of_the_report_before_go_and_other_files_stay(tmp_path):
    folder, only_baselines = tmp_path / "out", ("seeds=[0]", "strategy=[]")
    carry_out(folder, *only_baselines, "report={metric = 'distance'}")
    assert (folder / "plots" / "distance_by_method.png").exists()
    (folder / "plots" / "notes.txt").write_text("mine", encoding="utf-8")
    carry_out(folder, *only_baselines, "report={metric = 'error'}")
    names = {path.stem for path in (folder / "plots").iterdir()}
    assert {"notes", "error_by_method"} <= names
    assert not any(name.startswith("distance") for name in names)
    carry_out(folder, *only_baselines, "report={plots = false}")
    assert [path.name for path in (folder / "plots").iterdir()] == ["notes.txt"]


def test_restart_throws_the_experiment_away_but_nobody_elses_files(tmp_path, started):
    folder = tmp_path / "out"
    carry_out(folder, "seeds=[0]")
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    rows = carry_out(folder, "seeds=[1]", restart=True)
    assert [row.seed for row in rows] == [1] * 4
    assert {path.name for path in (folder / "results").iterdir()} == {row.id for row in rows}
    assert (folder / "notes.txt").read_text(encoding="utf-8") == "mine"
    assert len(carry_out(folder, "seeds=[1]", restart=True)) == 4
    assert started == [IDS[0], IDS[1], *(IDS[4], IDS[5]) * 2]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("name", ["thesis.txt", "config.json", "runs.jsonl"])
def test_a_folder_of_something_else_is_left_alone(tmp_path, name, restart):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / name).write_text('{"architectures": ["name", "data"]}', encoding="utf-8")
    before = snapshot(folder)
    with pytest.raises(InputError, match="is not empty and holds no experiment"):
        carry_out(folder, restart=restart)
    assert snapshot(folder) == before


@pytest.mark.parametrize("key", ["name", "shards", "swept"])
def test_relative_paths_count_from_the_file_wherever_it_runs_and_for_good(tmp_path, monkeypatch, key):
    """An engine may carry a run out in another folder, and the experiment may be read again from its own."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (home / "data").mkdir(parents=True)
    X = load_iris().data
    np.savez(home / "data" / "whole.npz", X=X)
    np.save(home / "data" / "a.npy", X[:, :2])
    np.save(home / "data" / "b.npy", X[:, 2:])
    data, partition = '[data]\nname = "npz:data/whole.npz"\n', f"[partition]\nclients = {M}\n"
    if key == "shards":
        data, partition = '[data]\nshards = ["data/a.npy", "./data/../data/b.npy"]\n', ""
    sweep = '[sweep]\n"data.name" = ["npz:data/whole.npz", "iris"]\n' if key == "swept" else ""
    text = f'name = "tiny"\n{METHODS}{data}{partition}{sweep}{BARE}'
    (home / "tiny.toml").write_text(text, encoding="utf-8")

    def engine(job):
        simulated_sites.simulated_partition.cache_clear()  # as other processes have nothing of it
        simulated_sites._loaded.cache_clear()
        with contextlib.chdir(elsewhere):
            yield from ENGINES["local"](job)

    monkeypatch.setattr(execution, "ENGINES", {"local": engine})
    monkeypatch.chdir(tmp_path)
    rows = run_experiment(read_config(Path("home/tiny.toml")), tmp_path / "out").rows
    expected = carry_out(tmp_path / "bundled", "seeds=[0]", "partition.shuffle=false")
    assert [row.metrics["error"] for row in rows[:4]] == [row.metrics["error"] for row in expected]
    if key == "swept":  # rows and their ids have what the user wrote
        assert [row.point["data.name"] for row in rows[::4]] == ["npz:data/whole.npz", "iris"]
    # the folder's own copies mean the same files
    assert Experiment.from_table(json.loads(Path("out/config.json").read_text("utf-8")), "").folder == str(home)
    monkeypatch.setattr(execution, "ENGINES", {})  # whatever wanted to run would fail
    for path in (home / "tiny.toml", Path("out/config.toml")):
        assert run_experiment(read_config(path), tmp_path / "out").rows == rows
    # and the same text beside other files is another experiment
    (elsewhere / "tiny.toml").write_text(text, encoding="utf-8")
    (home / "data").rename(elsewhere / "data")
    with pytest.raises(InputError, match="another configuration"):
        run_experiment(read_config(elsewhere / "tiny.toml"), tmp_path / "out")


def test_files_of_clients_that_do_not_fit_are_refused(tmp_path):
    X = load_iris().data
    np.save(tmp_path / "a.npy", X[:149, :2])
    np.savez(tmp_path / "b.npz", X=X[:, 2:], new=X[:3, 2:])
    head = HEAD.partition("data.name")[0]
    text = f'{head}data.shards = ["{tmp_path}/a.npy", "{tmp_path}/b.npz"]\n{METHODS}'
    for kernel in ('{type="linear"}', '{type="rbf", width="median"}'):
        with pytest.raises(InputError, match=r"tiny.toml: strategy 'DKPCA': .*1(49|50).* all must have the same rows"):
            carry_out(tmp_path / "none", f"strategy.DKPCA.kernel={kernel}", text=text)
    assert not (tmp_path / "none").exists()


def test_results_that_could_not_be_written_are_not_waited_for(tmp_path):
    (tmp_path / "tiny.toml").write_text(TINY, encoding="utf-8")
    experiment = read_config(tmp_path / "tiny.toml")
    assert open_folder(tmp_path / "out", experiment, restart=False) == []
    (tmp_path / "out" / "results").rmdir()
    (tmp_path / "out" / "results").write_text("")
    with pytest.raises(InputError, match=r"cannot write to .*results: File exists; allowed: a writable folder"):
        open_folder(tmp_path / "out", experiment, restart=False)
