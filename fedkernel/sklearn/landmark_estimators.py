"""Kernel PCA and kernel k-means on one machine, in the span of k-means centres, for very many rows.

Source: Zhang, Kwok: Clustered Nystroem method for large scale manifold learning and dimension reduction, IEEE
Transactions on Neural Networks 2010; Wang, Gittens, Mahoney: Scalable Kernel K-Means Clustering with Nyström
Approximation, JMLR 20 (2019), algorithm 1, with these landmarks.
"""

from typing import Any, Self

import numpy as np

from fedkernel import ground
from fedkernel.ground import FloatArray, InputError, blas_threads, reserve_core
from fedkernel.models import RESTARTS, KernelKMeans, LandmarkPCA, Landmarks
from fedkernel.numerics import Linear, assign, k_means, landmark_centers, leading_eigenpairs, whitening, with_width
from fedkernel.sklearn import estimator_base as base

LANDMARKS = 300  # usual number
DIMENSIONS_PER_CLUSTER = 5  # most


class _LandmarkEstimator(base.KernelEstimator):
    """Base of the landmark estimators, with the landmarks and sums over blocks of rows."""

    n_landmarks: int | None
    model_: LandmarkPCA | KernelKMeans

    def _span(self, X: FloatArray, wanted: int, rng: np.random.Generator) -> tuple[Any, ...]:
        """Return the landmarks' span, a sample of rows, and products (r, r) and means (r,) of all rows' coordinates."""
        number = max(LANDMARKS, wanted) if self.n_landmarks is None else self.n_landmarks
        base.check_count("n_landmarks", number)
        most = max(base.SAMPLE_ROWS, number)
        sample = X if len(X) <= most else X[np.sort(rng.choice(len(X), most, replace=False))]
        sample = sample.astype(np.float64)
        kernel = with_width(self._kernel(), sample).settled(X.shape[1])
        Y = sample if number >= len(X) else landmark_centers(sample, number, rng)
        R = whitening(kernel.gram(Y), float(np.sqrt(ground.EPS)))
        if R.shape[1] == 0:
            raise InputError("the kernel is zero on all landmarks, so that there are no directions")
        values = kernel.against(Y)

        def products(rows: slice) -> tuple[FloatArray, FloatArray]:
            K = values(X[rows])
            return K.T @ K, K.sum(axis=0)

        total, sums = np.zeros((len(Y), len(Y))), np.zeros(len(Y))
        for product, own in ground.map_in_order(products, ground.row_blocks(len(X))):
            total += product
            sums += own
        return Landmarks(kernel, Y, R), sample, R.T @ total @ R, R.T @ sums / len(X)

    def _coordinates(self, X: FloatArray) -> FloatArray:
        with blas_threads(1), reserve_core():
            return np.asarray(self.model_.transform(X))


class LandmarkKernelPCA(_LandmarkEstimator, base.ComponentsEstimator):
    """Kernel PCA in the span of k-means centres, for more rows than a kernel matrix of all of them allows.

    Centred in feature space, and equal to scikit-learn's KernelPCA where all rows are landmarks.

    Parameters
    ----------
    n_components : int or None
        k; None: all in the span of the landmarks.
    kernel : str, dict or Kernel
        ``"rbf"``, ``"linear"``, ``"laplacian"``, ``"poly"``, ``"sigmoid"``, a table, or a `fedkernel.Kernel`.
    gamma : float, optional
        Width of the kernel, in place of its own, which is by default that of the data.
    n_landmarks : int, optional
        m, by default 300, or k if larger; with as many as rows, all rows are landmarks.
    alpha : float
        Penalty of the ridge regression that finds pre-images.
    random_state : int, RandomState instance or None
        Of the sampled rows, and of the centres.

    Attributes
    ----------
    eigenvalues_ : ndarray of shape (k,)
        Of the centred kernel matrix within the span, in non-increasing order.
    model_ : LandmarkPCA
        The components as combinations of the landmarks; its coordinates are `transform`'s before centring.

    Notes
    -----
    Landmarks, width and pre-images are of 10,000 rows at most; these stay in memory, and pre-images are fitted on their
    first use, or when the estimator is saved, without the rows. Time: n m (m / 2 + d) multiplications and n m kernel
    values; memory besides the rows: (m, m) arrays, and blocks of 2048 rows.
    """

    def __init__(
        self,
        n_components: int | None = 2,
        *,
        kernel: Any = "rbf",
        gamma: float | None = None,
        n_landmarks: int | None = None,
        alpha: float = 0.01,
        random_state: Any = None,
    ) -> None:
        self.n_components, self.kernel, self.gamma, self.n_landmarks = n_components, kernel, gamma, n_landmarks
        self.alpha, self.random_state = alpha, random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the components of rows X (n, d)."""
        X, rng = self._rows(X, ensure_min_samples=2), np.random.default_rng(self._seed())
        base.check_count("n_components", 1 if self.n_components is None else self.n_components, ", or None for all")
        with blas_threads(1), reserve_core():
            span, sample, products, means = self._span(X, self.n_components or 1, rng)
            centred = products - len(X) * np.outer(means, means)
            pairs = leading_eigenpairs(centred, min(self.n_components or len(means), len(means)))
        self.eigenvalues_, self.center_ = np.maximum(pairs.values, 0.0), means @ pairs.vectors
        coefficients = span.coefficients @ pairs.vectors
        self.model_ = LandmarkPCA(span.kernel, span.landmarks, coefficients, self.eigenvalues_)
        self._keep_training(sample, None, len(pairs.values), linear=isinstance(span.kernel, Linear))
        return self

    def _coordinates(self, X: FloatArray) -> FloatArray:
        return np.asarray(super()._coordinates(X) - self.center_)


class LandmarkKernelKMeans(_LandmarkEstimator, base.ClustersEstimator):
    """Kernel k-means by coordinates in the span of k-means centres, for very many rows.

    Parameters are those of `LandmarkKernelPCA`, but `n_clusters`, and `n_init`, the starts of k-means. `labels_` (n,)
    are the training rows' clusters, `cluster_centers_` (k, s) among the coordinates, fewer than k if there are fewer
    distinct rows; `model_`, a KernelKMeans, has both centres and embedding, and can be saved.

    Notes
    -----
    The s coordinates are along the 5 k leading directions, not centred, of all rows' images in the span. The clusters
    are the best of all starts on those of 10,000 rows at most. Costs are those of `LandmarkKernelPCA`.
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        kernel: Any = "rbf",
        gamma: float | None = None,
        n_landmarks: int | None = None,
        n_init: int = RESTARTS,
        random_state: Any = None,
    ) -> None:
        self.n_clusters, self.kernel, self.gamma, self.n_landmarks = n_clusters, kernel, gamma, n_landmarks
        self.n_init, self.random_state = n_init, random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the clusters of rows X (n, d)."""
        X, rng = self._rows(X, ensure_min_samples=2), np.random.default_rng(self._seed())
        base.check_count("n_clusters", self.n_clusters)
        base.check_count("n_init", self.n_init)
        ground.check_at_most("n_clusters", self.n_clusters, len(X), "the number of rows, n_samples = ")
        with blas_threads(1), reserve_core():
            span, sample, products, _ = self._span(X, self.n_clusters, rng)
            pairs = leading_eigenpairs(products, min(DIMENSIONS_PER_CLUSTER * self.n_clusters, len(products)))
            embedding = Landmarks(span.kernel, span.landmarks, span.coefficients @ pairs.vectors)
            centers = k_means(embedding(sample), self.n_clusters, rng, restarts=self.n_init)
            self._keep(centers, np.concatenate([assign(Z, centers)[0] for _, Z in embedding.blocks(X)]))
        self.model_ = KernelKMeans(centers, embedding, pairs.values)
        return self
