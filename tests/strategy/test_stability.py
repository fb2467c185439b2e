"""Stability over seeds where labels stay at sites: what these tell of two runs, what follows, what they refuse."""

from dataclasses import replace

import numpy as np
import pytest
from model_files import contents
from named_sites import LENIENT, NAMES, Sites, settings_of
from sklearn.metrics import adjusted_rand_score

from fedkernel import RBF, InputError, ProtocolError, RFKKMeans
from fedkernel.clients.kmeans_base import CommonCenters, CompareClusters, Embedding, KMeansClient
from fedkernel.experiments.config import Experiment
from fedkernel.experiments.running import plan, run_experiment, study_of
from fedkernel.numerics import adjusted_rand, adjusted_rand_within
from fedkernel.protocol import Guards, Step
from fedkernel.run.server_app import server_app
from fedkernel.site import read_outbox
from fedkernel.wire import Job, Study, flower_internals

SEEDS, STEP = [0, 1, 2], 5
METHOD = {"name": "RFK", "method": "RFKKMeans", "n_clusters": 3, "n_features": 20}
METHOD |= {"kernel": {"type": "rbf", "gamma": 0.5}}
STRATEGY = RFKKMeans(3, n_features=20, kernel=RBF(gamma=0.5))


def overlaps(rng, rows, clusters, moved, sites=3):
    """Labels of rows in two runs, of which a share has others in the second, and each site's overlaps."""
    first = rng.integers(0, clusters, rows)
    second = np.where(rng.random(rows) < moved, rng.integers(0, clusters, rows), first)
    table = np.zeros((sites, clusters, clusters))
    np.add.at(table, (rng.integers(0, sites, rows), first, second), 1)
    return first, second, table


@pytest.mark.parametrize("clusters", [1, 2, 3, 8])
@pytest.mark.parametrize("moved", [0.0, 0.02, 0.1, 0.3, 1.0])
def test_of_rounded_overlaps_the_index_is_no_further_off_than_is_said(clusters, moved):
    """Of whole ones it is scikit-learn's; the rounded table's own is too large, and further off than the likely one."""
    rng = np.random.default_rng(clusters)
    for rows, times in ((12, 5), (60, 5), (600, 10), (20_000, 1)):
        off = []
        for _ in range(times):
            first, second, table = overlaps(rng, rows, clusters, moved)
            index, rounded = adjusted_rand_score(first, second), (table - table % STEP).sum(axis=0)
            assert adjusted_rand(table.sum(axis=0)) == pytest.approx(index, abs=1e-12)
            assert adjusted_rand_within(table.sum(axis=0), 0, 4) == (pytest.approx(index, abs=1e-12), 0)
            estimate, error = adjusted_rand_within(rounded, rows - rounded.sum(), 3 * (STEP - 1))
            assert abs(estimate - index) <= error + 1e-12
            assert error < 0.02 or rows < 20_000
            off.append((estimate - index, adjusted_rand(rounded) - index))
        likely_off, rounded_off = np.mean(off, axis=0)
        if rows == 600 and clusters == 8 and 0.02 < moved < 1:
            assert rounded_off > 0.1 > 3 * abs(likely_off)


def test_a_site_tells_overlaps_in_steps_and_of_fewer_rows_nothing():
    labels = np.repeat([0, 1, 2], [14, 9, 4])
    centers = np.arange(3.0)[:, None]
    earlier = np.repeat([1, 0, 1, 0], [14, 6, 3, 4])

    def shared(guards=None, **more):
        site = KMeansClient(np.eye(27), guards=guards, earlier={"first": earlier}.__getitem__)
        Embedding(centers[labels]).save(site.memory)
        CommonCenters(centers).save(site.memory)
        ask = CompareClusters(run="first", **{"n_clusters": 3} | more)
        ask.check_reply(reply := site.compare_clusters(ask))
        ask.check_table(reply, {"n_m": 27})
        return reply

    assert shared().sizes.tolist() == [[0, 5, 0], [10, 0, 0], [0, 0, 0]]
    assert shared().slack == 4
    assert shared(Guards(cell_rows=7)).sizes.tolist() == [[0, 0, 0], [14, 0, 0], [0, 0, 0]]
    assert shared(Guards(cell_rows=1), step=14).slack == 13
    assert shared(n_clusters=5).sizes.shape == (5, 5)
    with pytest.raises(ProtocolError, match="n_clusters = 2, but must be at least the clusters of both runs and"):
        shared(n_clusters=2)
    with pytest.raises(ValueError, match="greater than or equal to 5"):
        CompareClusters(run="first", n_clusters=3, step=1)
    with pytest.raises(ValueError, match=r"must be multiples of slack \+ 1 = 5, which must be at least 7"):
        CompareClusters(run="first", n_clusters=3, step=7).check_reply(shared())
    for rows in (14, 27 + 9 * 4):
        with pytest.raises(ValueError, match=f"sizes sum to 15, but must sum to .* to {rows}"):
            CompareClusters(run="first", n_clusters=3).check_table(shared(), {"n_m": rows})
    with pytest.raises(InputError, match="client 0 has no clusters of an earlier run to compare with"):
        KMeansClient(np.eye(2)).labels_of("first")


class Nodes(Sites):
    """Sites that are given a job with its study, and have just been started."""

    def __init__(self, job, nodes):
        super().__init__(job.runs[0], nodes)
        for context in self._contexts.values():
            context.run_config = {"job": job.model_dump_json()}


class Federation:
    """Three sites with a file each, which are started anew for each run, and a study of theirs."""

    def __init__(self, folder):
        flower_internals.ensure_task_identity()
        rng = np.random.default_rng(0)
        X = rng.standard_normal((1200, 2)) + np.array([[0, 0], [3, 0], [1.5, 2.0]])[np.arange(1200) % 3]
        self.folder, self.files = folder, [str(folder / f"{name}.npy") for name in NAMES]
        for file, part in zip(self.files, np.array_split(X, 3), strict=True):
            np.save(file, part)
        common = {"approve": "any", **LENIENT}
        named = zip(NAMES, self.files, strict=True)
        self.nodes = [{"name": name, "data": file, "out": str(folder / name), **common} for name, file in named]
        self.experiment = self.experiment_with({"sites": list(NAMES), "joint_seed": False}, engine="grpc")
        self.study = study_of(self.experiment, plan(self.experiment))

    def experiment_with(self, data, **more):
        table = {"name": "stable", "seeds": SEEDS, "evaluate": True, "data": data, "strategy": [METHOD], **more}
        return Experiment.from_table(table, "stable.toml")

    def engine(self, job):
        for run in job.runs:
            own = job.model_copy(update={"runs": [run]})
            with Nodes(own, self.nodes) as grid:
                server_app()(grid, flower_internals.new_context(0, {}, {"job": own.model_dump_json()}))
            yield run.id

    def ask(self, strategy, **changes):
        """Run the study's second run as a coordinator does that has changed it, and asks by this strategy."""
        first, second, third = self.study.runs
        run = second.model_copy(update=changes)
        job = Job(runs=[run], study=Study(name="stable", runs=[first, run, third]))
        with Nodes(job, self.nodes) as grid:
            return strategy.run(grid, replace(settings_of(run), compare=run.compare), evaluate=True)


together = pytest.mark.xdist_group("stability")  # or each worker makes a federation of its own


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    own = Federation(tmp_path_factory.mktemp("stable"))
    own.rows = run_experiment(own.experiment, own.folder / "out", engine=own.engine).rows
    return own


@together
def test_three_sites_find_the_stability_of_three_seeds_that_the_same_rows_have_in_one_place(federation):
    """Within what they say it may be off by, from labels that no site tells; under the same name, of the same seeds."""
    local = federation.experiment_with({"shards": federation.files})
    expected = [row.metrics.get("stability") for row in run_experiment(local, federation.folder / "local").rows]
    labels = []
    for seed in SEEDS:
        parts = [contents(federation.folder / name / f"RFK__seed={seed}.npz")["labels"] for name in NAMES]
        labels.append(np.concatenate(parts))
    assert [row.seed for row in federation.rows] == SEEDS
    assert federation.rows[0].metrics.get("stability") is expected[0] is None
    for row, exact, own in zip(federation.rows[1:], expected[1:], labels[1:], strict=True):
        assert exact == pytest.approx(adjusted_rand_score(labels[0], own), abs=1e-12)
        assert abs(row.metrics["stability"] - exact) <= row.metrics["stability_error"] < 0.15
        assert exact < 0.99, "or nothing is to be told apart"
        vague = [finding for finding in row.findings if finding.startswith("stability is ")]
        assert len(vague) == (row.metrics["stability_error"] >= 0.1)
        (round_,) = [round_ for round_ in row.history if round_.phase == "CompareClusters"]
        assert round_.floats_up == 3 * (3 * 3 + 1)
    replies = [line.reply for line in read_outbox(federation.folder / "east").departures if line.reply == "SharedRows"]
    assert len(replies) == 2


class Twice(RFKKMeans):
    """Asks for the comparison a second time."""

    def comparison(self, run, earlier):
        yield from super().comparison(run, earlier)
        return (yield from super().comparison(run, earlier))


class Comparing(RFKKMeans):
    """Compares with the run after."""

    def comparison(self, run, earlier):
        return super().comparison(run, "RFK__seed=2")


@together
def test_a_pair_of_runs_is_compared_once_and_no_other_than_the_study_says(federation):
    """Whatever its plan says: that may come from anybody."""
    *steps, last = federation.study.runs[1].plan
    planned = last.requests[0]
    assert planned.request == "CompareClusters"
    assert planned.fields == {"run": "RFK__seed=0", "n_clusters": 3, "step": STEP}
    twice = Twice(**STRATEGY.hyperparameters)
    findings = " ".join(federation.ask(twice, id="once").findings)
    assert "CompareClusters came 1 times, as often as the plan allows" in findings
    often = (*steps, Step(requests=(planned,), times=2))
    findings = " ".join(federation.ask(twice, id="often", plan=often).findings)
    assert "CompareClusters was answered before in this run; allowed: once" in findings
    other = (*steps, Step(requests=(planned.model_copy(update={"fields": {"n_clusters": 3}}),)))
    findings = " ".join(federation.ask(Comparing(**STRATEGY.hyperparameters), id="other", plan=other).findings)
    assert "compares its clusters only with an earlier run of the study" in findings


@together
@pytest.mark.parametrize(
    "changes",
    [
        {"compare": "RFK__seed=2"},
        {"compare": "trial"},
        {"parameters": {**STRATEGY.hyperparameters, "n_features": 22}},
        {"seed": 0},
    ],
    ids=["a later run", "no run of the study", "of other parameters", "the same seed"],
)
def test_made_up_pairs_are_refused_before_anything_is_asked(federation, changes):
    with pytest.raises(ProtocolError, match="compares its clusters only with an earlier run of the study"):
        federation.ask(STRATEGY, id="made-up", **changes)


@together
def test_what_a_site_has_not_kept_or_not_of_this_table_is_not_compared_and_that_is_said(federation, caplog):
    path = federation.folder / "east" / "RFK__seed=0.npz"
    content, table = path.read_bytes(), np.load(federation.files[1])

    def finish_without(id_):
        result = federation.ask(STRATEGY, id=id_)
        assert "stability" not in result.metrics
        assert "kmeans_objective" in result.metrics
        (finding,) = (text for text in result.findings if text.startswith("stability is not measured, against run RFK"))
        assert "(CompareClusters), client 1 (site 'east'): " in finding
        assert "has no clusters of run 'RFK__seed=0' to compare this run's with" in finding

    try:
        path.unlink()
        finish_without("gone")
        path.write_bytes((federation.folder / "east" / "RFK__seed=2.npz").read_bytes())
        finish_without("of-another")
        np.savez(path, ids=np.arange(3))
        finish_without("after-a-failure")
        assert f"{path} holds no labels, since the run did not finish here" in caplog.text
        path.write_bytes(content)
        np.save(federation.files[1], table[::-1])
        finish_without("turned")
    finally:
        path.write_bytes(content)
        np.save(federation.files[1], table)
    once, again = (federation.ask(STRATEGY, id="again").metrics for _ in range(2))
    assert once == again, "begun again, a run tells nothing else"
    assert "stability" in once
