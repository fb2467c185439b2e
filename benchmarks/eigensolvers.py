"""Measure where Lanczos overtakes LAPACK for the leading eigenpairs: the rule in `fedkernel.numerics.linalg`.

Run as `OPENBLAS_NUM_THREADS=1 python benchmarks/eigensolvers.py [--sizes 500 1000 2000] [--ranks 1 10 50]`. Prints, per
spectrum, size, number of pairs and solver, the best processor seconds of `--repeats`, and the memory allocated beside
the matrix, in units of one (n, n) array; Lanczos may take four products for each row. An RBF Gram matrix has the fast
decay of most kernel matrices, a Wishart matrix a flat spectrum: a hard case.
"""

import argparse
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
from sklearn.metrics.pairwise import rbf_kernel

from fedkernel.numerics import linalg


def matrices(n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    wide = rng.standard_normal((n, 2 * n))
    return {"rbf": rbf_kernel(rng.standard_normal((n, 20)), gamma=0.025), "wishart": wide @ wide.T / n}


def measure(solve: Callable[[], object], repeats: int) -> tuple[float, int]:
    seconds = []
    for _ in range(repeats):
        started = time.process_time()
        solve()
        seconds.append(time.process_time() - started)
    tracemalloc.start()
    solve()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return min(seconds), peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 1000, 2000, 3000])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 10, 50])
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    print(f"{'matrix':8} {'n':>6} {'k':>4} {'solver':8} {'seconds':>9} {'memory / n^2 floats':>20}")
    for n in options.sizes:
        for name, A in matrices(n).items():
            for k in options.ranks:
                solvers = {
                    "lapack": lambda A=A, k=k: linalg._lapack(A, k),
                    "lanczos": lambda A=A, k=k: linalg._lanczos(A, k, 4 * len(A)),
                }
                for solver, solve in solvers.items():
                    seconds, peak = measure(solve, options.repeats)
                    print(f"{name:8} {n:6} {k:4} {solver:8} {seconds:9.3f} {peak / A.nbytes:20.2f}", flush=True)


if __name__ == "__main__":
    main()
