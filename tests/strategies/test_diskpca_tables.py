"""disKPCA gives the same on tables of every kind, and says what is wrong with one that it cannot take."""

from functools import cache

import numpy as np
import pytest
from diskpca_runs import DIGITS, KERNELS, SMALL, WIDE, K, as_csr, dense, shards_of, strategy
from scipy import sparse
from sites import pooled

from fedkernel import RBF, ArcCosine, InputError, Laplacian, Linear, Polynomial, Sigmoid
from fedkernel.data import GeneratedTable
from fedkernel.ground import BLOCK_ROWS
from fedkernel.strategies import DisKPCA

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
    refused(
        "n_random_features = 40, but must be at least embedding_size = 50",
        lambda: strategy(embedding_size=50, n_random_features=40),
    )
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
