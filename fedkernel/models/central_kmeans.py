"""Central kernel k-means, exact or with Nyström's approximation of the kernel matrix."""

import numpy as np

from fedkernel.ground import FloatArray, InputError, Rows, check_at_most
from fedkernel.models.clusters import KernelKMeans
from fedkernel.models.embedding_maps import Landmarks
from fedkernel.numerics import AnyKernel, above_rounding, k_means, leading_eigenpairs

RESTARTS = 10
"""Number of k-means starts; the best result is kept."""


def kernel_kmeans(X: Rows, kernel: AnyKernel, n_clusters: int, n_components: int, seed: int = 0) -> KernelKMeans:
    """Cluster rows by their coordinates on the leading eigenvectors of the uncentred kernel matrix.

    Source: Zha et al., Spectral Relaxation for K-means Clustering, NIPS 2001; CK in the federated kernel k-means paper.
    `X` (N, d), dense or CSR. `n_clusters`, `n_components`: k and s, at most N. Memory: two (N, N) arrays.
    """
    _check_counts(X, n_clusters, n_components)
    pairs = leading_eigenpairs(kernel.gram(X), n_components)
    roots, inverses = _roots(pairs.values, X.shape[0])
    training = pairs.vectors * roots
    centers = k_means(training, n_clusters, np.random.default_rng(seed), restarts=RESTARTS)
    return KernelKMeans(centers, Landmarks(kernel, X, pairs.vectors * inverses), pairs.values, training)


def nystroem_kernel_kmeans(
    X: FloatArray, kernel: AnyKernel, n_clusters: int, n_components: int, *, n_landmarks: int, seed: int = 0
) -> KernelKMeans:
    """Cluster rows by their coordinates on the leading eigenvectors of Nyström's approximation K_XY K_YY^+ K_YX.

    Source: Wang, Gittens, Mahoney: Scalable Kernel K-Means Clustering with Nyström Approximation, JMLR 20 (2019),
    algorithm 1, with landmarks Y drawn uniformly; the federated kernel k-means paper's SK. `X` (N, d). `n_clusters`,
    `n_components`: k and s. `n_landmarks`: m, from s to N. Memory: two (N, m) arrays.
    """
    _check_counts(X, n_clusters, n_components)
    check_landmarks(n_landmarks, n_components, len(X))
    rng = np.random.default_rng(seed)
    Y = X[np.sort(rng.choice(len(X), n_landmarks, replace=False))]
    small = leading_eigenpairs(kernel.gram(Y), n_landmarks)
    whiten = small.vectors * _roots(small.values, n_landmarks)[1]
    F = kernel.gram(X, Y) @ whiten
    # F F^T is the approximation; its leading eigenvectors span the same as F times those of F^T F.
    pairs = leading_eigenpairs(F.T @ F, n_components)
    training = F @ pairs.vectors
    centers = k_means(training, n_clusters, rng, restarts=RESTARTS)
    return KernelKMeans(centers, Landmarks(kernel, Y, whiten @ pairs.vectors), pairs.values, training)


def check_landmarks(n_landmarks: int, n_components: int, rows: int) -> None:
    """Raise InputError unless n_components <= n_landmarks <= rows."""
    check_at_most("n_landmarks", n_landmarks, rows)
    check_at_most("n_components", n_components, n_landmarks, "the number of landmarks, n_landmarks = ")


def _roots(values: FloatArray, n: int) -> tuple[FloatArray, FloatArray]:
    """Return the roots of eigenvalues and their inverses, 0 for eigenvalues at rounding level."""
    above = above_rounding(values, n)
    roots = np.sqrt(np.where(above, values, 0.0))
    return roots, np.where(above, 1 / np.where(above, roots, 1.0), 0.0)


def _check_counts(X: Rows, n_clusters: int, n_components: int) -> None:
    for name, value in (("n_clusters", n_clusters), ("n_components", n_components)):
        if not 1 <= value <= X.shape[0]:
            raise InputError(f"{name} = {value}, but must be from 1 to the number of rows, {X.shape[0]}")
