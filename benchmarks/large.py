"""Seconds and peak memory of DKPCA at N = 10000 rows, all clients and the coordinator in this process.

One kernel per process, since the peak is the process's: ``python benchmarks/large.py rbf``.
"""

import argparse
import resource

import numpy as np

from fedkernel import RBF, Linear, Polynomial
from fedkernel.strategies import DKPCA

KERNELS = {
    "linear": DKPCA(10, Linear()),
    "polynomial": DKPCA(10, Polynomial(degree=2, gamma=0.1)),
    "rbf": DKPCA(10, RBF(gamma=0.01), local_components=50, center=True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernel", choices=KERNELS)
    parser.add_argument("--rows", type=int, default=10000)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    X = 0.3 * rng.standard_normal((arguments.rows, 20)) @ rng.standard_normal((20, 40))
    X += 0.2 * rng.standard_normal(X.shape)
    result = KERNELS[arguments.kernel].fit(np.array_split(X, 4, axis=1))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{arguments.kernel}, N = {arguments.rows}, 4 clients: {result.seconds:.1f} s, peak memory {peak:.1f} GB")


if __name__ == "__main__":
    main()
