"""What formulas say that is computed, against what runs and solvers do."""

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator

from clients.dkpca import DKPCAClient, FindLocalEigenpairs
from experiments.baselines import cohort
from fedkernel import RBF
from fedkernel.numerics import kernels, lanczos_width, leading_eigenpairs, sketch
from fedkernel.protocol.work import lanczos_blocks
from strategies import DKPCA, DisKPCA, FKKMeans, RFKKMeans, VFedAKPCA

RNG = np.random.default_rng(0)
WIDE, LONG = np.array_split(RNG.standard_normal((1000, 24)), 3, 1), np.array_split(RNG.standard_normal((3000, 12)), 3)
KERNEL = RBF(gamma=0.02)


@pytest.fixture
def counted(monkeypatch):
    """Return how many entries of float64 exp is taken of, and random features have, from now on."""
    exponentials, cosines = [], []  # appended to by several threads

    def counting(function, entries, times=1):
        def call(values, *more, **options):
            entries.append(times * np.size(values) * (values.dtype == np.float64))
            return function(values, *more, **options)

        return call

    monkeypatch.setattr(kernels, "np", SimpleNamespace(**vars(np) | {"exp": counting(np.exp, exponentials)}))
    monkeypatch.setattr(sketch, "cosines", counting(sketch.cosines, cosines))
    monkeypatch.setattr(sketch, "cosines_and_sines", counting(sketch.cosines_and_sines, cosines, 2))
    return lambda: {"exponentials": sum(exponentials), "cosines": sum(cosines)}


@pytest.mark.parametrize(
    "strategy",
    [
        DKPCA(2, KERNEL, local_components=5),
        VFedAKPCA(2, merge="eigenvalue", kernel=KERNEL, rounds=2),
        DisKPCA(3, KERNEL, n_adaptive=40, n_random_features=200, share_rows=True),
        FKKMeans(3, n_features=20, iterations=4, accuracy=0, solver="gram", coreset_size=30),
        FKKMeans(3, n_features=20, iterations=4, accuracy=0, solver="lanczos", coreset_size=30, dtype="float32"),
        RFKKMeans(3, n_features=20, coreset_size=30),
        RFKKMeans(3, n_features=20, coreset_size=30, width_factors=(0.5, 1, 2)),
    ],
    ids=lambda strategy: type(strategy).__name__,
)
def test_a_run_computes_as_many_exponentials_and_cosines_as_are_forecast(strategy, counted):
    shards = WIDE if strategy.partition == "vertical" else LONG
    computing = strategy.forecast(cohort(shards)).computing
    strategy.fit(shards)
    for kind, taken in counted().items():
        forecast = getattr(computing.sites, kind) + getattr(computing.coordinator, kind)
        # of a triangle, exp is taken in blocks of rows
        assert taken / 1.25 <= forecast <= taken * 1.25


@pytest.mark.parametrize(("columns", "pairs"), [(2, 10), (8, 50), (24, 50)])
def test_kernel_matrices_take_about_so_many_blocks(columns, pairs):
    X = np.hstack([RNG.standard_normal((1000, columns)), 4 * RNG.integers(2, size=(1000, 2))])
    K, widths = RBF(gamma=0.5 / X.var(axis=0).sum()).gram(X), []

    def multiply(V):
        widths.append(V.shape[1])
        return K @ V

    leading_eigenpairs(LinearOperator(K.shape, matvec=multiply, matmat=multiply, dtype=K.dtype), pairs)
    width = lanczos_width(len(K), pairs)
    assert 0.6 < lanczos_blocks(pairs, width) / widths.count(width) < 1.7


@pytest.mark.parametrize(("rows", "local"), [(1000, 10), (1000, 50), (500, 20), (400, 400), (400, "adaptive")])
def test_memory_of_dkpca_is_what_its_client_takes(rows, local):
    strategy, shard = DKPCA(2, KERNEL, local_components=local), RNG.standard_normal((rows, 20))
    fields = {"epsilon": 0.0005} if local == "adaptive" else {"n_components": local}
    tracemalloc.start()
    try:
        DKPCAClient(shard).find_local_eigenpairs(FindLocalEigenpairs(kernel=KERNEL, **fields))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0.8 < strategy.forecast(cohort([shard])).memory / peak < 1.3
