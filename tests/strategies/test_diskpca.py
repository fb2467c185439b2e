"""disKPCA: what its paper promises, its messages, and the same results on tables of every kind."""

from functools import cache

import numpy as np
import pytest
import scipy.stats
from grids import in_turn
from refusals import refusing
from scipy import sparse
from scipy.spatial.distance import pdist
from sites import as_csr, ask, drive, pooled
from sklearn.datasets import load_digits

from fedkernel import RBF, ArcCosine, DisKPCA, InputError, Laplacian, Linear, Polynomial, Sigmoid, UniformKPCA
from fedkernel.clients import diskpca
from fedkernel.clients.diskpca import DisKPCAClient, DrawByDistance, DrawByLeverage, DrawUniformly, Leverages
from fedkernel.clients.landmark_base import DrawnPositions, MeasureCaptured, Sketch, TakeComponents, TakeLandmarks
from fedkernel.data import DataSpec, GeneratedTable, load
from fedkernel.ground import BLOCK_ROWS, ProtocolError, ShareableError, arrays
from fedkernel.numerics import SubspaceEmbedding
from fedkernel.protocol import CarriesRows, Member, Run, encode
from fedkernel.strategies.leverage_sampling import _samples_per_client, score_by_leverage

DIGITS = load_digits().data
RARE = load(DataSpec("rare-clusters")).X
WIDE = RBF(sigma=3 * float(np.median(pdist(RARE))))
SMALL = load(DataSpec("rare-clusters", options={"n_blob": 120, "n_clusters": 5, "cluster_size": 4, "d": 8})).X
KERNELS = [RBF(gamma=0.02), Laplacian(gamma=0.05), Polynomial(3, 0.05), Polynomial(2, 0.1, 0.0)]
KERNELS += [ArcCosine(0), ArcCosine(1), ArcCosine(2), Linear()]
K = 5


def shards_of(X, clients=3):
    return np.split(X, [len(X) * part * (part + 1) // (clients * (clients + 1)) for part in range(1, clients)])


SKETCHED = {"point_sketch_size": 250, "projection_size": "landmarks"}
"""The paper's sketches."""


def strategy(kernel=KERNELS[0], **fields):
    return DisKPCA(K, kernel, **{"n_adaptive": 20, "share_rows": True} | SKETCHED | fields)


def dense(rows):
    return rows.toarray() if sparse.issparse(rows) else rows


@cache
def rare(method, landmarks):
    """The ratio of the error to the optimum's, mean of five seeds."""
    fields = {"projection_size": "landmarks", "share_rows": True, "embed": False}
    if method is DisKPCA:
        strategy = DisKPCA(10, WIDE, landmarks, point_sketch_size=250, **fields)
    else:
        strategy = UniformKPCA(10, WIDE, 24 + landmarks, **fields)
    runs = [strategy.fit(np.array_split(RARE, 5), seed=seed, reference=central_rare()) for seed in range(5)]
    return np.mean([run.metrics["error_ratio"] for run in runs])


@cache
def central_rare():
    return DisKPCA(10, WIDE, share_rows=True).central([RARE])


@pytest.mark.parametrize(("landmarks", "largest"), [(25, 1.15), (100, 1.08)])
def test_rare_clusters_are_found(landmarks, largest):
    """Theorem 1's (1 + epsilon); the notes' own implementation had 1.10, 1.07 and 1.05 on a table drawn alike."""
    ratio = rare(DisKPCA, landmarks)
    assert 1 <= ratio <= largest
    # as many rows drawn uniformly miss clusters: four times as much beyond the optimum, and more
    assert ratio - 1 <= 0.25 * (rare(UniformKPCA, landmarks) - 1)


ALL_ROWS = [{"n_adaptive": 500}, {"n_adaptive": 0, "n_leverage": len(SMALL)}]


@pytest.mark.parametrize(("kernel", "counts", "form"), in_turn(KERNELS, ALL_ROWS, [list, as_csr], every=2))
def test_with_every_row_a_landmark_it_is_batch_kernel_pca(kernel, counts, form):
    whole = strategy(kernel, projection_size="exact", **counts)
    result = whole.fit(form(shards_of(SMALL)), seed=1)
    K_XX = kernel.gram(SMALL)
    values, vectors = np.linalg.eigh(K_XX)
    values, vectors = values[::-1][:K], vectors[:, ::-1][:, :K]
    np.testing.assert_allclose(result.model.eigenvalues_, values, rtol=1e-8)
    # coordinates and components, up to signs and rotations among equal eigenvalues
    H, expected = pooled(result), vectors * np.sqrt(values)
    np.testing.assert_allclose(H @ H.T, expected @ expected.T, atol=1e-8 * values[0])
    G = result.model.inner_products(whole.central([SMALL]))
    np.testing.assert_allclose(G @ G.T, np.eye(K), atol=1e-8)
    assert result.ledger.rows_up == len(SMALL)
    assert [row["phase"] for row in result.history] == ["join", "DrawUniformly", "MultiplyKernel", "TakeComponents"]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_components_are_orthonormal_and_their_errors_are_those_of_the_definitions(kernel):
    method = strategy(kernel)
    result = method.fit(shards_of(SMALL), seed=2, reference=method.central([SMALL]))
    G = result.model.inner_products(result.model)
    np.testing.assert_allclose(G, np.eye(K), atol=1e-8)
    # what the coordinates leave of the rows' lengths, against what the leading eigenpairs leave
    H, K_XX = pooled(result), kernel.gram(SMALL)
    values, vectors = np.linalg.eigh(K_XX)
    values, vectors = values[::-1][:K], vectors[:, ::-1][:, :K]
    ratio = (np.trace(K_XX) - np.square(H).sum()) / (np.trace(K_XX) - values.sum())
    assert result.metrics["error_ratio"] == pytest.approx(ratio, rel=1e-6)
    assert ratio > 1 + 1e-6, "not the best ones, which these are compared with"
    # k less the squared cosines with the central components phi(X)^T u / sqrt(lambda)
    missed = K - np.square(vectors.T @ H / np.sqrt(values)[:, None]).sum()
    assert result.metrics["error"] == pytest.approx(missed, abs=1e-6)
    assert np.all(np.diff(result.model.eigenvalues_) <= 0)


def test_a_rank_that_the_components_reach_leaves_no_error():
    """Rounding divided by rounding is no ratio."""
    for k in (8, 10):
        strategy = DisKPCA(k, Linear(), n_adaptive=30, share_rows=True)
        result = strategy.fit(shards_of(SMALL), reference=strategy.central([SMALL]))
        assert result.model.n_components == 8
        assert result.metrics["error_ratio"] == 1
        assert result.metrics["error"] == pytest.approx(0, abs=1e-10)


def leverage_oracle(E):
    """Scores by their definition: squared lengths of the rows of an orthonormal basis of all columns."""
    U, s, _ = np.linalg.svd(E, full_matrices=False)
    return np.square(U[:, s > 1e-6 * s[0]]).sum(axis=1)


def scored(X, kernel, columns, clients=5, size=50, seed=0, precision="float64"):
    """Return the embedding, the sites that have scored their rows, and what they told."""
    embedding = SubspaceEmbedding(kernel, size, 2000, seed)
    more = {"seed": seed, "share_rows": True}
    sites = [DisKPCAClient(part, client=i, **more) for i, part in enumerate(np.array_split(X, clients))]
    totals = drive(score_by_leverage(Run(()), embedding, precision, columns), sites)
    return embedding, sites, totals


TABLES = {
    "digits": (DIGITS, RBF(gamma=0.001)),
    "rare": (RARE, WIDE),
    "polynomial": (DIGITS / 16, Polynomial(2, 0.1)),
    "arc-cosine": (DIGITS / 16, ArcCosine(1)),
}


@pytest.mark.parametrize(("table", "clients"), in_turn(TABLES, [5, 1], every=2))
def test_sketched_scores_are_within_a_factor_of_two(table, clients):
    X, kernel = TABLES[table]
    for seed in range(2):
        embedding, sites, _ = scored(X, kernel, 250 if clients == 1 else 140, clients, seed=seed)
        E = embedding.map(X.shape[1])(X)
        leverage = np.square(E @ Leverages.load(sites[0].memory).whitening).sum(axis=1)
        ratios = leverage / leverage_oracle(E)
        assert np.mean((ratios >= 0.5) & (ratios <= 2)) >= 0.99
        assert np.ptp(ratios) > 1e-3, "a sketch would be seen"


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("columns", ["exact", len(DIGITS)])
def test_scores_without_a_sketch_are_exact(table, columns):
    X, kernel = TABLES[table]
    embedding, sites, totals = scored(X, kernel, columns)
    E = embedding.map(X.shape[1])(X)
    expected = leverage_oracle(E)
    whitening = Leverages.load(sites[0].memory).whitening
    np.testing.assert_allclose(np.square(E @ whitening).sum(axis=1), expected, rtol=1e-8)
    sums = [part.sum() for part in np.array_split(expected, 5)]
    np.testing.assert_allclose(totals, sums, rtol=1e-8)
    assert sum(totals) == pytest.approx(50)


@pytest.mark.parametrize(("precision", "rtol"), [("float64", 1e-8), ("float32", 1e-2)])
def test_the_sums_of_blocks_are_those_of_their_rows(monkeypatch, precision, rtol):
    monkeypatch.setattr(arrays, "BLOCK_ROWS", 100)
    embedding, sites, totals = scored(RARE, WIDE, 60, precision=precision)
    E = embedding.map(RARE.shape[1])
    for site, total in zip(sites, totals, strict=True):
        scores = np.square(E(np.asarray(site.X)) @ Leverages.load(site.memory).whitening).sum(axis=1)
        sums = [scores[first : first + 100].sum() for first in range(0, len(scores), 100)]
        assert len(sums) == 3
        np.testing.assert_allclose(Leverages.load(site.memory).sums, sums, rtol=rtol)
        assert total == pytest.approx(Leverages.load(site.memory).sums.sum())


def test_directions_that_are_not_there_are_not_scored():
    X = DIGITS[:200] * (np.arange(64) < 20)  # of 20 columns at most
    _, sites, totals = scored(X, Linear(), "exact", size=64)
    rank = np.linalg.matrix_rank(X)
    assert Leverages.load(sites[0].memory).whitening.shape == (64, rank)
    assert sum(totals) == pytest.approx(rank)


@pytest.mark.parametrize(("samples", "drawn"), [(60, 60), (1000, 100)])
def test_drawn_rows_are_different_and_stand_in_the_order_of_the_table(samples, drawn):
    X = SMALL * (np.arange(len(SMALL)) < 100)[:, None]  # the last 40 rows have no weight
    embedding, (site,), _ = scored(X, Linear(), "exact", clients=1)
    reply = ask(site, DrawByLeverage(samples=samples, embedding=embedding, precision="float64"))
    positions = DrawnPositions.load(site.memory).positions
    assert np.all(np.diff(positions) > 0)
    assert reply.disclosed == len(positions) == drawn
    assert positions[-1] < 100
    np.testing.assert_array_equal(reply.rows, X[positions])


@pytest.mark.parametrize("form", [list, as_csr], ids=["dense", "csr"])
def test_every_site_holds_the_same_landmarks(form):
    """Between those of the others each puts its own, which are not sent back."""
    shards = form(shards_of(SMALL, 4))
    sites = [DisKPCAClient(shard, client=number, seed=4, share_rows=True) for number, shard in enumerate(shards)]
    method = strategy(n_adaptive=30)
    run = Run(tuple(Member(site.client, site.client, *site.X.shape) for site in sites), seed=4)
    model = drive(method.protocol(run), sites)
    for site in sites:
        np.testing.assert_array_equal(dense(site._landmarks()), dense(model.landmarks_))
    rows = {row.tobytes() for row in SMALL}
    landmarks = [row.tobytes() for row in dense(model.landmarks_)]
    assert set(landmarks) <= rows
    assert len(set(landmarks)) == len(landmarks) == method.most_landmarks
    # the grid changes nothing
    assert method.fit(shards, seed=4).model.coefficients_.tobytes() == model.coefficients_.tobytes()


def test_there_are_as_many_landmarks_as_asked_for_and_what_a_client_has_no_rows_for_falls_to_the_others():
    totals, rows = np.array([4.0, 0.0, 1.0, 95.0]), np.array([3000, 9, 3000, 10])
    counts = dict(_samples_per_client(1010, totals, rows, np.random.default_rng(0)))
    assert counts[3] == 10
    assert counts[0] + counts[2] == 1000
    assert scipy.stats.chisquare([counts[0], counts[2]], [800, 200]).pvalue > 1e-3
    assert dict(_samples_per_client(9000, totals, rows, np.random.default_rng(0))) == {0: 3000, 2: 3000, 3: 10}
    # also where one client with few rows has nearly all the weight
    X = np.vstack([5 * SMALL[:10], SMALL[10:]])
    method = strategy(Polynomial(3, 0.05), n_leverage=15, n_adaptive=30)
    result = method.fit(np.split(X, [10, 60]), seed=0)
    assert result.model.landmarks_.shape[0] == len(np.unique(result.model.landmarks_, axis=0)) == 45
    drawn = [row["rows_up"] for row in result.history if row["phase"].startswith("DrawBy")]
    assert drawn == [15, 30]


def test_draws_that_have_nothing_to_go_by_are_not_asked_for():
    result = strategy(Linear(), n_leverage=100, n_adaptive=20).fit(shards_of(SMALL), evaluate=True)
    assert "DrawByDistance" not in [row["phase"] for row in result.history]
    values = np.linalg.eigvalsh(SMALL.T @ SMALL)[::-1]
    assert result.metrics["reconstruction_error"] <= 1.05 * values[K:].sum() / values.sum()
    phases = ["SketchPoints", "ScoreRows", "DrawByLeverage", "SketchKernel", "TakeComponents"]
    without = strategy(n_adaptive=0, n_leverage=30).fit(shards_of(SMALL))
    assert [row["phase"] for row in without.history] == ["join", *phases]


@pytest.mark.parametrize(
    ("strategy", "sentence"),
    [
        (DisKPCA(3, n_adaptive=30), "DisKPCA sends raw data: up to 34 of the 140 rows, all 8 columns of each"),
        (DisKPCA(3, n_adaptive=300), "DisKPCA sends raw data: up to 140 of the 140 rows, all 8 columns"),
        (UniformKPCA(3, n_samples=50), "UniformKPCA sends raw data: up to 50 of the 140 rows, all 8 columns"),
    ],
    ids=repr,
)
def test_without_consent_nothing_is_asked(strategy, sentence, monkeypatch):
    messages = []
    monkeypatch.setattr(DisKPCAClient, "fit", lambda self, parameters, config: messages.append(config))
    with refusing(sentence, "share_rows = true allows that"):
        strategy.fit(shards_of(SMALL))
    assert messages == []


def test_a_request_out_of_order_is_named():
    def refused(text, request, site=None):
        with pytest.raises(ProtocolError, match=text):
            ask(site or DisKPCAClient(SMALL, client=2), request)

    embedding = SubspaceEmbedding(KERNELS[0], 10, 100)
    step = {"kernel": KERNELS[0], "precision": "float64", "tol": 1e-8}
    refused("it has no block products yet", diskpca.ScoreRows(whitening=np.eye(10)))
    leverage = DrawByLeverage(samples=3, embedding=embedding, precision="float64")
    refused("it has no leverages yet", leverage)
    refused("it has no landmarks yet", DrawByDistance(samples=3, **step))
    refused("it has no landmarks yet", MeasureCaptured(kernel=KERNELS[0]))
    take = TakeComponents(coefficients=np.ones((3, 2)), kernel=KERNELS[0], precision="float64", embed=True)
    refused("it has no landmarks yet", take)
    site = DisKPCAClient(SMALL, client=2)
    ask(site, diskpca.SketchPoints(embedding=embedding, columns=5, precision="float64"))
    refused("it has no leverages yet", leverage, site)
    wide = diskpca.ScoreRows(whitening=np.eye(11))
    refused("whitening has 11 rows, but must have one for each coordinate", wide, site)
    ask(site, TakeLandmarks(**CarriesRows.of(SMALL[:4]), before=0, **step))
    refused("it has no distances yet", DrawByDistance(samples=3, **step), site)
    refused("it has no coefficients yet", MeasureCaptured(kernel=KERNELS[0]), site)
    with pytest.raises(InputError, match="samples = 141, but must be at most the 140 rows of client 2"):
        ask(site, DrawUniformly(samples=141))


@pytest.mark.parametrize("size", [1e60, 1e38], ids=["a coefficient", "a sum of them"])
def test_a_site_keeps_no_coordinates_that_float32_cannot_hold(size):
    site, kernel = DisKPCAClient(SMALL, client=2), RBF(gamma=1e-9)
    ask(site, TakeLandmarks(**CarriesRows.of(SMALL[:8]), before=0, kernel=kernel, precision="float32", tol=1e-4))
    take = {"coefficients": np.full((8, 2), size), "kernel": kernel, "embed": True}
    with pytest.raises(ShareableError, match="give coordinates too large for float32"):
        ask(site, TakeComponents(**take, precision="float32"))
    assert "embedding" not in site.outputs
    ask(site, TakeComponents(**take, precision="float64"))
    assert np.isfinite(site.outputs["embedding"]).all()


def broken(monkeypatch, step, answer):
    """Let client 1 answer one step by something else, past its own checks."""
    fit = DisKPCAClient.fit

    def other(self, parameters, config):
        reply = fit(self, parameters, config)
        if self.client != 1 or config["message"] != step:
            return reply
        arrays, scalars = encode(answer)
        return arrays, 1, scalars

    monkeypatch.setattr(DisKPCAClient, "fit", other)


NARROW = [DrawByDistance.reply_type(**CarriesRows.of(form(np.ones((1, 7))))) for form in (np.asarray, sparse.csr_array)]


@pytest.mark.parametrize(
    ("step", "answer", "sentence"),
    [
        ("SketchPoints", Sketch(upper=np.ones(3)), "c = 2, but client 0 has c = 50"),
        ("DrawByDistance", NARROW[0], "dense has 7 entries along axis 1, but width = 8"),
        ("DrawByDistance", NARROW[1], "rows have 7 columns, but width = 8"),
        ("SketchKernel", Sketch(factor=np.ones((3, 2))), "c = 3, but client 0 has c ="),
    ],
)
def test_a_client_that_answers_something_else_is_named(monkeypatch, step, answer, sentence):
    broken(monkeypatch, step, answer)
    with refusing(f"({step}), client 1: ", sentence, error=ProtocolError):
        strategy(n_adaptive=60).fit(np.array_split(SMALL, 3))


LARGE = np.concatenate([DIGITS] * 3)[:5000].astype(np.uint8) + np.arange(5000, dtype=np.uint8)[:, None] % 3


def generated(X, rows_per_block):
    return GeneratedTable(X.shape, lambda k: X[k * rows_per_block : (k + 1) * rows_per_block], rows_per_block)


@cache
def from_arrays():
    shards = np.split(LARGE.astype(float), [3000])
    return DisKPCA(K, RBF(gamma=0.001), n_adaptive=30, share_rows=True).fit(shards, seed=6, evaluate=True)


def check_same(first, second, tol=0.0):
    assert [row["rows_up"] for row in first.history] == [row["rows_up"] for row in second.history]
    np.testing.assert_array_equal(dense(second.model.landmarks_), dense(first.model.landmarks_))
    for name in ("coefficients_", "eigenvalues_"):
        expected = getattr(first.model, name)
        np.testing.assert_allclose(getattr(second.model, name), expected, rtol=0, atol=tol * np.abs(expected).max())
    np.testing.assert_allclose(pooled(second), pooled(first), rtol=0, atol=tol)


@pytest.mark.parametrize("kind", ["memory-mapped", "uint8", "generated 700", "generated 4096", "csr", "path of csr"])
def test_the_kind_of_table_does_not_matter(kind, tmp_path):
    assert max(len(part) for part in np.split(LARGE, [3000])) > BLOCK_ROWS, "several blocks"
    shards = np.split(LARGE, [3000])
    if kind == "memory-mapped":
        for number, shard in enumerate(shards):
            np.save(tmp_path / f"{number}.npy", shard.astype(float))
        shards = [str(tmp_path / f"{number}.npy") for number in range(2)]
    elif kind.startswith("generated"):
        shards = [generated(shard, int(kind.split()[1])) for shard in shards]
    elif kind != "uint8":
        shards = as_csr(shards)
        if kind == "path of csr":
            for number, shard in enumerate(shards):
                sparse.save_npz(tmp_path / f"{number}.npz", shard)
            shards = [tmp_path / f"{number}.npz" for number in range(2)]
    result = DisKPCA(K, RBF(gamma=0.001), n_adaptive=30, share_rows=True).fit(shards, seed=6, evaluate=True)
    # products of sparse rows are added up in another order
    check_same(from_arrays(), result, tol=1e-9 if "csr" in kind else 0.0)
    assert result.metrics == pytest.approx(from_arrays().metrics, abs=1e-12)


def test_dense_and_sparse_sites_together():
    X = np.where(np.random.default_rng(1).random(SMALL.shape) < 0.4, SMALL, 0.0)
    first, second, third = shards_of(X)
    dense = strategy(n_adaptive=30).fit([first, second, third], seed=7, evaluate=True)
    for mixed in ([sparse.csr_array(first), second, sparse.csr_array(third)], [first, second, sparse.csr_array(third)]):
        result = strategy(n_adaptive=30).fit(mixed, seed=7, evaluate=True)
        check_same(dense, result, tol=1.5e-8)  # rounding over the smallest direction of the span, eps / sqrt(eps)
        assert result.metrics == pytest.approx(dense.metrics, abs=1e-12)


@pytest.mark.parametrize("kernel", [kernel for kernel in KERNELS if kernel != Laplacian(gamma=0.05)], ids=repr)
def test_float32_is_near_float64(kernel):
    """Single precision may draw another row now and then: what counts is how much the components miss."""
    shards = shards_of(DIGITS[:900] / 16)
    kernel = RBF(gamma=0.2) if kernel.type == "rbf" else kernel
    double = DisKPCA(K, kernel, n_adaptive=60, projection_size="exact", share_rows=True)
    single = DisKPCA(K, kernel, n_adaptive=60, projection_size="exact", share_rows=True, dtype="float32")
    reference = double.central(shards)
    results = [s.fit(shards, seed=1, reference=reference) for s in (double, single)]
    errors = [result.metrics["error_ratio"] for result in results]
    assert errors[1] == pytest.approx(errors[0], rel=0.02)
    G = results[1].model.inner_products(results[1].model)
    np.testing.assert_allclose(G, np.eye(K), atol=1e-8)
    assert results[1].model.coefficients_.dtype == results[1].outputs[0]["embedding"].dtype == np.float64
    assert results[1].ledger.floats_up == pytest.approx(results[0].ledger.floats_up, rel=0.1)


def test_bad_input_is_named():
    shards = shards_of(SMALL)

    def refused(text, make, tables=shards):
        with pytest.raises(InputError, match=text):
            make().fit(tables)

    most = r"at most the number of landmarks, n_leverage \+ n_adaptive = 29"
    refused(f"n_components = 30, but must be {most}", lambda: DisKPCA(30, n_leverage=9, n_adaptive=20))
    refused("n_components = 141, but must be at most the number of rows, 140", lambda: DisKPCA(141, share_rows=True))
    refused("kernel: the sigmoid kernel is not positive semidefinite", lambda: DisKPCA(kernel=Sigmoid()))
    refused("kernel.degree = 0: input should be greater", lambda: DisKPCA(kernel={"type": "polynomial", "degree": 0}))
    sentence = "n_random_features = 40, but must be at least embedding_size = 50"
    refused(sentence, lambda: strategy(embedding_size=50, n_random_features=40))
    refused("projection_size = 'most': ", lambda: strategy(projection_size="most"))
    refused(r"shards\[1\] has shape \(0, 8\)", strategy, [SMALL, SMALL[:0]])
    strategy(Linear(), n_random_features=1)


def test_few_rows():
    one_row = strategy().fit([SMALL[:1], SMALL[1:]], evaluate=True)
    assert one_row.outputs[0]["embedding"].shape == (1, K)
    each = strategy(projection_size="exact").fit([SMALL[i : i + 1] for i in range(6)], evaluate=True)
    assert each.ledger.rows_up == 6
    values = np.linalg.eigvalsh(KERNELS[0].gram(SMALL[:6]))[::-1]
    np.testing.assert_allclose(each.model.eigenvalues_, values[:K], rtol=1e-8)
    assert each.metrics["reconstruction_error"] == pytest.approx(values[K:].sum() / values.sum(), abs=1e-10)
    with pytest.raises(InputError, match="n_components = 5, but must be at most the number of rows, 4"):
        strategy().fit([SMALL[:1], SMALL[1:4]])


@pytest.mark.parametrize("form", [list, as_csr], ids=["dense", "csr"])
@pytest.mark.parametrize("n_adaptive", [5, 100])
@pytest.mark.parametrize("kernel", [Linear(), ArcCosine(0), ArcCosine(1), Polynomial(2, 1.0, 0.0)], ids=repr)
def test_rows_that_are_all_zero_have_no_components(kernel, n_adaptive, form):
    with pytest.raises(InputError, match="the kernel is zero on all"):
        strategy(kernel, n_adaptive=n_adaptive).fit(form([np.zeros((20, 4)), np.zeros((30, 4))]))


@pytest.mark.parametrize("n_adaptive", [5, 100])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_rows_that_are_all_equal_have_one_component(kernel, n_adaptive, caplog):
    shards = [np.ones((20, 4)), np.ones((30, 4))]
    method = strategy(kernel, n_adaptive=n_adaptive)
    result = method.fit(shards, evaluate=True, reference=method.central(shards))
    assert result.model.n_components == 1
    assert result.outputs[0]["embedding"].shape == (20, 1)
    if isinstance(kernel, (RBF, Laplacian)):  # to which all rows look alike: any components would seem perfect
        assert not {"reconstruction_error", "error_ratio"} & result.metrics.keys()
    else:
        assert result.metrics["reconstruction_error"] == pytest.approx(0, abs=1e-12)
        assert result.metrics["error_ratio"] == 1
    assert "the landmarks span 1 dimensions, fewer than the 5 components asked for" in caplog.text


@pytest.mark.parametrize("kernel", [Linear(), ArcCosine(0), ArcCosine(1), Polynomial(2, 1.0, 0.0)], ids=repr)
def test_rows_that_are_zero_are_never_drawn(kernel):
    """They have neither leverage nor distance."""
    X = np.concatenate([np.zeros((2100, 8)), SMALL])  # a whole block of them
    result = strategy(kernel).fit([X, np.zeros((5, 8))], evaluate=True)
    assert np.all(np.any(result.model.landmarks_ != 0, axis=1))
    assert result.ledger.of_client(1).rows_up == 0
    assert not result.outputs[1]["embedding"].any()


def test_data_far_from_the_origin():
    """Random features see the origin, so that other rows are drawn; where all are, nothing does."""
    for fields, rel in (({}, 0.02), ({"n_adaptive": 500, "projection_size": "exact"}, 1e-8)):
        plain, moved = (strategy(WIDE, **fields).fit(shards_of(X), evaluate=True) for X in (SMALL, SMALL + 1e5))
        assert moved.metrics["reconstruction_error"] == pytest.approx(plain.metrics["reconstruction_error"], rel=rel)
