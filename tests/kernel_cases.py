"""Each kernel with its formula, and rows to try them on."""

import math

import numpy as np

from fedkernel.numerics import RBF, ArcCosine, Laplacian, Linear, Polynomial, Sigmoid

# Each kernel with its formula for two rows, by explicit loops over the columns.
CASES = [
    (Linear(), lambda x, y: sum(a * b for a, b in zip(x, y, strict=True))),
    (RBF(gamma=0.3), lambda x, y: math.exp(-0.3 * sum((a - b) ** 2 for a, b in zip(x, y, strict=True)))),
    (RBF(sigma=1.5), lambda x, y: math.exp(-sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) / (2 * 1.5**2))),
    (Laplacian(gamma=0.2), lambda x, y: math.exp(-0.2 * sum(abs(a - b) for a, b in zip(x, y, strict=True)))),
    (Polynomial(2, 0.5, 0.7), lambda x, y: (0.5 * sum(a * b for a, b in zip(x, y, strict=True)) + 0.7) ** 2),
    (Sigmoid(gamma=0.1, coef0=-0.4), lambda x, y: math.tanh(0.1 * sum(a * b for a, b in zip(x, y, strict=True)) - 0.4)),
]
KERNELS_WITH_GAMMA = [kernel for kernel, _ in CASES]
WITHOUT_GAMMA = [kernel(width="columns") for kernel in (RBF, Laplacian, Polynomial, Sigmoid)]
ARC_COSINES = [ArcCosine(degree=0), ArcCosine(degree=1), ArcCosine(degree=2)]  # their formula: test_arc_cosine.py
EVERY = [*KERNELS_WITH_GAMMA, *WITHOUT_GAMMA, Polynomial(degree=7, gamma=0.3), *ARC_COSINES]


def rows(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))
