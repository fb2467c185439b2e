"""Components in the span of disclosed rows, without disKPCA's draws: the low-rank step, uniform draws, clusters."""

import dataclasses
import math
from functools import cache

import numpy as np
import pytest
import scipy.stats
from scipy import sparse
from scipy.spatial.distance import pdist
from sites import as_csr, drive, pooled
from sklearn.datasets import load_digits, load_wine
from sklearn.preprocessing import StandardScaler

from fedkernel import RBF, ArcCosine, InputError, KernelKMeans, Linear, Member, Polynomial, Result, Run, Sigmoid
from fedkernel.clients.diskpca import DisKPCAClient
from fedkernel.clients.landmark_base import DrawnPositions
from fedkernel.data import GeneratedTable
from fedkernel.models import LandmarkPCA, kmeans_objective
from fedkernel.strategies import CentroidKPCA, DisKPCA, SpectralKMeans, UniformKPCA
from fedkernel.strategies.drawn_landmarks import Allotment, DrawnLandmarks, draw_uniformly
from fedkernel.strategies.landmark_base import LowRankStep, kernel_pca, low_rank

DIGITS = load_digits()
X = DIGITS.data[:400] / 16
KERNEL = RBF(sigma=float(np.median(pdist(X))))
KERNELS = [KERNEL, Polynomial(2, 0.1), ArcCosine(1), Linear()]
K = 6
WIRES = ["float64", "float32"]


def uniform(kernel=KERNEL, **fields):
    return UniformKPCA(K, kernel, **{"n_samples": 40, "share_rows": True} | fields)


SHARDS = np.split(X, [40, 150])


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
def test_a_client_gets_the_rows_it_does_not_know(form):
    rows = np.arange(24.0).reshape(6, 4)
    drawn = DrawnLandmarks(form(rows), (2, 0, 3, 1))
    expected = {0: ([2, 3, 4, 5], 0), 1: ([0, 1, 2, 3, 4, 5], 2), 2: ([0, 1, 5], 2), 3: ([0, 1, 2, 3, 4], 5)}
    for client, (singular, before) in expected.items():
        others, first = drawn.rows_of_others(client)
        assert first == before
        np.testing.assert_array_equal(others.toarray() if sparse.issparse(others) else others, rows[singular])


def drawn_uniformly(sizes, samples, seed):
    """Return the positions that every site disclosed."""
    sites = [DisKPCAClient(np.ones((size, 2)), client=i, seed=seed, share_rows=True) for i, size in enumerate(sizes)]
    allotment = Allotment(samples, np.array(sizes))
    drawn = drive(draw_uniformly(allotment, Linear(), np.random.default_rng(seed)), sites)
    states = [DrawnPositions.load(site.memory) if DrawnPositions.known(site.memory) else None for site in sites]
    positions = [np.empty(0, dtype=int) if state is None else state.positions for state in states]
    assert drawn.counts == tuple(len(own) for own in positions)
    assert drawn.rows.shape == (samples, 2)
    return positions


def test_uniform_draws_take_each_row_as_likely_and_none_twice_and_all_where_all_are_asked_for():
    sizes, samples, seeds = [3, 12, 5], 4, 1000
    counts, together = np.zeros(20), 0
    for seed in range(seeds):
        positions = drawn_uniformly(sizes, samples, seed)
        chosen = np.concatenate([own + first for own, first in zip(positions, [0, 3, 15], strict=True)])
        assert len(np.unique(chosen)) == samples
        counts[chosen] += 1
        together += {0, 1} <= set(chosen)
    assert scipy.stats.chisquare(counts).pvalue > 1e-3
    # pairs too: 4 of 20 hold two given rows in 4 * 3 of 20 * 19 cases
    assert scipy.stats.binomtest(together, seeds, 12 / 380).pvalue > 1e-3
    assert [len(own) for own in drawn_uniformly([3, 1, 5], 9, 0)] == [3, 1, 5]
    result = uniform(n_samples=10**6).fit(SHARDS)
    np.testing.assert_array_equal(result.model.landmarks_, X)


@pytest.mark.parametrize("form", [list, as_csr], ids=["dense", "csr"])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_the_low_rank_step_finds_the_best_within_the_span(kernel, form):
    """Against the definition, with the span's basis from a singular value decomposition."""
    result = uniform(kernel, projection_size="exact").fit(form(SHARDS), evaluate=True)
    Y = result.model.landmarks_.toarray() if form is as_csr else result.model.landmarks_
    U, values, _ = np.linalg.svd(kernel.gram(Y))
    basis = U[:, values > 1e-7 * values[0]] / np.sqrt(values[values > 1e-7 * values[0]])
    captured = np.linalg.svd(kernel.gram(X, Y) @ basis, compute_uv=False)[:K] ** 2
    np.testing.assert_allclose(result.model.eigenvalues_, captured, rtol=1e-7)
    error = 1 - captured.sum() / np.trace(kernel.gram(X))
    assert result.metrics["reconstruction_error"] == pytest.approx(error, rel=1e-6)
    np.testing.assert_allclose(pooled(result), result.model.transform(form([X])[0]), atol=1e-9)


def test_the_sketch_costs_little_and_less_with_more_columns():
    """Means of ten seeds; the landmarks are the same."""
    reference = uniform().central([X])
    errors = {}
    for columns in (20, 40, 120, "exact"):
        runs = [uniform(projection_size=columns).fit(SHARDS, seed=seed, reference=reference) for seed in range(10)]
        errors[columns] = np.mean([run.metrics["error_ratio"] for run in runs])
    assert errors[20] > errors[40] > errors[120] > errors["exact"] > 1
    assert errors[40] < 1.1 * errors["exact"]
    # as many as there are landmarks; no client is smaller
    same = uniform(projection_size="landmarks").fit(SHARDS, seed=3).model
    assert same.coefficients_.tobytes() == uniform(projection_size=40).fit(SHARDS, seed=3).model.coefficients_.tobytes()


def test_a_client_with_few_rows_sends_products():
    """A sketch of 40 columns takes 80 rows; of 79 it would be one row in many a column."""
    shards = np.split(X, [10, 89, 169])
    result = uniform(projection_size="landmarks").fit(shards)
    sent = {entry.client: entry.floats_up for entry in result.ledger.entries if entry.phase == "SketchKernel"}
    assert sent == {0: 820, 1: 820, 2: 1600, 3: 1600}
    few = [X[:10], X[10:20], X[20:30], X[30:109]]
    sketched, exact = (uniform(projection_size=size).fit(few, seed=1) for size in ("landmarks", "exact"))
    np.testing.assert_allclose(sketched.model.eigenvalues_, exact.model.eigenvalues_, rtol=1e-10)


def test_a_tolerance_leaves_directions_out():
    spans = []
    for tol in (1e-8, 1e-3, 0.1):
        sites = [DisKPCAClient(X)]
        step = LowRankStep(KERNEL, "float64", tol)
        drawn = DrawnLandmarks(X[:40], (0,))
        fields = {"n_components": 40, "columns": "exact", "embed": False}
        spans.append(drive(low_rank(Run((), 0), step, X[:40], drawn.handed(step), **fields), sites).n_components)
    values = np.linalg.eigvalsh(KERNEL.gram(X[:40]))
    assert spans == [np.count_nonzero(values > tol * values[-1]) for tol in (1e-8, 1e-3, 0.1)]
    assert spans[0] > spans[1] > spans[2]


@pytest.mark.parametrize(("dtype", "spanned"), [("float64", 20), ("float32", 15)])
def test_the_default_tolerance_is_that_of_the_precision(dtype, spanned):
    """The roots of 2.2e-16 and 1.2e-7 are 1.5e-8 and 3.5e-4: the last five of twenty directions are between."""
    rows = np.linalg.qr(np.random.default_rng(0).standard_normal((60, 20)))[0]
    rows *= np.sqrt(np.r_[np.linspace(1, 0.5, 15), np.full(5, 1e-5)])
    strategy = UniformKPCA(20, Linear(), n_samples=60, share_rows=True, dtype=dtype, projection_size="exact")
    assert strategy.fit(np.split(rows, 3)).model.n_components == spanned


@pytest.mark.parametrize("form", [list, as_csr], ids=["dense", "csr"])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_batch_is_kernel_pca_of_the_rows_drawn(kernel, form):
    result = uniform(kernel, solver="batch").fit(form(SHARDS), seed=2, evaluate=True)
    other = uniform(kernel).fit(form(SHARDS), seed=2, evaluate=True)
    Y = result.model.landmarks_
    assert (other.model.landmarks_ != Y).sum() == 0, "the same rows are drawn"
    values, vectors = np.linalg.eigh(kernel.gram(Y))
    values, vectors = values[::-1][:K], vectors[:, ::-1][:, :K]
    np.testing.assert_allclose(result.model.eigenvalues_, values, rtol=1e-8)
    expected = kernel.gram(X, Y) @ vectors / np.sqrt(values)
    H = pooled(result)
    np.testing.assert_allclose(H @ H.T, expected @ expected.T, atol=1e-8 * values[0])
    # what is best for the sample is not best for all rows in its span
    best = uniform(kernel, projection_size="exact").fit(form(SHARDS), seed=2, evaluate=True)
    assert best.metrics["reconstruction_error"] < result.metrics["reconstruction_error"]
    phases = ["join", "DrawUniformly", "TakeLandmarks", "TakeComponents", "MeasureCaptured"]
    assert [row["phase"] for row in result.history] == phases


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_the_central_counterpart_is_kernel_pca_of_all_rows(kernel):
    model = uniform(kernel).central(SHARDS)
    values, vectors = np.linalg.eigh(kernel.gram(X))
    np.testing.assert_allclose(model.eigenvalues_, values[::-1][:K], rtol=1e-10)
    H = vectors[:, ::-1][:, :K] * np.sqrt(values[::-1][:K])
    np.testing.assert_allclose(np.abs(model.transform(X)), np.abs(H), atol=1e-7 * np.sqrt(values[-1]))
    np.testing.assert_allclose(model.inner_products(model), np.eye(K), atol=1e-8)
    with pytest.raises(InputError, match="n_components = 6, but must be at most the number of rows, 5"):
        kernel_pca(X[:5], kernel, 6)


def test_gamma_left_to_the_columns_is_one_over_their_number():
    own = RBF(width="columns")
    for strategy in (uniform(own), uniform(own, solver="batch"), DisKPCA(K, own, n_adaptive=20, share_rows=True)):
        assert strategy.fit(SHARDS).model.kernel == RBF(gamma=1 / 64) == strategy.central(SHARDS).kernel


def test_faults_of_uniform_draws_are_named():
    def refused(text, make, tables=SHARDS):
        with pytest.raises(InputError, match=text):
            make().fit(tables)

    most = "at most the number of landmarks, n_samples = 20"
    refused(f"n_components = 30, but must be {most}", lambda: UniformKPCA(30, n_samples=20))
    sentence = 'projection_size = 9 has a meaning only with solver = "disLR"'
    refused(sentence, lambda: uniform(solver="batch", projection_size=9))
    refused("solver = 'best'", lambda: uniform(solver="best"))
    refused("kernel: the sigmoid kernel is not positive semidefinite", lambda: uniform(Sigmoid()))
    refused("the kernel is zero on all", lambda: uniform(Linear()), [np.zeros((50, 3))])
    refused("the kernel is zero on all", lambda: uniform(Linear(), solver="batch"), [np.zeros((50, 3))])
    sentence = "share_rows = false, but UniformKPCA sends raw data: up to 40 of the 400 rows"
    refused(sentence, lambda: uniform(share_rows=False))


ALL = DIGITS.data / 16
PARTS = np.array_split(ALL, 5)


SPECTRAL = SpectralKMeans(10, DisKPCA(10, KERNEL, n_adaptive=200, share_rows=True))


@cache
def clustered():
    return SPECTRAL.fit(PARTS)


def test_the_objective_is_the_mean_distance_in_feature_space_of_tables_of_all_kinds(tmp_path):
    """By its definition, over explicit coordinates of all of feature space."""
    model = clustered().model
    labels = model.predict(ALL)
    K_XX = KERNEL.gram(ALL)
    C = model.embedding.coefficients @ model.centers_.T  # the centres are phi(Y) of these combinations
    K_XY, K_YY = KERNEL.gram(ALL, model.embedding.landmarks), KERNEL.gram(model.embedding.landmarks)
    cross, norms = K_XY @ C, np.sum(C * (K_YY @ C), axis=0)
    distances = np.diag(K_XX)[:, None] - 2 * cross + norms
    assert kmeans_objective(model, ALL) == pytest.approx(distances[np.arange(len(ALL)), labels].sum(), rel=1e-9)
    np.testing.assert_array_equal(np.argmin(distances, axis=1), labels)
    expected = distances.min(axis=1).mean()
    assert SPECTRAL.judge(Result(model), PARTS)["kmeans_objective"] == pytest.approx(expected, rel=1e-9)
    expected = kmeans_objective(model, ALL)
    np.save(tmp_path / "X.npy", ALL)
    table = GeneratedTable(ALL.shape, lambda k: ALL[k * 500 : (k + 1) * 500], 500)
    for rows in (sparse.csr_array(ALL), str(tmp_path / "X.npy"), table):
        assert kmeans_objective(model, rows) == pytest.approx(expected, rel=1e-12)


def test_the_model_labels_rows_as_the_sites_did_and_components_are_those_of_their_strategy():
    result = clustered()
    assert isinstance(result.model, KernelKMeans)
    np.testing.assert_array_equal(result.model.predict(ALL), pooled(result, "labels"))
    np.testing.assert_allclose(result.model.transform(ALL), pooled(result), atol=1e-12)
    assert [sorted(outputs) for outputs in result.outputs.values()] == [["embedding", "labels"]] * 5
    # the first rounds are the strategy's own, with its seed
    components = DisKPCA(5, KERNEL, n_adaptive=30, share_rows=True, embed=False)
    clusters, coordinates = SpectralKMeans(4, components).fit(SHARDS, seed=5), components.fit(SHARDS, seed=5)
    assert clusters.model.embedding.coefficients.tobytes() == coordinates.model.coefficients_.tobytes()
    assert clusters.model.eigenvalues_.tobytes() == coordinates.model.eigenvalues_.tobytes()
    phases = [row["phase"] for row in coordinates.history]
    assert [row["phase"] for row in clusters.history] == [*phases, "SolveLocally", "SampleCoreset", "LabelRows"]
    assert clusters.ledger.rows_up == coordinates.ledger.rows_up
    assert components.embed is False, "the caller's object is not changed"


def test_sparse_rows_are_clustered_too():
    strategy = SpectralKMeans(4, DisKPCA(5, KERNEL, n_adaptive=60, share_rows=True))
    result, dense = (strategy.fit(own, reference=strategy.central(own), seed=1) for own in (as_csr(SHARDS), SHARDS))
    assert result.metrics == pytest.approx(dense.metrics, rel=1e-6)
    np.testing.assert_array_equal(pooled(result, "labels"), pooled(dense, "labels"))


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        ({}, DisKPCA),
        ({"n_components": 3}, DisKPCA),
        ({"n_adaptive": 30, "kernel": {"type": "rbf", "gamma": 0.5}}, DisKPCA),
        ({"n_samples": 30}, UniformKPCA),
        ({"solver": "batch"}, UniformKPCA),
        (dataclasses.asdict(DisKPCA(4)), DisKPCA),
        (dataclasses.asdict(UniformKPCA(4)), UniformKPCA),
    ],
)
def test_a_table_becomes_the_components_it_means(table, kind):
    built = SpectralKMeans(3, components=table).components
    assert type(built) is kind
    assert built == kind(**table)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"n_samples": 0}, "components.n_samples = 0: input should be greater than or equal to 1"),
        ({"n_samples": 5, "n_components": 10}, "components: n_components = 10, but must be at most the number of"),
        ({"n_samples": 5, "n_adaptive": 10}, "components.n_adaptive is not a known name here"),
        ({"n_adaptive": -1}, "components.n_adaptive = -1: input should be greater than or equal to 0"),
        ({"n_sample": 5}, "components.n_sample is not a known name here (did you mean n_samples? allowed: "),
        ({"n_samples": 20, "kernel": {"type": "sigmoid"}}, "components.kernel: the sigmoid kernel is not positive"),
        (7, "components"),
    ],
)
def test_a_table_that_is_wrong_is_named(table, sentence):
    with pytest.raises(InputError) as caught:
        SpectralKMeans(3, components=table)
    assert sentence in str(caught.value)
    assert "DisKPCA" not in str(caught.value)


def test_faults_of_spectral_clustering_are_named():
    def refused(text, strategy, tables=SHARDS):
        with pytest.raises(InputError, match=text):
            strategy.fit(tables)

    sentence = "share_rows = false, but {} sends raw data: up to {} of the 400 rows, all 64 columns of each"
    refused(sentence.format("DisKPCA", 34), SpectralKMeans(3, DisKPCA(10, n_adaptive=10)))
    refused(sentence.format("UniformKPCA", 20), SpectralKMeans(3, {"n_samples": 20}))
    refused("n_clusters = 41, but must be at most the number of rows of client 0, 40", SpectralKMeans(41, uniform()))
    refused("client 1 has 63 columns, but client 0 has 64", SpectralKMeans(3, uniform()), [X, X[:, 1:]])
    refused("n_components = 6, but must be at most the number of rows, 5", SpectralKMeans(2, uniform()), [X[:5]])
    with pytest.raises(InputError, match="n_clusters = 0: input should be greater"):
        SpectralKMeans(0)


def test_landmarks_of_the_default_are_k_log_k_and_more():
    for k, by_leverage in ((1, 1), (2, 2), (3, 4), (10, 24)):
        assert by_leverage == max(k, math.ceil(k * math.log(k)))
        assert DisKPCA(k, n_adaptive=50).most_landmarks == 50 + by_leverage
    assert DisKPCA(3, n_leverage=7, n_adaptive=50).most_landmarks == 57
    assert isinstance(DisKPCA(2, share_rows=True).fit(SHARDS).model, LandmarkPCA)


BY_DEFAULT = (DisKPCA(), DisKPCA("auto", max_components=4), DisKPCA(3, Linear()), UniformKPCA(), UniformKPCA(5))
COHORTS = {
    "large": ([400, 500, 600, 60], 64, ""),
    "narrow": ([400, 500, 600, 60], 8, "more floats than the whole table"),
    "small": ([60, 50], 200, "a tenth of their rows, 11"),
    "tiny": ([9, 19, 10], 1000, "a tenth of their rows, 2"),
}


@pytest.mark.parametrize("strategy", [*BY_DEFAULT, UniformKPCA(3, solver="batch")], ids=repr)
@pytest.mark.parametrize("cohort", COHORTS)
def test_no_more_rows_leave_by_default_than_a_tenth_and_no_more_floats_than_the_table_has(cohort, strategy):
    sizes, d, why = COHORTS[cohort]
    members = [Member(i, i, size, d, 0) for i, size in enumerate(sizes)]
    allotment, k = strategy.allotment(members), strategy.most_components
    number, tenth = allotment.number, np.array(sizes) // 10
    assert k < number <= strategy.most_landmarks == 10 * k
    assert number == 10 * k if not allotment.findings else f"only {number} landmarks for {k}" in allotment.findings[0]
    if cohort == "large":
        assert not allotment.findings
    elif allotment.findings and strategy.floats_up_with(members, number + 1) <= strategy.budget(members):
        assert why in allotment.findings[0]
    if number > k + 1:
        np.testing.assert_array_less(allotment.most, tenth + 1)
        assert strategy.forecast_of_run(members).floats_up <= sum(sizes) * d
    assert number <= allotment.most.sum()
    assert (allotment.most <= sizes).all()


def test_what_leaves_by_default_is_what_is_forecast_and_named_numbers_are_taken_as_they_are():
    shards = np.split(X, [60, 200])
    for strategy in (DisKPCA(5, share_rows=True), UniformKPCA(5, share_rows=True)):
        members = [Member(i, i, *shard.shape, 0) for i, shard in enumerate(shards)]
        result, allotment = strategy.fit(shards), strategy.allotment(members)
        assert result.ledger.floats_up <= strategy.forecast_of_run(members).floats_up <= X.size
        assert result.ledger.rows_up == allotment.number == len(result.model.landmarks_)
        drawn = [result.ledger.of_client(client).rows_up for client in range(3)]
        assert all(10 * rows <= len(shard) for rows, shard in zip(drawn, shards, strict=True))
        assert [text for text in result.findings if "landmarks" in text] == list(allotment.findings)
        named = {"n_adaptive" if isinstance(strategy, DisKPCA) else "n_samples": 150}
        result = dataclasses.replace(strategy, **named).fit(shards)
        assert result.ledger.rows_up >= 150
        assert "3 of 3 sites sent more than a tenth of their raw rows; client" in " ".join(result.findings)
        sent = f"{result.ledger.floats_up:,} floats were sent, but the whole table is N d = 25,600"
        assert sent in result.findings[-3]


@pytest.mark.parametrize("columns", ["exact", "landmarks"])
def test_float32_on_the_wire_makes_no_components_of_rounding(columns):
    """Of few columns landmarks have directions of 1e-8 of the longest's length, and rounding of 1e-7 is as long."""
    shards = np.array_split(np.random.default_rng(0).standard_normal((150, 3)), 3)
    strategy = UniformKPCA(5, RBF(gamma=0.05), 60, projection_size=columns, share_rows=True)
    ratios = [strategy.fit(shards, reference="central", wire=wire).metrics["error_ratio"] for wire in WIRES]
    assert ratios[1] == pytest.approx(ratios[0], rel=1e-6)
    assert ratios[0] < 1.1


@pytest.mark.parametrize("kernel", [Sigmoid(coef0=-0.5), Sigmoid(), Sigmoid(gamma=0.5, coef0=0.0)], ids=repr)
def test_no_share_is_told_of_lengths_where_an_indefinite_kernel_captures_more_than_all(kernel):
    wine = StandardScaler().fit_transform(load_wine().data)
    metrics = CentroidKPCA(3, kernel, 6).fit(np.array_split(wine, 3), reference="central", evaluate=True).metrics
    assert not {"error_ratio", "reconstruction_error", "explained_variance_ratio"} & metrics.keys()
    assert "error" in metrics


def test_no_ratio_is_1_where_rounding_hides_what_components_miss():
    """Rows far from 0 have nearly all of their length along their mean, which one component captures."""
    far = np.random.default_rng(0).standard_normal((120, 6)) + 1e7
    result = UniformKPCA(3, Linear(), 30, share_rows=True).fit(np.array_split(far, 3), reference="central")
    assert result.model.n_components == 1
    assert "the landmarks span 1 dimensions, fewer than the 3 components asked for" in result.findings
    assert result.metrics["error"] < 1e-6 or "error_ratio" not in result.metrics
