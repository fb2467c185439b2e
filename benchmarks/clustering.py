"""FK k-means at 200000 x 50 rows: seconds and memory of a federated run against plain NumPy loops.

``python benchmarks/clustering.py`` runs each in a process of its own, since the peak of memory is the process's.

- ``federated``: FKKMeans(solver="gram") with 5 clients on the local engine, messages serialised, clients in threads.
- ``plain``: the same arithmetic without messages: the clients' parts one after the other, features computed twice per
  iteration, so that they need no memory, and scikit-learn's k-means.
- ``kept``: the features kept from one iteration to the next instead, which takes n D floats more.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np

from fedkernel import RBF
from fedkernel.ground import row_blocks
from fedkernel.numerics import RandomFeatures, allot_samples, assign, coreset, fk_gamma, k_means, moments
from fedkernel.strategies import FKKMeans

K, D, T, CLIENTS, CORESET = 10, 50, 20, 5, 1000


def table(rows: int) -> np.ndarray:
    """Make ten overlapping clusters in 50 dimensions."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, 50))
    for first in range(0, rows, 10000):
        X[first : first + 10000] += (
            1.5 * np.random.default_rng(1).standard_normal((K, 50))[rng.integers(K, size=len(X[first : first + 10000]))]
        )
    return X


def federated(shards: list[np.ndarray]) -> np.ndarray:
    result = FKKMeans(K, K, n_features=D, iterations=T, accuracy=0, solver="gram", coreset_size=CORESET).fit(shards)
    return np.concatenate([result.outputs[client]["labels"] for client in range(CLIENTS)])


def plain(shards: list[np.ndarray], keep: bool = False) -> np.ndarray:
    kernel = RBF(gamma=fk_gamma(*moments(np.vstack(shards))))
    features = RandomFeatures(kernel, D, frequencies="orthogonal")
    columns = [np.empty((len(X), 0)) for X in shards]
    old: list[np.ndarray] = []
    penalty, M = 0.0, None
    for t in range(1, T + 1):
        eta = 1 / t
        now, before = features.map(50, t), features.map(50, t - 1)
        G, new = 0.0, []
        for client, X in enumerate(shards):
            if M is not None:
                B = np.empty((len(X), M.shape[1]))
                for rows in row_blocks(len(X)):
                    A = old[client][rows] if keep else before(X[rows])
                    B[rows] = np.hstack([A, columns[client][rows]]) @ M
                columns[client] = B
            if keep:
                new.append(np.empty((len(X), D)))
            for rows in row_blocks(len(X)):
                A = now(X[rows])
                if keep:
                    new[-1][rows] = A
                W = np.hstack([A, columns[client][rows]])
                G = G + W.T @ W
        old = new
        rank = columns[0].shape[1]
        w = np.concatenate([np.full(D, np.sqrt(eta / D)), np.full(rank, np.sqrt(1 - eta))])
        values, V = np.linalg.eigh(w[:, None] * G * w)
        values, V = values[::-1], V[:, ::-1]
        penalty = penalty or values[K + 1]
        above = values > eta * penalty
        M = w[:, None] * V[:, above] * np.sqrt((values[above] - eta * penalty) / values[above])
    M = M[:, :K] * np.sqrt((values[:K] + (1 - eta) * penalty) / (values[:K] - eta * penalty))
    last = features.map(50, T)
    H = []
    for client, X in enumerate(shards):
        H.append(np.empty((len(X), K)))
        for rows in row_blocks(len(X)):
            A = old[client][rows] if keep else last(X[rows])
            H[-1][rows] = np.hstack([A, columns[client][rows]]) @ M
    rng = np.random.default_rng(0)
    centers = [k_means(part, K, rng) for part in H]
    counts = allot_samples(np.array([assign(part, C)[1].sum() for part, C in zip(H, centers, strict=True)]), CORESET)
    sampled = [coreset(part, C, int(c), rng) for part, C, c in zip(H, centers, counts, strict=True)]
    common = k_means(
        np.vstack([one.points for one in sampled]),
        K,
        rng,
        weights=np.hstack([one.weights for one in sampled]),
        restarts=10,
    )
    return np.concatenate([assign(part, common)[0] for part in H])


RUNS = {"federated": federated, "plain": plain, "kept": lambda shards: plain(shards, keep=True)}


def measure(name: str, rows: int) -> dict[str, float]:
    shards = np.array_split(table(rows), CLIENTS)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    labels = RUNS[name](shards)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": seconds, "beyond the rows, MB": (peak - before) / 1e3, "clusters": len(np.unique(labels))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", choices=RUNS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        print(json.dumps(measure(arguments.only, arguments.rows)))
        return
    figures: dict[str, list[dict[str, float]]] = {name: [] for name in RUNS}
    for _ in range(arguments.repeat):
        for name in RUNS:  # in turn, so that a busy minute meets all of them
            command = [sys.executable, __file__, "--only", name, "--rows", str(arguments.rows)]
            figures[name].append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    best = {name: min(run["seconds"] for run in runs) for name, runs in figures.items()}
    for name, runs in figures.items():
        memory = max(one["beyond the rows, MB"] for one in runs)
        print(f"{name}: {best[name]:.2f} s, {best[name] / best['plain']:.2f} x plain, {memory:.0f} MB beyond the rows")


if __name__ == "__main__":
    main()
