"""Measure solvers of leading eigenpairs: the rule in `numerics.eigenpairs`, the table in docs/explanation/solvers.md.

Run as `python benchmarks/eigensolvers.py [--sizes 1000 2000 4000] [--ranks 10 50 150] [--repeats 2]`; sizes above 4000
take minutes. Prints a table in Markdown: for each spectrum, size and number of pairs the thread seconds, least of
`--repeats`, of LAPACK, of ARPACK as SciPy has it, and of block Lanczos with 8 and with 16 vectors and how many products
these took. One BLAS thread. An RBF Gram matrix has the fast decay of most kernel matrices, with clusters after the
first ten, too; a Wishart matrix a flat spectrum: a hard case.
"""

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import bare
import numpy as np
from scipy.sparse.linalg import eigsh

from fedkernel.ground import blas_threads
from fedkernel.numerics import RBF, linalg
from fedkernel.numerics.block_lanczos import block_lanczos


def matrices(n: int) -> dict[str, Callable[[], np.ndarray]]:
    rng = np.random.default_rng(0)

    def clusters() -> np.ndarray:
        shards = bare.by_columns(bare.clustered)(n, 200)
        return RBF(gamma=bare.width(shards)).part(shards[0])

    def wishart() -> np.ndarray:
        wide = rng.standard_normal((n, 2 * n))
        return wide @ wide.T / n

    return {
        "RBF, ten clusters": clusters,
        "RBF, 20 columns": lambda: RBF(gamma=0.025).part(rng.standard_normal((n, 20))),
        "Wishart": wishart,
    }


def blocks(A: np.ndarray, k: int, width: int) -> int:
    """Return how many products block Lanczos took; it may take four for each row."""
    products = 0

    def multiply(rows: np.ndarray) -> np.ndarray:
        nonlocal products
        products += len(rows)
        return rows @ A

    pairs = block_lanczos(multiply, len(A), k, width=width, products=4 * len(A))
    return products if pairs else 0


def least(solve: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Return the least of the thread seconds, and the last result."""
    seconds = math.inf
    for _ in range(repeats):
        began = time.thread_time()
        result = solve()
        seconds = min(seconds, time.thread_time() - began)
    return seconds, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 2000, 4000])
    parser.add_argument("--ranks", type=int, nargs="+", default=[10, 50, 150])
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    print("| n | spectrum | k | LAPACK | ARPACK | 8 vectors (products) | 16 vectors (products) | chosen |")
    print("|---|---|---|---|---|---|---|---|")
    for n in options.sizes:
        for name, make in matrices(n).items():
            A = make()
            for k in options.ranks:
                solvers = [
                    lambda A=A, k=k: linalg._lapack(A, k),
                    lambda A=A, k=k: eigsh(A, k, which="LA"),
                    *[lambda A=A, k=k, width=width: blocks(A, k, width) for width in (8, 16)],
                ]
                with blas_threads(1):
                    seconds = [least(solve, options.repeats) for solve in solvers]
                cells = [f"{spent:.2f}" for spent, _ in seconds[:2]]
                cells += [f"{spent:.2f} ({products or 'unsettled'})" for spent, products in seconds[2:]]
                print(f"| {n} | {name} | {k} | {' | '.join(cells)} | {chosen(n, k)} |", flush=True)


def chosen(n: int, k: int) -> str:
    """Return what `leading_eigenpairs` tries first."""
    width = linalg.lanczos_width(n, k)
    return f"{width} vectors, {int(linalg.LANCZOS_PRODUCTS * n)} products" if width else "LAPACK"


if __name__ == "__main__":
    main()
