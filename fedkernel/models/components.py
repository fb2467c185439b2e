"""Models of kernel principal components: of all rows, of landmarks, of a network's nodes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pydantic

from fedkernel import numerics
from fedkernel.data import Table, check_matrix
from fedkernel.ground import FloatArray, InputError, Rows
from fedkernel.models.base import KERNEL_ADAPTER, Model
from fedkernel.models.embedding_maps import Landmarks, refuse_frame
from fedkernel.numerics import RBF, Kernel, Linear, SubspaceEmbedding

_FEATURES: pydantic.TypeAdapter[SubspaceEmbedding | None] = pydantic.TypeAdapter(SubspaceEmbedding | None)


@dataclass(frozen=True, repr=False)
class KernelPCA(Model):
    """Leading eigenpairs of the kernel matrix of all clients' rows.

    - `eigenvalues_` (k,): in non-increasing order.
    - `eigenvectors_` (N, k): orthonormal columns over the N training rows; subspaces are comparable, single columns up
      to sign.
    - `column_means_` (N,), `mean_`: column means and mean of the kernel matrix before centring; None if uncentred.
    - `iterates_` (T, N, k): the estimate after each round of an iterative method.
    - `certificate_`: bound on ||sin Theta||_F, the root of the sin-theta error against the exact answer, if the method
      has one.
    - `coordinates_` (N, r): the training rows up to shift and rotation, for `with_kernel`, if the coordinator received
      inner products. A model's file has them, too, and reveals what the upload did.
    """

    eigenvalues_: FloatArray
    eigenvectors_: FloatArray
    kernel: Kernel
    column_means_: FloatArray | None = None
    mean_: float = 0.0
    iterates_: FloatArray | None = None
    certificate_: float | None = None
    coordinates_: FloatArray | None = None

    _ARRAYS: ClassVar = ("eigenvalues_", "eigenvectors_", "column_means_", "iterates_", "coordinates_")

    @classmethod
    def of_coordinates(cls, F: FloatArray, kernel: Kernel, n_components: int, *, center: bool) -> Self:
        """Compute kernel PCA from rows' coordinates F (N, r). Memory: two (N, N) arrays."""
        own = cls.of_gram(kernel.gram(F), kernel, n_components, center=center)
        return replace(own, coordinates_=F)

    @classmethod
    def of_gram(cls, K: FloatArray, kernel: Kernel, n_components: int, *, center: bool) -> Self:
        """Compute kernel PCA of a kernel matrix K (N, N), which centring overwrites."""
        kernel_mean = numerics.mean_value(float(K.sum()), float(np.trace(K)), len(K))
        column_means, mean = numerics.center_gram(K) if center else (None, 0.0)
        pairs = numerics.leading_eigenpairs(K, n_components)
        return cls(pairs.values, pairs.vectors, kernel, column_means, mean, kernel_mean_=kernel_mean)

    def with_kernel(self, kernel: RBF) -> Self:
        """Recompute the components at another kernel width from the known coordinates, without clients.

        Raises InputError if the model has no coordinates, or the kernel is no RBF.
        """
        if self.coordinates_ is None:
            raise InputError('the model has no coordinates_; only runs with upload = "inner products" have them')
        if not isinstance(kernel, RBF):
            raise InputError(f"kernel = {kernel!r}, but must be RBF, because only distances between rows are known")
        center = self.column_means_ is not None
        return self.of_coordinates(self.coordinates_, kernel, self.n_components, center=center)

    @property
    def n_components(self) -> int:
        """Number of components, k."""
        return int(self.eigenvalues_.shape[0])

    def first(self, k: int) -> Self:
        """Return the model of its first k components, without the certificate."""
        iterates = None if self.iterates_ is None else self.iterates_[:, :, :k]
        values, vectors = self.eigenvalues_[:k], self.eigenvectors_[:, :k]
        return replace(self, eigenvalues_=values, eigenvectors_=vectors, iterates_=iterates, certificate_=None)

    def embedding(self) -> FloatArray:
        """Return the training rows' coordinates (N, k): eigenvectors times the roots of their eigenvalues."""
        return np.asarray(self.eigenvectors_ * np.sqrt(np.maximum(self.eigenvalues_, 0.0)))

    def project(self, K_new: FloatArray) -> FloatArray:
        """Return new rows' coordinates (n_new, k) in the same space as `embedding`.

        `K_new` (n_new, N): kernel between new and training rows, not centred. Coordinates are 0 for components whose
        eigenvalue is not positive (beyond rounding).
        """
        expected = self.eigenvectors_.shape[0]
        if K_new.ndim != 2 or K_new.shape[1] != expected:
            raise InputError(f"K_new has shape {K_new.shape}, but must be (new rows, {expected} training rows)")
        rows = K_new
        if self.column_means_ is not None:
            rows = K_new.copy()
            numerics.center_rows(rows, self.column_means_, self.mean_)
        return self.scale(rows @ self.eigenvectors_)

    def scale(self, products: FloatArray) -> FloatArray:
        """Divide products (n_new, k) of centred kernel rows and eigenvectors by the roots of the eigenvalues.

        A unit vector V stands for the direction phi(X)^T V, of length sqrt(lambda) in feature space.
        """
        floor = np.finfo(float).eps * self.eigenvectors_.shape[0] * max(abs(self.eigenvalues_).max(), 0.0)
        positive = self.eigenvalues_ > floor
        roots = np.sqrt(np.where(positive, self.eigenvalues_, 1.0))
        return np.where(positive, products / roots, 0.0)

    def _parts(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        arrays = {name: array for name in self._ARRAYS if (array := getattr(self, name)) is not None}
        certificate = {} if self.certificate_ is None else {"certificate": self.certificate_}
        kernel = KERNEL_ADAPTER.dump_python(self.kernel, mode="json")
        return {"kernel": kernel, "mean": self.mean_, **certificate}, arrays

    @classmethod
    def _from_parts(cls, fields: Mapping[str, Any], arrays: Mapping[str, FloatArray]) -> Self:
        bound = float(fields["certificate"]) if "certificate" in fields else None
        kernel, mean = KERNEL_ADAPTER.validate_python(fields["kernel"]), float(fields["mean"])
        if arrays.keys() - set(cls._ARRAYS):
            raise ValueError("arrays")
        model = cls(kernel=kernel, mean_=mean, certificate_=bound, **dict[str, Any](arrays))
        rows, components = model.eigenvectors_.shape
        consistent = model.eigenvalues_.shape == (components,) and np.isfinite(model.mean_)
        consistent &= model.column_means_ is None or model.column_means_.shape == (rows,)
        consistent &= model.iterates_ is None or model.iterates_.shape[1:] == (rows, components)
        consistent &= model.coordinates_ is None or model.coordinates_.shape[:-1] == (rows,)
        consistent &= bound is None or bool(np.isfinite(bound))
        if not consistent:
            raise ValueError("shapes")
        return model


@dataclass(frozen=True, repr=False)
class LandmarkPCA(Model):
    """Leading kernel principal components L = phi(Y) C, orthonormal combinations of some rows Y in feature space.

    Not centred; with all rows as landmarks, kernel PCA itself.

    - `landmarks_` (n, d), dense or CSR, and `coefficients_` (n, k): Y and C.
    - `eigenvalues_` (k,): in non-increasing order, squared lengths of the training rows' coordinates, summed; estimates
      if sketched.
    """

    kernel: Kernel
    landmarks_: Rows
    coefficients_: FloatArray
    eigenvalues_: FloatArray

    @property
    def n_components(self) -> int:
        """Number of components, k."""
        return int(self.eigenvalues_.shape[0])

    def first(self, k: int) -> Self:
        """Return the model of its first k components."""
        return replace(self, coefficients_=self.coefficients_[:, :k], eigenvalues_=self.eigenvalues_[:k])

    @property
    def embedding(self) -> Landmarks:
        """Embedding of rows as coordinates, (n, d) to (n, k)."""
        return Landmarks(self.kernel, self.landmarks_, self.coefficients_)

    def transform(self, X: npt.ArrayLike | Rows | Table) -> FloatArray:
        """Compute the coordinates (n, k), L^T phi(x), of rows X (n, d), a table of any kind."""
        return self.embedding(X)

    def orthonormal(self) -> Self:
        """Return the model with components orthonormal in feature space, fewer if they are dependent.

        Components that are orthonormal up to rounding stay; others would count captured lengths more than once.
        """
        products = self.inner_products(self)
        if np.allclose(products, np.eye(len(products)), rtol=0.0, atol=1e-6):
            return self
        return replace(self, coefficients_=self.coefficients_ @ numerics.whitening(products, 1e-10))

    def inner_products(self, other: "LandmarkPCA") -> FloatArray:
        """Compute the inner products (k, k') with the components of another model of the same kernel."""
        values = self.kernel.gram(self.landmarks_, other.landmarks_)
        return np.asarray(self.coefficients_.T @ values @ other.coefficients_)

    def captured(self, X: npt.ArrayLike | Rows | Table) -> tuple[float, float]:
        """Return the summed squared lengths of rows X (n, d), in total and as captured by the components."""
        total = captured = 0.0
        for block, coordinates in self.embedding.blocks(X):
            total += float(self.kernel.diag(block).sum())
            captured += float(np.square(coordinates).sum())
        return total, captured

    def _parts(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        fields, arrays = self.embedding.parts()
        return fields, {**arrays, "eigenvalues_": self.eigenvalues_}

    @classmethod
    def _from_parts(cls, fields: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        basis = Landmarks.from_parts(fields, {name: array for name, array in arrays.items() if name != "eigenvalues_"})
        if arrays["eigenvalues_"].shape != (basis.width,):
            raise ValueError("shapes")
        return cls(basis.kernel, basis.landmarks, basis.coefficients, arrays["eigenvalues_"])


@dataclass(frozen=True, repr=False)
class PeerComponents(Model):
    """Coordinator's record of components that peers computed and keep.

    - `n_components`: k.
    - `rho_`: ADMM's penalty in the first iteration of the last component.
    - `lagrangian_` (k, T) or None: ADMM's augmented Lagrangian before each update, which need not fall; padded by a
      component's last value.
    - `without_multipliers_` (k,) or None: ADMM's iteration from which a component went without multipliers; 0: none.
    """

    kernel: Kernel
    n_components: int
    rho_: float | None = None
    lagrangian_: FloatArray | None = None
    without_multipliers_: FloatArray | None = None

    def _parts(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        arrays = {"lagrangian_": self.lagrangian_, "without_multipliers_": self.without_multipliers_}
        fields = {"kernel": KERNEL_ADAPTER.dump_python(self.kernel, mode="json"), "components": self.n_components}
        return {**fields, "rho": self.rho_}, {name: array for name, array in arrays.items() if array is not None}

    @classmethod
    def _from_parts(cls, fields: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        k, rho = fields["components"], None if fields["rho"] is None else float(fields["rho"])
        model = cls(KERNEL_ADAPTER.validate_python(fields["kernel"]), k, rho, **dict[str, Any](arrays))
        consistent = isinstance(k, int) and k >= 1 and (rho is None or 0 < rho < math.inf)
        consistent &= model.lagrangian_ is None or model.lagrangian_.shape[:-1] == (k,)
        consistent &= model.without_multipliers_ is None or model.without_multipliers_.shape == (k,)
        if not consistent:
            raise ValueError("shapes")
        return model


@dataclass(frozen=True, repr=False)
class NodeComponents(Model):
    """Components of one network node, as combinations of its own rows; they stay at the node.

    - `kernel`: normalised, so that k(x, x) = 1.
    - `rows_` (n, d): the node's rows.
    - `alpha_` (n, k).
    - `center`: whether rows are centred in feature space, by the node's mean.
    - `features`: random features that the nodes exchanged in place of the kernel's own.
    """

    kernel: Kernel
    rows_: FloatArray
    alpha_: FloatArray
    center: bool = True
    features: SubspaceEmbedding | None = None

    def transform(self, X: npt.ArrayLike) -> FloatArray:
        """Compute the coordinates (n_new, k) of rows X (n_new, d) along the components."""
        refuse_frame(X)
        new = check_matrix(X, "X")
        if new.shape[1] != self.rows_.shape[1]:
            raise InputError(f"X has {new.shape[1]} columns, but the components were found in {self.rows_.shape[1]}")
        own, kernel = self.rows_, self.kernel
        if self.features is not None:
            mapped = self.features.map(own.shape[1])
            new, own, kernel = mapped(new), mapped(own), Linear()
        K = numerics.normalised_gram(kernel, new, own)
        if self.center:
            means = numerics.normalised_gram(kernel, own).mean(axis=0)
            numerics.center_rows(K, means, float(means.mean()))
        return np.asarray(K @ self.alpha_)

    def _parts(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        fields = {"kernel": KERNEL_ADAPTER.dump_python(self.kernel, mode="json"), "center": self.center}
        features = _FEATURES.dump_python(self.features, mode="json")
        return {**fields, "features": features}, {"rows_": self.rows_, "alpha_": self.alpha_}

    @classmethod
    def _from_parts(cls, fields: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        features = _FEATURES.validate_python(fields["features"])
        kernel = KERNEL_ADAPTER.validate_python(fields["kernel"])
        model = cls(kernel, arrays["rows_"], arrays["alpha_"], fields["center"], features)
        consistent = model.rows_.ndim == model.alpha_.ndim == 2 and len(model.rows_) == len(model.alpha_) > 0
        if len(arrays) != 2 or not consistent or not isinstance(model.center, bool):
            raise ValueError("shapes")
        return model
