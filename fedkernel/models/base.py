"""What a run yields: models that are saved as npz without pickle and loaded with every check."""

import dataclasses
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pydantic

from fedkernel.addresses import loaded, named
from fedkernel.arrays import FloatArray, Rows
from fedkernel.data import check_matrix
from fedkernel.data.tables import Table
from fedkernel.errors import InputError
from fedkernel.models.embeddings import EMBEDDINGS, Embedding, Landmarks
from fedkernel.numerics.clustering import assign
from fedkernel.numerics.kernels import Kernel, Linear, normalised_gram
from fedkernel.numerics.linalg import center_rows
from fedkernel.numerics.sketch import SubspaceEmbedding
from fedkernel.storage import NUMBERS, Parts, load_parts, save_parts, under

_KERNEL: pydantic.TypeAdapter[Kernel] = pydantic.TypeAdapter(Kernel)
_FEATURES: pydantic.TypeAdapter[SubspaceEmbedding | None] = pydantic.TypeAdapter(SubspaceEmbedding | None)


class Model(ABC):
    """Base of all models: how one becomes a file, and a file one of them.

    Models know no names: a frame's columns are taken as they stand, and must be in the order of the first shard's.
    """

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model as npz; the file appears whole or not at all."""
        fields, arrays = self._parts()
        return save_parts(path, Parts(type(self).__name__, fields, arrays))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model that `save` wrote.

        Raises
        ------
        InputError
            If the file is missing, damaged, or something else than such a model.
        """
        return cls._from_file(path, load_parts(path))

    @classmethod
    def _from_file(cls, path: str | os.PathLike[str], parts: Parts) -> Self:
        if parts.model != cls.__name__:
            raise InputError(f"{path} holds a {parts.model} model, not a {cls.__name__} model")
        _check_imported(path, parts)
        try:
            if any(array.dtype not in (np.float64, np.int32) for array in parts.arrays.values()):
                raise TypeError("dtype")
            return cls._from_parts(parts.fields, parts.arrays)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"{path} is a damaged fedkernel model: its parts do not fit together ({type(error).__name__})"
            ) from None

    @abstractmethod
    def _parts(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return the model as plain fields and arrays."""

    @classmethod
    @abstractmethod
    def _from_parts(cls, fields: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """Rebuild the model, raising ValueError, KeyError or TypeError for parts that do not fit together."""


@dataclass(frozen=True)
class KernelPCA(Model):
    """Leading eigenpairs of a kernel matrix that no party ever saw whole.

    Attributes
    ----------
    eigenvalues_ : ndarray of shape (k,)
        In non-increasing order.
    eigenvectors_ : ndarray of shape (N, k)
        Orthonormal columns over the N training rows; subspaces are comparable, single columns only up to sign.
    kernel : Kernel
    column_means_ : ndarray of shape (N,) or None
        Column means of the kernel matrix before it was centred; None if it was not.
    mean_ : float
        Mean of the whole kernel matrix before it was centred.
    iterates_ : ndarray of shape (T, N, k) or None
        For iterative methods: the estimate after each round.
    """

    eigenvalues_: FloatArray
    eigenvectors_: FloatArray
    kernel: Kernel
    column_means_: FloatArray | None = None
    mean_: float = 0.0
    iterates_: FloatArray | None = None

    @property
    def n_components(self) -> int:
        """Number of components, k."""
        return int(self.eigenvalues_.shape[0])

    def embedding(self) -> FloatArray:
        """Return the training rows' coordinates: eigenvectors times the roots of their eigenvalues, (N, k)."""
        scaled: FloatArray = self.eigenvectors_ * np.sqrt(np.maximum(self.eigenvalues_, 0.0))
        return scaled

    def project(self, K_new: FloatArray) -> FloatArray:
        """Return new rows' coordinates in the same space as `embedding`.

        Parameters
        ----------
        K_new : ndarray of shape (n_new, N)
            Kernel between new and training rows, not centred.

        Returns
        -------
        ndarray of shape (n_new, k)
            Components whose eigenvalue is not positive (beyond rounding) are 0.
        """
        expected = self.eigenvectors_.shape[0]
        if K_new.ndim != 2 or K_new.shape[1] != expected:
            raise InputError(f"K_new has shape {K_new.shape}, but must be (new rows, {expected} training rows)")
        rows = K_new
        if self.column_means_ is not None:
            rows = K_new.copy()
            center_rows(rows, self.column_means_, self.mean_)
        return self.scale(rows @ self.eigenvectors_)

    def scale(self, products: FloatArray) -> FloatArray:
        """Divide products of (centred) kernel rows and eigenvectors, (n_new, k), by the roots of the eigenvalues.

        A vector V of unit length stands for the direction phi(X)^T V, whose length in feature space is
        sqrt(lambda): dividing by it makes the direction a unit vector.
        """
        floor = np.finfo(float).eps * self.eigenvectors_.shape[0] * max(abs(self.eigenvalues_).max(), 0.0)
        positive = self.eigenvalues_ > floor
        roots = np.sqrt(np.where(positive, self.eigenvalues_, 1.0))
        scaled: FloatArray = np.where(positive, products / roots, 0.0)
        return scaled

    def _parts(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        names = ("eigenvalues_", "eigenvectors_", "column_means_", "iterates_")
        arrays = {name: array for name in names if (array := getattr(self, name)) is not None}
        return {"kernel": _KERNEL.dump_python(self.kernel, mode="json"), "mean": self.mean_}, arrays

    @classmethod
    def _from_parts(cls, fields: Mapping[str, Any], arrays: Mapping[str, FloatArray]) -> Self:
        model = cls(kernel=_KERNEL.validate_python(fields["kernel"]), mean_=float(fields["mean"]), **arrays)
        rows, components = model.eigenvectors_.shape
        consistent = model.eigenvalues_.shape == (components,) and np.isfinite(model.mean_)
        consistent &= model.column_means_ is None or model.column_means_.shape == (rows,)
        consistent &= model.iterates_ is None or model.iterates_.shape[1:] == (rows, components)
        if not consistent:
            raise ValueError("shapes")
        return model


@dataclass(frozen=True)
class LandmarkPCA(Model):
    """Leading kernel principal components as combinations of some rows: L = phi(Y) C, orthonormal in feature space.

    Not centred. Where the landmarks are all rows, this is kernel PCA itself.

    Attributes
    ----------
    kernel : Kernel
    landmarks_ : ndarray or CSR array of shape (n, d)
        Y.
    coefficients_ : ndarray of shape (n, k)
        C.
    eigenvalues_ : ndarray of shape (k,)
        In non-increasing order: the squared lengths, summed over the training rows, of their coordinates; estimates
        where the method sketched them.
    """

    kernel: Kernel
    landmarks_: Rows
    coefficients_: FloatArray
    eigenvalues_: FloatArray

    @property
    def n_components(self) -> int:
        """Number of components, k."""
        return int(self.eigenvalues_.shape[0])

    @property
    def embedding(self) -> Landmarks:
        """Rows to coordinates, (n, d) to (n, k)."""
        return Landmarks(self.kernel, self.landmarks_, self.coefficients_)

    def transform(self, X: npt.ArrayLike | Rows | Table) -> FloatArray:
        """Compute the coordinates L^T phi(x) of rows X (n, d), a table of any kind: shape (n, k)."""
        return self.embedding(X)

    def inner_products(self, other: "LandmarkPCA") -> FloatArray:
        """Compute the inner products of these components and those of another model of the same kernel: (k, k')."""
        values = self.kernel.gram(self.landmarks_, other.landmarks_)
        return np.asarray(self.coefficients_.T @ values @ other.coefficients_)

    def captured(self, X: npt.ArrayLike | Rows | Table) -> tuple[float, float]:
        """Return the sums over rows X (n, d) of ||phi(x)||^2, and of what of it the components capture."""
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
        held = Landmarks.from_parts(fields, {name: array for name, array in arrays.items() if name != "eigenvalues_"})
        if arrays["eigenvalues_"].shape != (held.width,):
            raise ValueError("shapes")
        return cls(held.kernel, held.landmarks, held.coefficients, arrays["eigenvalues_"])


@dataclass(frozen=True)
class KernelKMeans(Model):
    """Clusters in the feature space of a kernel: an embedding of rows, and the centres of k-means in it.

    Attributes
    ----------
    centers_ : ndarray of shape (k, s)
        Fewer than asked for where there are fewer distinct points.
    embedding : Embedding
        Rows to coordinates, (n, d) to (n, s): all that labelling new rows needs.
    eigenvalues_ : ndarray of shape (s,) or None
        Of the kernel matrix that the embedding approximates, in non-increasing order, where the method finds them.
    training_ : ndarray of shape (N, s) or None
        The training rows' coordinates, where one party had all rows; else they stay with the sites.
    """

    centers_: FloatArray
    embedding: Embedding
    eigenvalues_: FloatArray | None = None
    training_: FloatArray | None = None

    def transform(self, X: npt.ArrayLike | Rows | Table) -> FloatArray:
        """Embed rows X, (n, d): coordinates of shape (n, s)."""
        return self.embedding(X)

    def predict(self, X: npt.ArrayLike | Rows | Table) -> npt.NDArray[np.int64]:
        """Label rows X, (n, d), by the nearest centre: integers of shape (n,) from 0 to k - 1."""
        return assign(self.transform(X), self.centers_)[0]

    def _parts(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        fields, arrays = self.embedding.parts()
        own = {"centers_": self.centers_, "eigenvalues_": self.eigenvalues_, "training_": self.training_}
        told = {f"embedding.{name}": array for name, array in arrays.items()}
        told |= {name: array for name, array in own.items() if array is not None}
        return {"embedding": {"kind": self.embedding.kind, **fields}}, told

    @classmethod
    def _from_parts(cls, fields: Mapping[str, Any], arrays: Mapping[str, FloatArray]) -> Self:
        told, inner = fields["embedding"], under("embedding.", arrays)
        own = {name: array for name, array in arrays.items() if not name.startswith("embedding.")}
        model = cls(embedding=EMBEDDINGS[told["kind"]].from_parts(told, inner), **own)
        width = model.embedding.width
        consistent = model.centers_.ndim == 2 and model.centers_.shape[1] == width and len(model.centers_) > 0
        consistent &= model.eigenvalues_ is None or model.eigenvalues_.shape == (width,)
        consistent &= model.training_ is None or model.training_.shape[1:] == (width,)
        if not consistent:
            raise ValueError("shapes")
        return model


@dataclass(frozen=True)
class PeerComponents(Model):
    """What the coordinator knows of components that peers found among themselves and keep: how that went.

    Attributes
    ----------
    kernel : Kernel
    n_components : int
        k.
    rho_ : float or None
        Of ADMM: the penalty in the first iteration of the last component.
    lagrangian_ : ndarray of shape (k, T) or None
        Of ADMM: the augmented Lagrangian before each update; where a component took fewer iterations, its last value.
    without_multipliers_ : ndarray of shape (k,) or None
        Of ADMM: the iteration from which on a component went without multipliers; 0: none.
    """

    kernel: Kernel
    n_components: int
    rho_: float | None = None
    lagrangian_: FloatArray | None = None
    without_multipliers_: FloatArray | None = None

    def _parts(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        arrays = {"lagrangian_": self.lagrangian_, "without_multipliers_": self.without_multipliers_}
        fields = {"kernel": _KERNEL.dump_python(self.kernel, mode="json"), "components": self.n_components}
        return {**fields, "rho": self.rho_}, {name: array for name, array in arrays.items() if array is not None}

    @classmethod
    def _from_parts(cls, fields: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        k, rho = int(fields["components"]), None if fields["rho"] is None else float(fields["rho"])
        model = cls(_KERNEL.validate_python(fields["kernel"]), k, rho, **arrays)
        consistent = k >= 1 and (model.lagrangian_ is None or model.lagrangian_.shape[:-1] == (k,))
        consistent &= model.without_multipliers_ is None or model.without_multipliers_.shape == (k,)
        if not consistent:
            raise ValueError("shapes")
        return model


@dataclass(frozen=True)
class NodeComponents(Model):
    """Components that one node of a network found, as combinations of its own rows: what stays there.

    Attributes
    ----------
    kernel : Kernel
        Normalised, so that k(x, x) = 1.
    rows_ : ndarray of shape (n, d)
        The node's own.
    alpha_ : ndarray of shape (n, k)
    center : bool
        Whether rows are centred in feature space, by the mean of the node's.
    features : SubspaceEmbedding or None
        In place of the kernel's own features, where the nodes exchanged these.
    """

    kernel: Kernel
    rows_: FloatArray
    alpha_: FloatArray
    center: bool = True
    features: SubspaceEmbedding | None = None

    def transform(self, X: npt.ArrayLike) -> FloatArray:
        """Compute coordinates along the components of rows X, (n_new, d): shape (n_new, k)."""
        new = check_matrix(X, "X")
        if new.shape[1] != self.rows_.shape[1]:
            raise InputError(f"X has {new.shape[1]} columns, but the components were found in {self.rows_.shape[1]}")
        own, kernel = self.rows_, self.kernel
        if self.features is not None:
            mapped = self.features.map(own.shape[1])
            new, own, kernel = mapped(new), mapped(own), Linear()
        K = normalised_gram(kernel, new, own)
        if self.center:
            means = normalised_gram(kernel, own).mean(axis=0)
            center_rows(K, means, float(means.mean()))
        return np.asarray(K @ self.alpha_)

    def _parts(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        fields = {"kernel": _KERNEL.dump_python(self.kernel, mode="json"), "center": self.center}
        features = _FEATURES.dump_python(self.features, mode="json")
        return {**fields, "features": features}, {"rows_": self.rows_, "alpha_": self.alpha_}

    @classmethod
    def _from_parts(cls, fields: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        features = _FEATURES.validate_python(fields["features"])
        model = cls(_KERNEL.validate_python(fields["kernel"]), center=fields["center"], features=features, **arrays)
        consistent = model.rows_.ndim == model.alpha_.ndim == 2 and len(model.rows_) == len(model.alpha_) > 0
        if not consistent or not isinstance(model.center, bool):
            raise ValueError("shapes")
        return model


MODELS: dict[str, type[Model]] = {
    made.__name__: made for made in (KernelPCA, LandmarkPCA, KernelKMeans, PeerComponents, NodeComponents)
}
"""By the name that a file gives."""

PLAIN = "value"
"""What a file calls a model that is an array or a number."""


def save_model(model: Any, path: str | os.PathLike[str]) -> Path:
    """Write a model as npz: one of this module, an array or a number, or a dataclass of one's own.

    The fields of a dataclass may be arrays of finite numbers, numbers, texts, None, kernels, and lists, tuples and
    dataclasses of these. The file names its class by its address.

    Raises
    ------
    InputError
        If it is something else; the text names the field.
    """
    name = _called(type(model))
    if name in MODELS:
        return Path(model.save(path))
    if name != PLAIN and not dataclasses.is_dataclass(model):
        raise InputError(
            f"what the protocol returned, of type {type(model).__name__}, cannot be saved; allowed: an array, a "
            f"dataclass of arrays and numbers, or a model of fedkernel.models ({', '.join(MODELS)})"
        )
    arrays: dict[str, npt.NDArray[Any]] = {}
    return save_parts(path, Parts(name, {PLAIN: _packed(model, PLAIN, arrays)}, arrays))


def load_model(path: str | os.PathLike[str], kind: type[Any] | None = None) -> Any:
    """Read a model of whatever kind.

    A file is data, which may come from somebody else: nothing that it names is imported. A dataclass of one's own is
    found where its module has been imported before, as it has where its strategy was, or where it is given as `kind`;
    it, and a dataclass within it, is made by its own ``__init__`` with what the file says.

    Parameters
    ----------
    path : path-like
    kind : type, optional
        What it must be.

    Raises
    ------
    InputError
        If the file is missing, damaged, no model, or of a class that is not known here.
    """
    parts = load_parts(path)
    if kind is not None and parts.model != _called(kind):
        raise InputError(f"{path} holds a {parts.model} model, not a {_called(kind)} model")
    if parts.model in MODELS:
        return MODELS[parts.model]._from_file(path, parts)
    if parts.model != PLAIN and ":" not in parts.model:
        raise InputError(f"{path} holds a {parts.model} model, but this version knows {', '.join(MODELS)}")
    _check_imported(path, parts, kind)
    try:
        return _unpacked(parts.fields[PLAIN], parts.arrays, kind)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{path} is a damaged fedkernel model: its parts do not fit together ({type(error).__name__})"
        ) from None


def _called(kind: type[Any]) -> str:
    """Return what a file calls a model of this class."""
    if issubclass(kind, np.ndarray | np.generic | int | float):
        return PLAIN
    return kind.__name__ if MODELS.get(kind.__name__) is kind else named(kind)


def _check_imported(path: str | os.PathLike[str], parts: Parts, kind: type[Any] | None = None) -> None:
    """Raise InputError if a file names a class, of a model or a kernel, whose module has not been imported."""
    for name in [parts.model, *_addresses(parts.fields)]:
        if ":" in name and loaded(name) is None and (kind is None or named(kind) != name):
            module = name.partition(":")[0]
            raise InputError(
                f"{path} holds a {parts.model} model, but {name} has not been imported: import {module} first"
            )


def _addresses(value: Any) -> list[str]:
    entries = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    own = [value[key] for key in ("type", "of") if isinstance(value, dict) and isinstance(value.get(key), str)]
    return own + [name for entry in entries for name in _addresses(entry)]


def _packed(value: Any, where: str, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    """Return a value as JSON can hold it, its arrays put aside under their places; the inverse of `_unpacked`."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Kernel):
        return {"kernel": _KERNEL.dump_python(value, mode="json")}
    if isinstance(value, list | tuple):
        items = [_packed(item, f"{where}.{number}", arrays) for number, item in enumerate(value)]
        return {type(value).__name__: items}
    if isinstance(value, np.ndarray) and value.dtype.kind in NUMBERS and np.isfinite(value).all():
        arrays[where] = value
        return {"array": where}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
        packed = {name: _packed(inner, f"{where}.{name}", arrays) for name, inner in fields.items()}
        return {"fields": packed, "of": named(type(value))}
    what = f"{value.dtype} array" if isinstance(value, np.ndarray) else type(value).__name__
    field = where.removeprefix(f"{PLAIN}.")
    raise InputError(
        f"{field} of the model, of type {what}, cannot be saved; allowed: finite numbers, arrays of them, text, kernels"
    )


def _unpacked(value: Any, arrays: Mapping[str, npt.NDArray[Any]], kind: type[Any] | None) -> Any:
    if not isinstance(value, dict):
        return value
    if "of" in value:
        inner = {name: _unpacked(field, arrays, None) for name, field in value["fields"].items()}
        model_class = kind if kind is not None and named(kind) == value["of"] else loaded(value["of"])
        if not (isinstance(model_class, type) and dataclasses.is_dataclass(model_class)):
            raise TypeError("no dataclass")
        return model_class(**inner)
    ((how, content),) = value.items()
    if how == "array":
        return arrays[content]
    if how == "kernel":
        return _KERNEL.validate_python(content)
    items = [_unpacked(item, arrays, None) for item in content]
    return tuple(items) if how == "tuple" else items
