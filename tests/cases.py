"""One table of pairs, each with what must hold for it; tests/test_pairs.py runs every property for every case."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

from fedkernel import RBF, Laplacian, Linear, Polynomial, Sigmoid
from fedkernel.strategy import KernelStrategy
from strategies import DKPCA, VFedAKPCA, VFedPCA

WINE = StandardScaler().fit_transform(load_wine().data)[::2]  # 89 x 13
N, CLIENTS = len(WINE), 4
SHARDS = np.array_split(WINE, CLIENTS, axis=1)


@dataclass(frozen=True)
class Case:
    """A pair, and what its paper or its numerics promise.

    Attributes
    ----------
    floats_up, floats_down : callable
        The paper's count for tables of N rows, from the result of a run.
    rotations : bool
        Whether rotating a client's own columns changes nothing.
    scaled : callable
        The strategy that gives the same vectors on data multiplied by a factor.
    """

    name: str
    strategy: KernelStrategy[Any]
    floats_up: Callable[[Any], int]
    floats_down: Callable[[Any], int]
    rotations: bool
    scaled: Callable[[float], KernelStrategy[Any]]

    def __str__(self) -> str:
        return self.name


def dkpca(name: str, kernel: Any, scaled: Callable[[float], Any], *, rotations: bool = True, **fields: Any) -> Case:
    """D_m (N + 1) floats from each client; with inner products, D_m is the rank of its part at most."""

    def up(result: Any) -> int:
        asked = fields["local_components"]
        inner = kernel.vertical != "product"
        if asked != "adaptive":
            return sum((min(asked, shard.shape[1]) if inner else asked) * (N + 1) for shard in SHARDS)
        return sum(whole_multiple(result.ledger.of_client(client).floats_up, N + 1) for client in range(CLIENTS))

    return Case(
        f"DKPCA {name}",
        DKPCA(3, kernel, **fields),
        up,
        lambda result: 0,
        rotations,
        lambda factor: DKPCA(3, scaled(factor), **fields),
    )


def whole_multiple(floats: int, unit: int) -> int:
    """Return the floats, which the adaptive rule allows to be any whole multiple of D_m = 1's."""
    assert floats % unit == 0
    assert floats >= unit
    return floats


def vfedpca(name: str, strategy: Any, rounds: int, *, rotations: bool = True, scaled: Any = None) -> Case:
    """T p k (N + 1) floats up; down T p k N, the last broadcast included and none before the first round."""
    k = strategy.n_components
    return Case(
        name,
        strategy,
        lambda result: rounds * CLIENTS * k * (N + 1),
        lambda result: rounds * CLIENTS * k * N,
        rotations,
        scaled or (lambda factor: strategy),
    )


def exact(name: str, strategy: Any, scaled: Any = None) -> Case:
    """One round of k (N + 1) up, R products of at most k N each way, and the last broadcast."""
    k = strategy.n_components

    def products(result: Any) -> int:
        return sum(row["floats_down"] for row in result.history if row["phase"] == "Multiply")

    return Case(
        name,
        strategy,
        lambda result: CLIENTS * k * (N + 1) + products(result),
        lambda result: products(result) + CLIENTS * k * N,
        True,
        scaled or (lambda factor: strategy),
    )


LONG = {"local_iterations": 400, "rounds": 3}  # long enough that the random start no longer shows

CASES = [
    dkpca("linear", Linear(), lambda c: Linear(), local_components=2),
    dkpca("linear, centred", Linear(), lambda c: Linear(), local_components=2, center=True),
    dkpca("linear, adaptive", Linear(), lambda c: Linear(), local_components="adaptive", epsilon=0.3),
    dkpca("RBF", RBF(gamma=0.05), lambda c: RBF(gamma=0.05 / c**2), local_components=12),
    dkpca("RBF, centred", RBF(gamma=0.05), lambda c: RBF(gamma=0.05 / c**2), local_components=12, center=True),
    dkpca("RBF, adaptive", RBF(gamma=0.05), lambda c: RBF(gamma=0.05 / c**2), local_components="adaptive"),
    dkpca("Laplacian", Laplacian(gamma=0.1), lambda c: Laplacian(gamma=0.1 / c), local_components=15, rotations=False),
    dkpca("polynomial", Polynomial(2, 0.1), lambda c: Polynomial(2, 0.1 / c**2), local_components=2),
    dkpca("sigmoid", Sigmoid(0.02, 0.1), lambda c: Sigmoid(0.02 / c**2, 0.1), local_components=2),
    vfedpca("VFedPCA", VFedPCA(**LONG), 3),
    vfedpca("VFedPCA, original", VFedPCA(update="original", **LONG), 3),
    vfedpca("VFedPCA, average, scaled weights", VFedPCA(merge="average", weight_scaling=True, **LONG), 3),
    vfedpca("VFedPCA, warm start, 2 components", VFedPCA(2, warm_start=True, **LONG), 3),
    vfedpca("VFedPCA, centred rows", VFedPCA(center="rows", **LONG), 3, rotations=False),
    exact("VFedPCA exact", VFedPCA(merge="exact")),
    exact("VFedPCA exact, 3 components", VFedPCA(3, merge="exact")),
    vfedpca(
        "VFedAKPCA RBF",
        VFedAKPCA(kernel=RBF(gamma=0.2), **LONG),
        3,
        scaled=lambda c: VFedAKPCA(kernel=RBF(gamma=0.2 / c**2), **LONG),
    ),
    vfedpca(
        "VFedAKPCA sigmoid",
        VFedAKPCA(kernel=Sigmoid(0.02, 0.1), **LONG),
        3,
        scaled=lambda c: VFedAKPCA(kernel=Sigmoid(0.02 / c**2, 0.1), **LONG),
    ),
    exact(
        "VFedAKPCA exact",
        VFedAKPCA(2, kernel=RBF(gamma=0.2), merge="exact"),
        scaled=lambda c: VFedAKPCA(2, kernel=RBF(gamma=0.2 / c**2), merge="exact"),
    ),
]
