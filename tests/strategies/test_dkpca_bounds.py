"""What bounds DKPCA's error: the letter's theorem 1, and the certificate, which needs no data."""

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler
from test_dkpca import KERNELS, WINE, cut, table_of

from fedkernel import DKPCA, RBF, Laplacian, Linear


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    clients=st.integers(1, 8),
    local=st.sampled_from([1, 3, 8, "adaptive"]),
    name=st.sampled_from(["linear", "rbf", "laplacian"]),
    center=st.booleans(),
)
def test_theorem_1_is_never_violated(seed, clients, local, name, center):
    shards = cut(WINE[:40], seed=seed, clients=clients)
    strategy = DKPCA(3, KERNELS[name], local_components=local, center=center)
    metrics = strategy.fit(shards, reference=strategy.central(shards)).metrics
    assert np.sqrt(metrics["error"]) <= metrics["bound"] + 1e-12


@pytest.mark.parametrize("rows", range(3, 9))
def test_theorem_1_is_tight_where_all_clients_leave_the_same_direction_out(rows):
    """By hand, D = N - 1 and D_m = 1: clients have eigenvalue 1 along e_N, which each leaves out for a larger one.

    M - 1 of them have larger ones along e_1 to e_(D-1), the last eigenvalue .1 along e_D only. So K^ has no e_N and
    its leading D vectors are e_1 to e_D, where K, with M - 1 along e_N, has e_N in place of e_D: ||sin Theta|| = 1. The
    bound is M sqrt(N - D) 1 / (lambda_D - lambda_(D+1)) = M / (M - 1.1): with 100 clients it is within 2%.
    """
    D, M, basis = rows - 1, 100, np.linalg.qr(np.random.default_rng(rows).standard_normal((rows, rows)))[0]
    larger = [np.sqrt(4.0 * M) * basis[:, [client % max(D - 1, 1)]] for client in range(M - 1)]
    shards = [np.hstack([column, basis[:, [D]]]) for column in larger] + [np.sqrt(0.1) * basis[:, [D - 1]]]
    strategy = DKPCA(D, local_components=1)
    metrics = strategy.fit(shards, reference=strategy.central(shards)).metrics
    assert metrics["error"] == pytest.approx(1, abs=1e-9)
    assert metrics["bound"] == pytest.approx(M / (M - 1.1), rel=1e-9)
    assert 0.98 < np.sqrt(metrics["error"]) / metrics["bound"] <= 1


@pytest.mark.parametrize(("name", "local", "rows"), [("rbf", 7, len(WINE)), ("linear", 2, len(WINE) - 2)])
def test_theorem_1_is_the_formula(name, local, rows):
    """N for product kernels, N - D for sums; of other kernels it says nothing."""
    shards, D, table = np.array_split(WINE, 3, axis=1), 2, table_of(KERNELS[name])
    K = naive.kernel_matrix(WINE, WINE, **table)
    omitted = [naive.top(naive.kernel_matrix(X, X, **table), local + 1)[0][local] for X in shards]
    gap = -np.diff(naive.top(K, D + 1)[0])[-1]
    bound = DKPCA(D, KERNELS[name], local_components=local).theorem_1(shards)
    assert bound == pytest.approx(3 * np.sqrt(rows) * max(omitted) / gap, rel=1e-9)
    other = DKPCA(2, KERNELS["polynomial"])
    assert "bound" not in other.fit(shards, reference=other.central(shards)).metrics


def omitted_by(X, kernel, local):
    """The eigenvalue after D_m of a client's part, by a full decomposition."""
    values = naive.top(naive.kernel_matrix(X, X, **table_of(kernel)), len(X))[0]
    return max(values[local], 0.0) if local < len(X) else 0.0


@given(
    seed=st.integers(0, 2**16),
    rows=st.integers(3, 12),
    clients=st.integers(1, 6),
    D=st.integers(1, 11),
    local=st.integers(1, 12) | st.just("adaptive"),
    kernel=st.sampled_from([Linear(), *(RBF(gamma=g) for g in (0.01, 0.3, 3)), Laplacian(gamma=0.2)]),
    center=st.booleans(),
    wire=st.sampled_from(["float64", "float32"]),
)
def test_the_certificate_is_never_violated(seed, rows, clients, D, local, kernel, center, wire):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 6)) * rng.permutation(np.geomspace(1, 10 ** -rng.uniform(0, 3), 6))
    shards = cut(X, seed=seed, clients=clients)
    local = min(local, rows) if local != "adaptive" else local
    strategy = DKPCA(min(D, rows), kernel, local_components=local, center=center, certificate=True)
    metrics = strategy.fit(shards, reference=strategy.central(shards), wire=wire).metrics
    assert np.sqrt(metrics["error"]) <= metrics["certificate"] + 1e-12
    assert metrics["certificate"] <= np.sqrt(min(strategy.n_components, rows - strategy.n_components))


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize(("name", "local"), [("linear", 2), ("rbf", 20), ("laplacian", 40)])
def test_the_certificate_is_the_formula_of_what_clients_send(name, local, center):
    """It has no data: the reference of this test has them, and its error and theorem 1 stand on either side."""
    shards, D, kernel = np.array_split(WINE, 3, axis=1), 2, KERNELS[name]
    strategy = DKPCA(D, kernel, local_components=local, center=center, certificate=True)
    result = strategy.fit(shards, reference=strategy.central(shards))
    floats = naive.dkpca(shards, table_of(kernel), D, local, center)[2]
    assert result.ledger.floats_up == floats + 3
    assert result.metrics["local_components"] == floats / (len(WINE) + 1)
    values = naive.dkpca(shards, table_of(kernel), D + 1, local, center)[0]
    left_out = sum(omitted_by(X, kernel, local) for X in shards)
    expected = min(np.sqrt(D) * left_out / (values[D - 1] - values[D]), np.sqrt(D))
    assert result.model.certificate_ == pytest.approx(expected, rel=1e-9)
    plain = DKPCA(D, kernel, local_components=local, center=center).fit(shards)
    assert plain.ledger.floats_up == floats
    np.testing.assert_allclose(plain.model.eigenvalues_, result.model.eigenvalues_, rtol=1e-12)


def test_the_certificate_says_something_where_theorem_1_does_not():
    """Two directions are sqrt(2) apart at most; the certificate is smaller by sqrt(N / D) and by sum over M max."""
    X = StandardScaler().fit_transform(load_breast_cancer().data)[::3]
    strategy, shards = DKPCA(2, local_components=4, certificate=True), np.array_split(X, 5, axis=1)
    metrics = strategy.fit(shards, reference=strategy.central(shards)).metrics
    assert np.sqrt(metrics["error"]) < metrics["certificate"] < 0.5
    assert metrics["bound"] > np.sqrt(2)
