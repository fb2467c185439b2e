"""What a run yields: models that are saved as npz without pickle and loaded with every check."""

import json
import os
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pydantic

from fedkernel.arrays import FloatArray
from fedkernel.errors import InputError
from fedkernel.kernels import Kernel
from fedkernel.linalg import center_rows

FORMAT = "fedkernel-model"
FORMAT_VERSION = 1
_UNREADABLE = (
    *(EOFError, KeyError, OSError, RuntimeError, TypeError, ValueError),  # also a .npy file, an encrypted zip
    *(zipfile.BadZipFile, zlib.error),
)
_KERNEL: pydantic.TypeAdapter[Kernel] = pydantic.TypeAdapter(Kernel)


@dataclass(frozen=True)
class KernelPCA:
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

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model as npz; the file appears whole or not at all."""
        names = ("eigenvalues_", "eigenvectors_", "column_means_", "iterates_")
        arrays = {name: array for name in names if (array := getattr(self, name)) is not None}
        header = {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "model": "KernelPCA",
            "kernel": _KERNEL.dump_python(self.kernel, mode="json"),
            "mean": self.mean_,
            # A damaged zip directory can lose an array, and a model without its means looks like one never centred.
            "arrays": list(arrays),
        }
        told = np.array(json.dumps(header))
        return write_whole(
            Path(path), lambda file: np.savez_compressed(file, allow_pickle=False, header=told, **arrays)
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "KernelPCA":
        """Read a model that `save` wrote.

        Raises
        ------
        InputError
            If the file is missing, damaged, or something else than such a model.
        """
        try:
            # Opened here, since numpy leaves a file open that it cannot read.
            with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            header = json.loads(str(arrays.pop("header")))
        except FileNotFoundError:
            raise InputError(f"there is no model file {path}") from None
        except _UNREADABLE as error:
            raise InputError(f"{path} is damaged or is no fedkernel model ({type(error).__name__})") from None
        return cls._from_parts(path, header, arrays)

    @classmethod
    def _from_parts(cls, path: str | os.PathLike[str], header: Any, arrays: dict[str, Any]) -> "KernelPCA":
        known = isinstance(header, dict) and header.get("format") == FORMAT and header.get("model") == "KernelPCA"
        if not known:
            raise InputError(f"{path} holds no fedkernel KernelPCA model")
        if header.get("version") != FORMAT_VERSION:
            raise InputError(
                f"{path} has model format version {header.get('version')}, but this version reads {FORMAT_VERSION}"
            )
        try:
            model = cls(kernel=_KERNEL.validate_python(header["kernel"]), mean_=float(header["mean"]), **arrays)
            rows, components = model.eigenvectors_.shape
            consistent = model.eigenvalues_.shape == (components,) and all(
                array.dtype == np.float64 and np.isfinite(array).all() for array in arrays.values()
            )
            consistent &= np.isfinite(model.mean_) and set(header["arrays"]) == set(arrays)
            consistent &= model.column_means_ is None or model.column_means_.shape == (rows,)
            consistent &= model.iterates_ is None or model.iterates_.shape[1:] == (rows, components)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"{path} is a damaged fedkernel model ({type(error).__name__})") from None
        if not consistent:
            raise InputError(f"{path} is a damaged fedkernel model: its arrays do not fit together")
        return model


def write_whole(path: Path, write: Callable[[Any], object]) -> Path:
    """Write a file beside its place and move it there, so that a reader never meets half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            write(file)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path
