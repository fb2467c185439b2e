"""One table of pairs, each with what must hold for it; strategies/test_pairs.py runs every property for every case."""

import functools
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from networks import admm, digits, spread
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

from fedkernel import RBF, ArcCosine, KernelClient, KernelStrategy, Laplacian, Linear, Polynomial, Sigmoid, strategies
from fedkernel.ground import load_class, own_short_names
from fedkernel.testing import Pair

PAIRS = {name: load_class(name, KernelStrategy, "pairs", "pair") for name in own_short_names("pairs")}
CLIENTS_OF_OURS = {name: load_class(name, KernelClient, "clients", "client") for name in own_short_names("clients")}
"""What is registered, by short name."""

WINE = StandardScaler().fit_transform(load_wine().data)[::2]  # 89 x 13
N, CLIENTS = len(WINE), 4


@dataclass(frozen=True, eq=False)
class Case:
    """A pair, and what its paper or its numerics promise.

    - `floats_up`, `floats_down`: the paper's count, from the result of a run.
    - `scaled`: the strategy that gives the same vectors on data multiplied by a factor.
    - `promises`: the tags that are others than the strategy's own, at these settings.
    - `table`, `components`: what the clients share out (N, d), and k, as many as are found.
    """

    name: str
    strategy: KernelStrategy[Any]
    floats_up: Callable[[Any], int]
    floats_down: Callable[[Any], int]
    scaled: Callable[[float], KernelStrategy[Any]]
    promises: Mapping[str, Any] = field(default_factory=dict)
    table: Any = field(default_factory=lambda: WINE)
    clients: int = CLIENTS
    components: int = 3

    def __str__(self) -> str:
        return self.name

    @property
    def axis(self) -> int:
        """Of the table, the one that clients share out."""
        return 1 if self.strategy.partition == "vertical" else 0

    def shards(self, factor: float = 1.0) -> list[Any]:
        """Divide the table, multiplied by a factor, among the clients."""
        return np.array_split(factor * self.table, self.clients, axis=self.axis)

    @functools.cached_property
    def pair(self) -> Pair:
        """What the shipped properties are tried on."""
        return Pair(self.strategy, self.shards(), replace(self.strategy.tags, **self.promises), self.name)


def dkpca(
    name: str,
    kernel: Any,
    scaled: Callable[[float], Any],
    *,
    rotations: bool = True,
    alone: bool = False,
    **fields: Any,
) -> Case:
    """D_m (N + 1) floats from each client, 1 more for a certificate; D_m of inner products is d_m at most.

    ``alone``: one client sends more pairs than are wanted, of the matrix that is decomposed: nothing is cut off.
    """

    def up(result: Any) -> int:
        pairs = fields["local_components"]
        inner = kernel.vertical != "product" or "upload" in fields
        more = CLIENTS if "certificate" in fields else 0
        if pairs != "adaptive":
            columns = [len(part) for part in np.array_split(np.arange(WINE.shape[1]), CLIENTS)]
            return sum((min(pairs, d_m) if inner else pairs) * (N + 1) for d_m in columns) + more
        return sum(whole_multiple(result.ledger.of_client(client).floats_up, N + 1) for client in range(CLIENTS))

    return Case(
        f"DKPCA {name}",
        strategies.DKPCA(3, kernel, **fields),
        up,
        lambda result: 0,
        lambda factor: strategies.DKPCA(3, scaled(factor), **fields),
        {"rotations": rotations, "alone": alone},
    )


def whole_multiple(floats: int, unit: int) -> int:
    """Return the floats, which the adaptive rule allows to be any whole multiple of D_m = 1's."""
    assert floats % unit == 0
    assert floats >= unit
    return floats


def vfedpca(name: str, strategy: Any, rounds: int, *, scaled: Any = None, **promises: Any) -> Case:
    """T p k (N + 1) floats up, with a kernel p means more; down T p k N, with the last broadcast and none at first."""
    k, means = strategy.n_components, CLIENTS * isinstance(strategy, strategies.VFedAKPCA)
    return Case(
        name,
        strategy,
        lambda result: rounds * CLIENTS * k * (N + 1) + means,
        lambda result: rounds * CLIENTS * k * N,
        scaled or (lambda factor: strategy),
        promises,
        components=k,
    )


def exact(name: str, strategy: Any, scaled: Any = None) -> Case:
    """One round of k (N + 1) up, R products of at most k N each way, and the last broadcast; means as `vfedpca`."""
    k, means = strategy.n_components, CLIENTS * isinstance(strategy, strategies.VFedAKPCA)

    def products(result: Any) -> int:
        return sum(row["floats_down"] for row in result.history if row["phase"] == "Multiply")

    return Case(
        name,
        strategy,
        lambda result: CLIENTS * k * (N + 1) + products(result) + means,
        lambda result: products(result) + CLIENTS * k * N,
        scaled or (lambda factor: strategy),
        components=k,
    )


K, D, T, CORESET = 3, 10, 2, 30
SIZES: dict[str, Any] = {"coreset": {"coreset_size": CORESET}, "lloyd": {"n_centers": CORESET}}


def clustering_floats(s: int, summed: bool) -> tuple[int, int]:
    """Return the floats up and down of the k-means: of a coreset, or of one cell and three times as many as points."""
    cells = 3 * CORESET + 1 if summed else 0
    up = CLIENTS * cells * (s + 2) if summed else CLIENTS + (CORESET + CLIENTS * K) * (s + 1)
    return up, CLIENTS * (cells + K) * s


def fk_kmeans(name: str, **fields: Any) -> Case:
    """Theorem 2 for the rounds of the iterations; besides the moments, the k-means, and the maps that go down.

    Every client has more rows than it is asked to sample, so that it sends its samples and k centres.
    """
    summed = "clusters" in fields
    fields = {"n_components": K} | fields
    strategy = strategies.FKKMeans(K, n_features=D, iterations=T, **SIZES[fields.get("clusters", "coreset")], **fields)

    def iterations(result: Any) -> list[tuple[int, int]]:
        """Return r_t and Q_t."""
        figures = [row["values"] for row in result.history if "t" in row.get("values", {})]
        return [
            (
                next(int(row["rank"]) for row in figures if row["t"] == t),
                len({row.get("lanczos_step") for row in figures if row["t"] == t}),
            )
            for t in range(1, T + 1)
        ]

    def up(result: Any) -> int:
        if not strategy.cem:
            products = sum((N + CLIENTS * D) * Q for _, Q in iterations(result))
        elif strategy.solver == "gram":
            products = sum(CLIENTS * (D + r) * (D + r + 1) // 2 for r, _ in iterations(result))
        else:
            products = sum(CLIENTS * (D + r) * Q for r, Q in iterations(result))
        s = result.model.eigenvalues_.size
        return CLIENTS * (WINE.shape[1] + 1) + products + clustering_floats(s, summed)[0]

    def down(result: Any) -> int:
        s = result.model.eigenvalues_.size
        ranks = [r for r, _ in iterations(result)]
        if strategy.cem:
            maps = sum((D + before) * r for before, r in itertools.pairwise(ranks)) + (D + ranks[-1]) * s
            vectors = 0 if strategy.solver == "gram" else sum((D + r) * Q for r, Q in iterations(result))
            iterating = CLIENTS * (maps + vectors)
        else:
            iterating = sum((N + CLIENTS * D) * Q for _, Q in iterations(result)) + N * s
        return CLIENTS * WINE.shape[1] + iterating + clustering_floats(s, summed)[1]

    return Case(name, strategy, up, down, lambda factor: strategy, components=strategy.dimensions)


def rfk_kmeans(name: str, **fields: Any) -> Case:
    """Moments, and the k-means of D dimensions."""
    strategy = strategies.RFKKMeans(K, n_features=D, **SIZES[fields.get("clusters", "coreset")], **fields)
    return Case(
        name,
        strategy,
        lambda result: CLIENTS * (WINE.shape[1] + 1) + clustering_floats(D, "clusters" in fields)[0],
        lambda result: CLIENTS * WINE.shape[1] + clustering_floats(D, "clusters" in fields)[1],
        lambda factor: strategy,
        components=D,
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
    exact = {"projection_size": "exact", "share_rows": True}
    strategy = strategies.DisKPCA(K, kernel, **fields, **exact)
    t, p, scored = fields["embedding_size"], fields["point_sketch_size"], fields["n_adaptive"] < N

    def up(result: Any) -> int:
        landmarks, rows = row_counts(result)
        scores = CLIENTS * (t * p + 2) if scored else 0
        return scores + rows + CLIENTS * landmarks * (landmarks + 1) // 2

    def down(result: Any) -> int:
        landmarks, rows = row_counts(result)
        return (CLIENTS * t * t if scored else 0) + (CLIENTS - 1) * rows + CLIENTS * landmarks * K

    again = lambda factor: strategies.DisKPCA(K, scaled(factor), **fields, **exact)  # noqa: E731
    # the last sketch is exact, so that eigenvalues are those of the clients' coordinates
    promises: dict[str, Any] = {"orthonormal": True}
    if whole:
        promises |= {"draws": 0.0, "signs": True, "rotations": True, "alone": True}
    return Case(name, strategy, up, down, again, promises)


def uniform_kpca(name: str, gamma: float, **fields: Any) -> Case:
    """d for each row drawn; with disLR |Y|^2 / 2 up; |Y| k down. No draw looks at the rows."""

    def strategy(gamma: float) -> Any:
        return strategies.UniformKPCA(K, RBF(gamma=gamma), share_rows=True, **fields)

    def up(result: Any) -> int:
        landmarks, rows = row_counts(result)
        return rows + (0 if strategy(gamma).solver == "batch" else CLIENTS * landmarks * (landmarks + 1) // 2)

    def down(result: Any) -> int:
        landmarks, rows = row_counts(result)
        return (CLIENTS - 1) * rows + CLIENTS * landmarks * K

    again = lambda factor: strategy(gamma / factor**2)  # noqa: E731
    promises = {"orthonormal": True} | ({} if fields["n_samples"] < N else {"draws": 0.0, "alone": True})
    return Case(name, strategy(gamma), up, down, again, promises)


def centroid_kpca(name: str, **fields: Any) -> Case:
    """2 d and T |Y| (d + 2) from each client, of local centres |Y| d from all; |Y|^2 / 2 of the centres with rows.

    Down T |Y| d and |Y| (d + k) to each.
    """
    d, starts = WINE.shape[1], fields["n_landmarks"]
    T = 0 if fields.get("centroids") == "local" else fields["rounds"]

    def strategy(gamma: float) -> Any:
        return strategies.CentroidKPCA(K, RBF(gamma=gamma), **fields)

    def up(result: Any) -> int:
        Y = len(result.model.landmarks_)
        centers = CLIENTS * (2 * d + T * starts * (d + 2)) if T else Y * d
        return centers + CLIENTS * Y * (Y + 1) // 2

    def down(result: Any) -> int:
        return CLIENTS * (T * starts * d + len(result.model.landmarks_) * (d + K))

    promises = {"orthonormal": True} | ({} if T else {"signs": True, "rotations": True})
    return Case(name, strategy(0.05), up, down, lambda factor: strategy(0.05 / factor**2), promises)


def centroid_kmeans(name: str, components: int, **fields: Any) -> Case:
    """The centres as of `centroid_kpca`, local ones with their numbers; down |Y| (d + s) and 3 s to each besides."""
    d, starts, T = WINE.shape[1], fields["n_landmarks"], fields.get("rounds", 0)

    def strategy(gamma: float) -> Any:
        return strategies.CentroidKMeans(3, RBF(gamma=gamma), **fields)

    def landmarks(result: Any) -> int:
        return len(result.model.embedding.landmarks)

    def down(result: Any) -> int:
        s = result.model.embedding.width
        return CLIENTS * (T * starts * d + landmarks(result) * (d + s) + 3 * s)

    return Case(
        name,
        strategy(0.05),
        lambda result: CLIENTS * (2 * d + T * starts * (d + 2)) if T else landmarks(result) * (d + 1),
        down,
        lambda factor: strategy(0.05 / factor**2),
        {} if T else {"signs": True, "rotations": True},
        components=components,
    )


def spectral_kmeans(name: str, components: Case, clusters: Any) -> Case:
    """The components' floats, and the k-means of k dimensions."""

    def strategy(components: Any) -> Any:
        return strategies.SpectralKMeans(K, components, clusters=clusters, **SIZES[clusters])

    tags = components.pair.tags
    return Case(
        name,
        strategy(components.strategy),
        lambda result: components.floats_up(result) + clustering_floats(K, clusters == "lloyd")[0],
        lambda result: components.floats_down(result) + clustering_floats(K, clusters == "lloyd")[1],
        lambda factor: strategy(components.scaled(factor)),
        {name: getattr(tags, name) for name in ("orthonormal", "draws", "signs", "rotations", "alone")},
    )


def decentralised(name: str, table: Any, make: Callable[[Any], Any], gamma: float, **promises: Any) -> Case:
    """ADMM of six nodes of n rows, each with four neighbours, T iterations in all, a letter over each of E edges.

    Up: n w floats of rows or features; for each component n of a start, and besides a bound from each node and a cosine
    for each edge, once the kernel's mean and the variance between means from each node; in an iteration n of
    projections and 2 n of the direction, and two figures of each node; between components n of directions. Down: the
    same letters, but for those of the last iteration, and for each component the signs of a cell.

    As long as no z is longer than 1, it cancels in the sums over cells which of the five others is not a neighbour.
    """
    strategy, nodes = make(RBF(gamma=gamma)), 6
    n, k = len(table) // nodes, strategy.n_components
    edges = nodes * 4
    E = edges * n
    width = table.shape[1] if strategy.exchange == "rows" else strategy.n_features

    def iterations(result: Any) -> int:
        return sum(row["phase"] == "UpdateDirection" for row in result.history)

    def up(result: Any) -> int:
        return E * width + 2 * nodes + k * (E + nodes + edges) + iterations(result) * (3 * E + 2 * nodes) + (k - 1) * E

    def down(result: Any) -> int:
        # the last letters of each component but the last go into the next one
        return E * width + k * (E + nodes + edges) + (3 * iterations(result) - 2) * E + (k - 1) * E

    again = lambda factor: make(RBF(gamma=gamma / factor**2))  # noqa: E731
    return Case(name, strategy, up, down, again, promises, table=table, clients=nodes, components=k)


def peers(name: str, strategy: Any, edges: int, scaled: Any = None, **promises: Any) -> Case:
    """T k (N + 1) floats over every edge, each way; the coordinator forwards them and sends nothing of its own.

    With a kernel up the mean of its values from each client, besides.

    Ten local iterations: the random start shows.
    """
    k = strategy.n_components
    floats = lambda result: strategy.rounds * edges * k * (N + 1)  # noqa: E731
    again = scaled or (lambda factor: strategy)
    means = 0 if strategy.kernel is None else CLIENTS
    return Case(name, strategy, lambda result: floats(result) + means, floats, again, promises, components=k)


RELAYED = strategies.PeerVFedPCA(graph="star", relay=True, merge="eigenvalue", update="inplace", rounds=5)


def tree_floats(result: Any) -> int:
    """Twice b N floats over each edge of the tree for every product, until the first 2 and all columns are used up."""
    products = sum(row["phase"] == "AddProducts" for row in result.history) // 3  # a round for each level
    return 2 * (CLIENTS - 1) * min(2 * products, 2 + WINE.shape[1]) * N


def relayed_floats(result: Any) -> int:
    """The vector of each client, with its number and value, goes once over each edge away from it."""
    return RELAYED.rounds * CLIENTS * (CLIENTS - 1) * (N + 2)


LONG = {"merge": "eigenvalue", "local_iterations": 400, "rounds": 2}  # long enough that no random start shows

CASES = [
    dkpca("linear", Linear(), lambda c: Linear(), local_components=2),
    dkpca("linear, adaptive", Linear(), lambda c: Linear(), local_components="adaptive", epsilon=0.3),
    dkpca("RBF", RBF(gamma=0.05), lambda c: RBF(gamma=0.05 / c**2), local_components=12, alone=True),
    dkpca("RBF, centred", RBF(gamma=0.05), lambda c: RBF(gamma=0.05 / c**2), local_components=12, center=True),
    dkpca("RBF, certified", RBF(0.05), lambda c: RBF(0.05 / c**2), local_components=12, alone=True, certificate=True),
    dkpca("RBF by inner products", RBF(0.05), lambda c: RBF(0.05 / c**2), local_components=2, upload="inner products"),
    dkpca("RBF, adaptive", RBF(gamma=0.05), lambda c: RBF(gamma=0.05 / c**2), local_components="adaptive", alone=True),
    dkpca("Laplacian", Laplacian(0.1), lambda c: Laplacian(0.1 / c), local_components=15, rotations=False, alone=True),
    dkpca("polynomial", Polynomial(2, 0.1), lambda c: Polynomial(2, 0.1 / c**2), local_components=2),
    dkpca("sigmoid", Sigmoid(0.02, 0.1), lambda c: Sigmoid(0.02 / c**2, 0.1), local_components=2),
    vfedpca("VFedPCA", strategies.VFedPCA(**LONG), 2),
    vfedpca("VFedPCA, in place", strategies.VFedPCA(update="inplace", **LONG), 2),
    vfedpca(
        "VFedPCA, average, scaled weights", strategies.VFedPCA(2, weight_scaling=True, **LONG | {"merge": "average"}), 2
    ),
    vfedpca("VFedPCA, warm start, 2 components", strategies.VFedPCA(2, warm_start=True, **LONG), 2),
    vfedpca("VFedPCA, centred rows", strategies.VFedPCA(center="rows", **LONG), 2, rotations=False, signs=False),
    exact("VFedPCA exact, 3 components", strategies.VFedPCA(3, merge="exact")),
    vfedpca(
        "VFedAKPCA RBF",
        strategies.VFedAKPCA(kernel=RBF(gamma=0.2), **LONG),
        2,
        scaled=lambda c: strategies.VFedAKPCA(kernel=RBF(gamma=0.2 / c**2), **LONG),
    ),
    vfedpca(
        "VFedAKPCA sigmoid",
        strategies.VFedAKPCA(kernel=Sigmoid(0.02, 0.1), **LONG),
        2,
        scaled=lambda c: strategies.VFedAKPCA(kernel=Sigmoid(0.02 / c**2, 0.1), **LONG),
    ),
    exact(
        "VFedAKPCA exact",
        strategies.VFedAKPCA(2, kernel=RBF(gamma=0.2), merge="exact"),
        scaled=lambda c: strategies.VFedAKPCA(2, kernel=RBF(gamma=0.2 / c**2), merge="exact"),
    ),
    fk_kmeans("FK k-means", solver="lanczos"),
    fk_kmeans("FK k-means, gram", solver="gram"),
    fk_kmeans("FK k-means, gram, cosine, by sums", features="cosine", n_components=2, clusters="lloyd"),
    fk_kmeans("FK k-means without CEM", cem=False),
    rfk_kmeans("RFK k-means"),
    rfk_kmeans("RFK k-means by sums", clusters="lloyd"),
    centroid_kpca("centroid KPCA", n_landmarks=20, rounds=2),
    centroid_kpca("centroid KPCA, local", n_landmarks=12, centroids="local"),
    centroid_kmeans("centroid k-means", 10, n_landmarks=15, rounds=2),
    centroid_kmeans("centroid k-means, local", 12, n_landmarks=12, centroids="local"),
    diskpca("disKPCA RBF", RBF(gamma=0.05), lambda c: RBF(gamma=0.05 / c**2)),
    diskpca("disKPCA arc-cosine", ArcCosine(0), lambda c: ArcCosine(0)),
    diskpca("disKPCA linear", Linear(), lambda c: Linear(), whole=True, embedding_size=WINE.shape[1]),
    diskpca("disKPCA, all rows", RBF(gamma=0.05), lambda c: RBF(gamma=0.05 / c**2), whole=True, n_adaptive=N),
    uniform_kpca("uniform KPCA", 0.05, n_samples=40, projection_size="exact"),
    uniform_kpca("uniform KPCA, batch, all rows", 0.05, n_samples=N, solver="batch"),
]
CASES += [
    spectral_kmeans(f"spectral k-means of {case}", case, "lloyd" if "uniform" in str(case) else "coreset")
    for case in CASES
    if str(case) in ("disKPCA RBF", "uniform KPCA")
]
MERGED = {"merge": "eigenvalue", "update": "inplace", "rounds": 5}
GRAPH = {"graph": "ring", "n_components": 2, **MERGED}
CASES += [
    decentralised("ADMM", np.vstack(digits(12, 6)), lambda own: admm(kernel=own, iterations=3), 0.001, order=True),
    decentralised(
        "ADMM, 2 components",
        np.vstack(spread(6, rows=12)),
        lambda kernel: admm(n_components=2, kernel=kernel, iterations=3, tol=1e-6),
        0.05,
    ),
    decentralised(
        "ADMM, features",
        np.vstack(digits(12, 6)),
        lambda kernel: admm(kernel=kernel, exchange="features", n_features=200, iterations=3),
        0.001,
        order=True,
        rotations=False,
        signs=False,
        alone=False,
    ),
    decentralised(
        "ADMM, the paper's schedule",
        np.vstack(digits(20, 6)),
        lambda kernel: admm(kernel=kernel, schedule="paper", iterations=3),
        0.001,
    ),
    peers("peer VFedPCA", strategies.PeerVFedPCA(**MERGED), CLIENTS * (CLIENTS - 1), draws=1e-2, alone=False),
    peers(
        "peer VFedPCA, RBF, ring",
        strategies.PeerVFedPCA(kernel=RBF(gamma=0.1), **GRAPH),
        CLIENTS * 2,
        lambda c: strategies.PeerVFedPCA(kernel=RBF(gamma=0.1 / c**2), **GRAPH),
        order=False,
        draws=1e-4,
        alone=False,
    ),
    Case(
        "peer VFedPCA, star, relays",
        RELAYED,
        relayed_floats,
        relayed_floats,
        lambda factor: RELAYED,
        {"draws": 1e-2, "alone": False},
        components=1,
    ),
    Case(
        "peer VFedPCA, ring, exact",
        strategies.PeerVFedPCA(2, graph="ring"),
        tree_floats,
        tree_floats,
        lambda factor: strategies.PeerVFedPCA(2, graph="ring"),
        components=2,
    ),
]

LONG_ONES = {"VFedPCA, average, scaled weights", "VFedPCA, warm start, 2 components", "VFedAKPCA sigmoid"}
LONG_ONES |= {"FK k-means without CEM", "ADMM, the paper's schedule", "spectral k-means of uniform KPCA"}
LONG_ONES |= {"VFedPCA, in place", "VFedPCA, centred rows", "peer VFedPCA, RBF, ring", "RFK k-means by sums"}
LONG_ONES |= {"disKPCA arc-cosine", "centroid k-means, local"}
"""Cases whose properties are drills: more settings of pairs that others show."""

FIRST = {case.strategy.client: case for case in reversed(CASES)}.values()
ONE_OF_EACH = [pytest.param(case, id=str(case), marks=[] if case in FIRST else pytest.mark.drill) for case in CASES]
"""The first case of each client, and the others where there is time: for what does not hang on a pair's settings."""
