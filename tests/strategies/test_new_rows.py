"""Rows that are new at simulated sites with columns of their own, projected by VFedPCA and VFedAKPCA."""

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.preprocessing import KernelCenterer, StandardScaler

from fedkernel import RBF, InputError, Laplacian, PeerVFedPCA, Sigmoid, VFedAKPCA, VFedPCA
from fedkernel.clients.vfedpca import ProjectOntoDirections, VFedPCAClient
from fedkernel.models import load_model, save_model

TABLE = StandardScaler().fit_transform(load_wine().data) + 0.3
TRAIN, FRESH = np.split(np.random.default_rng(2).permutation(178), [120])
SHARDS, NEW = (np.split(TABLE[rows], [4, 9], axis=1) for rows in (TRAIN, FRESH))
METHODS = {
    "linear": (VFedPCA, {}, {"metric": "linear"}),
    "1/d_m": (VFedAKPCA, {"kernel": RBF(width="columns")}, {"metric": "rbf"}),
    "laplacian": (VFedAKPCA, {"kernel": Laplacian(gamma=0.1)}, {"metric": "laplacian", "gamma": 0.1}),
}


def read(X, center):
    return X - X.mean(axis=1, keepdims=True) if center == "rows" else X


def summed(rows, metric, center):
    """Return the sum over the clients of the kernel between some rows and the training rows, by scikit-learn."""
    pairs = zip(rows, SHARDS, strict=True)
    return sum(pairwise_kernels(read(X, center), read(Y, center), **metric) for X, Y in pairs)


def centred(metric, center):
    """Return the sums for the training rows and the new ones, centred in feature space where columns are."""
    K, K_new = summed(SHARDS, metric, center), summed(NEW, metric, center)
    if center != "columns":
        return K, K_new
    centerer = KernelCenterer().fit(K.copy())
    return centerer.transform(K), centerer.transform(K_new)


@pytest.mark.parametrize("center", ["columns", "rows", "none"])
@pytest.mark.parametrize("name", METHODS)
def test_on_an_exact_merge_they_have_the_coordinates_of_the_kernels_sum(name, center):
    """Training rows have those of the embedding, and with a linear kernel all are scikit-learn's PCA's."""
    kind, fields, metric = METHODS[name]
    strategy = kind(3, merge="exact", tol=1e-14, center=center, **fields)
    model = strategy.fit(SHARDS).model
    K, K_new = centred(metric, center)
    values, vectors = np.linalg.eigh(K)
    expected = K_new @ vectors[:, -3:][:, ::-1] / np.sqrt(values[-3:][::-1])
    coordinates = strategy.transform(model, SHARDS, NEW)
    signs = np.sign(np.sum(coordinates * expected, axis=0))
    np.testing.assert_allclose(coordinates * signs, expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(strategy.transform(model, SHARDS, SHARDS), model.embedding(), rtol=0, atol=1e-9)
    if (name, center) == ("linear", "columns"):
        pca = PCA(3).fit(TABLE[TRAIN]).transform(TABLE[FRESH])
        np.testing.assert_allclose(coordinates * np.sign(np.sum(coordinates * pca, axis=0)), pca, rtol=0, atol=1e-9)


@pytest.mark.parametrize("center", ["columns", "rows", "none"])
@pytest.mark.parametrize("name", METHODS)
def test_on_the_papers_merges_they_have_the_embedding_s_scale(name, center, tmp_path):
    """On training rows, as far as a direction goes along its own vector, the coordinate is the embedding's."""
    kind, fields, metric = METHODS[name]
    strategy = kind(2, "eigenvalue", rounds=3, weight_scaling=True, center=center, **fields)
    model = load_model(save_model(strategy.fit(SHARDS).model, tmp_path / "model.npz"))
    again, U = strategy.transform(model, SHARDS, SHARDS), model.eigenvectors_
    np.testing.assert_allclose(np.sum(U * again, axis=0), np.sqrt(model.eigenvalues_), rtol=1e-12)
    K, K_new = centred(metric, center)
    scales = np.sqrt(model.eigenvalues_) / np.einsum("nk,nm,mk->k", U, K, U)
    np.testing.assert_allclose(strategy.transform(model, SHARDS, NEW), K_new @ U * scales, rtol=0, atol=1e-9)


def test_components_without_variance_are_0():
    """Also those of an indefinite kernel whose eigenvalue is negative, as `KernelPCA` has it."""
    flat = [np.ones((9, 2)), np.r_[np.zeros(8), 1.0][:, None]]
    for merge in ("exact", "eigenvalue"):
        strategy = VFedPCA(3, merge)
        new = strategy.transform(strategy.fit(flat).model, flat, [rows[:4] + 1 for rows in flat])
        assert np.abs(new[:, 0]).min() > 0.1
        np.testing.assert_array_equal(new[:, 1:], 0.0)
    strategy = VFedAKPCA(1, "eigenvalue", kernel=Sigmoid(gamma=0.01, coef0=-1.0), center="none")
    model = strategy.fit(SHARDS).model
    assert model.eigenvalues_[0] < -50
    np.testing.assert_array_equal(strategy.transform(model, SHARDS, NEW), model.embedding()[:58])


def test_a_site_sends_products_and_variances_and_peers_say_why_they_project_none():
    """k (n_new + 1) floats, which nobody but the sum has a use for."""
    site, U = VFedPCAClient(SHARDS[0], new=NEW[0]), np.linalg.qr(SHARDS[1][:, :2])[0]
    reply = site.project_onto_directions(ProjectOntoDirections(directions=U))
    X, new = (rows - SHARDS[0].mean(axis=0) for rows in (SHARDS[0], NEW[0]))
    np.testing.assert_allclose(reply.products, new @ X.T @ U, rtol=0, atol=1e-10)
    np.testing.assert_allclose(reply.captured, np.square(X.T @ U).sum(axis=0), rtol=1e-12)
    assert reply.floats == 2 * (58 + 1)
    protocol = VFedPCA(2).projection(None, VFedPCA(2).fit(SHARDS).model)
    assert next(protocol).summed
    model = PeerVFedPCA(1).fit(SHARDS).model
    with pytest.raises(InputError, match="each client keeps directions of its own, which no coordinator has"):
        PeerVFedPCA(1).projection(None, model)
    assert PeerVFedPCA(1).projection_plan(to_sites=True) is None
