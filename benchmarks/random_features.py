"""Measure orthogonal random features against independent ones: the tables in docs/features.md.

Run as `FEDKERNEL_DATA=FOLDER python benchmarks/random_features.py [--seeds 10] [--only TABLE]`, where the folder has
mnist5k.npz, mushrooms.npz and satellite.npz; 8 minutes on one processor. Prints in Markdown, each a mean over seeds
with its standard error: how far A A^T / D is from the kernel matrix of 500 rows, ||K - A A^T / D||_F / ||K||_F, for
digits' leading principal axes, all of its 64 columns and MNIST's 784; the recover error of FK k-means after 5 and 20
iterations; what disKPCA's components leave of the kernel matrix's trace, relative to what the best leave, and the same
by the number of features; and how similar ADMM's component at the nodes is to that of all rows. The width is FK
k-means' default, or a third of it: narrow.
"""

import argparse
import contextlib
import dataclasses
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from fedkernel.data import load
from fedkernel.numerics import RBF, ArcCosine, Laplacian, Polynomial, RandomFeatures
from fedkernel.threads import blas_threads
from strategies import ADMMKPCA, DisKPCA, FKKMeans

WAYS = ("independent", "orthogonal")
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
    of = {way: (np.mean(own), np.std(own, ddof=1) / np.sqrt(len(own))) for way, own in figures.items()}
    texts = [f"{mean:.3g} ± {error:.1g}" for mean, error in of.values()]
    return " | ".join([*texts, f"{of['orthogonal'][0] / of['independent'][0]:.2f}"])


def kernel_errors(seeds: range) -> None:
    heads = [f"{form}: independent | orthogonal | ratio" for form in ("pairs", "cosines")]
    print(f"\n| columns | width | D | {' | '.join(heads)} |")
    print("|---|---|---|---|---|---|---|---|---|")
    digits = rows("digits", 500)
    tables = {d: first_axes(digits, d) for d in (1, 2, 8, 28)} | {64: digits, 784: rows("mnist5k", 500)}
    for d, X in tables.items():
        for width, factor in WIDTHS.items():
            kernel = kernel_of(X, factor)
            K = kernel.gram(X)
            for D in (50, 200, 2000):
                texts = []
                for form in ("pairs", "cosine"):
                    errors: dict[str, list[float]] = {way: [] for way in WAYS}
                    for way in WAYS:
                        for seed in seeds:
                            A = RandomFeatures(kernel, D, form, seed, way).map(d)(X)
                            errors[way].append(float(np.linalg.norm(K - A @ A.T / D) / np.linalg.norm(K)))
                    texts.append(cells(errors))
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
                strategy = FKKMeans(k, n_features=D, iterations=T, accuracy=0, solver="gram", coreset_size=100)
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
                    texts.append(f"{np.mean(errors):.3g} ± {np.std(errors, ddof=1) / np.sqrt(len(errors)):.1g}")
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


TABLES = {
    "kernel": kernel_errors,
    "fk": errors_of_fk_kmeans,
    "diskpca": errors_of_diskpca,
    "numbers": numbers_of_diskpca,
    "admm": similarities_of_admm,
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
