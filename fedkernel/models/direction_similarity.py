"""Cosine similarity of feature-space directions to the leading kernel principal components of all rows."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedkernel.ground import FloatArray, short_repr
from fedkernel.models.components import KernelPCA
from fedkernel.numerics import AnyKernel, above_rounding, center_gram, leading_eigenpairs, normalised_gram


def center_blocks(K: FloatArray, ends: Sequence[int]) -> FloatArray:
    """Centre the blocks of K (n, n) by their own row and column means, in place. Source: that of `Directions`.

    `ends`: ends of the blocks of rows and columns.
    """
    parts = [slice(first, last) for first, last in itertools.pairwise([0, *ends])]
    for rows in parts:
        for columns in parts:
            block = K[rows, columns]
            means = block.mean(axis=1, keepdims=True)
            block -= block.mean(axis=0)
            block -= means - means.mean()
    return K


def normalised_kernel_pca(X: FloatArray, kernel: AnyKernel, n_components: int, *, center: bool = True) -> KernelPCA:
    """Compute kernel PCA of rows X (N, d), normalised in feature space, by the (N, N) kernel matrix."""
    K = normalised_gram(kernel, X)
    means, mean = center_gram(K) if center else (None, 0.0)
    pairs = leading_eigenpairs(K, n_components)
    return KernelPCA(pairs.values, pairs.vectors, kernel, means, mean)


@dataclass(frozen=True)
class Directions:
    """Leading principal directions of all rows X (N, d), as a reference for directions that nodes find.

    Source: He, Yang, Shi, Huang: A Decentralized Framework for Kernel PCA with Projection Consensus Constraints, 2022,
    section 6.1: similarity is the cosine in feature space, and every kernel block is centred by its own means. `model`:
    of these rows, from `normalised_kernel_pca`.
    """

    X: FloatArray
    model: KernelPCA

    __repr__ = short_repr

    @property
    def _center(self) -> bool:
        return self.model.column_means_ is not None

    def similarity(self, rows: FloatArray, alpha: FloatArray) -> float:
        """Return the mean cosine of the directions with phi(rows) alpha's columns. `rows` (n, d), `alpha` (n, k)."""
        products = np.einsum("nk,nk->k", alpha, self._products(rows)[:, : alpha.shape[1]])
        lengths = np.einsum("nk,nk->k", alpha, self._gram(rows) @ alpha)
        roots = self._roots()[: alpha.shape[1]]
        return float(np.mean(np.abs(products) / (np.sqrt(np.maximum(lengths, np.finfo(np.float64).tiny)) * roots)))

    def iteration_cosines(self, rows: FloatArray, alphas: FloatArray) -> FloatArray:
        """Return the cosines (T,) of the first direction with T combinations (T, n) of these rows."""
        products = alphas @ self._products(rows)[:, 0]
        lengths = np.einsum("tn,tn->t", alphas, alphas @ self._gram(rows))
        cosines = np.abs(products) / np.sqrt(np.maximum(lengths, np.finfo(np.float64).tiny))
        return np.asarray(cosines / self._roots()[0])

    def local_similarity(self, rows: FloatArray, others: FloatArray | None = None) -> float:
        """Return the similarity of the leading directions of a node's rows (n, d), alone or pooled with others (m, d).

        With others, only the part on these rows counts: alpha's first n entries.
        """
        pooled = rows if others is None else np.vstack([rows, others])
        model = normalised_kernel_pca(pooled, self.model.kernel, self.model.n_components, center=self._center)
        return self.similarity(rows, model.eigenvectors_[: len(rows)])

    def largest_similarity(self, rows: FloatArray, cut: float) -> float:
        """Return the largest similarity of combinations of rows, without eigenvalues up to `cut` times the first."""
        pairs = leading_eigenpairs(self._gram(rows), len(rows))
        above = pairs.values > cut * pairs.values[0]
        parts = pairs.vectors[:, above].T @ self._products(rows) / np.sqrt(pairs.values[above])[:, None]
        return float(np.mean(np.linalg.norm(parts, axis=0) / self._roots()))

    def _roots(self) -> FloatArray:
        """Return the lengths of the columns of phi(X) V, infinite at rounding level."""
        values = self.model.eigenvalues_
        above = above_rounding(values, len(self.X))
        return np.where(above, np.sqrt(np.where(above, values, 1.0)), np.inf)

    def _gram(self, rows: FloatArray) -> FloatArray:
        K = normalised_gram(self.model.kernel, rows)
        return center_blocks(K, [len(rows)]) if self._center else K

    def _products(self, rows: FloatArray) -> FloatArray:
        """Return phi(rows)^T phi(X) V, of shape (n, k)."""
        K = normalised_gram(self.model.kernel, rows, self.X)
        if self._center:
            K -= K.mean(axis=1, keepdims=True)
            K -= K.mean(axis=0)
        return np.asarray(K @ self.model.eigenvectors_)
