"""Measure solvers of leading eigenpairs, for the rule in `numerics.eigenpairs`; write docs/results/solvers.md.

`python benchmarks/eigensolvers.py --write` writes the page, in about eight minutes; without `--write` the table is only
printed. `--sizes 1000 2000 --ranks 10 50 --repeats 1` measure less; sizes above 4000 take minutes each.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bare
import numpy as np
from scipy.sparse.linalg import eigsh

from fedkernel.ground import blas_threads
from fedkernel.numerics import RBF, eigenpairs
from fedkernel.numerics.block_lanczos import block_lanczos

PAGE = Path(__file__).parents[1] / "docs" / "results" / "solvers.md"
HEAD = """# Solvers of leading eigenpairs

`python benchmarks/eigensolvers.py --write` writes this page: processor seconds for the k leading eigenpairs of an n x n
matrix, with one BLAS thread, the least of {repeats} calls. On a shared machine neighbouring figures may differ by a
fifth by chance. ARPACK is SciPy's; the other columns are block Lanczos with 8 and with 16 vectors, run without a limit
on products of the matrix with a vector, whose number is in brackets. *Chosen* is what `leading_eigenpairs` tries
([the rule](../explanation/solvers.md)). Spectra of kernel matrices (RBF) fall fast; that of the Wishart matrix is flat,
which is hard for Lanczos.

"""


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


def table(sizes: list[int], ranks: list[int], repeats: int) -> Iterator[str]:
    """Yield the lines of the table, each as it is measured."""
    yield "| n | spectrum | k | LAPACK | ARPACK | 8 vectors (products) | 16 vectors (products) | chosen |"
    yield "|---|---|---|---|---|---|---|---|"
    for n in sizes:
        for name, make in matrices(n).items():
            A = make()
            for k in ranks:
                solvers = [
                    lambda A=A, k=k: eigenpairs._lapack(A, k),
                    lambda A=A, k=k: eigsh(A, k, which="LA"),
                    *[lambda A=A, k=k, width=width: blocks(A, k, width) for width in (8, 16)],
                ]
                with blas_threads(1):
                    seconds = [least(solve, repeats) for solve in solvers]
                cells = [f"{spent:.2f}" for spent, _ in seconds[:2]]
                cells += [f"{spent:.2f} ({products or 'unsettled'})" for spent, products in seconds[2:]]
                yield f"| {n} | {name} | {k} | {' | '.join(cells)} | {chosen(n, k)} |"


def chosen(n: int, k: int) -> str:
    """Return what `leading_eigenpairs` tries first."""
    width = eigenpairs.lanczos_width(n, k)
    return f"{width} vectors, {int(eigenpairs.LANCZOS_PRODUCTS * n)} products" if width else "LAPACK"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 1000, 2000, 4000])
    parser.add_argument("--ranks", type=int, nargs="+", default=[10, 50, 150])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="write the page with this table")
    options = parser.parse_args()
    lines = []
    for line in table(options.sizes, options.ranks, options.repeats):
        print(line, flush=True)
        lines.append(f"{line}\n")
    if options.write:
        PAGE.write_text(HEAD.format(repeats=options.repeats) + "".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
