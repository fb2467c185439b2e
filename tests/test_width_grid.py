"""Widths over a grid, in one run: what a run at each width finds, and the one of these with the largest silhouette."""

import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from refusals import refusing
from sklearn.datasets import load_digits, make_circles
from sklearn.metrics import normalized_mutual_info_score
from test_consent import asked

from clients.fk_kmeans import EmbedRows, FKKMeansClient
from clients.kmeans import SampleCoreset, SolveLocally
from clients.width_grid import EmbedAtWidths, LabelAtWidth, LocalCoresets, SampleAtWidths, SolveAtWidths
from experiments.config import Experiment
from experiments.results import findings, recommendations
from experiments.running import plan, run_experiment, study_of
from fedkernel import RBF, Laplacian
from fedkernel.errors import InputError, ProtocolError
from fedkernel.numerics.sketch import RandomFeatures
from fedkernel.protocol import Guards, Member
from strategies import DKPCA, FKKMeans, RFKKMeans

GRID = (0.25, 0.5, 1.0, 2.0, 4.0)
DIGITS = load_digits()
SHARDS = np.array_split(DIGITS.data[:600], 3)


def pooled(result, name):
    return np.concatenate([result.outputs[client][name] for client in sorted(result.outputs)])


def uploaded(result):
    """Return the floats up, of 3 clients and 40 features, less those that measure: sums, and the clusters' sizes."""
    return result.ledger.floats_up - 3 * (40 + 3 + len(result.model.centers_) + 1)


@pytest.mark.parametrize(
    ("kernel", "form"), [(RBF(), "pairs"), (RBF(width="median"), "cosine"), (Laplacian(gamma=0.01), "pairs")], ids=repr
)
def test_one_factor_is_the_run_without_bit_for_bit(kernel, form):
    settings = {"n_features": 40, "kernel": kernel, "features": form}
    alone = RFKKMeans(5, **settings).fit(SHARDS, seed=3, evaluate=True)
    grid = RFKKMeans(5, **settings, width_factors=(1.0,)).fit(SHARDS, seed=3, evaluate=True)
    assert grid.model.embedding == alone.model.embedding
    np.testing.assert_array_equal(grid.model.centers_, alone.model.centers_)
    for name in ("labels", "embedding"):
        np.testing.assert_array_equal(pooled(grid, name), pooled(alone, name))
    assert grid.metrics == alone.metrics
    counted = ("rounds", "floats_up", "floats_down")
    assert [grid.ledger.totals()[name] for name in counted] == [alone.ledger.totals()[name] for name in counted]


@pytest.mark.parametrize(
    ("kernel", "clusters"),
    [(RBF(gamma=2e-4), {"n_clusters": 5}), (Laplacian(gamma=0.002), {"n_clusters": "auto", "max_clusters": 4})],
    ids=str,
)
def test_a_grid_is_the_best_of_the_runs_at_each_of_its_widths(kernel, clusters):
    settings = {"n_features": 40, "coreset_size": 60} | clusters
    grid = RFKKMeans(kernel=kernel, width_factors=GRID, **settings).fit(SHARDS, seed=1, evaluate=True)
    power = 2 if isinstance(kernel, RBF) else 1
    runs = {}
    for factor in GRID:
        strategy = RFKKMeans(kernel=kernel.with_gamma(kernel.gamma / factor**power), **settings)
        runs[factor] = strategy.fit(SHARDS, seed=1, evaluate=True)
    worth = {factor: run.metrics["silhouette"] for factor, run in runs.items()}
    factor = max(worth, key=worth.__getitem__)
    assert grid.metrics["width_factor"] == grid.model.width_choice_.value == factor
    assert grid.metrics["silhouette"] == pytest.approx(worth[factor], rel=1e-9)
    np.testing.assert_array_equal(pooled(grid, "labels"), pooled(runs[factor], "labels"))
    np.testing.assert_allclose(grid.model.centers_, runs[factor].model.centers_, atol=1e-12)
    assert grid.model.embedding == runs[factor].model.embedding
    # all are told, and as the sweep would
    listed = ", ".join(f"{factor:g}: {value:.3f}" for factor, value in worth.items())
    assert f"has the largest mean silhouette on the coreset of 5 widths ({listed})" in grid.findings[0]
    assert grid.ledger.rounds == runs[factor].ledger.rounds
    assert uploaded(grid) == sum(map(uploaded, runs.values()))


def test_of_clusters_that_are_not_compact_it_says_that_the_widest_is_taken():
    """Two rings are parted at half the width and at no larger one, where silhouettes are larger: it is no oracle."""
    X, ring = make_circles(600, factor=0.3, noise=0.05, random_state=0)
    strategy = RFKKMeans(2, width_factors=(0.5, 1, 2), coreset_size=300)
    result = strategy.fit(np.array_split(X, 3))
    narrow = RFKKMeans(2, width_factors=(0.5,), coreset_size=300).fit(np.array_split(X, 3))
    assert normalized_mutual_info_score(ring, pooled(narrow, "labels")) > 0.95
    assert normalized_mutual_info_score(ring, pooled(result, "labels")) < 0.05
    assert (
        "it is the widest: wider ones may have a larger one, but clusters that are not compact need narrower"
        in (result.findings[0])
    )


def test_what_a_site_lets_be_sampled_is_of_all_widths_together():
    cohort = [Member(place, place, 200, 64, sampled=most) for place, most in enumerate((50, 20, 50))]
    strategy = RFKKMeans(3, n_features=10, coreset_size=60, width_factors=(0.5, 1, 2))
    with pytest.raises(InputError) as caught:
        strategy.check_cohort(cohort)
    assert str(caught.value) == (
        "coreset_size = 60, but must be at most 38, the rows that all sites together let be sampled, for each of 3 "
        "widths: client 1 6 of its 200 (guard: coreset)"
    )
    RFKKMeans(3, n_features=10, coreset_size=38, width_factors=(0.5, 1, 2)).check_cohort(cohort)


def test_guards_hold_for_each_width_and_for_all_together():
    rng = np.random.default_rng(0)
    X, features = rng.standard_normal((120, 5)), RandomFeatures(RBF(gamma=0.05), 20)

    def site(*requests):
        client = FKKMeansClient(X, guards=Guards())
        for request in requests:
            asked(client, request)
        return client

    def refusal(client, request):
        with pytest.raises(InputError) as caught:
            asked(client, request)
        return str(caught.value)

    embed, solve = EmbedAtWidths(features=features, factors=(0.5, 1.0)), SolveAtWidths(n_clusters=2)
    for factor in (1e-2, 1e2):  # the kernel's own width would do
        wrong = EmbedAtWidths(features=features, factors=(1.0, factor))
        text = refusal(site(), wrong)
        assert text.startswith(f"EmbedAtWidths.features.kernel[width x {factor:g}].gamma = {0.05 / factor**2:.3g}, but")
        assert text.endswith("(guard: widths)")
    assert "a local centre would stand for" in refusal(site(embed), SolveAtWidths(n_clusters=60))
    asked(site(embed, solve), SampleAtWidths(samples=30, each=(15, 15)))
    assert refusal(site(embed, solve), SampleAtWidths(samples=31, each=(15, 16))) == (
        "SampleAtWidths.samples = 31 (coreset_size) of 120 rows; allowed: at most 30, 0.25 of them (guard: coreset)"
    )
    # neither is asked beside the other
    sampled = "rows were sampled before in this run; allowed: once (guard: coreset)"
    alone = EmbedRows(features=features, t=1), SolveLocally(n_clusters=2)
    both = site(embed, solve, *alone, SampleCoreset(samples=30))
    assert refusal(both, SampleAtWidths(samples=2, each=(1, 1))) == f"SampleAtWidths: {sampled}"
    both = site(embed, solve, *alone, SampleAtWidths(samples=2, each=(1, 1)))
    assert refusal(both, SampleCoreset(samples=1)) == f"SampleCoreset: {sampled}"


def test_messages_that_do_not_fit_the_widths_are_refused():
    client = FKKMeansClient(SHARDS[0])
    asked(client, EmbedAtWidths(features=RandomFeatures(RBF(gamma=2e-4), 8), factors=(1.0, 2.0)))
    asked(client, SolveAtWidths(n_clusters=2))
    with pytest.raises(ProtocolError, match="samples at 3 widths do not fit the 2 of the embedding"):
        asked(client, SampleAtWidths(samples=3, each=(1, 1, 1)))
    with pytest.raises(ProtocolError, match="chosen = 2 is none of the 2 widths of the embedding"):
        asked(client, LabelAtWidth(chosen=2, centers=np.zeros((2, 8))))
    with pytest.raises(ValueError, match="each adds up to 2, but samples = 1"):
        SampleAtWidths(samples=1, each=(1, 1))
    reply = LocalCoresets(points=np.eye(3), weights=np.ones(3), sizes=np.array([2, 2], dtype=np.int32))
    with pytest.raises(ValueError, match="sizes must add up to 3"):
        SampleAtWidths(samples=2, each=(1, 1)).check_reply(reply)


SWEPT = 'widths are compared by an experiment, with "strategy.NAME.kernel.gamma" = [0.1, 1.0] in its table [sweep]'


@pytest.mark.parametrize(
    ("strategy", "sentence"),
    [
        (lambda: RFKKMeans(3, width_factors=1), "width_factors = 1: input should be a list"),
        (lambda: RFKKMeans(3, width_factors=(1, 0)), "width_factors.1 = 0: input should be greater than or equal to"),
        (lambda: RFKKMeans(3, width_factors=(2, 1, 2)), "width_factors: 2 and 2 are not allowed; each must differ"),
        (lambda: RFKKMeans(1, width_factors=(1, 2)), "width_factors needs n_clusters of 2 or more"),
        (lambda: FKKMeans(3, width_factors=(1, 2)), f"max_clusters, dtype); {SWEPT}"),
        (lambda: DKPCA(3, kernel={"type": "rbf", "gamma": [1, 2]}), f"kernel.gamma: [1, 2] is not one number; {SWEPT}"),
    ],
)
def test_what_is_no_grid_here_is_refused_in_a_sentence(strategy, sentence):
    with refusing(sentence):
        strategy()


def experiment(**more):
    method = {"method": "RFKKMeans", "n_clusters": 3, "n_features": 50, "kernel": {"type": "rbf", "width": "median"}}
    table = {
        "name": "widths",
        "seeds": [0],
        "evaluate": True,
        "data": {"name": "iris", "scale": "standard"},
        "partition": {"kind": "horizontal", "clients": 3, "shuffle": True},
        "strategy": [{"name": "RFK", "width_factors": [0.25, 1, 2], "coreset_size": 30, **method}],
    }
    return Experiment.from_table(table | more, "widths.toml")


def test_an_experiment_takes_a_grid_and_recommends_what_a_sweep_does(tmp_path):
    sweep = {"strategy.RFK.width_factors": [[0.25], [1], [2], [0.25, 1, 2]]}
    *alone, grid = run_experiment(experiment(sweep=sweep), tmp_path).rows
    worth = {row.point["strategy.RFK.width_factors"][0]: row.metrics["silhouette"] for row in alone}
    factor = grid.metrics["width_factor"]
    assert findings([grid])[0].startswith(f"{grid.id}: width_factor = {factor:g} (gamma = ")
    assert grid.metrics["silhouette"] == pytest.approx(max(worth.values()), rel=1e-9)
    assert worth[factor] == max(worth.values())
    (sentence,) = recommendations(alone)
    assert sentence.startswith(f"RFK: strategy.RFK.width_factors = [{factor:g}] is recommended, with the largest mean")


def test_the_example_of_the_documentation_prints_what_stands_below_it(tmp_path, capsys):
    page = (Path(__file__).parent.parent / "docs" / "experiments.md").read_text()
    ((code, printed),) = re.findall(r"```python\n(.*?)```\s+```text\n(.*?)```", page, flags=re.DOTALL)
    (tmp_path / "example.py").write_text(code)
    runpy.run_path(str(tmp_path / "example.py"))
    assert capsys.readouterr().out == printed


def test_named_sites_are_told_of_the_widths_before():
    named = experiment(**{"data": {"sites": ["a", "b"]}, "partition": {}, "engine": "grpc"})
    run = study_of(named, plan(named)).runs[0]
    planned = {planned.request: planned for step in run.plan for planned in step.requests}
    assert planned["EmbedAtWidths"].fields["factors"] == [0.25, 1.0, 2.0]
    assert planned["SampleAtWidths"].fields["samples"] == {"at most": 90}
    assert "gamma" not in planned["MeasureClusters"].fields["kernel"]
