"""Base classes of the estimators: checked rows, kernels, pre-images of components, and clusters of coordinates."""

from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.metrics import r2_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from fedkernel import numerics
from fedkernel.ground import FloatArray, InputError
from fedkernel.models import Landmarks
from fedkernel.numerics import RBF, IntArray, Kernel, Linear

SAMPLE_ROWS = 10_000  # most rows for a kernel's width, landmarks, pre-images and clusters
MOST_CENTERS = 500  # most coordinates that a pre-image is a combination of
PREIMAGE_TOL = 1e-12  # squared lengths, relative to the largest, below which directions of coordinates count as none


def check_count(name: str, value: Any, note: str = "") -> None:
    """Raise InputError unless a parameter is a whole number from 1."""
    if not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{name} = {value!r}, but must be a whole number from 1{note}")


class KernelEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Base of all estimators, with checked rows of numbers."""

    kernel: Any
    gamma: Any
    random_state: Any

    @abstractmethod
    def _coordinates(self, X: FloatArray) -> FloatArray:
        """Return the coordinates of checked rows, (n, d) to (n, k)."""

    def _rows(self, X: Any, **training: Any) -> FloatArray:
        if not training:
            check_is_fitted(self)
        rows = validate_data(self, X, dtype=[np.float64, np.float32], **(training or {"reset": False}))
        return np.asarray(rows)

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31))

    def _kernel(self) -> Kernel:
        kernel = numerics.table_of_name("rbf" if self.kernel is None else self.kernel)
        if isinstance(kernel, Mapping):
            kernel = numerics.kernel_from(kernel)
        if not isinstance(kernel, Kernel):
            raise InputError(f"kernel = {kernel!r}, but must be a kernel, or the name or table of one")
        if (gamma := self.gamma) is None:
            return kernel
        if not hasattr(kernel, "width") or not isinstance(gamma, int | float | np.number) or not gamma > 0:
            allowed = "a number above 0, for a kernel with a width, or None"
            raise InputError(f"gamma = {gamma!r} with {kernel!r}; allowed: {allowed}")
        return kernel.with_gamma(float(gamma))


class ComponentsEstimator(KernelEstimator):
    """Base of estimators of components, whose pre-images are found by ridge regression on the training rows."""

    alpha: float

    def transform(self, X: Any) -> FloatArray:
        """Return the coordinates of rows X (n, d) along the components, (n, k)."""
        return self._coordinates(self._rows(X))

    def inverse_transform(self, X: Any) -> FloatArray:
        """Return rows (n, d) whose coordinates are about X (n, k).

        By ridge regression of the training rows on their coordinates, of which at most 500 are its centres. Source:
        Bakir, Weston, Schoelkopf: Learning to find pre-images, NIPS 2004, as in scikit-learn's KernelPCA.
        """
        check_is_fitted(self)
        preimage, means = self._preimages
        return np.asarray(preimage(X) + means)

    def score(self, X: Any, y: Any = None) -> float:
        """Return R^2 of the pre-images of rows X (n, d), to compare kernels and widths.

        The variance kept in feature space compares none: it is 1 for a kernel so wide that all rows look alike.
        """
        return float(r2_score(X, self.inverse_transform(self.transform(X)), multioutput="variance_weighted"))

    def _keep_training(self, X: FloatArray, Z: FloatArray | None, width: int, *, linear: bool) -> None:
        """Keep rows X (n, d), and coordinates Z (n, k) if known, for pre-images. Many rows are thinned out evenly."""
        if not self.alpha > 0:
            raise InputError(f"alpha = {self.alpha!r}, but must be above 0")
        step = -(-len(X) // SAMPLE_ROWS)
        self._training, self._n_features_out = (X[::step], None if Z is None else Z[::step], linear), width
        self.__dict__.pop("_preimages", None)

    @cached_property
    def _preimages(self) -> tuple[Landmarks, FloatArray]:
        """Ridge regression of the kept rows on their coordinates, and the rows' means. May cost more than a fit."""
        X, Z, linear = self._training
        Z = self._coordinates(X) if Z is None else Z
        kernel = Linear() if linear else numerics.with_width(RBF(), Z)
        centers = Z[:: -(-len(Z) // MOST_CENTERS)]
        R = numerics.whitening(kernel.gram(centers), PREIMAGE_TOL)
        F = kernel.gram(Z, centers) @ R
        means = X.mean(axis=0, dtype=np.float64)
        weights = np.linalg.solve(F.T @ F + self.alpha * np.eye(F.shape[1]), F.T @ (X - means))
        return Landmarks(kernel, centers, R @ weights), means

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a file or a copy, with the fitted regression in place of the rows."""
        state = dict(super().__getstate__())
        if state.pop("_training", None):
            state["_preimages"] = self._preimages
        return state


class ClustersEstimator(ClusterMixin, KernelEstimator):  # type: ignore[misc]
    """Base of estimators of clusters: k-means centres among coordinates."""

    cluster_centers_: FloatArray

    def predict(self, X: Any) -> IntArray:
        """Return the numbers (n,) of the centres nearest to rows X (n, d)."""
        return numerics.assign(self._coordinates(self._rows(X)), self.cluster_centers_)[0]

    def transform(self, X: Any) -> FloatArray:
        """Return the distances (n, k) in feature space of rows X (n, d) to the centres."""
        return np.asarray(cdist(self._coordinates(self._rows(X)), self.cluster_centers_))

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean simplified silhouette of rows X (n, d), to compare numbers of clusters and widths."""
        Z = self._coordinates(self._rows(X))
        return float(numerics.simplified_silhouettes(Z, self.cluster_centers_).mean())

    def _keep(self, centers: FloatArray, labels: IntArray) -> None:
        self.cluster_centers_, self.labels_, self._n_features_out = centers, labels, len(centers)
