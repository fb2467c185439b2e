"""Estimators of `fedkernel.sklearn`: scikit-learn's own checks and tests, and exact answers."""

import doctest
import inspect
import pickle
from pathlib import Path

import numpy as np
import pytest
import sklearn.cluster.tests.test_k_means as kmeans_tests
import sklearn.decomposition.tests.test_kernel_pca as kpca_tests
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine
from sklearn.decomposition import PCA, KernelPCA
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import KFold, cross_validate
from sklearn.preprocessing import scale
from sklearn.utils.estimator_checks import parametrize_with_checks

from fedkernel import RBF, InputError, Result
from fedkernel.sklearn import (
    FederatedKernelKMeans,
    FederatedKernelPCA,
    FederatedPCA,
    LandmarkKernelKMeans,
    LandmarkKernelPCA,
)
from strategies import DKPCA, DisKPCA

WINE = scale(load_wine().data)
CLASSES = load_wine().target
ROWS = np.random.default_rng(0).permutation(np.arange(len(WINE)) % 3)  # whose each row is
COLUMNS = np.array(list("abc"))[np.arange(13) % 3]


@parametrize_with_checks([LandmarkKernelPCA(), LandmarkKernelKMeans(), FederatedKernelPCA()])
def test_scikit_learn_s_checks(estimator, check):
    check(estimator)


@pytest.mark.drill
@parametrize_with_checks([FederatedPCA(), FederatedKernelKMeans(), FederatedKernelKMeans(method="DKPCA")])
def test_scikit_learn_s_checks_of_the_others(estimator, check):
    check(estimator)


def kernel_pca(n_components=None, *, kernel="linear", eigen_solver=None, fit_inverse_transform=None, **parameters):
    return LandmarkKernelPCA(n_components, kernel=kernel, **parameters)


def k_means(n_clusters=8, *, n_init=None, init=None, algorithm=None, max_iter=None, **parameters):
    return LandmarkKernelKMeans(n_clusters, kernel="linear", **parameters)


k_means.__name__ = "LandmarkKernelKMeans"
ARGUMENTS = {
    "global_random_seed": 42,
    "solver": "dense",
    "n_features": 4,
    "n_components": 10,
    "Estimator": k_means,
    "Klass": k_means,
    "array_constr": np.array,
    "dtype": np.int32,
    "init": "random",
    "method": "fit",
}
"""The other tests are of parameters or attributes that ours do not have, as precomputed kernels or inertia_."""
THEIRS = [
    *((kpca_tests, f"test_kernel_pca_{name}") for name in ("consistent_transform", "deterministic_output")),
    *((kpca_tests, f"test_kernel_pca_{name}") for name in ("linear_kernel", "n_components", "pandas_output")),
    *((kpca_tests, f"test_kernel_pca_{name}") for name in ("solvers_equivalence", "inverse_transform_reconstruction")),
    *((kpca_tests, f"test_{name}") for name in ("gridsearch_pipeline", "nested_circles", "kernel_conditioning")),
    (kpca_tests, "test_32_64_decomposition_shape"),
    *((kmeans_tests, f"test_{name}") for name in ("fortran_aligned_data", "integer_input", "fit_transform")),
    *((kmeans_tests, f"test_{name}") for name in ("feature_names_out", "result_equal_in_diff_n_threads")),
]


@pytest.mark.drill
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # of their Perceptron
@pytest.mark.parametrize(("module", "name"), THEIRS)
def test_scikit_learn_s_own_tests(module, name, monkeypatch):
    monkeypatch.setattr(kpca_tests, "KernelPCA", kernel_pca)
    test = getattr(module, name)
    test(**{parameter: ARGUMENTS[parameter] for parameter in inspect.signature(test).parameters})


@pytest.mark.parametrize(
    ("ours", "exact"),
    [
        (LandmarkKernelPCA(3, gamma=0.05), KernelPCA(3, kernel="rbf", gamma=0.05)),
        (LandmarkKernelPCA(3, kernel="linear"), PCA(3)),
        (FederatedPCA(3, sites=3), PCA(3)),
        (FederatedPCA(3, sites=COLUMNS, method="VFedPCA"), PCA(3)),
        (FederatedKernelPCA(3, sites=COLUMNS, gamma=0.05), KernelPCA(3, kernel="rbf", gamma=0.05)),
        (FederatedKernelPCA(method=DKPCA(3, RBF(0.05), local_components=150, center=True)), None),
    ],
)
def test_exact_answers(ours, exact):
    exact = exact or KernelPCA(3, kernel="rbf", gamma=0.05)
    expected = np.abs(exact.fit(WINE[:150]).transform(WINE))
    again = pickle.loads(pickle.dumps(clone(ours).set_params(random_state=1).fit(WINE[:150])))  # noqa: S301
    np.testing.assert_allclose(np.abs(again.transform(WINE)), expected, atol=2e-3)
    np.testing.assert_allclose(
        np.abs(getattr(again, "embedding_", again.transform(WINE[:150]))), expected[:150], atol=2e-3
    )
    if isinstance(exact, PCA):
        inverse = exact.inverse_transform(exact.transform(WINE))
        np.testing.assert_allclose(again.inverse_transform(again.transform(WINE)), inverse, atol=2e-3)


def test_landmarks_come_near_the_exact_answer_and_more_come_nearer():
    X = load_digits().data
    exact = KernelPCA(5, kernel="rbf", gamma=5e-4).fit(X).eigenvalues_
    few, many = (LandmarkKernelPCA(5, gamma=5e-4, n_landmarks=m, random_state=0).fit(X) for m in (50, 300))
    assert np.all(few.eigenvalues_ < many.eigenvalues_)
    np.testing.assert_allclose(many.eigenvalues_, exact, rtol=0.01)
    assert np.all(many.eigenvalues_ <= exact * (1 + 1e-9))


@pytest.mark.parametrize("method", ["auto", "FKKMeans", "RFKKMeans"])
def test_labels_and_coordinates_are_in_the_order_of_the_input(method):
    ours = FederatedKernelKMeans(3, method=method, sites=ROWS, random_state=0).fit(WINE)
    np.testing.assert_array_equal(ours.labels_, ours.predict(WINE))
    np.testing.assert_allclose(ours.embedding_, ours.result_.model.transform(WINE), atol=1e-9)
    assert adjusted_rand_score(ours.labels_, CLASSES) > 0.7
    assert isinstance(ours.result_, Result)
    assert len(ours.result_.outputs[0]["labels"]) == np.count_nonzero(ROWS == 0)


def test_sites_of_rows_are_routed_to_each_fold():
    with config_context(enable_metadata_routing=True):
        ours = FederatedKernelKMeans(3, random_state=0).set_fit_request(sites=True)
        cv = KFold(3, shuffle=True, random_state=0)
        folds = cross_validate(ours, WINE, params={"sites": ROWS}, cv=cv, return_estimator=True, error_score="raise")
    assert [len(fold.positions_) for fold in folds["estimator"]] == [3, 3, 3]
    assert all(0.2 < score < 1 for score in folds["test_score"])


@pytest.mark.parametrize(
    ("estimator", "text"),
    [
        (LandmarkKernelPCA(0), "n_components = 0, but must be above 0, or None for all"),
        (LandmarkKernelPCA(n_landmarks=0), "n_landmarks = 0, but must be at least 1"),
        (LandmarkKernelPCA(kernel=3), "kernel = 3, but must be a kernel"),
        (LandmarkKernelPCA(kernel="linear", gamma=1.0), "allowed: a number above 0, for a kernel with a width"),
        (LandmarkKernelPCA(alpha=0), "alpha = 0, but must be above 0"),
        (FederatedPCA(sites=14), "sites = 14, but must be from 1 to the number of columns, n_features = 13"),
        (FederatedPCA(sites=[1, 2]), "sites has 2 entries, but must have one for each of the columns, n_features = 13"),
        (FederatedKernelPCA(method=3), 'method = 3, but must be "auto"'),
        (FederatedKernelPCA(method="FKKMeans"), "finds a KernelKMeans, which has no components of all rows"),
        (FederatedKernelPCA(method=DisKPCA()), "share_rows"),
        (
            FederatedKernelPCA(sites=COLUMNS, kernel={"type": "arc-cosine"}),
            "no recommended pair finds components of these sites",
        ),
        (FederatedKernelKMeans("auto", sites=COLUMNS), 'n_clusters = "auto", but must be a number'),
    ],
)
def test_bad_input_is_one_sentence(estimator, text):
    with pytest.raises(InputError) as caught:
        estimator.fit(WINE)
    assert text in str(caught.value)


def test_the_page_s_examples():
    page = Path(__file__).parents[2] / "docs" / "estimators.md"
    assert doctest.testfile(str(page), module_relative=False).failed == 0
