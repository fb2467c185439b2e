"""One table of pairs, each with what must hold for it; tests/test_pairs.py runs every property for every case."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

from fedkernel import RBF, ArcCosine, Laplacian, Linear, Polynomial, Sigmoid
from fedkernel.metrics import recover_error
from fedkernel.result import Result
from fedkernel.strategy import KernelStrategy
from fedkernel.subspaces import orthonormal_basis, sin_theta_error
from strategies import DKPCA, DisKPCA, FKKMeans, RFKKMeans, SpectralKMeans, UniformKPCA, VFedAKPCA, VFedPCA

WINE = StandardScaler().fit_transform(load_wine().data)[::2]  # 89 x 13
N, CLIENTS = len(WINE), 4


@dataclass(frozen=True, eq=False)
class Case:
    """A pair, and what its paper or its numerics promise.

    Attributes
    ----------
    floats_up, floats_down : callable
        The paper's count for tables of N rows, from the result of a run.
    rotations : bool
        Whether rotating a client's own columns (a horizontal partition: all clients' alike) changes nothing.
    scaled : callable
        The strategy that gives the same vectors on data multiplied by a factor.
    draws : bool
        Whether the result stands on rows that are drawn by client and position: in another order, on others.
    """

    name: str
    strategy: KernelStrategy[Any]
    floats_up: Callable[[Any], int]
    floats_down: Callable[[Any], int]
    rotations: bool
    scaled: Callable[[float], KernelStrategy[Any]]
    draws: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def axis(self) -> int:
        """Of the table, the one that clients share out."""
        return 1 if self.strategy.partition == "vertical" else 0

    def shards(self, X: Any = WINE) -> list[Any]:
        """Divide a table among the clients."""
        return np.array_split(X, CLIENTS, axis=self.axis)

    def vectors(self, result: Any, order: Any = range(CLIENTS)) -> Any:
        """Return orthonormal columns, (N, k), that stand for what was found; ``order``: who held which shard."""
        return result.model.eigenvectors_

    def errors(self, result: Any) -> tuple[float, list[float]]:
        """Return how far the result is from the central one, and how far each client is on its own."""
        reference = self.strategy.central(self.shards()).eigenvectors_
        alone = [self.strategy.central([shard]).eigenvectors_ for shard in self.shards()]
        error = sin_theta_error(reference, result.model.eigenvectors_)
        return error, [sin_theta_error(reference, V) for V in alone]


class ClusterCase(Case):
    """A pair that embeds horizontally divided rows and clusters them; the coordinates are with the sites."""

    def vectors(self, result: Any, order: Any = range(CLIENTS)) -> Any:
        holder = {shard: client for client, shard in enumerate(order)}
        H = np.vstack([result.outputs[holder[shard]]["embedding"] for shard in range(CLIENTS)])
        values = result.model.eigenvalues_
        # FK k-means: u = h / sqrt(l); random features alone are not eigenvectors of anything
        return orthonormal_basis(H) if values is None else H / np.sqrt(values)

    def errors(self, result: Any) -> tuple[float, list[float]]:
        reference = self.strategy.central(self.shards()).training_
        alone = [self.strategy.central([shard]).transform(WINE) for shard in self.shards()]
        H = np.vstack([result.outputs[client]["embedding"] for client in range(CLIENTS)])
        return recover_error(H, reference), [recover_error(other, reference) for other in alone]


class ComponentsCase(ClusterCase):
    """A pair that finds components of horizontally divided rows; compared in feature space."""

    def errors(self, result: Any) -> tuple[float, list[float]]:
        shards = self.shards()
        reference = self.strategy.central(shards)
        models = [result.model, *(self.strategy.central([shard]) for shard in shards)]
        error, *alone = [self.strategy.judge(Result(model), shards, reference)["error"] for model in models]
        return error, alone


def dkpca(name: str, kernel: Any, scaled: Callable[[float], Any], *, rotations: bool = True, **fields: Any) -> Case:
    """D_m (N + 1) floats from each client; with inner products, D_m is the rank of its part at most."""

    def up(result: Any) -> int:
        asked = fields["local_components"]
        inner = kernel.vertical != "product"
        if asked != "adaptive":
            columns = [len(part) for part in np.array_split(np.arange(WINE.shape[1]), CLIENTS)]
            return sum((min(asked, d_m) if inner else asked) * (N + 1) for d_m in columns)
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


K, D, T, CORESET = 3, 10, 3, 30


def fk_kmeans(name: str, **fields: Any) -> Case:
    """Theorem 2 for the rounds of the iterations; besides the moments, the k-means, and the maps that go down.

    Every client has more rows than it is asked to sample, so that it sends its samples and k centres.
    """
    strategy = FKKMeans(K, n_features=D, iterations=T, coreset_size=CORESET, **fields)

    def iterations(result: Any) -> list[tuple[int, int]]:
        """Return r_t and Q_t."""
        told = [row["values"] for row in result.history if "values" in row]
        return [
            (
                next(int(row["rank"]) for row in told if row["t"] == t),
                len({row.get("lanczos_step") for row in told if row["t"] == t}),
            )
            for t in range(1, T + 1)
        ]

    def up(result: Any) -> int:
        if strategy.solver == "gram":
            products = sum(CLIENTS * (D + r) * (D + r + 1) // 2 for r, _ in iterations(result))
        elif strategy.cem:
            products = sum(CLIENTS * (D + r) * Q for r, Q in iterations(result))
        else:
            products = sum((N + CLIENTS * D) * Q for _, Q in iterations(result))
        s = result.model.eigenvalues_.size
        return CLIENTS * (WINE.shape[1] + 1) + products + CLIENTS + (CORESET + CLIENTS * K) * (s + 1)

    def down(result: Any) -> int:
        s = result.model.eigenvalues_.size
        ranks = [r for r, _ in iterations(result)]
        if strategy.cem:
            maps = sum((D + before) * r for before, r in itertools.pairwise(ranks)) + (D + ranks[-1]) * s
            vectors = 0 if strategy.solver == "gram" else sum((D + r) * Q for r, Q in iterations(result))
            iterating = CLIENTS * (maps + vectors)
        else:
            iterating = sum((N + CLIENTS * D) * Q for _, Q in iterations(result)) + N * s
        return CLIENTS * WINE.shape[1] + iterating + CLIENTS * K * s

    return ClusterCase(name, strategy, up, down, False, lambda factor: strategy)


def rfk_kmeans(name: str, **fields: Any) -> Case:
    """Moments, and the k-means of D dimensions."""
    strategy = RFKKMeans(K, n_features=D, coreset_size=CORESET, **fields)
    return ClusterCase(
        name,
        strategy,
        lambda result: CLIENTS * (WINE.shape[1] + 1) + CLIENTS + (CORESET + CLIENTS * K) * (D + 1),
        lambda result: CLIENTS * WINE.shape[1] + CLIENTS * K * D,
        False,
        lambda factor: strategy,
    )


def row_counts(result: Any) -> tuple[int, int]:
    """Return |Y|, and floats of the rows that are drawn: each comes up once."""
    landmarks = result.ledger.rows_up
    return landmarks, landmarks * WINE.shape[1]


def diskpca(name: str, kernel: Any, scaled: Callable[[float], Any], *, whole: bool = False, **fields: Any) -> Case:
    """Algorithm 4: t p and two sums up and t r down for each client; d for each landmark; |Y|^2 / 2 up and |Y| k down.

    The last sketch is exact, so that the eigenvalues are those of the clients' coordinates. Where all rows are asked
    for there is neither embedding nor sum. ``whole``: the landmarks span all rows, so that nothing depends on them.
    """
    fields = {"n_adaptive": 30, "embedding_size": 12, "point_sketch_size": 11, "n_random_features": 600} | fields
    made = {"projection_size": "exact", "share_rows": True}
    strategy = DisKPCA(K, kernel, **fields, **made)
    t, p, scored = fields["embedding_size"], fields["point_sketch_size"], fields["n_adaptive"] < N

    def up(result: Any) -> int:
        landmarks, rows = row_counts(result)
        scores = CLIENTS * (t * p + 2) if scored else 0
        return scores + rows + CLIENTS * landmarks * (landmarks + 1) // 2

    def down(result: Any) -> int:
        landmarks, rows = row_counts(result)
        return (CLIENTS * t * t if scored else 0) + (CLIENTS - 1) * rows + CLIENTS * landmarks * K

    again = lambda factor: DisKPCA(K, scaled(factor), **fields, **made)  # noqa: E731
    return ComponentsCase(name, strategy, up, down, whole, again, draws=not whole)


def uniform_kpca(name: str, gamma: float, **fields: Any) -> Case:
    """d for each row drawn; with disLR |Y|^2 / 2 up; |Y| k down. No draw looks at the rows."""

    def strategy(gamma: float) -> Any:
        return UniformKPCA(K, RBF(gamma=gamma), share_rows=True, **fields)

    def up(result: Any) -> int:
        landmarks, rows = row_counts(result)
        return rows + (0 if strategy(gamma).solver == "batch" else CLIENTS * landmarks * (landmarks + 1) // 2)

    def down(result: Any) -> int:
        landmarks, rows = row_counts(result)
        return (CLIENTS - 1) * rows + CLIENTS * landmarks * K

    again = lambda factor: strategy(gamma / factor**2)  # noqa: E731
    return ComponentsCase(name, strategy(gamma), up, down, True, again, draws=fields["n_samples"] < N)


def spectral_kmeans(name: str, components: Case) -> Case:
    """The components' floats, and the k-means of k dimensions."""

    def strategy(components: Any) -> Any:
        return SpectralKMeans(K, components, coreset_size=CORESET)

    return ClusterCase(
        name,
        strategy(components.strategy),
        lambda result: components.floats_up(result) + CLIENTS + (CORESET + CLIENTS * K) * (K + 1),
        lambda result: components.floats_down(result) + CLIENTS * K * K,
        components.rotations,
        lambda factor: strategy(components.scaled(factor)),
        draws=components.draws,
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
    fk_kmeans("FK k-means"),
    fk_kmeans("FK k-means, gram", solver="gram"),
    fk_kmeans("FK k-means, gram, cosine", solver="gram", features="cosine", n_components=2),
    fk_kmeans("FK k-means without CEM", cem=False),
    rfk_kmeans("RFK k-means"),
    diskpca("disKPCA RBF", RBF(gamma=0.05), lambda c: RBF(gamma=0.05 / c**2)),
    diskpca("disKPCA polynomial", Polynomial(2, 0.1), lambda c: Polynomial(2, 0.1 / c**2)),
    diskpca("disKPCA arc-cosine", ArcCosine(0), lambda c: ArcCosine(0)),
    diskpca("disKPCA linear", Linear(), lambda c: Linear(), whole=True, embedding_size=WINE.shape[1]),
    diskpca("disKPCA, all rows", RBF(gamma=0.05), lambda c: RBF(gamma=0.05 / c**2), whole=True, n_adaptive=N),
    uniform_kpca("uniform KPCA", 0.05, n_samples=40, projection_size="exact"),
    uniform_kpca("uniform KPCA, batch, all rows", 0.05, n_samples=N, solver="batch"),
]
CASES += [
    spectral_kmeans(f"spectral k-means of {case}", case)
    for case in CASES
    if str(case) in ("disKPCA RBF", "disKPCA, all rows", "uniform KPCA")
]
