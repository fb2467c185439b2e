"""DKPCA against an independent implementation, the letter's promises, and the reference numbers."""

import naive
import numpy as np
import pytest
from grids import in_turn
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refusing
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA, KernelPCA
from sklearn.preprocessing import StandardScaler

from fedkernel import DKPCA, RBF, InputError, Laplacian, Linear, Polynomial, ProtocolError, Sigmoid
from fedkernel.data import DataSpec, PartitionSpec, load, split
from fedkernel.numerics import sin_theta_error
from fedkernel.run import RunSettings

WINE = StandardScaler().fit_transform(load_wine().data)[::3]  # 60 x 13
KERNELS = {
    "linear": Linear(),
    "rbf": RBF(gamma=0.05),
    "laplacian": Laplacian(gamma=0.1),
    "polynomial": Polynomial(degree=2, gamma=0.1, coef0=0.5),
    "sigmoid": Sigmoid(gamma=0.02, coef0=0.1),
}


def table_of(kernel):
    return {name: getattr(kernel, name) for name in ("type", "gamma", "degree", "coef0") if hasattr(kernel, name)}


def cut(X, *, seed, clients):
    return split(PartitionSpec(method="random", clients=clients, shuffle=True), X, seed=seed).shards


@pytest.mark.parametrize(
    ("kernel", "local", "center"), in_turn(KERNELS.values(), [2, 7, "adaptive"], [False, True], every=2)
)
def test_equals_the_naive_implementation(kernel, local, center):
    shards = cut(WINE, seed=3, clients=4)
    result = DKPCA(3, kernel, local_components=local, center=center).fit(shards)
    epsilon = 0.0005 if kernel.vertical == "product" else 0.04
    rule = ("adaptive", epsilon) if local == "adaptive" else local
    values, vectors, floats = naive.dkpca(shards, table_of(kernel), 3, rule, center)
    np.testing.assert_allclose(result.model.eigenvalues_, values, rtol=1e-10)
    assert sin_theta_error(vectors, result.model.eigenvectors_) < 1e-18
    assert result.ledger.floats_up == floats  # sum over clients of D_m (N + 1)
    assert result.ledger.floats_down == 0
    assert result.ledger.rounds == 1


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**16), clients=st.integers(1, 13), name=st.sampled_from([*KERNELS]), center=st.booleans())
def test_without_truncation_it_is_central_for_any_split(seed, clients, name, center):
    X, kernel = WINE[:30], KERNELS[name]
    strategy = DKPCA(4, kernel, local_components=30, center=center)
    model, reference = strategy.fit(cut(X, seed=seed, clients=clients)).model, strategy.central([X])
    np.testing.assert_allclose(model.eigenvalues_, reference.eigenvalues_, atol=1e-10 * reference.eigenvalues_[0])
    assert sin_theta_error(reference.eigenvectors_, model.eigenvectors_) < 1e-16


def test_it_is_scikit_learn_s_pca_and_kernel_pca():
    X = load_wine().data  # neither centred nor scaled
    linear = DKPCA(4, local_components=13, center=True).fit(np.array_split(X, 3, axis=1)).model
    rbf = DKPCA(3, RBF(gamma=0.05), center=True).central(np.array_split(WINE, 4, axis=1))
    scores = PCA(4).fit_transform(X), KernelPCA(3, kernel="rbf", gamma=0.05).fit_transform(WINE)
    for model, expected in zip((linear, rbf), scores, strict=True):
        close = {"rtol": 1e-8, "atol": 1e-8 * np.abs(expected).max()}
        np.testing.assert_allclose(np.abs(model.embedding()), np.abs(expected), **close)


def by_products(D, gamma, **fields):
    return DKPCA(D, RBF(gamma=gamma), upload="inner products", **fields)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("local", [2, 7, "adaptive"])
def test_inner_products_equal_the_naive_implementation(local, center):
    shards = cut(WINE + 3, seed=3, clients=4)
    result = by_products(3, 0.05, local_components=local, center=center).fit(shards)
    rule = ("adaptive", 0.04) if local == "adaptive" else local
    values, vectors, floats = naive.dkpca_of_distances(shards, 0.05, 3, rule, center)
    np.testing.assert_allclose(result.model.eigenvalues_, values, rtol=1e-10)
    assert sin_theta_error(vectors, result.model.eigenvectors_) < 1e-18
    assert (result.ledger.floats_up, result.ledger.floats_down, result.ledger.rounds) == (floats, 0, 1)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    clients=st.integers(1, 13),
    gammas=st.lists(st.floats(1e-3, 1.0), min_size=2, max_size=2),
    center=st.booleans(),
    far=st.sampled_from([0.0, 1e4]),
)
def test_of_all_inner_products_it_is_central_for_any_split_and_width(seed, clients, gammas, center, far):
    """d_m pairs of each client are all, however many rows there are; shifted columns are as far apart."""
    X, (first, second) = WINE[:30], gammas
    result = by_products(4, first, local_components=13, center=center).fit(cut(X + far, seed=seed, clients=clients))
    assert result.ledger.floats_up == 13 * 31
    for model in (result.model, result.model.with_kernel(RBF(gamma=second))):
        reference = DKPCA(4, model.kernel, center=center).central([X])
        np.testing.assert_allclose(model.eigenvalues_, reference.eigenvalues_, atol=1e-9 * reference.eigenvalues_[0])
        assert sin_theta_error(reference.eigenvectors_, model.eigenvectors_) < 1e-14


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_transform_is_the_projection_by_the_exact_kernel(kernel, center):
    X, new = WINE[:45], WINE[45:]
    shards, new_shards = np.array_split(X, 4, axis=1), np.array_split(new, 4, axis=1)
    strategy = DKPCA(3, kernel, local_components=45, center=center)
    model = strategy.fit(shards).model
    K, K_new = (naive.kernel_matrix(rows, X, **table_of(kernel)) for rows in (X, new))
    if center:
        K_new = K_new - K.mean(axis=0) - K_new.mean(axis=1, keepdims=True) + K.mean()
    expected = K_new @ model.eigenvectors_ / np.sqrt(model.eigenvalues_)
    np.testing.assert_allclose(strategy.transform(model, shards, new_shards), expected, atol=1e-9)
    np.testing.assert_allclose(strategy.transform(model, shards, shards), model.embedding(), atol=1e-9)


def test_new_rows_are_projected_at_the_model_s_own_width_or_refused():
    shards, strategy = np.array_split(WINE, 4, axis=1), by_products(3, 0.05, local_components=13, center=True)
    model = strategy.fit(shards).model.with_kernel(RBF(gamma=0.2))
    np.testing.assert_allclose(strategy.transform(model, shards, shards), model.embedding(), atol=1e-9)
    with pytest.raises(InputError, match=r"new_shards have \[4, 3, 3, 2\] columns"):
        strategy.transform(model, shards, [*shards[:3], shards[3][:, :2]])
    with pytest.raises(ProtocolError, match="client 0 has no new rows to project"):
        strategy.simulate(lambda run: strategy.projection(run, model), shards, None, RunSettings(clients=4))


PLATEAU = {5: (1.5e-2, 50), 10: (1.4e-3, 100), 15: (1e-7, 150), "adaptive": (4e-7, 100)}
"""Error and number of vectors sent, clients of random sizes: figure 3a at N = 400, measured with other code."""


@pytest.mark.parametrize(("local", "error", "vectors"), [(local, *measured) for local, measured in PLATEAU.items()])
def test_plateau_spectrum_with_maldistribution(local, error, vectors):
    strategy, errors, sent = DKPCA(10, local_components=local), [], []
    for seed in range(2):
        X = load(DataSpec("plateau", options={"seed": seed})).X
        shards = cut(X, seed=seed, clients=10)
        result = strategy.fit(shards, reference=strategy.central(shards))
        errors.append(result.metrics["error"])
        sent.append(result.ledger.floats_up / (len(X) + 1))
    assert error / 5 < np.mean(errors) < error * 5
    # A client with fewer columns than D_m sends only those.
    assert 0.9 * vectors <= np.mean(sent) <= 1.15 * vectors


def fitted(strategy):
    return strategy.fit(np.array_split(WINE, 3, axis=1)).model


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: DKPCA(0), "DKPCA: n_components = 0: input should be greater than or equal to 1"),
        (lambda: DKPCA(2, RBF(width="columns")), 'RBF: width = "columns" is not for columns that are split'),
        (lambda: DKPCA(2, local_components=5, epsilon=0.1), "epsilon = 0.1 has a meaning only with"),
        (lambda: DKPCA(2, local_components="adaptive", epsilon=2.0), "epsilon = 2.0: input should be less than 1"),
        (lambda: DKPCA(61).fit([WINE]), "n_components = 61, but must be at most the number of rows, 60"),
        (lambda: DKPCA(2, local_components=61).fit([WINE]), "local_components = 61, but must be at most"),
        (lambda: DKPCA(2, kernel={"type": "rbf", "gamma": -1}), "gamma = -1: input should be greater than 0"),
        (lambda: DKPCA(2, upload="rows"), "upload = 'rows': input should be 'kernel' or 'inner products'"),
        (lambda: DKPCA(2, Laplacian(0.1), upload="inner products"), 'upload = "inner products" needs an RBF kernel'),
        (lambda: fitted(DKPCA(2, RBF(0.05))).with_kernel(RBF(0.1)), "the model has no coordinates_; only runs"),
        (lambda: fitted(by_products(2, 0.05)).with_kernel(Laplacian(gamma=0.1)), "(gamma=0.1), but must be RBF"),
        (lambda: DKPCA(2, KERNELS["sigmoid"], certificate=True), "certificate = True is known for linear, RBF"),
        (lambda: DKPCA(2, RBF(gamma=1.0), upload="inner products", certificate=True), "certificate = True is known"),
    ],
)
def test_bad_input_is_one_sentence(build, text):
    with refusing(text):
        build()
