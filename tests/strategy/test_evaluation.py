"""Runs judge themselves: measures by sums and on the coreset, clusters that are sites, numbers that are chosen."""

import dataclasses
import functools
import itertools

import naive
import numpy as np
import pytest
from grids import in_turn
from networks import admm
from sites import pooled
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.metrics import adjusted_rand_score, calinski_harabasz_score, normalized_mutual_info_score, silhouette_score
from sklearn.preprocessing import StandardScaler

from fedkernel import RBF, InputError, Laplacian, Linear, ProtocolError, strategies
from fedkernel.clients.kmeans_base import CountClusters, KMeansClient, MeasureClusters, SharedRows
from fedkernel.experiments.config import Experiment
from fedkernel.experiments.results import recommendations
from fedkernel.experiments.running import run_experiment
from fedkernel.models import KernelKMeans, compare_classes, compute_metrics, metric_of
from fedkernel.numerics import WeightedPoints, silhouette, site_agreement
from fedkernel.protocol import Guards, Member, Run
from fedkernel.strategies.cluster_count import best_division
from fedkernel.strategies.cluster_stability import compare_clusters

LOADERS = (load_iris, load_wine, load_breast_cancer, load_diabetes, load_digits)
EVERY = 10**6  # points of a coreset: all


def table(load, rows=300):
    """Standardised, in an order that has nothing to do with classes."""
    X = load().data[:: 6 if load is load_digits else 1]
    varies = X.std(axis=0) > 0
    return StandardScaler().fit_transform(X[:, varies])[np.random.default_rng(0).permutation(len(X))][:rows]


def test_weighted_measures_are_those_of_scikit_learn_where_these_are_known():
    rng = np.random.default_rng(1)
    for _ in range(5):
        points, labels = rng.standard_normal((40, 3)), rng.integers(0, 4, 40)
        weights = rng.integers(0, 4, 40)
        labels[7] = 9
        weights[7] = 1  # a cluster of one point
        coreset = WeightedPoints(points, weights.astype(float))
        assert silhouette(coreset, labels).mean == pytest.approx(naive.silhouette(points, weights, labels), rel=1e-12)
        unweighted = silhouette(WeightedPoints(points, np.ones(40)), labels).mean
        assert unweighted == pytest.approx(silhouette_score(points, labels), rel=1e-12)
    assert silhouette(coreset, np.zeros(40, dtype=int)) is None
    counts = rng.integers(0, 9, (3, 4))
    sites, clusters = (np.repeat(index.ravel(), counts.ravel()) for index in np.indices(counts.shape))
    assert site_agreement(counts) == pytest.approx(normalized_mutual_info_score(sites, clusters), rel=1e-12)


WHOLE = [
    strategies.RFKKMeans(3, 40, coreset_size=EVERY),
    strategies.FKKMeans(3, n_features=20, iterations=3, solver="gram", coreset_size=EVERY),
    strategies.SpectralKMeans(
        3, strategies.UniformKPCA(4, RBF(gamma=0.05), n_samples=20, share_rows=True), coreset_size=EVERY
    ),
]


@pytest.mark.parametrize(("load", "strategy"), in_turn(LOADERS[::2], WHOLE, every=3))
def test_clusters_are_measured_as_where_all_rows_are_in_one_place(load, strategy):
    """Of the whole table as the coreset, where the coreset's measures are those of all rows."""
    X = table(load, rows=200)
    plain, result = strategy.fit(shards := np.array_split(X, 3)), strategy.fit(shards, evaluate=True)
    H, labels, centers = pooled(result, "embedding"), pooled(result, "labels"), result.model.centers_
    np.testing.assert_array_equal(labels, pooled(plain, "labels"))
    kernel = result.model.embedding.kernel
    missed = np.mean([float(kernel.gram(x)[0, 0]) - h @ h for x, h in zip(X[:, None, :], H, strict=True)])
    cost = np.mean([min(np.sum((h - c) ** 2) for c in centers) for h in H])
    metrics = result.metrics
    assert metrics["kmeans_objective"] == pytest.approx(missed + cost, abs=1e-10)
    assert metrics["simplified_silhouette"] == pytest.approx(naive.simplified_silhouette(H, centers), abs=1e-12)
    assert 0 < metrics["simplified_silhouette"] - silhouette_score(H, labels) < 0.2
    # k-means has come to rest: its centres are the means
    assert metrics["calinski_harabasz"] == pytest.approx(calinski_harabasz_score(H, labels), rel=1e-8)
    sizes = np.array([np.bincount(result.outputs[m]["labels"], minlength=3) // 5 * 5 for m in range(3)])
    assert metrics["site_nmi"] == pytest.approx(site_agreement(sizes))
    values, cells = result.history[-1]["values"], itertools.product(range(3), range(3))
    assert [values[f"cluster {c} at client {m}"] for m, c in cells] == sizes.ravel().tolist()
    assert result.ledger.rounds == plain.ledger.rounds + 2
    assert result.ledger.floats_up == plain.ledger.floats_up + 3 * (H.shape[1] + 4 + 3 + 1)


@pytest.mark.parametrize(
    "strategy",
    [
        strategies.RFKKMeans(10, 100),
        strategies.FKKMeans(10, n_features=50, iterations=3, solver="gram"),
        strategies.SpectralKMeans(10, strategies.UniformKPCA(10, n_samples=100, share_rows=True)),
    ],
    ids=lambda strategy: type(strategy).__name__,
)
def test_what_clusters_cost_is_that_of_all_rows_and_not_of_the_coreset_by_which_they_were_found(strategy):
    """Of digits the coreset's points are from 15 to 30 % nearer to centres that were found from them."""
    X = load_digits().data
    result = strategy.fit(np.array_split(X, 5), evaluate=True)
    H, labels = pooled(result, "embedding"), pooled(result, "labels")
    exact = calinski_harabasz_score(H, labels)
    assert 0.93 * exact < result.metrics["calinski_harabasz"] < exact
    points, weights = result.model.coreset_
    nearest = [np.square(rows[:, None] - result.model.centers_).sum(axis=2).min(axis=1) for rows in (H, points)]
    assert weights @ nearest[1] < 0.93 * nearest[0].sum()
    missed = result.model.embedding.kernel.diag(X).sum() - np.square(H).sum()
    objective = (max(missed, 0.0) + nearest[0].sum()) / len(X)
    assert result.metrics["kmeans_objective"] == pytest.approx(objective, rel=1e-8)


def test_sizes_below_five_are_not_told_and_a_site_may_take_larger_steps():
    def client(guards=None):
        site = KMeansClient(np.eye(2), guards=guards)
        rows = np.concatenate([np.zeros((4, 1)), np.full((13, 1), 9.0), np.full((5, 1), 20.0)])
        site.memory.update({"Embedding.rows": rows, "CommonCenters.centers": np.array([[0.0], [9.0], [20.0], [99.0]])})
        return site

    assert client().count_clusters(CountClusters()).sizes.tolist() == [0, 10, 5, 0]
    assert client(Guards(cell_rows=13)).count_clusters(CountClusters()).sizes.tolist() == [0, 13, 0, 0]
    assert client(Guards(cell_rows=1)).count_clusters(CountClusters(step=7)).sizes.tolist() == [0, 7, 0, 0]
    ask = MeasureClusters(kernel=Linear())  # a centre near few rows is left out, and these count to the others
    costs = [client(guards).measure_clusters(ask).cost for guards in (None, *(Guards(cell_rows=n) for n in (4, 5, 99)))]
    assert costs == [0, 0, 4 * 81, 4 * 81 + 5 * 121]
    with pytest.raises(ValueError, match="greater than or equal to 5"):
        CountClusters(step=4)
    with pytest.raises(ValueError, match="must be multiples of step"):
        CountClusters(step=7).check_reply(client().count_clusters(CountClusters()))
    with pytest.raises(ProtocolError, match="it has no embedding yet"):
        KMeansClient(np.eye(2)).count_clusters(CountClusters())


def test_a_site_whose_column_is_in_another_unit_is_called_out(caplog):
    """Nobody standardises: one column is 18 times the others', and decides."""
    X = load_wine().data[np.random.default_rng(0).permutation(178)]
    parts = np.array_split(X / X.std(axis=0), 3)
    wrong = [*parts[:2], parts[2] * np.where(np.arange(13) == 0, 18.0, 1.0)]
    strategy = strategies.FKKMeans(2, n_components=2, n_features=16, iterations=3, solver="gram")
    result = strategy.fit(wrong, evaluate=True)
    assert result.metrics["site_nmi"] > 0.5
    assert "is at client 2, which has 33% of all rows: clusters coincide with sites" in result.findings[0]
    assert result.findings[0] in caplog.text
    for text in strategy.fit(parts, evaluate=True).findings:
        assert "floats were sent" in text or "per table entry" in text


def blobs(clusters, rows=240, seed=3):
    rng = np.random.default_rng(seed)
    return 6 * np.eye(clusters, 6)[np.arange(rows) % clusters] + 0.4 * rng.standard_normal((rows, 6))


def test_of_rows_without_clusters_it_is_said_that_fewer_are_nearly_as_good():
    rows = np.random.default_rng(0).normal(size=(60, 2))
    choice = best_division(WeightedPoints(rows, np.ones(60)), 5, lambda: np.random.default_rng(0)).choice
    assert choice is not None
    means = dict(item.split(": ") for item in choice.why.rpartition("(")[2].rstrip(")").split(", "))
    error = float(choice.why.split(", ")[1])
    assert float(means["3"]) - error <= float(means["2"]) < float(means["3"]) == max(map(float, means.values()))
    assert choice.why.startswith(f"n_clusters = 2 has a mean silhouette within a standard error, {error}, of the")


@pytest.mark.parametrize("clusters", [pytest.param(2, marks=pytest.mark.drill), 5])
def test_the_number_of_clusters_is_the_one_with_the_largest_silhouette(clusters):
    shards = np.array_split(blobs(clusters), 3)
    for strategy in (
        strategies.RFKKMeans("auto", 100, max_clusters=6),
        strategies.FKKMeans("auto", n_components=5, n_features=20, iterations=3, solver="gram", max_clusters=6),
        strategies.SpectralKMeans("auto", strategies.UniformKPCA(5, n_samples=30, share_rows=True), max_clusters=6),
        strategies.CentroidKMeans("auto", centroids="local", max_clusters=6),
    ):
        result = strategy.fit(shards)
        assert len(result.model.centers_) == result.metrics["n_clusters"] == clusters
        assert result.findings[0].startswith(f"n_clusters = {clusters} has the largest mean silhouette")
        fixed = type(strategy)(**strategy.hyperparameters | {"n_clusters": 6, "max_clusters": None}).fit(shards)
        assert result.ledger.rounds == fixed.ledger.rounds
        assert result.ledger.floats_up == fixed.ledger.floats_up
        assert len(strategy.central(shards).centers_) == clusters


def test_a_number_of_clusters_that_is_the_limit_says_so_and_that_there_may_be_none():
    strategy = strategies.RFKKMeans("auto", 100, max_clusters=3)
    finding = strategy.fit(np.array_split(blobs(5), 3)).findings[0]
    assert finding.startswith("n_clusters = 3 has the largest mean silhouette on the coreset among 2 to 3 clusters ")
    assert "; that is the limit (max_clusters)" in finding
    finding = dataclasses.replace(strategy, max_clusters=6).fit(np.array_split(blobs(5), 3)).findings[0]
    assert "that is the limit" not in finding
    rng = np.random.default_rng(0)
    result = strategies.RFKKMeans("auto", 100, max_clusters=4).fit(np.array_split(rng.standard_normal((200, 8)), 2))
    assert "there may be no clusters" in result.findings[0]
    for name, setting in (("max_clusters", 'n_clusters = "auto"'), ("n_centers", 'clusters = "lloyd"')):
        with pytest.raises(InputError, match=f"{name} = 5 has a meaning only with {setting}"):
            strategies.RFKKMeans(3, **{name: 5})
    with pytest.raises(InputError, match='coreset_size = 5 has a meaning only with clusters = "coreset"'):
        strategies.SpectralKMeans(3, coreset_size=5, clusters="lloyd")


@pytest.mark.parametrize("load", in_turn(LOADERS, every=2))
def test_components_explain_what_they_do_where_all_rows_are_in_one_place(load):
    X = table(load, rows=150)
    columns, rows = np.array_split(X, 3, axis=1), np.array_split(X, 3)
    best = naive.top(X @ X.T, 3)[0].sum() / np.sum(X**2)
    C = X - X.mean(axis=0)
    for strategy, of in (
        (strategies.DKPCA(3, Linear(), local_components=2), X),
        (strategies.DKPCA(3, Linear(), local_components=2, center=True), C),
        (strategies.VFedPCA(3, merge="eigenvalue", rounds=4), C),
        (strategies.VFedPCA(3, merge="exact"), C),
    ):
        result = strategy.fit(columns, evaluate=True)
        kept, ratio = np.sum((result.model.eigenvectors_.T @ of) ** 2), result.metrics["explained_variance_ratio"]
        assert result.metrics["explained_variance"] == pytest.approx(kept / len(X), rel=1e-8)
        assert ratio == pytest.approx(kept / np.sum(of**2), abs=1e-8)
    peers = strategies.PeerVFedPCA(3).fit(columns, evaluate=True)
    assert peers.metrics["explained_variance_ratio"] == pytest.approx(ratio, abs=1e-6)
    landmarks = strategies.DisKPCA(3, Linear(), n_adaptive=X.shape[1] + 3, share_rows=True).fit(rows, evaluate=True)
    assert landmarks.metrics["explained_variance_ratio"] == pytest.approx(best, abs=1e-8)
    assert landmarks.metrics["explained_variance"] == pytest.approx(best * np.sum(X**2) / len(X), rel=1e-8)


@pytest.mark.parametrize(("load", "center"), in_turn(LOADERS, [False, True], every=2))
def test_bounds_of_dkpca_hold_without_data(load, center):
    X = table(load, rows=100)
    columns = np.array_split(X, 3, axis=1)
    for kernel, local in itertools.product((RBF(gamma=0.02), Laplacian(gamma=0.05)), (3, 20, 100)):
        strategy = strategies.DKPCA(3, kernel, local_components=local, center=center, certificate=True)
        result = strategy.fit(columns, evaluate=True)
        K = kernel.gram(X)
        K = naive.centred(K) if center else K
        V = result.model.eigenvectors_
        share = np.trace(V.T @ K @ V) / np.trace(K)
        bound = result.metrics["explained_variance_bound"]
        assert 0 < bound <= share + 1e-12
        assert local < len(X) or bound == pytest.approx(share, rel=1e-9), "nothing is left out"


# No figure reads better for a worse answer

SHARDS = np.array_split(table(load_wine), 3)
CENTRAL = strategies.UniformKPCA(3, share_rows=True).central(SHARDS)
CLASSES = load_wine().target[np.random.default_rng(0).permutation(178)]


def of_labels(labels):
    worth = silhouette(WeightedPoints(CENTRAL.transform(np.vstack(SHARDS)), np.ones(178)), labels)
    return compare_classes(labels, CLASSES) | ({} if worth is None else {"silhouette": worth.mean})


def of_run(strategy):
    """Of a run with its measures on the sites."""
    return strategy.fit(SHARDS, evaluate=True, reference=strategy.central(SHARDS)).metrics


RNG = np.random.default_rng(2)
GOOD_AND_WORSE = {
    "labels": (of_labels, CLASSES, [np.zeros(178, int), RNG.integers(0, 3, 178), np.arange(178) > 0]),
    "clusters": (of_run, strategies.RFKKMeans(3, n_features=300), [strategies.RFKKMeans(1, n_features=300)]),
}


@pytest.mark.parametrize("name", GOOD_AND_WORSE)
def test_no_figure_reads_better_for_a_worse_answer(name):
    measure, good, worse = GOOD_AND_WORSE[name]
    figures = measure(good)
    judged = {figure: metric_of(figure).better for figure in figures if not metric_of(figure).cost}
    assert any(judged.values())
    for answer in worse:
        for figure, value in measure(answer).items():
            if (better := judged.get(figure)) is not None:
                assert (value - figures[figure]) * (1 if better == "lower" else -1) >= -1e-12, figure


DEGENERATE = {
    "none": lambda A: 0 * A,
    "almost none": lambda A: 1e-9 * A,
    "the first again and again": lambda A: A[:, [0] * A.shape[1]],
    "too long": lambda A: 3 * A,
    "drawn": lambda A: np.random.default_rng(1).standard_normal(A.shape) / np.sqrt(len(A)),
}
COLUMNS = np.array_split(np.vstack(SHARDS), 3, axis=1)
VECTORS = [
    (strategies.DKPCA(3, RBF()), COLUMNS, "eigenvectors_"),
    (strategies.VFedPCA(3), COLUMNS, "eigenvectors_"),
    (strategies.VFedAKPCA(3), COLUMNS, "eigenvectors_"),
    (strategies.PeerVFedPCA(3), COLUMNS, "eigenvectors"),
    (admm(n_components=2, kernel=RBF(), iterations=5), SHARDS, "alpha"),
    (strategies.UniformKPCA(3, n_samples=60, share_rows=True), SHARDS, "coefficients_"),
    (strategies.DisKPCA(3, n_adaptive=40, share_rows=True), SHARDS, "coefficients_"),
]


@functools.cache
def judged(number):
    """Return a run of these, its strategy as it ran, the reference and the metrics."""
    strategy, shards, _ = VECTORS[number]
    result = strategy.fit(shards)
    settled = strategy.as_run(result)
    reference = settled.central(shards)
    return result, settled, reference, settled.judge(result, shards, reference)


@pytest.mark.parametrize(("number", "change"), in_turn(range(len(VECTORS)), DEGENERATE, every=2))
def test_vectors_that_are_none_or_too_few_or_too_long_read_no_better_than_what_a_run_found(number, change):
    """In the model, or at a site of which the coordinator knows nothing: there at one that disagrees, too."""
    (_, shards, name), make = VECTORS[number], DEGENERATE[change]
    result, settled, reference, of_the_run = judged(number)
    if hasattr(result.model, name):
        model = dataclasses.replace(result.model, **{name: make(getattr(result.model, name))})
        worse = [dataclasses.replace(result, model=model)]
    else:
        of_all = {client: {**own, name: make(own[name])} for client, own in result.outputs.items()}
        worse = [dataclasses.replace(result, outputs=outputs) for outputs in (of_all, {**result.outputs, 1: of_all[1]})]
    for answer in worse:
        figures = settled.judge(answer, shards, reference)
        for figure, value in figures.items():
            if (better := metric_of(figure).better) is not None and not metric_of(figure).cost:
                assert (value - of_the_run[figure]) * (1 if better == "lower" else -1) >= -1e-9, figure
        if change in ("none", "the first again and again"):
            assert figures.get("error", 1.0) > 0.6
            assert figures.get("similarity", 0.0) < 0.9


@pytest.mark.parametrize("kernel", [RBF(gamma=1e6), RBF(gamma=1e-9)], ids=["identity", "all rows alike"])
def test_where_every_answer_is_near_the_best_nothing_says_that_this_one_is(kernel):
    """What is left is said to mean little."""
    for strategy in (
        strategies.UniformKPCA(3, kernel, share_rows=True, n_samples=20),
        strategies.DisKPCA(3, kernel, share_rows=True, n_adaptive=20),
        strategies.FKKMeans(3, kernel=kernel, solver="gram", iterations=2),
        strategies.SpectralKMeans(3, strategies.UniformKPCA(3, kernel, share_rows=True, n_samples=20)),
        strategies.CentroidKMeans(3, kernel),
    ):
        result = strategy.fit(SHARDS, evaluate=True, reference=strategy.central(SHARDS))
        assert not {"error_ratio", "recover_error"} & result.metrics.keys()
        if kernel.gamma > 1:
            assert result.metrics.get("explained_variance_ratio", 0.0) < 0.02
        else:
            assert not {"explained_variance_ratio", "reconstruction_error", "kmeans_objective"} & result.metrics.keys()
        findings = " ".join(result.findings)
        assert "results mean little" in findings or "a linear kernel's at best" in findings


def test_agreement_on_a_single_cluster_or_class_is_none():
    assert compare_classes(np.zeros(5), np.zeros(5)) == {}
    with pytest.raises(InputError, match="all rows are of one class, but this metric needs at least 2"):
        compute_metrics(["features_nmi"], CENTRAL, SHARDS, np.zeros(178))
    one = (
        strategies.RFKKMeans(1, n_features=20)
        .fit(SHARDS, evaluate=True, reference=strategies.RFKKMeans(1).central(SHARDS))
        .metrics
    )
    assert not {"site_nmi", "simplified_silhouette", "calinski_harabasz", "nmi_central"} & one.keys()
    protocol = compare_clusters(Run((Member(0, 0, 178, 13),), 0), "r", 2)
    next(protocol)
    with pytest.raises(StopIteration) as stopped:
        protocol.send(SharedRows(sizes=np.array([[178.0, 0.0], [0.0, 0.0]]), slack=4.0))
    assert (shared := stopped.value.value) == {}
    assert shared.warnings == ["stability is not measured: a run has all rows in one cluster"]


def experiment():
    table = {
        "name": "judged",
        "seeds": [0, 1],
        "evaluate": True,
        "data": {"name": "iris", "scale": "standard"},
        "partition": {"kind": "horizontal", "clients": 3, "shuffle": True},
        "strategy": [{"name": "RFK", "method": "RFKKMeans", "n_clusters": 2, "kernel": {"type": "rbf", "gamma": 0.01}}],
        "sweep": {"strategy.RFK.kernel.gamma": [0.02, 50.0]},
    }
    return Experiment.from_table(table, "judged.toml")


def test_an_experiment_measures_recommends_a_width_and_says_how_stable_clusters_are(tmp_path):
    rows = run_experiment(experiment(), tmp_path).rows
    scores = {(row.seed, row.point["strategy.RFK.kernel.gamma"]): row.metrics for row in rows}
    measured = {"simplified_silhouette", "kmeans_objective", "site_nmi"}
    assert all(measured <= metrics.keys() for metrics in scores.values())
    (sentence,) = recommendations(rows)
    assert sentence.startswith("RFK: strategy.RFK.kernel.gamma = 0.02 is recommended")
    assert scores[0, 0.02].get("stability") is scores[0, 50.0].get("stability") is None
    models = [KernelKMeans.load(tmp_path / row.model) for row in rows if row.point == rows[0].point]
    X = StandardScaler().fit_transform(load_iris().data)
    expected = adjusted_rand_score(*(model.predict(X) for model in models))
    assert scores[1, 0.02]["stability"] == pytest.approx(expected, abs=1e-12)
    assert scores[1, 50.0]["stability"] < 0.5 < expected


FEWER = "only 2 clusters in place of n_clusters = 4: no more points differ among "


@pytest.mark.parametrize(
    ("strategy", "points"),
    [
        (strategies.FKKMeans(4, kernel=RBF(gamma=0.5)), "the coreset"),
        (strategies.RFKKMeans(4, 20, RBF(gamma=0.5), clusters="lloyd"), "the centres"),
        (strategies.CentroidKMeans(4, RBF(gamma=0.5)), "the landmarks"),
    ],
    ids=lambda own: getattr(type(own), "__name__", ""),
)
def test_fewer_clusters_than_asked_for_are_a_finding(strategy, points):
    shards = [np.repeat([[0.0, 0, 1], [2, 1, 0]], 20, axis=0)] * 3
    result = strategy.fit(shards)
    assert len(result.model.centers_) == 2
    assert FEWER + points in result.findings


def test_a_number_of_clusters_is_chosen_of_equal_rows_in_one_place_too():
    strategy = strategies.FKKMeans("auto", kernel=RBF(gamma=0.5))
    assert len(strategy.central([np.ones((30, 3))] * 3).centers_) == 1


def test_rows_at_sites_with_too_few_for_a_group_are_told_and_clusters_of_few_points():
    rows = 9 * np.eye(3, 5)[np.arange(220) % 3] + np.random.default_rng(0).standard_normal((220, 5))
    result = strategies.RFKKMeans(3, clusters="lloyd").fit(np.split(rows, [60, 120]))
    sentence = "120 of 220 rows have no part in the centres: their clients have too few for a group"
    assert sentence in result.findings
    assert any(finding.startswith("only 1 clusters in place of n_clusters = 3") for finding in result.findings)
    result = strategies.FKKMeans(3, clusters="lloyd").fit(np.split(rows, [60, 120]))
    few = "only 4 points are clustered (the centres) for n_clusters = 3, so clusters are rough"
    assert few in result.findings


def test_clusters_of_rows_far_from_0_that_a_linear_kernel_hides_have_a_finding():
    rows = 1e6 + 9 * np.eye(3)[np.arange(240) % 3] + np.random.default_rng(0).standard_normal((240, 3))
    told = [
        [finding for finding in strategy.fit(np.array_split(rows, 3)).findings if "the landmarks span" in finding]
        for strategy in (strategies.CentroidKMeans(3, Linear()), strategies.CentroidKMeans(3))
    ]
    assert list(map(len, told)) == [1, 0]
