"""disKPCA: what its paper promises, and what another implementation of its steps finds."""

from functools import cache

import numpy as np
import pytest
import scipy.stats
from scipy import sparse
from scipy.spatial.distance import pdist
from sites import ask, drive
from sklearn.datasets import load_digits

from clients import diskpca as pair
from clients.diskpca import (
    Captured,
    DisKPCAClient,
    DrawByDistance,
    DrawByLeverage,
    DrawnRows,
    DrawUniformly,
    MeasureCaptured,
    MeasureDistances,
    ScoreRows,
    Sketched,
    SketchPoints,
    TakeComponents,
)
from fedkernel import RBF, ArcCosine, InputError, Laplacian, Linear, Polynomial, Sigmoid, arrays
from fedkernel.arrays import ROWS
from fedkernel.cohort import Member, RunSettings
from fedkernel.data import DataSpec, GeneratedTable, load
from fedkernel.errors import ProtocolError
from fedkernel.messages import CarriesRows, Done, decode, encode
from fedkernel.models import LandmarkPCA
from fedkernel.result import Result
from fedkernel.sketch import SubspaceEmbedding
from strategies import DisKPCA, UniformKPCA
from strategies.diskpca import _shared_out, score_by_leverage

DIGITS = load_digits().data
RARE = load(DataSpec("rare-clusters")).X
WIDE = RBF(sigma=3 * float(np.median(pdist(RARE))))
SMALL = load(DataSpec("rare-clusters", options={"n_blob": 120, "n_clusters": 5, "cluster_size": 4, "d": 8})).X
KERNELS = [
    RBF(gamma=0.02),
    Laplacian(gamma=0.05),
    Polynomial(3, 0.05),
    Polynomial(2, 0.1, 0.0),
    ArcCosine(0),
    ArcCosine(1),
    ArcCosine(2),
    Linear(),
]
K = 5


def shards_of(X, clients=3):
    """Cut a table in parts of different sizes."""
    return np.split(X, [len(X) * part * (part + 1) // (clients * (clients + 1)) for part in range(1, clients)])


def strategy(kernel=KERNELS[0], **fields):
    return DisKPCA(K, kernel, **{"n_adaptive": 20, "share_rows": True} | fields)


def coordinates(result, name="embedding"):
    return np.concatenate([result.outputs[client][name] for client in sorted(result.outputs)])


def as_csr(shards):
    return [sparse.csr_array(shard) for shard in shards]


def dense(rows):
    return rows.toarray() if sparse.issparse(rows) else rows


# What the paper promises


@cache
def rare(method, landmarks, projection_size=None):
    """The ratio of the error to the optimum's, mean of five seeds."""
    if method is DisKPCA:
        one = DisKPCA(10, WIDE, landmarks, projection_size=projection_size, share_rows=True, embed=False)
    else:
        one = UniformKPCA(10, WIDE, 24 + landmarks, projection_size=projection_size, share_rows=True, embed=False)
    shards = np.array_split(RARE, 5)
    return np.mean([one.fit(shards, seed=seed, reference=central_rare()).metrics["error_ratio"] for seed in range(5)])


@cache
def central_rare():
    return DisKPCA(10, WIDE, share_rows=True).central([RARE])


@pytest.mark.parametrize(("landmarks", "largest"), [(25, 1.15), (50, 1.11), (100, 1.08)])
def test_rare_clusters_are_found(landmarks, largest):
    """Theorem 1's (1 + epsilon); the notes' own implementation had 1.10, 1.07 and 1.05 on a table drawn alike."""
    found = rare(DisKPCA, landmarks)
    assert 1 <= found <= largest
    # with half of these rows, uniform draws miss clusters; with 124 of 1444 what they miss is small
    uniform = rare(UniformKPCA, landmarks)
    assert found <= 0.9 * uniform or (landmarks == 100 and found - 1 <= 0.5 * (uniform - 1))


def test_the_error_falls_with_the_landmarks_and_without_the_last_sketch():
    sketched, exact = ([rare(DisKPCA, count, size) for count in (25, 50, 100)] for size in (None, "exact"))
    for errors in (sketched, exact):
        assert errors == sorted(errors, reverse=True)
    assert all(one > other >= 1 for one, other in zip(sketched, exact, strict=True))
    assert exact[0] < 1.05


@pytest.mark.parametrize("form", [list, as_csr], ids=["dense", "csr"])
@pytest.mark.parametrize("counts", [{"n_adaptive": 500}, {"n_adaptive": 0, "n_leverage": len(SMALL)}], ids=str)
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_with_every_row_a_landmark_it_is_batch_kernel_pca(kernel, counts, form):
    one = strategy(kernel, projection_size="exact", **counts)
    result = one.fit(form(shards_of(SMALL)), seed=1)
    K_XX = kernel.gram(SMALL)
    values, vectors = np.linalg.eigh(K_XX)
    values, vectors = values[::-1][:K], vectors[:, ::-1][:, :K]
    np.testing.assert_allclose(result.model.eigenvalues_, values, rtol=1e-8)
    # coordinates and components, up to signs and rotations among equal eigenvalues
    H, expected = coordinates(result), vectors * np.sqrt(values)
    np.testing.assert_allclose(H @ H.T, expected @ expected.T, atol=1e-8 * values[0])
    G = result.model.inner_products(one.central([SMALL]))
    np.testing.assert_allclose(G @ G.T, np.eye(K), atol=1e-8)
    assert result.ledger.rows_up == len(SMALL)
    assert [row["phase"] for row in result.history] == ["join", "DrawUniformly", "SketchKernel", "TakeComponents"]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_components_are_orthonormal_and_never_better_than_the_best(kernel):
    one = strategy(kernel)
    result = one.fit(shards_of(SMALL), seed=2, reference=one.central([SMALL]))
    G = result.model.inner_products(result.model)
    np.testing.assert_allclose(G, np.eye(K), atol=1e-8)
    assert result.metrics["error_ratio"] >= 1 - 1e-10
    assert 0 <= result.metrics["error"] <= K
    assert np.all(np.diff(result.model.eigenvalues_) <= 0)


def test_components_in_the_span_are_the_best_there():
    """Against the definition: of all rank-k projections within the span, the one that keeps most."""
    kernel = WIDE
    result = DisKPCA(K, kernel, 30, projection_size="exact", share_rows=True).fit(shards_of(RARE))
    Y = result.model.landmarks_
    values, vectors = np.linalg.eigh(kernel.gram(Y))
    root = vectors[:, values > 1e-7 * values[-1]] / np.sqrt(values[values > 1e-7 * values[-1]])
    kept = np.linalg.svd(kernel.gram(RARE, Y) @ root, compute_uv=False)[:K] ** 2
    total, captured = result.model.captured(RARE)
    assert total == len(RARE)
    assert captured == pytest.approx(kept.sum(), rel=1e-6)
    np.testing.assert_allclose(result.model.eigenvalues_, kept, rtol=1e-5)


def test_a_rank_that_the_components_reach_leaves_no_error():
    """Rounding divided by rounding is no ratio."""
    for k in (8, 10):
        one = DisKPCA(k, Linear(), n_adaptive=30, share_rows=True)
        result = one.fit(shards_of(SMALL), reference=one.central([SMALL]))
        assert result.model.n_components == 8
        assert result.metrics["error_ratio"] == 1
        assert result.metrics["error"] == pytest.approx(0, abs=1e-10)


# Leverage scores


def leverage_oracle(E):
    """Scores by their definition: squared lengths of the rows of an orthonormal basis of all columns."""
    U, s, _ = np.linalg.svd(E, full_matrices=False)
    return np.square(U[:, s > 1e-6 * s[0]]).sum(axis=1)


def scored(X, kernel, columns, clients=5, size=50, seed=0, precision="float64"):
    """Return the embedding, the sites that have scored their rows, and what they told."""
    embedding = SubspaceEmbedding(kernel, size, 2000, seed)
    sites = [DisKPCAClient(part, client=i, seed=seed) for i, part in enumerate(np.array_split(X, clients))]
    totals = drive(score_by_leverage(embedding, precision, columns), sites)
    return embedding, sites, totals


TABLES = {
    "digits": (DIGITS, RBF(gamma=0.001)),
    "rare": (RARE, WIDE),
    "polynomial": (DIGITS / 16, Polynomial(2, 0.1)),
    "arc-cosine": (DIGITS / 16, ArcCosine(1)),
}


@pytest.mark.parametrize("clients", [5, 1])
@pytest.mark.parametrize("table", TABLES)
def test_sketched_scores_are_within_a_factor_of_two(table, clients):
    X, kernel = TABLES[table]
    for seed in range(3):
        embedding, sites, _ = scored(X, kernel, 250, clients, seed=seed)
        E = embedding.map(X.shape[1])(X)
        found = np.square(E @ sites[0].memory["whitening"]).sum(axis=1)
        ratios = found / leverage_oracle(E)
        assert np.mean((ratios >= 0.5) & (ratios <= 2)) >= 0.99
        assert np.ptp(ratios) > 1e-3, "a sketch would be seen"


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("columns", ["exact", len(DIGITS)])
def test_scores_without_a_sketch_are_exact(table, columns):
    X, kernel = TABLES[table]
    embedding, sites, totals = scored(X, kernel, columns)
    E = embedding.map(X.shape[1])(X)
    expected = leverage_oracle(E)
    np.testing.assert_allclose(np.square(E @ sites[0].memory["whitening"]).sum(axis=1), expected, rtol=1e-8)
    sums = [part.sum() for part in np.array_split(expected, 5)]
    np.testing.assert_allclose(totals, sums, rtol=1e-8)
    assert sum(totals) == pytest.approx(50)


@pytest.mark.parametrize(("precision", "rtol"), [("float64", 1e-8), ("float32", 1e-2)])
def test_the_sums_of_blocks_are_those_of_their_rows(monkeypatch, precision, rtol):
    monkeypatch.setattr(arrays, "ROWS", 100)
    embedding, sites, totals = scored(RARE, WIDE, 60, precision=precision)
    E = embedding.map(RARE.shape[1])
    for site, total in zip(sites, totals, strict=True):
        scores = np.square(E(np.asarray(site.X)) @ site.memory["whitening"]).sum(axis=1)
        sums = [scores[first : first + 100].sum() for first in range(0, len(scores), 100)]
        assert len(sums) == 3
        np.testing.assert_allclose(site.memory["leverages"], sums, rtol=rtol)
        assert total == pytest.approx(site.memory["leverages"].sum())


def test_directions_that_are_not_there_are_not_scored():
    X = DIGITS[:200] * (np.arange(64) < 20)  # of 20 columns at most
    _, sites, totals = scored(X, Linear(), "exact", size=64)
    rank = np.linalg.matrix_rank(X)
    assert sites[0].memory["whitening"].shape == (64, rank)
    assert sum(totals) == pytest.approx(rank)


# Draws


def test_draws_follow_the_scores_of_the_rows(monkeypatch):
    """Drawing a block, and then a row of it, is drawing a row."""
    monkeypatch.setattr(arrays, "ROWS", 7)
    X, seeds = SMALL[:40], 3000
    embedding, (site,), _ = scored(X, KERNELS[0], "exact", clients=1, size=10)
    P, step = X[:3], {"kernel": KERNELS[0], "precision": "float64", "tol": 1e-8}
    ask(site, MeasureDistances(**CarriesRows.of(P), before=0, **step))
    K_PP, K_XP = KERNELS[0].gram(P), KERNELS[0].gram(X, P)
    weights = {
        DrawByLeverage: leverage_oracle(embedding.map(8)(X)),
        DrawByDistance: np.maximum(1 - np.sum(K_XP * np.linalg.solve(K_PP, K_XP.T).T, axis=1), 0),
    }
    asked = DrawByLeverage(samples=1, embedding=embedding, precision="float64"), DrawByDistance(samples=1, **step)
    for request in asked:
        expected = weights[type(request)] / weights[type(request)].sum()
        counts = np.zeros(40)
        for seed in range(seeds):
            other = DisKPCAClient(X, seed=seed, memory=dict(site.memory))
            ask(other, request)
            counts[other.memory["drawn"]] += 1
        possible = expected > 1e-9
        assert possible.sum() == (37 if request is asked[1] else 40)
        assert counts[~possible].sum() == 0
        wanted = expected[possible] * seeds / expected[possible].sum()
        assert scipy.stats.chisquare(counts[possible], wanted).pvalue > 1e-3
        assert expected[possible].max() > 2 * expected[possible].min(), "draws alike would be seen"


def test_rows_drawn_twice_are_one_landmark_and_stand_in_the_order_of_the_table():
    _, (site,), _ = scored(SMALL, KERNELS[0], "exact", clients=1)
    embedding = SubspaceEmbedding(KERNELS[0], 50)
    reply = ask(site, DrawByLeverage(samples=1000, embedding=embedding, precision="float64"))
    positions = site.memory["drawn"]
    assert np.all(np.diff(positions) > 0)
    assert reply.disclosed == len(positions) < len(SMALL)
    np.testing.assert_array_equal(reply.rows, SMALL[positions])


@pytest.mark.parametrize("form", [list, as_csr], ids=["dense", "csr"])
def test_every_site_holds_the_same_landmarks(form):
    """Between those of the others each puts its own, which are not sent back."""
    shards = form(shards_of(SMALL, 4))
    sites = [DisKPCAClient(shard, client=number, seed=4) for number, shard in enumerate(shards)]
    one = strategy(n_adaptive=30)
    one._settings = RunSettings(seed=4)
    one._cohort = [Member(site.client, site.client, *site.X.shape, 0) for site in sites]
    model = drive(one.protocol(), sites)
    for site in sites:
        np.testing.assert_array_equal(dense(site._landmarks()), dense(model.landmarks_))
    rows = {row.tobytes() for row in SMALL}
    landmarks = [row.tobytes() for row in dense(model.landmarks_)]
    assert set(landmarks) <= rows
    assert len(set(landmarks)) == len(landmarks) > 20
    # the grid changes nothing
    assert one.fit(shards, seed=4).model.coefficients_.tobytes() == model.coefficients_.tobytes()


def test_clients_draw_in_proportion_to_what_their_rows_weigh():
    totals, samples = np.array([4.0, 0.0, 1.0, 15.0]), 4000
    counts = dict(_shared_out(samples, totals, np.random.default_rng(0)))
    assert list(counts) == [0, 2, 3]
    assert scipy.stats.chisquare(list(counts.values()), samples * totals[[0, 2, 3]] / 20).pvalue > 1e-3
    assert _shared_out(5, np.zeros(3), np.random.default_rng(0)) == []


# Communication


@pytest.mark.parametrize("form", [list, as_csr], ids=["dense", "csr"])
def test_the_ledger_is_the_paper_s_word_for_word(form):
    X = np.where(np.random.default_rng(0).random((500, 40)) < 0.3, DIGITS[:500, 10:50], 0.0)
    sizes = [20, 130, 350]  # the first has fewer rows than p and w, the second fewer than p
    shards = form(np.split(X, np.cumsum(sizes)[:-1]))
    t, p, k, s = 10, 150, 4, 3
    one = DisKPCA(k, RBF(gamma=0.001), 40, embedding_size=t, point_sketch_size=p, share_rows=True)
    result = one.fit(shards, seed=3, evaluate=True)
    Y = dense(result.model.landmarks_)
    size = np.count_nonzero if form is as_csr else np.size
    entries = {(entry.phase, entry.client): entry for entry in result.ledger.entries}
    drawn = {
        phase: [entries[phase, client].rows_up if (phase, client) in entries else 0 for client in range(s)]
        for phase in ("DrawByLeverage", "DrawByDistance")
    }
    # in the order of the draws, then of the clients: what each owns of Y
    parts = np.split(np.arange(len(Y)), np.cumsum([*drawn["DrawByLeverage"], *drawn["DrawByDistance"]])[:-1])
    owned = {"DrawByLeverage": [Y[at] for at in parts[:s]], "DrawByDistance": [Y[at] for at in parts[s:]]}
    for blocks in owned.values():
        for client, block in enumerate(blocks):
            own = {row.tobytes() for row in dense(shards[client])}
            assert {row.tobytes() for row in block} <= own, f"rows of client {client}'s own"
    assert len(Y) == result.ledger.rows_up > 40
    floats = {}
    for client, n in enumerate(sizes):
        floats["SketchPoints", client] = (t * min(p, n), 0)
        floats["ScoreRows", client] = (1, t * t)
        floats["DrawByLeverage", client] = (size(owned["DrawByLeverage"][client]), 0)
        others = sum(size(block) for other, block in enumerate(owned["DrawByLeverage"]) if other != client)
        floats["MeasureDistances", client] = (1, others)
        floats["DrawByDistance", client] = (size(owned["DrawByDistance"][client]), 0)
        others = sum(size(block) for other, block in enumerate(owned["DrawByDistance"]) if other != client)
        floats["SketchKernel", client] = (len(Y) * min(len(Y), n), others)
        floats["TakeComponents", client] = (0, len(Y) * k)
        floats["MeasureCaptured", client] = (2, 0)
    told = {key: (entry.floats_up, entry.floats_down) for key, entry in entries.items() if key[0] != "join"}
    assert told == {key: count for key, count in floats.items() if key in told}
    assert {key[0] for key in floats if key not in told} <= {"DrawByLeverage", "DrawByDistance"}
    assert all(floats[key] == (0, 0) for key in floats if key not in told)
    assert result.ledger.rounds == 8
    assert [row["rows_up"] for row in result.history] == [sum(drawn.get(row["phase"], [0])) for row in result.history]


def test_exact_products_and_a_given_size_have_the_sizes_they_say():
    fields = {"n_adaptive": 20, "embedding_size": 10, "share_rows": True}
    shards = np.array_split(DIGITS[:900], 3)
    for p, w in ((12, 17), ("exact", "exact")):
        result = DisKPCA(4, RBF(gamma=0.001), point_sketch_size=p, projection_size=w, **fields).fit(shards)
        Y = result.ledger.rows_up
        sent = {row["phase"]: row["floats_up"] for row in result.history}
        assert sent["SketchPoints"] == 3 * (55 if p == "exact" else 10 * p)
        assert sent["SketchKernel"] == 3 * (Y * (Y + 1) // 2 if w == "exact" else Y * w)


def test_communication_does_not_grow_with_the_rows():
    few, many = (
        strategy(RBF(gamma=0.001)).fit(np.array_split(np.tile(DIGITS[:900], (copies, 1)), 3)) for copies in (1, 4)
    )
    for phase in ("SketchPoints", "ScoreRows"):
        one, two = (next(row for row in r.history if row["phase"] == phase) for r in (few, many))
        assert (one["floats_up"], one["floats_down"]) == (two["floats_up"], two["floats_down"])
    per_row = [result.ledger.floats_up / result.ledger.rows_up for result in (few, many)]
    assert per_row[1] == pytest.approx(per_row[0], rel=0.2)


def test_landmarks_that_span_everything_end_the_draws():
    """A second draw would have nothing to go by."""
    result = strategy(Linear(), n_leverage=100, n_adaptive=20).fit(shards_of(SMALL), evaluate=True)
    assert "DrawByDistance" not in [row["phase"] for row in result.history]
    values = np.linalg.eigvalsh(SMALL.T @ SMALL)[::-1]
    assert result.metrics["reconstruction_error"] <= 1.05 * values[K:].sum() / values.sum()


def test_without_adaptive_draws_there_are_fewer_rounds():
    result = strategy(n_adaptive=0, n_leverage=30).fit(shards_of(SMALL))
    phases = ["SketchPoints", "ScoreRows", "DrawByLeverage", "SketchKernel", "TakeComponents"]
    assert [row["phase"] for row in result.history] == ["join", *phases]


# Tables of all kinds


LARGE = np.concatenate([DIGITS] * 3)[:5000].astype(np.uint8) + np.arange(5000, dtype=np.uint8)[:, None] % 3


def generated(X, rows_per_block):
    return GeneratedTable(X.shape, lambda k: X[k * rows_per_block : (k + 1) * rows_per_block], rows_per_block)


@cache
def from_arrays(dtype="float64"):
    shards = np.split(LARGE.astype(float), [3000])
    return DisKPCA(K, RBF(gamma=0.001), n_adaptive=30, share_rows=True, dtype=dtype).fit(shards, seed=6, evaluate=True)


def check_same(one, two, tol=0.0):
    assert [row["rows_up"] for row in one.history] == [row["rows_up"] for row in two.history]
    np.testing.assert_array_equal(dense(two.model.landmarks_), dense(one.model.landmarks_))
    for name in ("coefficients_", "eigenvalues_"):
        expected = getattr(one.model, name)
        np.testing.assert_allclose(getattr(two.model, name), expected, rtol=0, atol=tol * np.abs(expected).max())
    np.testing.assert_allclose(coordinates(two), coordinates(one), rtol=0, atol=tol)


@pytest.mark.parametrize("kind", ["memory-mapped", "uint8", "generated 700", "generated 4096", "csr", "path of csr"])
def test_the_kind_of_table_does_not_matter(kind, tmp_path):
    assert max(len(part) for part in np.split(LARGE, [3000])) > ROWS, "several blocks"
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


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_sparse_rows_give_what_their_dense_form_gives(kernel):
    X = np.where(np.random.default_rng(1).random(SMALL.shape) < 0.4, SMALL, 0.0)
    one, two = (strategy(kernel).fit(form(shards_of(X)), seed=7) for form in (list, as_csr))
    np.testing.assert_array_equal(two.model.landmarks_.toarray(), one.model.landmarks_)
    np.testing.assert_allclose(two.model.eigenvalues_, one.model.eigenvalues_, rtol=1e-8)
    H = coordinates(one)
    np.testing.assert_allclose(coordinates(two), H, rtol=0, atol=1e-7 * np.abs(H).max())


def test_dense_and_sparse_sites_together():
    X = np.where(np.random.default_rng(1).random(SMALL.shape) < 0.4, SMALL, 0.0)
    one, two, three = shards_of(X)
    dense = strategy(n_adaptive=30).fit([one, two, three], seed=7, evaluate=True)
    for mixed in ([sparse.csr_array(one), two, sparse.csr_array(three)], [one, two, sparse.csr_array(three)]):
        result = strategy(n_adaptive=30).fit(mixed, seed=7, evaluate=True)
        check_same(dense, result, tol=1e-9)
        assert result.metrics == pytest.approx(dense.metrics, abs=1e-12)


def test_stored_zeros_are_not_entries():
    shards = as_csr(shards_of(np.where(np.random.default_rng(1).random(SMALL.shape) < 0.4, SMALL, 0.0)))
    padded = []
    for shard in shards:
        n, d = shard.shape
        everything = shard.toarray().ravel(), np.tile(np.arange(d), n), np.arange(0, n * d + 1, d)
        padded.append(sparse.csr_array(everything, shape=(n, d)))
    assert padded[0].nnz > shards[0].nnz
    one, two = (strategy().fit(tables, seed=7) for tables in (shards, padded))
    check_same(one, two)
    assert one.ledger == two.ledger


@pytest.mark.parametrize("kernel", [kernel for kernel in KERNELS if kernel != Laplacian(gamma=0.05)], ids=repr)
def test_float32_is_near_float64(kernel):
    """Single precision may draw another row now and then: what counts is how much the components miss."""
    shards = shards_of(DIGITS[:900] / 16)
    kernel = RBF(gamma=0.2) if kernel.type == "rbf" else kernel
    one = DisKPCA(K, kernel, n_adaptive=60, projection_size="exact", share_rows=True)
    two = DisKPCA(K, kernel, n_adaptive=60, projection_size="exact", share_rows=True, dtype="float32")
    reference = one.central(shards)
    found = [s.fit(shards, seed=1, reference=reference) for s in (one, two)]
    errors = [result.metrics["error_ratio"] for result in found]
    assert errors[1] == pytest.approx(errors[0], rel=0.02)
    G = found[1].model.inner_products(found[1].model)
    np.testing.assert_allclose(G, np.eye(K), atol=1e-8)
    assert found[1].model.coefficients_.dtype == found[1].outputs[0]["embedding"].dtype == np.float64
    assert found[1].ledger.floats_up == pytest.approx(found[0].ledger.floats_up, rel=0.1)


def test_float32_on_several_blocks():
    one, two = from_arrays(), from_arrays("float32")
    assert two.metrics["reconstruction_error"] == pytest.approx(one.metrics["reconstruction_error"], rel=0.02)
    same = np.mean([row in one.model.landmarks_.tolist() for row in two.model.landmarks_.tolist()])
    assert same > 0.8


# The model


@pytest.mark.parametrize("form", [list, as_csr], ids=["dense", "csr"])
def test_the_model_gives_the_coordinates_that_the_sites_keep(form, tmp_path):
    result = strategy().fit(form(shards_of(SMALL)), seed=3)
    X = form([SMALL])[0]
    np.testing.assert_allclose(result.model.transform(X), coordinates(result), rtol=0, atol=1e-12)
    result.save(tmp_path)
    again = Result.load(tmp_path)
    assert isinstance(again.model, LandmarkPCA)
    assert again.model.transform(X).tobytes() == result.model.transform(X).tobytes()
    assert again.ledger == result.ledger


@pytest.mark.parametrize("form", [list, as_csr], ids=["dense", "csr"])
@pytest.mark.parametrize("embed", [True, False])
def test_measuring_on_the_sites_is_measuring_on_all_rows(form, embed):
    shards = form(shards_of(SMALL))
    one = strategy(embed=embed)
    result = one.fit(shards, evaluate=True, reference=one.central(shards))
    measured = one.measure(result.model, shards)
    error = measured.pop("reconstruction_error")
    assert measured == {}
    assert result.metrics["reconstruction_error"] == pytest.approx(error, abs=1e-12)
    # by definition: what the coordinates leave of the lengths
    H = result.model.transform(form([SMALL])[0])
    assert error == pytest.approx(1 - np.square(H).sum() / len(SMALL), abs=1e-12)
    assert [sorted(outputs) for outputs in result.outputs.values()] == [["embedding"] if embed else []] * 3
    assert result.ledger.of_round(result.ledger.rounds).floats_up == 3 * 2


# Consent, and bad input


@pytest.mark.parametrize(
    ("one", "told"),
    [
        (DisKPCA(3, n_adaptive=30), "DisKPCA sends raw data: up to 34 of the 140 rows, all 8 columns of each"),
        (DisKPCA(3, n_adaptive=300), "DisKPCA sends raw data: up to 140 of the 140 rows, all 8 columns"),
        (UniformKPCA(3, n_samples=50), "UniformKPCA sends raw data: up to 50 of the 140 rows, all 8 columns"),
    ],
    ids=repr,
)
def test_without_consent_nothing_is_asked(one, told, monkeypatch):
    asked = []
    monkeypatch.setattr(DisKPCAClient, "fit", lambda self, parameters, config: asked.append(config))
    with pytest.raises(InputError) as caught:
        one.fit(shards_of(SMALL))
    assert told in str(caught.value)
    assert "share_rows = true allows that" in str(caught.value)
    assert asked == []


def test_bad_input_is_named():
    shards = shards_of(SMALL)

    def refused(text, make, tables=shards, error=InputError):
        with pytest.raises(error, match=text):
            make().fit(tables)

    most = r"at most the number of landmarks, n_leverage \+ n_adaptive = 29"
    refused(f"n_components = 30, but must be {most}", lambda: DisKPCA(30, n_leverage=9, n_adaptive=20))
    refused("n_components = 141, but must be at most the number of rows, 140", lambda: DisKPCA(141, share_rows=True))
    refused("kernel: the sigmoid kernel is not positive semidefinite", lambda: DisKPCA(kernel=Sigmoid()))
    refused("kernel.degree = 0: input should be greater", lambda: DisKPCA(kernel={"type": "polynomial", "degree": 0}))
    refused("n_random_features = 40, but must be at least embedding_size = 50", lambda: strategy(n_random_features=40))
    refused("point_sketch_size = 0: input should be greater than", lambda: strategy(point_sketch_size=0))
    refused("projection_size = 'most': ", lambda: strategy(projection_size="most"))
    refused("dtype = 'float16'", lambda: strategy(dtype="float16"))
    refused("tol = 0", lambda: strategy(tol=0))
    refused("n_adaptive = -1", lambda: strategy(n_adaptive=-1))
    refused("client 1 has 7 columns, but client 0 has 8", strategy, [shards[0], shards[1][:, 1:]])
    refused(r"shards\[1\] has shape \(0, 8\)", strategy, [SMALL, SMALL[:0]])
    strategy(Linear(), n_random_features=1)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
def test_a_number_that_is_none_is_found(form):
    broken = SMALL[:30].copy()
    broken[20, 3] = np.nan
    with pytest.raises((InputError, ProtocolError), match=r"shards\[1\]: the value in row 20, column 3 .* is nan"):
        strategy().fit([form(SMALL[30:]), form(broken)])


def test_few_rows():
    one_row = strategy().fit([SMALL[:1], SMALL[1:]], evaluate=True)
    assert one_row.outputs[0]["embedding"].shape == (1, K)
    each = strategy().fit([SMALL[:1]] + [SMALL[i : i + 1] for i in range(1, 6)], evaluate=True)
    assert each.ledger.rows_up == 6
    with pytest.raises(InputError, match="n_components = 5, but must be at most the number of rows, 4"):
        strategy().fit([SMALL[:1], SMALL[1:4]])


@pytest.mark.parametrize("form", [list, as_csr], ids=["dense", "csr"])
@pytest.mark.parametrize("n_adaptive", [5, 100])
@pytest.mark.parametrize("kernel", [Linear(), ArcCosine(0), ArcCosine(1), Polynomial(2, coef0=0.0)], ids=repr)
def test_rows_that_are_all_zero_have_no_components(kernel, n_adaptive, form):
    with pytest.raises(InputError, match="the kernel is zero on all"):
        strategy(kernel, n_adaptive=n_adaptive).fit(form([np.zeros((20, 4)), np.zeros((30, 4))]))


@pytest.mark.parametrize("n_adaptive", [5, 100])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_rows_that_are_all_equal_have_one_component(kernel, n_adaptive, caplog):
    shards = [np.ones((20, 4)), np.ones((30, 4))]
    one = strategy(kernel, n_adaptive=n_adaptive)
    result = one.fit(shards, evaluate=True, reference=one.central(shards))
    assert result.model.n_components == 1
    assert result.metrics["reconstruction_error"] == pytest.approx(0, abs=1e-12)
    assert result.metrics["error_ratio"] == 1
    assert "the landmarks span 1 dimensions, fewer than the 5 components asked for" in caplog.text


@pytest.mark.parametrize("kernel", [Linear(), ArcCosine(0), ArcCosine(1), Polynomial(2, coef0=0.0)], ids=repr)
def test_rows_that_are_zero_are_never_drawn(kernel):
    """They have neither leverage nor distance."""
    X = np.concatenate([np.zeros((2100, 8)), SMALL])  # a whole block of them
    result = strategy(kernel).fit([X, np.zeros((5, 8))], evaluate=True)
    assert np.all(np.any(result.model.landmarks_ != 0, axis=1))
    assert result.ledger.of_client(1).rows_up == 0
    assert not result.outputs[1]["embedding"].any()


def test_duplicated_rows():
    X = np.repeat(5 * np.random.default_rng(0).standard_normal((12, 8)), 10, axis=0)
    one = strategy(n_adaptive=60, projection_size="exact")
    result = one.fit(shards_of(X), reference=one.central([X]))
    assert result.ledger.rows_up > 12
    # the landmarks hold all that differ
    assert result.metrics["error_ratio"] == pytest.approx(1, abs=1e-6)


def test_data_far_from_the_origin():
    one, two = (strategy(WIDE).fit(shards_of(X), evaluate=True) for X in (SMALL, SMALL + 1e5))
    assert two.metrics["reconstruction_error"] == pytest.approx(one.metrics["reconstruction_error"], rel=0.5)


# Faults


def test_a_request_out_of_order_is_named():
    def refused(text, request, site=None):
        with pytest.raises(ProtocolError, match=text):
            ask(site or DisKPCAClient(SMALL, client=2), request)

    embedding = SubspaceEmbedding(KERNELS[0], 10, 100)
    step = {"kernel": KERNELS[0], "precision": "float64", "tol": 1e-8}
    refused("client 2 was not asked for its products before", ScoreRows(whitening=np.eye(10)))
    leverage = DrawByLeverage(samples=3, embedding=embedding, precision="float64")
    refused("client 2 was not asked for its whitening before", leverage)
    refused("client 2 was not given landmarks before", DrawByDistance(samples=3, **step))
    refused("client 2 was not given landmarks before", MeasureCaptured(kernel=KERNELS[0]))
    take = TakeComponents(coefficients=np.ones((3, 2)), kernel=KERNELS[0], embed=True)
    refused("client 2 was not given landmarks before", take)
    site = DisKPCAClient(SMALL, client=2)
    ask(site, SketchPoints(embedding=embedding, columns=5, precision="float64"))
    refused("client 2 was not asked for its whitening before", leverage, site)
    refused("a map of 11 rows does not fit the embedding", ScoreRows(whitening=np.eye(11)), site)
    ask(site, pair.TakeLandmarks(**CarriesRows.of(SMALL[:4]), before=0, **step))
    refused("client 2 was not asked for its distances before", DrawByDistance(samples=3, **step), site)
    refused("client 2 was not asked for its coefficients before", MeasureCaptured(kernel=KERNELS[0]), site)
    with pytest.raises(InputError, match="samples = 141, but client 2 has 140 rows"):
        ask(site, DrawUniformly(samples=141))


STEPS = [
    "SketchPoints",
    "ScoreRows",
    "DrawByLeverage",
    "MeasureDistances",
    "DrawByDistance",
    "SketchKernel",
    "TakeComponents",
]


def broken(monkeypatch, step, answer):
    """Let client 1 answer one step by something else, past its own checks."""
    fit = DisKPCAClient.fit

    def other(self, parameters, config):
        replied, count, told = fit(self, parameters, config)
        if self.client != 1 or config["message"] != step:
            return replied, count, told
        reply = decode(self.handlers[step][0].reply_type, replied, told)
        arrays, scalars = encode(answer(reply))
        return arrays, count, scalars

    monkeypatch.setattr(DisKPCAClient, "fit", other)


@pytest.mark.parametrize("step", STEPS)
def test_a_client_that_fails_is_named(monkeypatch, step):
    def fail(reply):
        raise ZeroDivisionError("secret data")

    broken(monkeypatch, step, fail)
    with pytest.raises(ProtocolError) as caught:
        strategy(n_adaptive=60).fit(np.array_split(SMALL, 3))
    text = str(caught.value)
    assert f"DisKPCA, round {STEPS.index(step) + 1} ({step}), client 1: ZeroDivisionError" in text
    assert "secret" not in text


def rows_of_width(width, count=1, form=np.asarray):
    return DrawnRows(**CarriesRows.of(form(np.ones((count, width)))))


OF_7 = "width = 7, but client 0 has width = 8"


@pytest.mark.parametrize(
    ("step", "answer", "told"),
    [
        ("SketchPoints", lambda reply: Done(), "expected Sketched, but the message is 'Done'"),
        ("SketchPoints", lambda reply: Sketched(upper=np.ones(3)), "must hold factor, and nothing else"),
        ("SketchPoints", lambda reply: Sketched(factor=reply.factor[1:]), "c = 49, but client 0 has c = 50"),
        ("SketchPoints", lambda reply: Sketched(factor=np.ones((50, 251))), "has 251 columns, but at most 250"),
        ("ScoreRows", lambda reply: Captured(sums=np.ones(2)), "expected Total, but the message is 'Captured'"),
        ("DrawByLeverage", lambda reply: rows_of_width(8, 99), "the reply holds 99 rows, but from 1 to"),
        ("DrawByDistance", lambda reply: rows_of_width(8, 0), "the reply holds 0 rows, but from 1 to"),
        ("DrawByDistance", lambda reply: rows_of_width(7), OF_7),
        ("DrawByDistance", lambda reply: rows_of_width(7, form=sparse.csr_array), OF_7),
        ("SketchKernel", lambda reply: Sketched(factor=reply.factor[1:]), "but client 0 has c ="),
        ("TakeComponents", lambda reply: Captured(sums=np.ones(2)), "expected Done, but the message is 'Captured'"),
    ],
)
def test_a_client_that_answers_something_else_is_named(monkeypatch, step, answer, told):
    broken(monkeypatch, step, answer)
    with pytest.raises(ProtocolError) as caught:
        strategy(n_adaptive=60).fit(np.array_split(SMALL, 3))
    assert f"({step}), client 1: " in str(caught.value)
    assert told in str(caught.value)
