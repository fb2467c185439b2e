"""Seconds of each pair on the local engine against the bare arithmetic of its steps: `make bench`. Not a test.

    python benchmarks/bare.py [--quick] [--only "VFedPCA exact"] [--repeat 3]

The arithmetic is plain NumPy and SciPy, see `bare_methods.py`. Both, and scikit-learn's central counterpart where there
is one, run in turn in this process; the least of `--repeat` seconds counts, or the first where they are many. Results
must agree: up to the signs of vectors to rounding, or to the tolerance of an iterative solver; disKPCA, whose draws
differ, in what it captures.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import bare_methods as bare
import numpy as np
import scale
from live import Columns
from sklearn.decomposition import PCA, KernelPCA

from fedkernel import RBF
from fedkernel.ground import BLOCK_ROWS
from fedkernel.strategies import ADMMKPCA, DKPCA, DisKPCA, FKKMeans, PeerVFedPCA, VFedAKPCA, VFedPCA

CLIENTS, K, LOCAL, ITERATIONS, ROUNDS, TOL = 5, 5, 50, 10, 10, 1e-8
PAPER = {"merge": "eigenvalue", "update": "inplace", "local_iterations": ITERATIONS, "rounds": ROUNDS}

Shards = list[np.ndarray]
Way = Callable[[Any], Any]
Difference = Callable[[Any, Any], float]


@dataclass(frozen=True)
class Case:
    """A pair at three sizes, and at three smaller ones (`--quick`).

    Attributes
    ----------
    data : callable
        Makes what both ways work on, of a size.
    pair, plain : callable
        What is timed: each returns what there is to compare.
    difference : callable
        Of both results; `allowed` is the most.
    central : callable or None
        scikit-learn's way, all data in one place.
    """

    name: str
    sizes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    quick: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    data: Callable[..., Any]
    pair: Way
    plain: Way
    difference: Difference
    allowed: float
    central: Way | None = None


def clustered(rows: int, columns: int) -> np.ndarray:
    """Make ten clusters of rows."""
    rng = np.random.default_rng(0)
    return 1.5 * rng.standard_normal((10, columns))[rng.integers(10, size=rows)] + rng.standard_normal((rows, columns))


def spread(rows: int, columns: int) -> np.ndarray:
    """Make columns of which a few directions, in a row less and less, have most of the variance."""
    rng = np.random.default_rng(0)
    few = rng.standard_normal((rows, 20)) * 0.8 ** np.arange(20)
    return few @ rng.standard_normal((20, columns)) + 0.5 * rng.standard_normal((rows, columns))


def by_columns(make: Callable[[int, int], np.ndarray]) -> Callable[[int, int], Shards]:
    """Return a maker of tables that are cut into the clients' columns."""
    return lambda rows, columns: [part.copy() for part in np.array_split(make(rows, columns), CLIENTS, axis=1)]


def by_rows(rows: int, columns: int) -> Shards:
    """Make tables of some of the rows each."""
    return np.array_split(clustered(rows, columns), CLIENTS)


def subspaces(V: np.ndarray, W: np.ndarray) -> float:
    """Return the largest sine of an angle between what orthonormal columns span."""
    return float(np.linalg.norm(W - V @ (V.T @ W), 2))


def eigenpairs(ours: tuple[np.ndarray, np.ndarray], expected: tuple[np.ndarray, np.ndarray]) -> float:
    """Return how far eigenvalues are off, or their vectors' span."""
    off = np.abs(ours[0] - expected[0]).max() / np.abs(expected[0]).max()
    return max(float(off), subspaces(ours[1], expected[1]))


def directions(ours: Shards, expected: Shards) -> float:
    """Return the largest sine of an angle between columns."""
    pairs = zip(ours, expected, strict=True)
    return max(subspaces(V[:, [i]], W[:, [i]]) for V, W in pairs for i in range(V.shape[1]))


def like_rows(ours: tuple[Shards, Shards], expected: tuple[Shards, Shards]) -> float:
    """Return how far coordinates are off, up to signs; or the share of rows in another cluster, where it is more."""
    H, expected_H = np.vstack(ours[0]), np.vstack(expected[0])
    off = np.abs(np.abs(H) - np.abs(expected_H)).max() / np.abs(expected_H).max()
    return max(float(off), float(np.mean(np.concatenate(ours[1]) != np.concatenate(expected[1]))))


def width(shards: Shards) -> float:
    """Return a gamma of about the mean squared distance of whole rows."""
    return 1 / (2 * sum(float(X.var(axis=0).sum()) for X in shards))


def dkpca(shards: Shards) -> tuple[np.ndarray, np.ndarray]:
    model = DKPCA(10, RBF(gamma=width(shards)), local_components=LOCAL).fit(shards).model
    return model.eigenvalues_, model.eigenvectors_


def kernel_pca(shards: Shards) -> None:
    KernelPCA(10, kernel="rbf", gamma=width(shards), eigen_solver="arpack").fit(np.hstack(shards))


def exact(shards: Shards) -> tuple[np.ndarray, np.ndarray]:
    model = VFedPCA(K, tol=TOL).fit(shards).model
    return model.eigenvalues_, model.eigenvectors_


def pca(shards: Shards) -> None:
    PCA(K, svd_solver="covariance_eigh").fit_transform(np.hstack(shards))


def vfedpca(shards: Shards) -> Shards:
    return [VFedPCA(K, **PAPER).fit(shards).model.eigenvectors_]


def vfedakpca(shards: Shards) -> Shards:
    return [VFedAKPCA(K, kernel=RBF(width="columns"), **PAPER).fit(shards).model.eigenvectors_]


def peers(shards: Shards) -> Shards:
    strategy = PeerVFedPCA(K, graph="ring", **PAPER)
    outputs = strategy.fit(shards).outputs
    return [outputs[client]["eigenvectors"] for client in range(len(shards))]


def cells(clients: int, reach: int) -> list[list[int]]:
    """Return each node of a ring and its neighbours, so many on each side."""
    return [sorted((j + step) % clients for step in range(-reach, reach + 1)) for j in range(clients)]


def nodes(clients: int, rows: int, columns: int) -> Shards:
    return np.array_split(spread(clients * rows, columns), clients)


def admm(shards: Shards) -> Shards:
    kernel = RBF(gamma=width(shards[:1]))
    outputs = ADMMKPCA(kernel=kernel, neighbors=4, iterations=8, tol=0, share_rows=True).fit(shards).outputs
    return [outputs[node]["alpha"] for node in range(len(shards))]


def bare_admm(shards: Shards) -> Shards:
    return [a[:, None] for a in bare.admm(shards, cells(len(shards), 2), width(shards[:1]), 8)]


def alphas(ours: Shards, expected: Shards) -> float:
    return directions([a / np.linalg.norm(a) for a in ours], [a / np.linalg.norm(a) for a in expected])


def fk(solver: str) -> Callable[[Shards], tuple[Shards, Shards]]:
    strategy = FKKMeans(10, 10, n_features=50, iterations=10, accuracy=0, solver=solver, coreset_size=1000)

    def run(shards: Shards) -> tuple[Shards, Shards]:
        outputs = strategy.fit(shards).outputs
        return tuple([outputs[client][name] for client in range(CLIENTS)] for name in ("embedding", "labels"))

    return run


def bare_fk(shards: Shards) -> tuple[Shards, Shards]:
    return bare.fk_kmeans(shards, 10, 50, 10, 1000)


def bare_fk_by_lanczos(shards: Shards) -> tuple[Shards, Shards]:
    return bare.fk_kmeans(shards, 10, 50, 10, 1000, by_lanczos=True)


def diskpca(rows: int) -> np.ndarray:
    strategy = DisKPCA(scale.K, scale.KERNEL, n_adaptive=200, share_rows=True, dtype="float32")
    return strategy.fit([scale.table(client, rows) for client in range(10)]).model.eigenvalues_


def bare_diskpca(rows: int) -> np.ndarray:
    def read(client: int, number: int) -> np.ndarray:
        return scale.block(client, number, min(BLOCK_ROWS, rows - number * BLOCK_ROWS))

    return bare.diskpca(read, 10, -(-rows // BLOCK_ROWS), scale.KERNEL.gamma, scale.K, drawn=(24, 200))


def captured(ours: np.ndarray, expected: np.ndarray) -> float:
    return float(abs(ours.sum() / expected.sum() - 1))


TALL = ((5000, 400), (20000, 400), (80000, 400))
SHORT = ((2000, 100), (5000, 200), (20000, 400))
CASES = (
    Case(
        "DKPCA RBF",
        ((1000, 200), (2000, 200), (4000, 200)),
        ((500, 100), (1000, 200), (2000, 200)),
        by_columns(clustered),
        dkpca,
        lambda shards: bare.dkpca(shards, width(shards), 10, LOCAL),
        eigenpairs,
        1e-8,
        kernel_pca,
    ),
    Case(
        "VFedPCA exact",
        TALL,
        SHORT,
        by_columns(spread),
        exact,
        lambda shards: bare.vfedpca_exact(shards, K, ITERATIONS, TOL),
        eigenpairs,
        10 * TOL,
        pca,
    ),
    Case(
        "VFedPCA",
        TALL,
        SHORT,
        by_columns(spread),
        vfedpca,
        lambda shards: bare.vfedpca(shards, K, ITERATIONS, ROUNDS),
        directions,
        1e-8,
    ),
    Case(
        "VFedAKPCA",
        ((1000, 200), (2000, 200), (4000, 200)),
        ((500, 100), (1000, 200), (2000, 200)),
        by_columns(spread),
        vfedakpca,
        lambda shards: bare.vfedpca(shards, K, ITERATIONS, ROUNDS, kernel=True),
        directions,
        1e-8,
    ),
    Case(
        "peers' VFedPCA, ring",
        TALL,
        SHORT,
        by_columns(spread),
        peers,
        lambda shards: bare.vfedpca(shards, K, ITERATIONS, ROUNDS, cells=cells(CLIENTS, 1)),
        directions,
        1e-8,
    ),
    Case(
        "ADMM, ring of 4",
        ((10, 100, 784), (20, 100, 784), (20, 200, 784)),
        ((6, 50, 100), (10, 100, 784), (20, 100, 784)),
        nodes,
        admm,
        bare_admm,
        alphas,
        1e-8,
    ),
    Case(
        "FK k-means, gram, wide",
        ((5000, 784), (10000, 784), (30000, 784)),
        ((2500, 784), (5000, 784), (10000, 784)),
        by_rows,
        fk("gram"),
        bare_fk,
        like_rows,
        1e-6,
    ),
    Case(
        "FK k-means, gram, narrow",
        ((20000, 50), (60000, 50), (200000, 50)),
        ((10000, 50), (20000, 50), (60000, 50)),
        by_rows,
        fk("gram"),
        bare_fk,
        like_rows,
        1e-6,
    ),
    Case(
        "FK k-means, Lanczos",
        ((5000, 784), (10000, 784), (30000, 784)),
        ((2500, 784), (5000, 784), (10000, 784)),
        by_rows,
        fk("lanczos"),
        bare_fk_by_lanczos,
        like_rows,
        1e-4,
    ),
    Case(
        "disKPCA, float32",
        ((100_000,), (300_000,), (1_000_000,)),
        ((5_000,), (10_000,), (30_000,)),
        lambda rows: rows,
        diskpca,
        bare_diskpca,
        captured,
        0.03,
    ),
)


LONG = 20.0
"""Seconds; what takes more is measured once."""


def least(ways: dict[str, Way], data: Any, repeat: int) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the least seconds of each way, and the results; in turn, so that a busy minute meets all of them."""
    seconds: dict[str, float] = {}
    results: dict[str, Any] = {}
    for _ in range(repeat):
        for name, way in ways.items():
            if seconds.get(name, 0.0) > LONG:
                continue
            began = time.perf_counter()
            results[name] = way(data)
            spent = time.perf_counter() - began
            seconds[name] = min(spent, seconds.get(name, spent))
    return seconds, results


def rows_of(case: Case, *, quick: bool, repeat: int) -> Iterator[tuple[list[str], bool]]:
    """Measure a case; yield its rows of the table, each with whether the results agree."""
    for size in case.quick if quick else case.sizes:
        data = case.data(*size)
        ways = {"pair": case.pair, "bare": case.plain} | ({"central": case.central} if case.central else {})
        seconds, results = least(ways, data, repeat)
        off = case.difference(results["pair"], results["bare"])
        pair, plain = seconds["pair"], seconds["bare"]
        central = f"{seconds['central']:.3f}" if case.central else ""
        shape = " x ".join(map(str, size)) if len(size) > 1 else f"10 x {size[0]} x {scale.D}"
        row = [case.name, shape, f"{pair:.3f}", f"{plain:.3f}", f"{pair / plain:.2f}", central, f"{off:.0e}"]
        yield row, off <= case.allowed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller sizes: the table in a few minutes")
    parser.add_argument("--only", default="", help="pairs whose name holds this")
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    headings = ("pair", "size", "s", "bare s", "ratio", "scikit-learn s", "results differ by")
    table, wrong = Columns(headings, (24, 16, 7, 7, 5, 14, 17)), []
    for case in CASES:
        if arguments.only.lower() in case.name.lower():
            for row, agree in rows_of(case, quick=arguments.quick, repeat=arguments.repeat):
                table.add(row)
                wrong += [] if agree else [f"{case.name}, {row[1]}: the results differ by {row[-1]}"]
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
