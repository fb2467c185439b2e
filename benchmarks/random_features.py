"""Measure orthogonal random features against independent ones: the tables in docs/explanation/features.md.

Run as `FEDKERNEL_DATA=FOLDER python benchmarks/random_features.py [--seeds 10] [--only TABLE]`, where the folder has
mnist5k.npz, mushrooms.npz and satellite.npz; 10 minutes on one processor. Prints in Markdown, each a mean over seeds
with its standard error: how far A A^T / D is from the kernel matrix of 500 rows, ||K - A A^T / D||_F / ||K||_F, for
digits' leading principal axes, all of its 64 columns and MNIST's 784; the recover error of FK k-means after 5 and 20
iterations; what disKPCA's components leave of the kernel matrix's trace, relative to what the best leave, and the same
by the number of features; and how similar ADMM's component at the nodes is to that of all rows. The width is FK
k-means' default, or a third of it: narrow. Of structured frequencies, on MNIST's 256 leading principal axes and its
784 columns: processor time and error of the three ways, and processor seconds of whole runs.
"""

import argparse
import contextlib
import dataclasses
import io
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from fedkernel.data import load
from fedkernel.ground import blas_threads
from fedkernel.numerics import RBF, ArcCosine, Laplacian, Polynomial, RandomFeatures
from fedkernel.strategies import ADMMKPCA, DisKPCA, FKKMeans

WAYS = ("independent", "orthogonal")
ALL_WAYS = (*WAYS, "structured")
WIDTHS = {"default": 1.0, "narrow": 9.0}


def rows(name: str, count: int) -> np.ndarray:
    """Return so many rows of a data set, in an order of their own."""
    X = load_digits().data if name == "digits" else load(f"npz:{name}").X
    return X[np.random.default_rng(0).permutation(len(X))[:count]]


def kernel_of(X: np.ndarray, factor: float = 1.0) -> RBF:
    """Return the kernel of FK k-means' default width, half of one over the mean squared distance, or of another."""
    return RBF(gamma=factor / (4 * X.var(axis=0).sum()))


def first_axes(X: np.ndarray, d: int) -> np.ndarray:
    """Return the coordinates of rows along their first principal axes."""
    centred = X - X.mean(axis=0)
    return centred @ np.linalg.svd(centred, full_matrices=False)[2][:d].T


def cells(figures: dict[str, Sequence[float]]) -> str:
    """Return mean and standard error of both ways, and the ratio of the means."""
    ratio = np.mean(figures["orthogonal"]) / np.mean(figures["independent"])
    return " | ".join([*map(cell, figures.values()), f"{ratio:.2f}"])


def cell(own: Sequence[float]) -> str:
    """Return mean and standard error."""
    return f"{np.mean(own):.3g} ± {np.std(own, ddof=1) / np.sqrt(len(own)):.1g}"


def errors_of(X: np.ndarray, features: Sequence[RandomFeatures]) -> list[float]:
    """Return how far each of some features is from the kernel matrix."""
    K = features[0].kernel.gram(X)
    estimates = (A @ A.T / A.shape[1] for A in (own.map(X.shape[1])(X) for own in features))
    return [float(np.linalg.norm(K - estimate) / np.linalg.norm(K)) for estimate in estimates]


def kernel_errors(seeds: range) -> None:
    heads = [f"{form}: independent | orthogonal | ratio" for form in ("pairs", "cosines")]
    print(f"\n| columns | width | D | {' | '.join(heads)} |")
    print("|---|---|---|---|---|---|---|---|---|")
    digits = rows("digits", 500)
    tables = {d: first_axes(digits, d) for d in (1, 2, 8, 28)} | {64: digits, 784: rows("mnist5k", 500)}
    for d, X in tables.items():
        for width, factor in WIDTHS.items():
            kernel = kernel_of(X, factor)
            for D in (50, 200, 2000):
                texts = []
                for form in ("pairs", "cosine"):
                    drawn = {way: [RandomFeatures(kernel, D, form, seed, way) for seed in seeds] for way in WAYS}
                    texts.append(cells({way: errors_of(X, own) for way, own in drawn.items()}))
                print(f"| {d} | {width} | {D} | {' | '.join(texts)} |", flush=True)


def runs(strategy: Any, shards: Sequence[np.ndarray], seeds: range) -> dict[str, list[Any]]:
    """Return the results of a strategy with both ways, and their metrics, by the central answer."""
    reference, results = strategy.central(shards), {}
    for way in WAYS:
        either = dataclasses.replace(strategy, frequencies=way)
        with contextlib.redirect_stderr(io.StringIO()):
            results[way] = [either.fit(shards, seed=seed, reference=reference) for seed in seeds]
    return results


def errors_of_fk_kmeans(seeds: range) -> None:
    print("\n| rows | D | t | floats up | independent | orthogonal | ratio |\n|---|---|---|---|---|---|---|")
    for name, k in (("digits", 10), ("mushrooms", 2), ("mnist5k", 10)):
        shards = np.array_split(rows(name, 2000), 5)
        for D in (20, 50, 100, 200):
            for T in (5, 20):
                strategy = FKKMeans(k, k, n_features=D, iterations=T, accuracy=0, solver="gram", coreset_size=100)
                results = runs(strategy, shards, seeds)
                floats = np.mean([result.ledger.floats_up for own in results.values() for result in own])
                errors = {way: [result.metrics["recover_error"] for result in own] for way, own in results.items()}
                print(f"| {name} | {D} | {T} | {floats:,.0f} | {cells(errors)} |", flush=True)


def errors_of_diskpca(seeds: range) -> None:
    print("\n| rows | width | t | landmarks | floats up | independent | orthogonal | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for name in ("digits", "mnist5k"):
        shards = np.array_split(rows(name, 1000), 5)
        for width, factor in WIDTHS.items():
            kernel = kernel_of(np.vstack(shards), factor)
            for t in (20, 50):
                for more in (0, 50):
                    sizes = {"n_adaptive": more, "n_leverage": 40, "embedding_size": t, "n_random_features": 2000}
                    strategy = DisKPCA(10, kernel, **sizes, share_rows=True, embed=False)
                    results = runs(strategy, shards, seeds)
                    floats = np.mean([result.ledger.floats_up for own in results.values() for result in own])
                    errors = {way: [result.metrics["error_ratio"] for result in own] for way, own in results.items()}
                    print(f"| {name} | {width} | {t} | {40 + more} | {floats:,.0f} | {cells(errors)} |", flush=True)


def with_rare_clusters(n: int, d: int = 28) -> np.ndarray:
    """Return rows of 24 clusters, each with six tenths of the rows of the one before, the last of them a row alone."""
    rng = np.random.default_rng(1)
    sizes = np.maximum(1, (0.4 * n * 0.6 ** np.arange(24)).astype(int))
    sizes[0] += n - sizes.sum()
    return np.vstack([4 * rng.normal(size=d) + 0.5 * rng.normal(size=(size, d)) for size in sizes])


def numbers_of_diskpca(seeds: range) -> None:
    numbers = (100, 250, 500, 1000, 2000)
    print(f"\n| rows | kernel | landmarks | {' | '.join(f'm = {m}' for m in numbers)} |")
    print(f"|---|---|---|{len(numbers) * '---|'}")
    tables = {name: rows(name, 1500) for name in ("digits", "mnist5k", "satellite")} | {
        "rare": with_rare_clusters(1500)
    }
    for name, X in tables.items():
        shards = np.array_split(X[np.random.default_rng(0).permutation(len(X))], 5)
        kernels = {f"RBF, {width}": kernel_of(X, factor) for width, factor in WIDTHS.items()}
        if name in {"digits", "rare"}:
            far = float(np.abs(X - X.mean(axis=0)).sum(axis=1).mean())
            gamma = 1 / float(np.square(X).sum(axis=1).mean())
            kernels |= {"Laplacian": Laplacian(gamma=1 / far), "polynomial": Polynomial(degree=4, gamma=gamma)}
            kernels |= {"arc-cosine": ArcCosine(degree=2)}
        for kernel_name, kernel in kernels.items():
            for more in (0, 50):
                strategy = DisKPCA(10, kernel, n_adaptive=more, share_rows=True, embed=False)
                reference, texts = strategy.central(shards), []
                for m in numbers:
                    with contextlib.redirect_stderr(io.StringIO()):
                        results = [
                            dataclasses.replace(strategy, n_random_features=m).fit(shards, seed=s, reference=reference)
                            for s in seeds
                        ]
                    errors = [result.metrics["error_ratio"] for result in results]
                    texts.append(cell(errors))
                print(f"| {name} | {kernel_name} | {24 + more} | {' | '.join(texts)} |", flush=True)


def similarities_of_admm(seeds: range) -> None:
    print("\n| rows | features | independent | orthogonal | ratio |\n|---|---|---|---|---|")
    for name in ("digits", "mnist5k"):
        shards = np.array_split(rows(name, 600), 10)
        kernel = kernel_of(np.vstack(shards))
        for m in (100, 500, 2000):
            strategy = ADMMKPCA(kernel=kernel, exchange="features", n_features=m)
            results = runs(strategy, shards, seeds)
            angles = {way: [1 - result.metrics["similarity"] for result in own] for way, own in results.items()}
            print(f"| {name} | {m} | {cells(angles)} |", flush=True)


def least_seconds(calls: dict[str, Callable[[], Any]], repetitions: int = 5) -> dict[str, float]:
    """Return the least processor seconds of each call, of several in turn."""
    seconds = dict.fromkeys(calls, np.inf)
    for _ in range(repetitions):
        for name, call in calls.items():
            begin = time.process_time()
            call()
            seconds[name] = min(seconds[name], time.process_time() - begin)
    return seconds


def axes_and_pixels(count: int) -> dict[int, np.ndarray]:
    """Return so many rows of MNIST: their 256 leading principal axes, and all columns."""
    X = rows("mnist5k", count)
    return {256: first_axes(X, 256), 784: X}


def times_of_structured() -> None:
    print("\n| columns | D | frequencies | draw, ms: independent | orthogonal | structured ", end="")
    print("| products with a row, us: by a matrix | structured |\n|---|---|---|---|---|---|---|---|")
    for d, X in axes_and_pixels(2048).items():
        for D in (50, 200, 1000, 2000):
            features = {way: RandomFeatures(kernel_of(X), D, seed=0, frequencies=way) for way in ALL_WAYS}
            draws = least_seconds({way: partial(own._draw, d) for way, own in features.items()})
            angles = {way: features[way]._angles(d)[0] for way in ("orthogonal", "structured")}
            products = least_seconds({way: partial(own, X) for way, own in angles.items()})
            times = [f"{1e3 * draws[way]:.2g}" for way in ALL_WAYS]
            times += [f"{1e6 * seconds / len(X):.2g}" for seconds in products.values()]
            print(f"| {d} | {D} | {D // 2} | {' | '.join(times)} |", flush=True)


def errors_of_structured(seeds: range) -> None:
    print("\n| columns | width | D | independent | orthogonal | structured |\n|---|---|---|---|---|---|")
    for d, X in axes_and_pixels(500).items():
        for width, factor in WIDTHS.items():
            kernel = kernel_of(X, factor)
            for D in (50, 200, 1000, 2000):
                drawn = ([RandomFeatures(kernel, D, "pairs", seed, way) for seed in seeds] for way in ALL_WAYS)
                texts = [cell(errors_of(X, own)) for own in drawn]
                print(f"| {d} | {width} | {D} | {' | '.join(texts)} |", flush=True)


def seconds_of_runs() -> None:
    print("\n| run | independent | orthogonal | structured |\n|---|---|---|---|")
    shards = np.array_split(rows("mnist5k", 5000), 5)
    lanczos = FKKMeans(10, 10, n_features=1000, iterations=5, accuracy=0, solver="lanczos", coreset_size=100)
    strategies = {
        "FK k-means, D = 1000, 5 iterations by Lanczos": lanczos,
        "FK k-means, D = 1000, 5 iterations by gram": dataclasses.replace(lanczos, solver="gram"),
        "disKPCA, 500 features": DisKPCA(10, kernel_of(np.vstack(shards)), 200, share_rows=True, embed=False),
    }
    for name, strategy in strategies.items():
        either = {way: partial(dataclasses.replace(strategy, frequencies=way).fit, shards, seed=0) for way in ALL_WAYS}
        with contextlib.redirect_stderr(io.StringIO()):
            seconds = least_seconds(either, 3)
        print(f"| {name} | {' | '.join(f'{own:.2f}' for own in seconds.values())} |", flush=True)


def structured_frequencies(seeds: range) -> None:
    times_of_structured()
    errors_of_structured(seeds)
    seconds_of_runs()


TABLES = {
    "kernel": kernel_errors,
    "fk": errors_of_fk_kmeans,
    "diskpca": errors_of_diskpca,
    "numbers": numbers_of_diskpca,
    "admm": similarities_of_admm,
    "structured": structured_frequencies,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", choices=TABLES)
    chosen = parser.parse_args()
    with blas_threads(1):
        for name, measure in TABLES.items():
            if chosen.only in (None, name):
                measure(range(chosen.seeds))


if __name__ == "__main__":
    main()
