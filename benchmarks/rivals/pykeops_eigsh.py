# /// script
# dependencies = ["numpy==2.4.6", "scipy==1.17.1", "pykeops==2.3"]
# [tool.fedkernel]
# apt = ["g++"]
# ///
"""KeOps: kernel PCA by SciPy's eigsh on a kernel matrix that is computed anew for each product, and never stored.

KeOps compiles a formula once for each number of columns of the data, before the clock starts. The eigensolver's
tolerance is searched.
"""

from importlib import import_module
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh
from serve import Answer, Job, program, serve


def centred(X: Any, gamma: float) -> LinearOperator:
    """Return the kernel matrix of rows X (n, d), centred in feature space, as an operator."""
    LazyTensor = import_module("pykeops.numpy").LazyTensor  # which prints, so that it comes after serve's redirection
    K = (-gamma * ((LazyTensor(X[:, None, :]) - LazyTensor(X[None, :, :])) ** 2).sum(-1)).exp()

    def multiply(v: Any) -> Any:
        product = (K @ (v - v.mean())[:, None])[:, 0]
        return product - product.mean()

    return LinearOperator((len(X), len(X)), matvec=multiply, dtype=X.dtype)


def compile_product(job: Job) -> None:
    """Multiply few rows, so that KeOps has compiled its formula."""
    centred(job["X"][:50], job["gamma"]).matvec(np.ones(50))


@program(
    "kernel PCA", "KeOps + SciPy eigsh", settings=[{"tol": tol} for tol in (0, 1e-4, 1e-2)], prepare=compile_product
)
def kernel_pca(job: Job) -> Answer:
    start = np.random.default_rng(job["seed"]).standard_normal(len(job["X"]))
    values, vectors = eigsh(centred(job["X"], job["gamma"]), job["k"], v0=start, **job["setting"])
    return {"coordinates": (vectors * np.sqrt(np.maximum(values, 0.0)))[:, ::-1]}


if __name__ == "__main__":
    serve()
