"""Seconds, memory and error of kernel PCA on a million rows: LandmarkKernelPCA, and scikit-learn's Nystroem with PCA.

``python benchmarks/landmarks.py``; each in a process of its own, since the peak of memory is a process's. The error
is that of the eigenvalues and of the components' subspace against exact kernel PCA of 5000 of the rows: 1 - the mean
squared cosine of the subspaces of both coordinates of other 5000 rows. Rows are of 20 clusters on curved sheets.
"""

import argparse
import resource
import subprocess
import sys
import time

import numpy as np
from sklearn.decomposition import PCA, KernelPCA
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline

from fedkernel.numerics import RBF, with_width
from fedkernel.sklearn import LandmarkKernelPCA

COLUMNS, K, EXACT_ROWS = 30, 10, 5000


def draw(rows: int) -> np.ndarray:
    """Draw the rows, in blocks, so that no second table of this size is in memory."""
    rng = np.random.default_rng(0)
    centers, sheets = rng.standard_normal((20, COLUMNS)), rng.standard_normal((4, COLUMNS))
    X = np.empty((rows, COLUMNS))
    for block in np.array_split(X, -(-rows // 20_000)):
        own, noise = rng.standard_normal((len(block), 2)), 0.2 * rng.standard_normal(block.shape)
        sheet = 0.5 * np.hstack([own, np.sin(3 * own)]) @ sheets
        block[:] = centers[rng.integers(20, size=len(block))] + sheet + noise
    return X


def subspace_error(Z: np.ndarray, exact: np.ndarray) -> float:
    """Return 1 - the mean squared cosine between the column spaces of two centred tables of coordinates."""
    bases = [np.linalg.qr(table - table.mean(axis=0))[0] for table in (Z, exact)]
    return float(1 - np.square(bases[0].T @ bases[1]).sum() / exact.shape[1])


def measure(name: str, rows: int, landmarks: int) -> None:
    X = draw(rows)
    gamma = with_width(RBF(), X[:20_000]).gamma
    data = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    if name == "LandmarkKernelPCA":
        estimator = LandmarkKernelPCA(K, gamma=gamma, n_landmarks=landmarks, random_state=0)
    else:
        nystroem = Nystroem(gamma=gamma, n_components=landmarks, random_state=0)
        estimator = make_pipeline(nystroem, PCA(K, svd_solver="covariance_eigh"))
    began = time.perf_counter()
    estimator.fit(X)
    fitted = time.perf_counter()
    Z = estimator.transform(X)
    seconds, transforming = fitted - began, time.perf_counter() - fitted
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    values = estimator.eigenvalues_ / rows if name == "LandmarkKernelPCA" else estimator[-1].explained_variance_
    sample = np.random.default_rng(1).permutation(rows)[: 2 * EXACT_ROWS]
    exact = KernelPCA(K, kernel="rbf", gamma=gamma, eigen_solver="arpack", random_state=0).fit(X[sample[:EXACT_ROWS]])
    others = sample[EXACT_ROWS:]
    error = subspace_error(Z[others], exact.transform(X[others]))
    variance = float(np.sum(values) / np.sum(exact.eigenvalues_ / EXACT_ROWS))
    figures = f"fit {seconds:.1f} s, transform {transforming:.1f} s, peak {peak:.2f} GB ({data:.2f} before)"
    print(f"{name}, {rows:,} x {COLUMNS}, {landmarks} landmarks: {figures}, ", end="")
    print(f"variance {variance:.4f} of the exact sample's, subspace error {error:.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--landmarks", type=int, default=300)
    parser.add_argument("--only", choices=["LandmarkKernelPCA", "Nystroem + PCA"])
    arguments = parser.parse_args()
    if arguments.only:
        measure(arguments.only, arguments.rows, arguments.landmarks)
        return
    for name in ("LandmarkKernelPCA", "Nystroem + PCA"):
        same = ["--rows", str(arguments.rows), "--landmarks", str(arguments.landmarks)]
        subprocess.run([sys.executable, __file__, "--only", name, *same], check=True)


if __name__ == "__main__":
    main()
