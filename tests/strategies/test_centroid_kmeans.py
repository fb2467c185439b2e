"""Centroid k-means: clusters as good as FK k-means' by weighed centres of all rows, for a fraction of the floats."""

import numpy as np
import pytest
from sites import ask
from sklearn.datasets import load_digits
from sklearn.metrics import calinski_harabasz_score, normalized_mutual_info_score

from fedkernel import RBF, InputError, Linear
from fedkernel.clients.centroid_kmeans import CentroidKMeansClient
from fedkernel.clients.centroid_kpca import FindLocalCenters
from fedkernel.protocol import Guards, Member, allowed_numbers
from fedkernel.strategies import CentroidKMeans, CentroidKPCA, FKKMeans

DIGITS = load_digits()
SHARDS = np.array_split(DIGITS.data, 4)


def agreement(strategy):
    results = [strategy.fit(SHARDS, seed=seed) for seed in range(3)]
    assert all(result.ledger.rows_up == 0 for result in results)
    labels = [np.concatenate([result.outputs[m]["labels"] for m in range(4)]) for result in results]
    np.testing.assert_array_equal(labels[0], results[0].model.predict(DIGITS.data))
    return np.mean([normalized_mutual_info_score(DIGITS.target, own) for own in labels]), results[0].ledger.floats_up


def test_clusters_agree_with_the_classes_as_fk_k_means_do_for_a_fraction_of_the_floats():
    """Local centres for less than a fourth; shared ones by sums alone, for as many floats as sites send by default."""
    (fk, floats), (local, few) = agreement(FKKMeans(10)), agreement(CentroidKMeans(10, centroids="local"))
    shared, sums = agreement(CentroidKMeans(10))
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
def test_by_default_the_smallest_site_sends_half_as_many_floats_as_it_has_entries(rows, columns, shared, local):
    cohort = [Member(client, client, own, columns) for client, own in enumerate((rows, 4000))]
    for centroids, expected in (("shared", shared), ("local", (local, 0))):
        strategy = CentroidKMeans(10, centroids=centroids)
        chosen = strategy.sizes(cohort)
        assert chosen[:2] == expected
        assert bool(chosen.findings) == (chosen.landmarks < strategy.most_landmarks)
        assert all(" for 10 clusters (" in finding for finding in chosen.findings)
    assert CentroidKMeans(10).forecast(cohort).floats_up / 2 <= allowed_numbers(rows * columns) or shared[0] == 11


def test_parameters_that_do_not_fit():
    with pytest.raises(InputError, match="n_clusters = 9, but must be at most the number of landmarks, n_landmarks"):
        CentroidKMeans(9, n_landmarks=5)
    with pytest.raises(InputError, match="the kernel is zero on all landmarks, so that there are no clusters"):
        CentroidKMeans(1, Linear(), 2).fit([np.zeros((9, 2))] * 2)
    with pytest.raises(InputError, match="n_clusters = 9, but must be at most the number of rows, 8"):
        CentroidKMeans(9, RBF()).fit([DIGITS.data[:8]])
