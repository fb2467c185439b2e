"""Kernel k-means: its model, an embedding of rows with the centres of clusters, and central solutions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fedkernel.data import Table
from fedkernel.ground import FloatArray, InputError, Rows, check_at_most, stack_rows, without_prefix
from fedkernel.models.base import Model
from fedkernel.models.embedding_maps import EMBEDDINGS, Embedding, Landmarks
from fedkernel.numerics import AnyKernel, WeightedPoints, above_rounding, assign, k_means, leading_eigenpairs

RESTARTS = 10
"""Number of k-means starts; the best result is kept."""


@dataclass(frozen=True, repr=False)
class KernelKMeans(Model):
    """Clusters in a kernel's feature space: an embedding of rows, and k-means centres in it.

    - `centers_` (k, s): fewer than requested if there are fewer distinct points.
    - `embedding`: rows to coordinates, (n, d) to (n, s): sufficient to label new rows.
    - `eigenvalues_` (s,): of the kernel matrix that the embedding approximates, in non-increasing order, if the method
      computes them.
    - `training_` (N, s): the training rows' coordinates, for a central model; else they stay with the sites.
    - `coreset_` (c, s): weighted points from which the centres were computed; not in a file, which may go to sites.
    """

    centers_: FloatArray
    embedding: Embedding
    eigenvalues_: FloatArray | None = None
    training_: FloatArray | None = None
    coreset_: WeightedPoints | None = field(default=None, repr=False)

    def transform(self, X: npt.ArrayLike | Rows | Table) -> FloatArray:
        """Embed rows X, (n, d), as coordinates of shape (n, s)."""
        return self.embedding(X)

    def predict(self, X: npt.ArrayLike | Rows | Table) -> npt.NDArray[np.int64]:
        """Label rows X, (n, d), by the nearest centre: integers of shape (n,) from 0 to k - 1."""
        return assign(self.transform(X), self.centers_)[0]

    def _parts(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        fields, arrays = self.embedding.parts()
        own = {"centers_": self.centers_, "eigenvalues_": self.eigenvalues_, "training_": self.training_}
        arrays = {f"embedding.{name}": array for name, array in arrays.items()}
        arrays |= {name: array for name, array in own.items() if array is not None}
        return {"embedding": {"kind": self.embedding.kind, **fields}}, arrays

    @classmethod
    def _from_parts(cls, fields: Mapping[str, Any], arrays: Mapping[str, FloatArray]) -> Self:
        table, inner = fields["embedding"], without_prefix("embedding.", arrays)
        own = {name: array for name, array in arrays.items() if not name.startswith("embedding.")}
        if own.keys() - {"centers_", "eigenvalues_", "training_"}:
            raise ValueError("arrays")
        embedding = EMBEDDINGS[table["kind"]].from_parts(table, inner)
        model = cls(own["centers_"], embedding, own.get("eigenvalues_"), own.get("training_"))
        width = model.embedding.width
        consistent = model.centers_.ndim == 2 and model.centers_.shape[1] == width and len(model.centers_) > 0
        consistent &= model.eigenvalues_ is None or model.eigenvalues_.shape == (width,)
        consistent &= model.training_ is None or model.training_.shape[1:] == (width,)
        if not consistent:
            raise ValueError("shapes")
        return model


def clustering_objective(model: KernelKMeans, shards: Sequence[Rows]) -> float:
    """Return the mean squared distance in feature space of rows to their clusters' means. In the paper: f_K(Y) / N.

    Source: the federated kernel k-means paper (2021), equation 1, Tr(K) - Tr(L^1/2 Y^T K Y L^1/2) for the model's
    labels Y; theorem 3 bounds it by the optimum. The kernel is exact. `shards` (n_m, d) each, dense or CSR. Takes N^2
    kernel values, of which 2^24 are in memory at a time.
    """
    if not isinstance(model, KernelKMeans):
        raise InputError(f"the k-means objective needs a KernelKMeans model, not a {type(model).__name__}")
    X = stack_rows(list(shards))
    labels, kernel = model.predict(X), model.embedding.kernel.settled(X.shape[1])
    members: FloatArray = np.eye(len(model.centers_))[labels]
    N, values = int(X.shape[0]), kernel.against(X)
    step = max(1, 2**24 // N)
    total = float(kernel.diag(X).sum())
    for first in range(0, N, step):
        rows = slice(first, first + step)
        total -= float(np.sum(members[rows] / members.sum(axis=0).clip(1) * (values(X[rows]) @ members)))
    return total / N


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
    """Return the roots of eigenvalues and the roots' inverses, 0 at rounding level."""
    above = above_rounding(values, n)
    roots = np.sqrt(np.where(above, values, 0.0))
    return roots, np.where(above, 1 / np.where(above, roots, 1.0), 0.0)


def _check_counts(X: Rows, n_clusters: int, n_components: int) -> None:
    for name, value in (("n_clusters", n_clusters), ("n_components", n_components)):
        if not 1 <= value <= X.shape[0]:
            raise InputError(f"{name} = {value}, but must be from 1 to the number of rows, {X.shape[0]}")
