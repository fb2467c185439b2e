"""Estimators of `fedkernel.sklearn`: scikit-learn's own checks and tests, and exact answers."""

import doctest
import importlib
import inspect
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine
from sklearn.decomposition import PCA, KernelPCA
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import scale
from sklearn.utils.estimator_checks import parametrize_with_checks

import fedkernel.sklearn as ours
from fedkernel import DKPCA, RBF, DisKPCA, InputError

FKM, FKP, FederatedPCA = ours.FederatedKernelKMeans, ours.FederatedKernelPCA, ours.FederatedPCA
WINE = scale(load_wine().data)
ROWS = np.random.default_rng(0).permutation(np.arange(len(WINE)) % 3)  # whose each row is
COLUMNS = np.array(list("abc"))[np.arange(13) % 3]
EXACT = KernelPCA(3, kernel="rbf", gamma=0.05)


@parametrize_with_checks([ours.LandmarkKernelPCA(), FKP()])
def test_scikit_learn_s_checks(estimator, check):
    check(estimator)


@pytest.mark.drill
@parametrize_with_checks([ours.LandmarkKernelKMeans(), FederatedPCA(), FKM(), FKM(method="DKPCA")])
def test_scikit_learn_s_checks_of_the_others(estimator, check):
    check(estimator)


def kernel_pca(n_components=None, *, kernel="linear", eigen_solver=None, fit_inverse_transform=None, **parameters):
    return ours.LandmarkKernelPCA(n_components, kernel=kernel, **parameters)


def k_means(n_clusters=8, *, n_init=None, init=None, algorithm=None, max_iter=None, **parameters):
    return ours.LandmarkKernelKMeans(n_clusters, kernel="linear", **parameters)


k_means.__name__ = "LandmarkKernelKMeans"
ARGUMENTS = {"global_random_seed": 42, "solver": "dense", "n_features": 4, "n_components": 10, "Estimator": k_means}
ARGUMENTS |= {"Klass": k_means, "array_constr": np.array, "dtype": np.int32, "init": "random", "method": "fit"}
THEIR_FILES = ("sklearn.cluster.tests.test_k_means", "sklearn.decomposition.tests.test_kernel_pca")
THEIRS = """kernel_pca_consistent_transform kernel_pca_deterministic_output kernel_pca_linear_kernel
kernel_pca_n_components kernel_pca_pandas_output kernel_pca_solvers_equivalence gridsearch_pipeline nested_circles
kernel_pca_inverse_transform_reconstruction kernel_conditioning 32_64_decomposition_shape fortran_aligned_data
integer_input fit_transform feature_names_out result_equal_in_diff_n_threads"""
"""The other tests are of parameters or attributes that ours do not have, as precomputed kernels or inertia_."""


@pytest.mark.drill
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # of their Perceptron
@pytest.mark.parametrize("name", THEIRS.split())
def test_scikit_learn_s_own_tests(name, monkeypatch):
    kmeans_tests, kpca_tests = map(importlib.import_module, THEIR_FILES)
    monkeypatch.setattr(kpca_tests, "KernelPCA", kernel_pca)
    test = getattr(kpca_tests, f"test_{name}", None) or getattr(kmeans_tests, f"test_{name}")
    test(**{parameter: ARGUMENTS[parameter] for parameter in inspect.signature(test).parameters})


@pytest.mark.parametrize(
    ("estimator", "exact"),
    [
        (ours.LandmarkKernelPCA(3, gamma=0.05), EXACT),
        (ours.LandmarkKernelPCA(3, kernel="linear"), PCA(3)),
        (FederatedPCA(3, sites=3), PCA(3)),
        (FederatedPCA(3, sites=COLUMNS, method="VFedPCA"), PCA(3)),
        (FKP(3, sites=COLUMNS, gamma=0.05), EXACT),
        (FKP(method=DKPCA(3, RBF(0.05), local_components=150, center=True)), EXACT),
    ],
)
def test_exact_answers_are_kept_by_clones_and_pickles(estimator, exact):
    expected = np.abs(exact.fit(WINE[:150]).transform(WINE))
    fitted = pickle.loads(pickle.dumps(clone(estimator).set_params(random_state=1).fit(WINE[:150])))  # noqa: S301
    np.testing.assert_allclose(np.abs(Z := fitted.transform(WINE)), expected, atol=2e-3)
    np.testing.assert_allclose(np.abs(getattr(fitted, "embedding_", Z[:150])), expected[:150], atol=2e-3)
    if isinstance(exact, PCA):
        inverse = exact.inverse_transform(exact.transform(WINE))
        np.testing.assert_allclose(fitted.inverse_transform(Z), inverse, atol=2e-3)


def test_more_landmarks_come_nearer_to_the_exact_answer():
    X = load_digits().data
    exact = KernelPCA(5, kernel="rbf", gamma=5e-4).fit(X).eigenvalues_
    fitted = [ours.LandmarkKernelPCA(5, gamma=5e-4, n_landmarks=m, random_state=0).fit(X) for m in (50, 300)]
    few, many = (its.eigenvalues_ for its in fitted)
    assert np.all((few < many) & (many <= exact * (1 + 1e-9)))
    np.testing.assert_allclose(many, exact, rtol=0.01)


def test_of_more_starts_the_best_is_kept():
    X = load_digits().data
    one, ten = (ours.LandmarkKernelKMeans(10, n_init=starts, random_state=0).fit(X) for starts in (1, 10))
    assert np.square(ten.transform(X).min(axis=1)).sum() < np.square(one.transform(X).min(axis=1)).sum()


@pytest.mark.parametrize("method", ["auto", "RFKKMeans"])
def test_labels_and_coordinates_are_in_the_order_of_the_input(method):
    fitted = FKM(3, method=method, sites=ROWS, random_state=0).fit(WINE)
    np.testing.assert_array_equal(fitted.labels_, fitted.predict(WINE))
    np.testing.assert_allclose(fitted.embedding_, fitted.result_.model.transform(WINE), atol=1e-9)
    assert adjusted_rand_score(fitted.labels_, load_wine().target) > 0.7
    fitted.result_.findings.append("<b>")
    assert re.search("<th>floats_up</th>.*(<rect.*){3}<li>&lt;b&gt;", fitted.result_._repr_html_())


@pytest.mark.parametrize(
    ("estimator", "text"),
    [
        (ours.LandmarkKernelPCA(0), "n_components = 0, but must be a whole number from 1, or None for all"),
        (ours.LandmarkKernelPCA(kernel=3), "kernel = 3, but must be a kernel"),
        (ours.LandmarkKernelPCA(kernel="linear", gamma=1.0), "allowed: a number above 0, for a kernel with a width"),
        (
            ours.LandmarkKernelPCA(gamma="scale"),
            "gamma = 'scale' with RBF(width='mean'); allowed: a number above 0, for",
        ),
        (ours.LandmarkKernelPCA(alpha=0), "alpha = 0, but must be above 0"),
        (ours.LandmarkKernelKMeans(n_init=0), "n_init = 0, but must be a whole number from 1"),
        (FederatedPCA(sites=14), "sites = 14, but must be from 1 to the number of columns, n_features = 13"),
        (FederatedPCA(sites=[1, 2]), "sites has 2 entries, but must have one for each of the columns"),
        (FederatedPCA(sites=1.5), "sites = 1.5, but must be from 1 to the number of columns"),
        (FKP(method="VFedPCA", kernel="rbf"), "VFedPCA takes none"),
        (FKP(method=3), 'method = 3, but must be "auto"'),
        (FKP(method="FKKMeans"), "finds a KernelKMeans, which has no components of all rows"),
        (FKP(method=DisKPCA()), "share_rows"),
        (FKP(sites=COLUMNS, kernel={"type": "arc-cosine"}), "no recommended pair finds components of these sites"),
        (FKM("auto", sites=COLUMNS), 'n_clusters = "auto", but must be a number'),
    ],
)
def test_bad_input_is_one_sentence(estimator, text):
    with pytest.raises(InputError) as caught:
        estimator.fit(WINE)
    assert text in str(caught.value)


def test_the_page_s_examples():
    page = Path(__file__).parents[2] / "docs" / "how-to" / "estimators.md"
    assert doctest.testfile(str(page), module_relative=False).failed == 0


def test_saved_components_hold_pre_images_in_place_of_rows_and_a_new_fit_has_new_ones():
    X = np.random.default_rng(0).standard_normal((60, 3))
    model = ours.LandmarkKernelPCA(2, gamma=0.1, n_landmarks=10, random_state=0).fit(X)
    saved = pickle.loads(pickle.dumps(model))  # noqa: S301
    assert "_training" not in vars(saved)
    before = model.inverse_transform(model.transform(X))
    np.testing.assert_array_equal(saved.inverse_transform(saved.transform(X)), before)
    shifted = model.fit(X + 5)
    assert shifted.inverse_transform(shifted.transform(X + 5)).mean() > 4
