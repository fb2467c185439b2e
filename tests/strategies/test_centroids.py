"""Centroid KPCA and k-means: landmarks and clusters as good as others', by sums of groups that nobody takes apart."""

import dataclasses

import numpy as np
import pytest
from scipy import sparse
from sites import ask
from sklearn.datasets import load_digits
from sklearn.metrics import calinski_harabasz_score, normalized_mutual_info_score

from fedkernel import RBF, InputError, Linear, Polynomial, ProtocolError
from fedkernel.clients.cell_sums import SumCells, SumEmbeddedCells
from fedkernel.clients.centroid_kmeans import CentroidKMeansClient
from fedkernel.clients.centroid_kpca import CentroidKPCAClient, FindLocalCenters, SumMoments
from fedkernel.clients.fk_kmeans import EmbedRows, FKKMeansClient
from fedkernel.numerics import MOST_LEAST, RandomFeatures, grouped_together, row_groups
from fedkernel.protocol import Guards, Member, allowed_numbers
from fedkernel.strategies import CentroidKMeans, CentroidKPCA, DisKPCA, FKKMeans, UniformKPCA

DIGITS = load_digits()
KERNEL = RBF(gamma=0.001)
SUM, FIND, ONE = SumCells(centers=np.zeros((2, 1))), FindLocalCenters(n_centers=1), {"centers": [[1.0]]}
COUNT = FindLocalCenters(n_centers=1, counts=True)


def excess(strategy, shards, optimum):
    errors = [strategy.fit(shards, seed=seed, evaluate=True) for seed in range(2)]
    assert all(result.ledger.rows_up == 0 or strategy.share_rows for result in errors)
    return np.mean([result.metrics["reconstruction_error"] for result in errors]) / optimum - 1


@pytest.mark.parametrize("of_classes", [False, pytest.param(True, marks=pytest.mark.drill)])
def test_at_equal_landmarks_the_excess_error_is_less_than_half_of_drawn_rows(of_classes):
    order = np.argsort(DIGITS.target, kind="stable") if of_classes else np.arange(len(DIGITS.data))
    shards = np.array_split(DIGITS.data[order], 4)
    values = np.linalg.eigvalsh(KERNEL.gram(DIGITS.data))
    optimum = 1 - values[-10:].sum() / values.sum()
    rows = {"share_rows": True, "embed": False}
    shared = excess(CentroidKPCA(10, KERNEL, 50, embed=False), shards, optimum)
    local = excess(CentroidKPCA(10, KERNEL, 50, centroids="local", embed=False), shards, optimum)
    drawn = [DisKPCA(10, KERNEL, n_adaptive=26, **rows), UniformKPCA(10, KERNEL, 50, **rows)]
    for rival in drawn:
        assert shared < 0.5 * excess(rival, shards, optimum)
        assert local < 0.5 * excess(rival, shards, optimum)
    assert 0 < shared < 0.03


def cells(client, centers, least=5):
    return ask(client, SumCells(centers=centers, least=least))


def test_no_choice_of_centres_shows_more_than_means_of_groups():
    """Replies to any number of requests span as many dimensions as there are groups: of single rows, as rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 60))
    spanned = []
    for least in (1, 5):
        client, replies = CentroidKPCAClient(X), []
        for _ in range(100):
            reply = cells(client, rng.standard_normal((6, 60)), least)
            assert reply.counts.sum() == 40
            assert set(reply.counts) <= {0, *range(least, 41)}
            replies.append(np.column_stack([reply.sums, reply.counts]))
        spanned.append(np.linalg.matrix_rank(np.vstack(replies)))
    assert spanned == [40, len(row_groups(X, 5))]
    assert spanned[1] <= 40 // 5
    several = CentroidKPCAClient(X)
    replies = [cells(several, rng.standard_normal((6, 60)), least) for least in (5, 6, 7, 9, 12) for _ in range(30)]
    assert np.linalg.matrix_rank(np.vstack([reply.sums for reply in replies])) == len(row_groups(X, 5))
    with pytest.raises(ProtocolError, match="centers have 2 columns, but the site's rows have 60"):
        cells(several, np.zeros((1, 2)))
    for n, d in ((4000, 30), (5000, 20_000), (300, 10**6)):
        parts = [list(grouped_together(n, d, least)) for least in (1, 5, MOST_LEAST)]
        assert parts[0] == parts[1] == parts[2]
        assert sum(part.stop - part.start for part in parts[0]) == n
        assert min(part.stop - part.start for part in parts[0]) >= MOST_LEAST
    embedded, replies = FKKMeansClient(X, memory={}), []
    for seed in range(3):  # whatever the embedding, of as many coordinates as the table has columns, or four times
        for width, least in ((60, 5), (240, 8)):
            ask(embedded, EmbedRows(features=RandomFeatures(RBF(1.0), width, seed=seed), t=1))
            centers = 0.1 * rng.standard_normal((20, 6, width))
            replies = [ask(embedded, SumEmbeddedCells(centers=own)) for own in centers]
            assert np.linalg.matrix_rank(np.vstack([reply.sums for reply in replies])) == len(row_groups(X, least))
    request, small = SumCells(centers=np.zeros((1, 60))), CentroidKPCAClient(X, guards=Guards(cell_rows=50))
    request.check_table(ask(small, request), {"n_m": 40, "d": 60})  # with no group, a site is left out
    with_guards = CentroidKPCAClient(X, guards=Guards(cell_rows=8, table_share=1.0))
    thin = np.column_stack([np.linspace(-3, 3, 30), np.zeros((30, 59))])
    assert min(filter(None, cells(with_guards, thin, least=1).counts)) >= 8


def test_sums_are_the_rows_by_nearest_centre():
    X = np.repeat([[0.0, 1.0], [4.0, 0.0], [9.0, 9.0]], [6, 7, 5], axis=0)
    for form in (np.asarray, sparse.csr_array):
        client = CentroidKPCAClient(form(X))
        reply = cells(client, np.array([[8.0, 8.0], [1.0, 0.0], [-50.0, 0.0]]), least=1)
        np.testing.assert_array_equal(reply.counts, [5, 13, 0])
        np.testing.assert_allclose(reply.sums, [[45, 45], [28, 6], [0, 0]], rtol=1e-14)
        moments = ask(client, SumMoments())
        np.testing.assert_array_equal(moments.sums, X.sum(axis=0))
        np.testing.assert_array_equal(moments.squares, np.square(X).sum(axis=0))
        own = ask(client, FindLocalCenters(n_centers=3, least=1)).centers
        np.testing.assert_allclose(own[np.argsort(own[:, 0])], [[0, 1], [4, 0], [9, 9]], atol=1e-14)


@pytest.mark.parametrize("factor", [1e-100, 1.0, 1e20])
def test_constant_columns_duplicates_and_a_site_below_a_group_are_no_obstacle(factor):
    X = np.repeat(np.random.default_rng(1).standard_normal((30, 3)), 3, axis=0)
    X = factor * np.column_stack([X, np.full(90, 1e8), np.zeros(90)])
    shards = [X[:4], X[4:50], X[50:]]
    result = CentroidKPCA(2, Linear(), 12, rounds=3).fit(shards)
    captured = np.sum([result.model.captured(shard) for shard in shards], axis=0)
    assert captured[1] / captured[0] == pytest.approx(1, abs=1e-9)
    constant = result.model.landmarks_[:, 3:]
    np.testing.assert_allclose(constant, np.broadcast_to([factor * 1e8, 0], constant.shape))


@pytest.mark.parametrize("factor", [1e-100, 1.0, 1e20])
def test_with_axes_components_are_exactly_those_of_all_rows_by_one_round_of_sums(factor):
    X = factor * np.column_stack([DIGITS.data[:300, 2:8], DIGITS.data[:300, 3], np.zeros(300)])
    sums = "masked" if factor == 1 else "plain"  # in fixed point
    result = CentroidKPCA(3, Linear(), centroids="axes").fit([X[:20], X[20:90], X[90:]], sums=sums)
    axes = result.model.landmarks_.T @ result.model.coefficients_
    exact = np.linalg.svd(X, full_matrices=False)[2][:3]
    np.testing.assert_allclose(np.abs(exact @ axes), np.eye(3), atol=1e-12)
    assert result.ledger.rounds == 2
    assert (result.ledger.floats_up, result.findings) == (3 * 8 * 9 / 2, [])


def test_sparse_rows_are_treated_as_dense_ones():
    shards = np.array_split(DIGITS.data[:400], 3)
    strategy = CentroidKPCA(3, KERNEL, 20)
    dense, thin = strategy.fit(shards), strategy.fit([sparse.csr_array(shard) for shard in shards])
    np.testing.assert_allclose(thin.model.landmarks_, dense.model.landmarks_, atol=1e-9)
    np.testing.assert_allclose(thin.model.eigenvalues_, dense.model.eigenvalues_, rtol=1e-9)


@pytest.mark.parametrize(
    ("rows", "columns", "number", "rounds"),
    [((4000, 4000), 64, 100, 3), ((600, 600), 64, 79, 3), ((60, 900), 64, 12, 2), ((60, 900), 8, 11, 2)],
)
def test_by_default_the_smallest_site_sends_half_as_many_floats_as_it_has_entries(rows, columns, number, rounds):
    cohort = [Member(client, client, own, columns) for client, own in enumerate(rows)]
    strategy = CentroidKPCA()
    chosen, T, findings, _ = strategy.sizes(cohort)
    assert (chosen, T) == (number, rounds)
    assert bool(findings) == (number < 100)
    per_site = strategy.forecast(cohort).floats_up / len(rows)
    assert (per_site <= allowed_numbers(min(rows) * columns)) == (number > 11)
    assert CentroidKPCA(n_landmarks=100).sizes(cohort) == (100, 3, (), 0.0)
    after_preparing = strategy.sizes([dataclasses.replace(member, left=20 * columns) for member in cohort])[0]
    assert after_preparing < number or number in (11, 100)  # the fewest, and all that are wanted


CELLS = {"sums": [[5.0], [0.0]], "counts": [5.0, 0.0], "costs": [1.0, 0.0]}


@pytest.mark.parametrize(
    ("request_", "fields", "sentence"),
    [
        (SUM, CELLS | {"counts": [4.0, 0.0]}, "counts must be 0 or at least 5, the rows of a group"),
        (SUM, CELLS | {"sums": [[5.0], [1.0]]}, "sums and costs must be 0 where counts are"),
        (SUM, CELLS | {"costs": [1.0, 1.0]}, "sums and costs must be 0 where counts are"),
        (SUM, CELLS | {"counts": [7.0, 0.0]}, "counts sum to 7, but must sum to 5, the number of rows, or"),
        (FIND, ONE | {"counts": [5.0]}, "counts must be absent unless requested"),
        (COUNT, ONE, "counts must be sent, as requested"),
        (COUNT, ONE | {"counts": [4.0]}, "counts must be at least 5, the rows of a group"),
        (COUNT, ONE | {"counts": [6.0]}, "counts sum to 6, but must sum to at most 5, the number"),
        (FIND, {"centers": [[1.0], [2.0]]}, "the reply has 2 centres, but must have at most 1"),
        (SumMoments(), {"sums": [6.0], "squares": [7.1]}, "sums are too large for 5 entries with these"),
    ],
)
def test_a_reply_that_cannot_be_right_is_refused(request_, fields, sentence):
    reply = request_.reply_type(**{name: np.array(value) for name, value in fields.items()})

    def check():
        request_.check_reply(reply)
        request_.check_table(reply, {"n_m": 5, "d": 1})

    with pytest.raises(ValueError, match=sentence):
        check()


def test_parameters_that_do_not_fit():
    with pytest.raises(InputError, match='rounds = 3 has a meaning only with centroids = "shared"'):
        CentroidKPCA(2, centroids="local", rounds=3)
    with pytest.raises(InputError, match="n_components = 9, but must be at most the number of landmarks, n_landmarks"):
        CentroidKPCA(9, n_landmarks=5)
    with pytest.raises(InputError, match=r'centroids = "axes", but kernel = RBF.*; allowed with axes: Linear\(\)'):
        CentroidKPCA(2, centroids="axes")
    with pytest.raises(InputError, match='n_landmarks = 9, but centroids = "axes" takes one for each of 64 columns'):
        CentroidKPCA(2, Linear(), 9, centroids="axes").fit([DIGITS.data[:50], DIGITS.data[50:100]])
    with pytest.raises(InputError, match=r"a centre of the clients' rows has k\(y, y\) above 1e\+70"):
        CentroidKPCA(1, Polynomial(5, 1.0), 4).fit([1e20 * DIGITS.data[:20], 1e20 * DIGITS.data[20:40]])
    few = [np.random.default_rng(client).standard_normal((4, 2)) for client in range(3)]
    with pytest.raises(InputError, match="least = 5, but no client has so many rows"):
        CentroidKPCA(1).fit(few)
    with pytest.raises(ProtocolError, match="client 0 has 4 rows, fewer than a centre must stand for; allowed: at"):
        CentroidKPCA(1, centroids="local").fit(few)


SHARDS = np.array_split(DIGITS.data, 4)


def agreement(strategy):
    results = [strategy.fit(SHARDS, seed=seed) for seed in range(3)]
    assert all(result.ledger.rows_up == 0 for result in results)
    labels = [np.concatenate([result.outputs[m]["labels"] for m in range(4)]) for result in results]
    np.testing.assert_array_equal(labels[0], results[0].model.predict(DIGITS.data))
    return np.mean([normalized_mutual_info_score(DIGITS.target, own) for own in labels]), results[0].ledger.floats_up


def test_clusters_agree_with_the_classes_as_fk_k_means_do_for_a_fraction_of_the_floats():
    """Local centres for less than a fourth; shared ones and FK k-means also by sums alone."""
    (fk, floats), (local, few) = agreement(FKKMeans(10)), agreement(CentroidKMeans(10, centroids="local"))
    shared, sums = agreement(CentroidKMeans(10))
    assert agreement(FKKMeans(10, clusters="lloyd"))[0] > fk - 0.03
    assert local > fk - 0.02
    assert shared > fk - 0.02
    assert few < floats / 4
    assert sums < 1.1 * floats


def test_measures_are_of_all_rows():
    result = CentroidKMeans(10).fit(SHARDS, seed=1, evaluate=True)
    H, labels = (np.concatenate([result.outputs[m][name] for m in range(4)]) for name in ("embedding", "labels"))
    cost = np.square(H - result.model.centers_[labels]).sum()
    objective = (DIGITS.data.shape[0] - np.square(H).sum() + cost) / len(H)
    assert result.metrics["kmeans_objective"] == pytest.approx(objective, rel=1e-8)
    assert 0.7 * calinski_harabasz_score(H, labels) < result.metrics["calinski_harabasz"]
    assert result.metrics["calinski_harabasz"] < calinski_harabasz_score(H, labels)


def test_local_centres_weigh_whole_steps_of_their_rows():
    X = np.repeat([[0.0, 1.0], [4.0, 0.0], [9.0, 9.0]], [32, 16, 16], axis=0)
    for guards, least, counts in ((None, 5, [30, 15, 15]), (Guards(cell_rows=8, table_share=9.0), 5, [32, 16, 16])):
        reply = ask(CentroidKMeansClient(X, guards=guards), FindLocalCenters(n_centers=3, least=least, counts=True))
        np.testing.assert_array_equal(reply.counts[np.argsort(reply.centers[:, 0])], counts)


@pytest.mark.parametrize("strategy", [CentroidKMeans(2, n_landmarks=6), CentroidKPCA(2, n_landmarks=6)])
def test_no_more_local_centres_are_asked_for_than_landmarks(strategy):
    strategy = type(strategy)(**strategy.hyperparameters | {"centroids": "local"})
    model = strategy.fit(np.array_split(DIGITS.data[:160], 8)).model
    assert len(getattr(model, "landmarks_", getattr(model, "embedding", None) and model.embedding.landmarks)) == 6


@pytest.mark.parametrize(
    ("rows", "columns", "shared", "local"),
    [(4000, 64, (50, 3), 150), (300, 64, (47, 3), 150), (60, 64, (12, 2), 150), (40, 8, (11, 2), 35)],
)
def test_by_default_the_smallest_site_of_k_means_sends_half_as_many_floats_too(rows, columns, shared, local):
    cohort = [Member(client, client, own, columns) for client, own in enumerate((rows, 4000))]
    for centroids, expected in (("shared", shared), ("local", (local, 0))):
        strategy = CentroidKMeans(10, centroids=centroids)
        chosen = strategy.sizes(cohort)
        assert chosen[:2] == expected
        assert bool(chosen.findings) == (chosen.landmarks < strategy.most_landmarks)
        assert all(" for 10 clusters (" in finding for finding in chosen.findings)
    assert CentroidKMeans(10).forecast(cohort).floats_up / 2 <= allowed_numbers(rows * columns) or shared[0] == 11


def test_parameters_of_k_means_that_do_not_fit():
    with pytest.raises(InputError, match="n_clusters = 9, but must be at most the number of landmarks, n_landmarks"):
        CentroidKMeans(9, n_landmarks=5)
    with pytest.raises(InputError, match="the kernel is zero on all landmarks, so that there are no clusters"):
        CentroidKMeans(1, Linear(), 2).fit([np.zeros((9, 2))] * 2)
    with pytest.raises(InputError, match="n_clusters = 9, but must be at most the number of rows, 8"):
        CentroidKMeans(9, RBF()).fit([DIGITS.data[:8]])
