"""disKPCA on ten million rows that clients generate as they read them: seconds and memory against bare NumPy.

``python benchmarks/scale.py`` runs each in a process of its own, since the peak of memory is the process's.

- ``federated``: DisKPCA (RBF, k = 10, 224 landmarks, m = 500, float32) with 10 clients on the local engine, messages
  serialised, clients in threads.
- ``bare``: the arithmetic of its steps on the same blocks, float32, in as many threads: rows generated, random features
  with their cosine, summed up to t coordinates, sketch; kernel against 24 landmarks; against 224, sketch; against 224
  and the coefficients, which give the rows' coordinates.
- ``client``: the federated run of one client with its million rows, whose peak of memory is a client's.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import scipy.sparse

from fedkernel import RBF
from fedkernel.data import GeneratedTable
from fedkernel.ground import BLOCK_ROWS, blas_threads
from fedkernel.strategies import DisKPCA

D, M, T, P, K, Y = 28, 500, 50, 250, 10, 224
KERNEL = RBF(sigma=10.0)
RARE = 6 * np.random.default_rng(1).standard_normal((40, D), dtype=np.float32)
"""Centres of the rare clusters."""


def block(client: int, number: int, rows: int) -> np.ndarray:
    """Make a block of a client's rows: a blob, and one row in a hundred of one of 40 clusters."""
    rng = np.random.default_rng([client, number])
    X = rng.standard_normal((rows, D), dtype=np.float32)
    rare = rng.random(rows) < 0.01
    X[rare] += RARE[rng.integers(40, size=int(rare.sum()))]
    return X


def table(client: int, rows: int) -> GeneratedTable:
    """Make a client's table, of which only blocks exist."""

    def generate(number: int) -> np.ndarray:
        return block(client, number, min(BLOCK_ROWS, rows - number * BLOCK_ROWS))

    return GeneratedTable((rows, D), generate, BLOCK_ROWS)


def federated(rows: int, clients: int) -> dict[str, float]:
    """Run the pair; the history tells where the time went."""
    strategy = DisKPCA(K, KERNEL, n_adaptive=200, share_rows=True, dtype="float32")
    figures = strategy.fit([table(client, rows) for client in range(clients)])
    phases = {row["phase"]: round(row["seconds"], 2) for row in figures.history}
    return {"landmarks": len(figures.model.landmarks_), "floats_up": figures.ledger.floats_up, **phases}


def bare(rows: int, clients: int) -> dict[str, float]:
    """Do the arithmetic on the same blocks, as plain as NumPy has it."""
    rng = np.random.default_rng(0)
    W = (rng.standard_normal((D, M)) / 10).astype(np.float32)
    b = rng.uniform(0, 2 * np.pi, M).astype(np.float32)
    landmarks = [block(0, 0, BLOCK_ROWS)[:count] for count in (24, Y, Y)]
    ones = np.ones(M // T, np.float32)
    C = rng.standard_normal((Y, K)).astype(np.float32)

    def sketch(n: int, size: int, rng: np.random.Generator) -> scipy.sparse.csr_array:
        signs = rng.choice(np.array([-1, 1], np.float32), n)
        return scipy.sparse.csr_array((signs, (rng.integers(size, size=n), np.arange(n))), shape=(size, n))

    def kernel(X: np.ndarray, L: np.ndarray) -> np.ndarray:
        distances = np.square(X).sum(axis=1)[:, None] - 2 * X @ L.T + np.square(L).sum(axis=1)
        return np.exp(-np.float32(KERNEL.gamma) * distances)

    def work(client: int) -> None:
        rng = np.random.default_rng(client)
        points, values, coordinates = np.zeros((P, T)), np.zeros((Y, Y)), np.empty((rows, K))
        for step, L in enumerate((None, *landmarks)):
            for first in range(0, rows, BLOCK_ROWS):
                X = block(client, first // BLOCK_ROWS, min(BLOCK_ROWS, rows - first))
                if L is None:
                    E = (np.cos(X @ W + b).reshape(-1, M // T) @ ones).reshape(len(X), T)
                    points += sketch(len(X), P, rng) @ E
                elif step == 2:
                    values += sketch(len(X), Y, rng) @ kernel(X, L)
                elif step == 3:
                    coordinates[first : first + BLOCK_ROWS] = kernel(X, L) @ C
                else:
                    kernel(X, L)

    with blas_threads(1), ThreadPoolExecutor(min(clients, os.cpu_count() or 1)) as pool:
        list(pool.map(work, range(clients)))
    return {}


WAYS = {"federated": federated, "bare": bare, "client": federated}


def main() -> None:
    """Run all ways, each in a process of its own, and print seconds, rows per second and the peak of memory."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of each client")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--way", choices=WAYS, help="run only this one, in this process")
    chosen = parser.parse_args()
    if chosen.way:
        clients = 1 if chosen.way == "client" else chosen.clients
        idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.perf_counter()
        figures = WAYS[chosen.way](chosen.rows, clients)
        seconds = time.perf_counter() - began
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        spent = {"clients": clients, "seconds": seconds, "peak": peak / 1024, "idle": idle / 1024}
        print(json.dumps({**spent, **figures}))
        return
    for way in WAYS:
        command = [sys.executable, __file__, "--way", way, "--rows", str(chosen.rows), "--clients", str(chosen.clients)]
        figures = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        clients, seconds, peak, idle = (figures.pop(name) for name in ("clients", "seconds", "peak", "idle"))
        rate = chosen.rows * clients / seconds
        print(
            f"{way:10s} {seconds:7.1f} s, {rate:9.0f} rows/s, peak {peak:5.0f} MB ({idle:.0f} before)  {figures or ''}"
        )


if __name__ == "__main__":
    main()
