# /// script
# dependencies = ["numpy==2.4.6"]
# [tool.fedkernel]
# apt = ["r-cran-kernlab", "libopenblas0-pthread"]
# ///
"""R's kernlab: kernel PCA and kernel k-means of the whole kernel matrix, and PCA of its incomplete Cholesky factor.

Rscript runs as a process of its own, with Debian's OpenBLAS, and times its calls: starting it, and files, do not count.
Pivots and starts are searched. kkmeans makes one start, so that a line here chooses the best of several; one that fails
on an empty cluster is left out. kpca scales by the root of n.
"""

import shutil
import subprocess
import tempfile

import numpy as np
from serve import Answer, Job, program, serve

CALLS = {
    "kpca": "result <- rotated(kpca(kernelMatrix(rbf, X), features = k)) / sqrt(n)",
    "inchol": "result <- prcomp(inchol(X, kernel = rbf, maxiter = number, tol = 1e-12)@.Data, rank. = k)$x",
    "kkmeans": """K <- kernelMatrix(rbf, X); most <- -Inf
        for (start in 1:number) {
            labels <- tryCatch(kkmeans(K, k)@.Data, error = function(failure) NULL); if (is.null(labels)) next
            kept <- sum(sapply(split(1:n, labels), function(own) sum(K[own, own]) / length(own)))
            if (kept > most) { result <- labels; most <- kept } }""",
}


def run(job: Job, name: str) -> tuple[np.ndarray, float]:
    """Return the numbers of a call's result, and its seconds."""
    (n, d), number = job["X"].shape, job["setting"].get("number", 0)
    lines = f"""library(kernlab); n <- {n}; k <- {job["k"]}; number <- {number}; set.seed({job["seed"]})
        X <- matrix(readBin("X", "double", n * {d}), n); rbf <- rbfdot(sigma = {float(job["gamma"])!r})
        seconds <- system.time({{ {CALLS[name]} }})[["elapsed"]]; writeBin(as.double(c(seconds, result)), "result")"""
    if not shutil.which("Rscript"):
        raise FileNotFoundError("Rscript is missing: apt-get install r-cran-kernlab libopenblas0-pthread")
    with tempfile.TemporaryDirectory() as folder:
        job["X"].T.tofile(f"{folder}/X")
        subprocess.run(["Rscript", "-e", lines], cwd=folder, check=True)  # noqa: S607
        numbers = np.fromfile(f"{folder}/result")
    return numbers[1:], numbers[0]


@program("kernel PCA", "kernlab kpca", settings=[{"call": "kpca"}])
@program("kernel PCA", "kernlab inchol + prcomp", settings=[{"call": "inchol", "number": m} for m in (100, 300, 1000)])
def kernel_pca(job: Job) -> Answer:
    numbers, seconds = run(job, job["setting"]["call"])
    return {"coordinates": numbers.reshape(job["k"], -1).T, "seconds": seconds}


@program("kernel k-means", "kernlab kkmeans", settings=[{"number": starts} for starts in (1, 5)])
def kernel_k_means(job: Job) -> Answer:
    labels, seconds = run(job, "kkmeans")
    return {"labels": labels.astype(int), "seconds": seconds}


if __name__ == "__main__":
    serve()
