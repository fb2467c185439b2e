"""Measure orthogonal and structured random features against independent ones; write docs/results/features.md.

`FEDKERNEL_DATA=FOLDER python benchmarks/random_features.py --write` writes the page, in about 15 minutes on one
processor; without `--write` the tables are only printed. The folder has mnist5k.npz, mushrooms.npz and satellite.npz.
`--only NAME` measures one table, and with `--write` keeps the page's others.
"""

import argparse
import contextlib
import dataclasses
import io
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from performance import sections
from sklearn.datasets import load_digits

from fedkernel.data import load
from fedkernel.ground import blas_threads
from fedkernel.numerics import RBF, ArcCosine, Laplacian, Polynomial, RandomFeatures
from fedkernel.strategies import ADMMKPCA, DisKPCA, FKKMeans

PAGE = Path(__file__).parents[1] / "docs" / "results" / "features.md"
TITLE = """# Random features, measured

`FEDKERNEL_DATA=FOLDER python benchmarks/random_features.py --write` writes this page;
[random features](../explanation/features.md) says what follows from it. Figures are means over seeds with their
standard errors. A *ratio* is that of an error with orthogonal frequencies to the error with independent ones. D, or
*features*, is their number. The width is FK k-means' default, or *narrow*, a third of it.
"""
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


def kernel_errors(seeds: range) -> Iterator[str]:
    heads = [f"{form}: independent | orthogonal | ratio" for form in ("pairs", "cosines")]
    yield f"| columns | width | D | {' | '.join(heads)} |"
    yield "|---|---|---|---|---|---|---|---|---|"
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
                yield f"| {d} | {width} | {D} | {' | '.join(texts)} |"


def runs(strategy: Any, shards: Sequence[np.ndarray], seeds: range) -> dict[str, list[Any]]:
    """Return the results of a strategy with both ways, and their metrics, by the central answer."""
    reference, results = strategy.central(shards), {}
    for way in WAYS:
        either = dataclasses.replace(strategy, frequencies=way)
        with contextlib.redirect_stderr(io.StringIO()):
            results[way] = [either.fit(shards, seed=seed, reference=reference) for seed in seeds]
    return results


def errors_of_fk_kmeans(seeds: range) -> Iterator[str]:
    yield "| rows | D | t | floats up | independent | orthogonal | ratio |"
    yield "|---|---|---|---|---|---|---|"
    for name, k in (("digits", 10), ("mushrooms", 2), ("mnist5k", 10)):
        shards = np.array_split(rows(name, 2000), 5)
        for D in (20, 50, 100, 200):
            for T in (5, 20):
                strategy = FKKMeans(k, k, n_features=D, iterations=T, accuracy=0, solver="gram", coreset_size=100)
                results = runs(strategy, shards, seeds)
                floats = np.mean([result.ledger.floats_up for own in results.values() for result in own])
                errors = {way: [result.metrics["recover_error"] for result in own] for way, own in results.items()}
                yield f"| {name} | {D} | {T} | {floats:,.0f} | {cells(errors)} |"


def errors_of_diskpca(seeds: range) -> Iterator[str]:
    yield "| rows | width | t | landmarks | floats up | independent | orthogonal | ratio |"
    yield "|---|---|---|---|---|---|---|---|"
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
                    yield f"| {name} | {width} | {t} | {40 + more} | {floats:,.0f} | {cells(errors)} |"


def with_rare_clusters(n: int, d: int = 28) -> np.ndarray:
    """Return rows of 24 clusters, each with six tenths of the rows of the one before, the last of them a row alone."""
    rng = np.random.default_rng(1)
    sizes = np.maximum(1, (0.4 * n * 0.6 ** np.arange(24)).astype(int))
    sizes[0] += n - sizes.sum()
    return np.vstack([4 * rng.normal(size=d) + 0.5 * rng.normal(size=(size, d)) for size in sizes])


def numbers_of_diskpca(seeds: range) -> Iterator[str]:
    numbers = (100, 250, 500, 1000, 2000)
    yield f"| rows | kernel | landmarks | {' | '.join(f'{m} features' for m in numbers)} |"
    yield f"|---|---|---|{len(numbers) * '---|'}"
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
                yield f"| {name} | {kernel_name} | {24 + more} | {' | '.join(texts)} |"


def similarities_of_admm(seeds: range) -> Iterator[str]:
    yield "| rows | features | independent | orthogonal | ratio |"
    yield "|---|---|---|---|---|"
    for name in ("digits", "mnist5k"):
        shards = np.array_split(rows(name, 600), 10)
        kernel = kernel_of(np.vstack(shards))
        for m in (100, 500, 2000):
            strategy = ADMMKPCA(kernel=kernel, exchange="features", n_features=m)
            results = runs(strategy, shards, seeds)
            angles = {way: [1 - result.metrics["similarity"] for result in own] for way, own in results.items()}
            yield f"| {name} | {m} | {cells(angles)} |"


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


def times_of_structured(_: range) -> Iterator[str]:
    draws, products = (
        "draw, ms: independent | orthogonal | structured",
        "products with a row, us: by a matrix | structured",
    )
    yield f"| columns | D | {draws} | {products} |"
    yield "|---|---|---|---|---|---|---|"
    for d, X in axes_and_pixels(2048).items():
        for D in (50, 200, 1000, 2000):
            features = {way: RandomFeatures(kernel_of(X), D, seed=0, frequencies=way) for way in ALL_WAYS}
            spent = least_seconds({way: partial(own._draw, d) for way, own in features.items()})
            angles = {way: features[way]._angles(d)[0] for way in ("orthogonal", "structured")}
            of_rows = least_seconds({way: partial(own, X) for way, own in angles.items()})
            times = [f"{1e3 * spent[way]:.2g}" for way in ALL_WAYS]
            times += [f"{1e6 * seconds / len(X):.2g}" for seconds in of_rows.values()]
            yield f"| {d} | {D} | {' | '.join(times)} |"


def errors_of_structured(seeds: range) -> Iterator[str]:
    yield "| columns | width | D | independent | orthogonal | structured |"
    yield "|---|---|---|---|---|---|"
    for d, X in axes_and_pixels(500).items():
        for width, factor in WIDTHS.items():
            kernel = kernel_of(X, factor)
            for D in (50, 200, 1000, 2000):
                drawn = ([RandomFeatures(kernel, D, "pairs", seed, way) for seed in seeds] for way in ALL_WAYS)
                texts = [cell(errors_of(X, own)) for own in drawn]
                yield f"| {d} | {width} | {D} | {' | '.join(texts)} |"


def seconds_of_runs(_: range) -> Iterator[str]:
    yield "| run | independent | orthogonal | structured |"
    yield "|---|---|---|---|"
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
        yield f"| {name} | {' | '.join(f'{own:.2f}' for own in seconds.values())} |"


class Table(NamedTuple):
    """Section of the page: its heading, its text, and what yields the lines of its table."""

    heading: str
    text: str
    lines: Callable[[range], Iterator[str]]


TABLES = {
    "kernel": Table(
        "The kernel",
        "The relative error `||K - A A^T / D||_F / ||K||_F` of features A, for 500 rows of digits (leading principal\n"
        "axes, and all 64 columns) and of MNIST (784 columns), with pairs of cosine and sine of each frequency, and\n"
        "with cosines with a random offset.",
        kernel_errors,
    ),
    "fk": Table(
        "FK k-means",
        "The recover error `||K_t - K_s||_F^2 / N^2` after t iterations, for N = 2000 rows at 5 clients. K_s is the\n"
        "best kernel matrix of rank s, and K_t its estimate.",
        errors_of_fk_kmeans,
    ),
    "diskpca": Table(
        "disKPCA",
        "What ten components leave out of the kernel matrix's trace, as a multiple of what the best components leave\n"
        "out, with 2000 features of 1000 rows at 5 clients. t is the size of the embedding.",
        errors_of_diskpca,
    ),
    "numbers": Table(
        "disKPCA by the number of features",
        "The same error with independent frequencies, for 1500 rows at 5 clients. *Rare* are generated clusters, each\n"
        "of six tenths of the one before.",
        numbers_of_diskpca,
    ),
    "admm": Table(
        "ADMM with features in place of rows",
        "One minus the similarity to the leading direction of all rows, for 600 rows at 10 nodes.",
        similarities_of_admm,
    ),
    "times": Table(
        "Structured frequencies: time",
        "Processor time on one core, with pairs, of MNIST's 256 leading principal axes and its 784 columns. On a busy\n"
        "machine such figures vary by half.",
        times_of_structured,
    ),
    "errors": Table(
        "Structured frequencies: error",
        "The relative error of the kernel as above, with pairs, of 500 of these rows.",
        errors_of_structured,
    ),
    "runs": Table(
        "Structured frequencies: whole runs",
        "Processor seconds of all sites and the coordinator, of 5000 rows of MNIST at 5 clients: the least of three\n"
        "runs. Differences of a tenth are chance.",
        seconds_of_runs,
    ),
}


def section(name: str, seeds: int, lines: Sequence[str]) -> str:
    """Return the page's section of a table."""
    heading, text, _ = TABLES[name]
    command = f"`python benchmarks/random_features.py --only {name} --seeds {seeds}`"
    return f"<!-- {name} -->\n## {heading}\n\n{text}\n\n{command}\n\n" + "".join(f"{line}\n" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", choices=TABLES)
    parser.add_argument("--write", action="store_true", help="write the page with these tables")
    chosen = parser.parse_args()
    known = sections(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}
    with blas_threads(1):
        for name, table in TABLES.items():
            if chosen.only in (None, name):
                lines = []
                for line in table.lines(range(chosen.seeds)):
                    print(line, flush=True)
                    lines.append(line)
                known[name] = section(name, chosen.seeds, lines)
    if chosen.write:
        page = [TITLE, *(known[name] for name in TABLES if name in known)]
        PAGE.write_text("\n".join(page), encoding="utf-8")


if __name__ == "__main__":
    main()
