"""Idle cores: how many help decides nothing but the time, and nobody helps whose cores are all in use."""

import threading
import time

import numpy as np
import pytest

from fedkernel import DKPCA, RBF
from fedkernel.ground import blas_threads, parallel
from fedkernel.numerics import SubspaceEmbedding, leading_eigenpairs, symmetric_by_rows
from fedkernel.numerics.matrix_products import by_columns, center_gram, tall_product, transposed_product

rng = np.random.default_rng(0)
X, F = rng.standard_normal((1100, 12)), rng.standard_normal((9000, 60))
WIDE = rng.standard_normal((2100, 4200))
KERNEL = RBF(gamma=0.1)


def centred():
    K = KERNEL.gram(X)
    center_gram(K)
    return K


PRIMITIVES = {
    "kernel matrix, centred": centred,
    "rows by columns": lambda: by_columns(WIDE)(F[:8, :1].repeat(2100, 1)),
    "eigenpairs": lambda: leading_eigenpairs(centred(), 5).vectors,
    "symmetric": lambda: symmetric_by_rows(1100, lambda rows, columns: X[rows] @ X[columns].T),
    "transposed product": lambda: transposed_product(F, F[:, :5]),
    "tall product": lambda: tall_product(F, F[:60, :3]),
    "features": lambda: SubspaceEmbedding(kernel=KERNEL, size=50, n_features=500).map(12)(X),
    "a run": lambda: DKPCA(2, local_components=3, kernel=KERNEL).fit([X[:, :6], X[:, 6:]]).model.eigenvectors_,
}


@pytest.mark.parametrize("name", PRIMITIVES)
def test_any_number_of_cores_gives_the_same_bits(monkeypatch, name):
    results = []
    for count in (1, 2, 4):
        monkeypatch.setattr(parallel, "_cores", parallel._Cores(count))
        with blas_threads(1), parallel.reserve_core():
            results.append(PRIMITIVES[name]())
        assert parallel._cores.busy == 0
    assert all(np.array_equal(results[0], other) for other in results[1:])


def test_helpers_count_the_seconds_of_their_own_work(monkeypatch):
    monkeypatch.setattr(parallel, "_cores", parallel._Cores(4))
    monkeypatch.setattr(parallel.time, "thread_time", lambda: 5.0)
    with parallel.reserve_core():
        began = parallel.computing_seconds()
        parallel.for_each(time.sleep, [0.001] * 8)
        assert parallel.computing_seconds() == began


@pytest.mark.parametrize("ahead", [1, 2, 3])
def test_results_come_in_the_order_of_their_blocks_and_no_more_are_begun_than_fit(monkeypatch, ahead):
    for count in (1, 2, 4):
        monkeypatch.setattr(parallel, "_cores", parallel._Cores(count))
        with parallel.reserve_core():
            blocks = iter(range(20))
            results = parallel.map_in_order(lambda block: block**2, blocks, ahead=ahead)
            assert next(results) == 0
            assert next(blocks) == (ahead * count if count > 1 else 1)
            assert [*parallel.map_in_order(lambda block: block**2, range(7), ahead=ahead)] == [n**2 for n in range(7)]


def test_helpers_are_as_many_as_cores_are_idle(monkeypatch):
    together = threading.Barrier(2)
    monkeypatch.setattr(parallel, "_cores", parallel._Cores(2))
    with parallel.reserve_core():
        parallel.for_each(lambda _: together.wait(10), range(2))  # would wait in vain in one thread
        with pytest.raises(ZeroDivisionError):
            parallel.for_each(lambda number: 1 / (number - 3), range(6))
        parallel._cores.change(1)  # another client
        names = set()
        parallel.for_each(lambda _: names.add(threading.current_thread().name), range(9))
    assert names == {threading.current_thread().name}
