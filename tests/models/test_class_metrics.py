"""How well a linear classifier does on a model's coordinates: what must hold of it, and whose classes they are."""

from pathlib import Path

import numpy as np
import pytest
from configs import experiment
from scipy.stats import norm
from sklearn.datasets import load_iris

from fedkernel import DKPCA, RBF, DisKPCA, InputError, Linear
from fedkernel.experiments.running import run_experiment
from fedkernel.models import KernelPCA, LandmarkPCA, compute_metrics, load_model
from fedkernel.models.class_metrics import classification_error, cluster_ari, cluster_nmi

METRIC = 'report.metric="classification_error"'


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def components(Z):
    """A model whose coordinates are these, in some orthonormal basis."""
    vectors, roots, _ = np.linalg.svd(Z - Z.mean(axis=0), full_matrices=False)
    return KernelPCA(roots**2, vectors, Linear())


def test_of_two_normal_classes_the_error_is_nearly_the_least_there_is(rng):
    """Two classes 2 apart in standard deviations overlap by Phi(-1); the machine has 200 rows to find the middle."""
    classes = rng.integers(2, size=4200)
    Z = np.column_stack([2.0 * classes, np.zeros(4200)]) + rng.standard_normal((4200, 2))
    errors = [classification_error(components(Z), [], classes, seed) for seed in range(5)]
    assert np.mean(errors) == pytest.approx(norm.cdf(-1), abs=0.02)


def test_classes_that_a_plane_parts_are_told_apart_and_those_that_no_coordinate_knows_are_not(rng):
    classes = rng.integers(2, size=600)
    Z = rng.uniform(-1, 1, (600, 3)) + np.outer(4 * classes, [1, 2, 0])
    assert classification_error(components(Z), [], classes, 0) == 0.0
    assert classification_error(components(Z), [], rng.integers(2, size=600), 0) == pytest.approx(0.5, abs=0.1)
    partly = classes.astype(object)
    partly[::5], Z[::5] = None, Z[rng.permutation(600)[::5]]  # rows without a class, anywhere
    assert compute_metrics(["classification_error"], components(Z), [], partly) == {"classification_error": 0.0}
    assert cluster_ari(components(Z), [], partly, 0) > 0.95 > cluster_ari(components(Z), [], classes, 0)
    assert cluster_nmi(components(Z), [], partly, 0) > 0.9


@pytest.mark.parametrize(("rows", "judged"), [(2, 1), (9, 5), (399, 200), (400, 200), (650, 450)])
def test_200_rows_or_half_train_and_the_others_count(rows, judged, rng):
    """Neither scale nor signs nor the names of classes matter; the seed does."""
    classes = rng.permutation(rows) % 3
    model, signs = components(rng.standard_normal((rows, 2))), np.array([1.0, -1.0])[: min(rows, 2)]
    errors = [classification_error(model, [], classes, seed) for seed in range(6)]
    shares = np.array(errors) * judged
    np.testing.assert_allclose(shares, np.round(shares), atol=1e-9)
    assert len(set(errors)) > 1 if rows > 2 else errors == [1.0] * 6, "of one class alone it puts the others there too"
    for factor in (1e-8, 1e8):
        other = KernelPCA(factor * model.eigenvalues_, model.eigenvectors_ * signs, Linear())
        named = np.array(["a", "b", "c"])[classes]
        assert [classification_error(other, [], named, seed) for seed in range(6)] == errors


def test_components_of_landmarks_that_are_all_rows_are_judged_as_kernel_pca_is(rng):
    X, classes, kernel = rng.standard_normal((80, 3)), rng.integers(2, size=80), RBF(gamma=0.3)
    exact = DKPCA(4, kernel).central([X])
    landmarks = DisKPCA(4, kernel).central([X[:50], X[50:]])
    assert isinstance(landmarks, LandmarkPCA)
    for seed in range(4):
        expected = classification_error(exact, [X], classes, seed)
        assert classification_error(landmarks, [X[:50], X[50:]], classes, seed) == expected


def test_it_takes_classes_and_components_for_as_many_rows():
    model = components(np.eye(5))
    for kind, classes, text in (
        (model, None, "metric = 'classification_error' needs classes of the rows, but the data have none"),
        (model, np.zeros(4), "there are classes of 4 rows, but 5 rows"),
        (components(np.ones((1, 1))), np.zeros(1), "all rows are of one class, but this metric needs at least 2"),
        (3, np.zeros(5), "a int has no components"),
    ):
        with pytest.raises(InputError, match=text):
            compute_metrics(["classification_error"], kind, [np.eye(5)], classes)
    assert compute_metrics(["error", "nmi"], model, [np.eye(5)]) == {}


@pytest.mark.parametrize("kind", ["vertical", "horizontal"])
def test_an_experiment_that_names_it_has_it_of_the_rows_classes_in_the_clients_order(kind, tmp_path: Path):
    method, cut = {"vertical": ("KPCA", "even"), "horizontal": ("batch KPCA", "iid")}[kind]
    partition = f'partition={{clients = 3, kind = "{kind}", method = "{cut}"}}'
    kernel = '{type = "rbf", gamma = 0.2}'
    baseline = f'baseline=[{{name = "c", method = "central {method}", n_components = 2, kernel = {kernel}}}]'
    rows = run_experiment(experiment(tmp_path, METRIC, "strategy=[]", partition, baseline), tmp_path / "out").rows
    assert [row.seed for row in rows] == [0, 1]
    for row in rows:
        model = load_model(tmp_path / "out" / row.model)
        X, y = load_iris(return_X_y=True)
        if kind == "horizontal":  # the central model of such has its rows as landmarks, in the clients' order
            order = [int(np.flatnonzero((landmark == X).all(axis=1))[0]) for landmark in model.landmarks_]
            X, y = X[order], y[order]
        assert row.metrics["classification_error"] == classification_error(model, [X], y, row.seed) < 0.3


def test_an_experiment_of_data_without_classes_is_refused(tmp_path: Path):
    for name in ("geometric", "diabetes"):  # no labels, and such that are measurements
        with pytest.raises(InputError, match="needs classes of the rows, but the data have none"):
            run_experiment(experiment(tmp_path, METRIC, f'data.name="{name}"', "seeds=[0]"), tmp_path / name)


def test_clusters_of_coordinates_are_held_against_the_classes(rng):
    classes = np.repeat(["a", "b", "c"], [20, 30, 40])
    centres = {"a": (0, 0), "b": (9, 0), "c": (0, 9)}
    apart = components(np.array([centres[name] for name in classes]) + 0.1 * rng.standard_normal((90, 2)))
    named = ["features_nmi", "features_ari"]
    assert compute_metrics(named, apart, [], classes) == dict.fromkeys(named, pytest.approx(1.0))
    # as many clusters as there are classes: two here
    merged = components(np.where(classes == "c", 9.0, 0.0)[:, None] + 1e-3 * np.arange(90)[:, None])
    together = compute_metrics(named, merged, [], np.where(classes == "c", 1, 0))
    assert together == dict.fromkeys(named, pytest.approx(1.0))
    blind = compute_metrics(named, components(rng.standard_normal((90, 2))), [], classes)
    assert max(blind.values()) < 0.2
    with pytest.raises(InputError, match="there are classes of 4 rows, but 90 rows"):
        compute_metrics(["features_nmi"], apart, [], classes[:4])
