"""Embeddings: functions from rows to coordinates, for training rows and new ones."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pydantic

from fedkernel.data import Table, as_table, check_matrix, is_frame, rows_from_arrays, rows_to_arrays
from fedkernel.ground import FloatArray, InputError, Rows, for_each, row_blocks, short_repr, without_prefix
from fedkernel.models.base import KERNEL_ADAPTER
from fedkernel.numerics import AnyKernel, RandomFeatures

Features = Callable[[FloatArray], FloatArray]

_FEATURES: pydantic.TypeAdapter[RandomFeatures] = pydantic.TypeAdapter(RandomFeatures)


def multiply_step(X: FloatArray, B: FloatArray, features: Features, M: FloatArray) -> FloatArray:
    """Compute the product [A, B] M by blocks of rows, with A the features of rows X.

    `X` (n, d), `B` (n, r). `features`: returns A, (n, D), for rows. `M` (D + r, r').
    """
    D = len(M) - B.shape[1]
    result = np.empty((len(X), M.shape[1]))

    def compute(rows: slice) -> None:
        np.matmul(features(X[rows]), M[:D], out=result[rows])
        result[rows] += B[rows] @ M[D:]

    for_each(compute, row_blocks(len(X)))
    return result


def combine_draws(X: FloatArray, features: RandomFeatures, coefficients: FloatArray | None) -> FloatArray:
    """Compute sum_t A_t C_t (n, s) from the random features A_t of draws t = 1, ..., T.

    `X` (n, d). `coefficients` (T, D, s): None stands for the features themselves, A_1 / sqrt(D), whose inner products
    approximate the kernel.
    """
    columns = X.shape[1]
    if coefficients is None:
        first = features.map(columns)
        whole = np.vstack([first(X[rows]) for rows in row_blocks(len(X))])
        whole /= np.sqrt(features.n_features)
        return whole
    total = np.zeros((len(X), coefficients.shape[2]))
    for draw, C in enumerate(coefficients, start=1):
        A = features.map(columns, draw)
        for rows in row_blocks(len(X)):
            total[rows] += A(X[rows]) @ C
    return total


def refuse_frame(X: Any) -> None:
    """Raise InputError for a table with column names. A model knows no names, and would take columns in any order."""
    if is_frame(X):
        found = "result.fitted (Result.load(folder).fitted), which finds columns by name"
        raise InputError(f"X has column names, which a model does not know; allowed: {found}, or X.to_numpy()")


class Embedding(ABC):
    """Function from rows, (n, d), to coordinates, (n, s), that can be saved with a model."""

    kind: ClassVar[str]
    kernel: AnyKernel
    """Kernel that the coordinates' inner products approximate."""
    columns: int
    """Number of the rows' columns, d."""
    width: int
    """Number of coordinates, s."""

    __repr__ = short_repr

    @staticmethod
    def rows(X: Any) -> Any:
        """Check rows, and return them in the form that `_embed` takes."""
        return check_matrix(X, "X")

    def __call__(self, X: Any) -> FloatArray:
        """Embed rows X (n, d) so that inner products are near the kernel's best approximation of rank s."""
        return self._embed(self.checked(X))

    def checked(self, X: Any) -> Any:
        """Check rows X (n, d), and their number of columns, and return them."""
        refuse_frame(X)
        X = self.rows(X)
        if X.shape[1] != self.columns:
            raise InputError(f"X has {X.shape[1]} columns, but the model was made for {self.columns}")
        return X

    @abstractmethod
    def _embed(self, X: Any) -> FloatArray: ...

    @abstractmethod
    def parts(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return plain fields and arrays for a file."""

    @classmethod
    @abstractmethod
    def from_parts(cls, fields: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> "Embedding":
        """Rebuild an embedding from `parts`. Raises ValueError, KeyError or TypeError if they are inconsistent."""


@dataclass(frozen=True, repr=False)
class FeatureChain(Embedding):
    """Embedding by a chain of steps, each with a new draw of random features.

    With A_t the row's features of draw t, and B_1 empty: B_{t+1} = [A_t, B_t] M_t, and the estimate after step t is
    H_t = B_{t+1} diag(f_t), of the first columns only. All of it is linear in the features, so that the last estimate
    is sum_t A_t C_t. Without any step it is A_1 / sqrt(D).

    - `maps`: T matrices M_t of shape (D + r_t, r_{t+1}), r_1 = 0.
    - `finish`: T vectors f_t of shape (s_t,), s_t <= r_{t+1}.
    """

    features: RandomFeatures
    columns: int
    maps: tuple[FloatArray, ...] = ()
    finish: tuple[FloatArray, ...] = ()

    kind: ClassVar[str] = "features"

    def __post_init__(self) -> None:
        rank = 0
        if len(self.maps) != len(self.finish):
            raise InputError(f"maps has {len(self.maps)} entries, but finish {len(self.finish)}; allowed: as many")
        for step, (M, f) in enumerate(zip(self.maps, self.finish, strict=True), start=1):
            if M.ndim != 2 or len(M) != self.features.n_features + rank or f.ndim != 1 or f.size > M.shape[1]:
                raise InputError(f"the map of step {step}, of shape {M.shape}, does not follow on {rank} columns")
            rank = M.shape[1]

    @property
    def kernel(self) -> AnyKernel:  # type: ignore[override]
        """Kernel of the random features."""
        return self.features.kernel

    @property
    def width(self) -> int:  # type: ignore[override]
        """Number of coordinates, s."""
        return int(self.finish[-1].size) if self.finish else self.features.n_features

    @property
    def coefficients(self) -> FloatArray | None:
        """Coefficients C_t (T, D, s) of the last estimate, or None without any step."""
        if not self.maps:
            return None
        D = self.features.n_features
        rest = np.zeros((self.maps[-1].shape[1], self.finish[-1].size))
        np.fill_diagonal(rest, self.finish[-1])
        blocks = []
        for M in reversed(self.maps):
            blocks.append(M[:D] @ rest)
            rest = M[D:] @ rest
        return np.array(blocks[::-1])

    def _embed(self, X: FloatArray) -> FloatArray:
        return combine_draws(X, self.features, self.coefficients)

    def estimates(self, X: FloatArray) -> Iterator[FloatArray]:
        """Yield the estimates H_1, ..., H_T of rows X, each of shape (n, s_t)."""
        B = np.empty((len(X), 0))
        for draw, (M, f) in enumerate(zip(self.maps, self.finish, strict=True), start=1):
            B = multiply_step(X, B, self.features.map(self.columns, draw), M)
            yield B[:, : f.size] * f

    def parts(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return plain fields and arrays for a file."""
        arrays = {f"map_{step}": M for step, M in enumerate(self.maps, start=1)}
        arrays |= {f"finish_{step}": f for step, f in enumerate(self.finish, start=1)}
        features = _FEATURES.dump_python(self.features, mode="json")
        return {"features": features, "columns": self.columns, "steps": len(self.maps)}, arrays

    @classmethod
    def from_parts(cls, fields: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> "FeatureChain":
        """Rebuild from `parts`."""
        steps = range(1, _integer(fields["steps"], 0) + 1)
        if len(arrays) != 2 * len(steps):
            raise ValueError("a step is missing")
        return cls(
            features=_FEATURES.validate_python(fields["features"]),
            columns=_integer(fields["columns"], 1),
            maps=tuple(arrays[f"map_{step}"] for step in steps),
            finish=tuple(arrays[f"finish_{step}"] for step in steps),
        )


@dataclass(frozen=True, repr=False)
class Landmarks(Embedding):
    """Embedding of rows X by kernel values against landmark rows Y: k(X, Y) C.

    Accepts tables of all kinds, processed by blocks of rows. `landmarks` (n, d), dense or CSR: Y, all training rows, or
    a sample of them. `coefficients` (n, s): C.
    """

    kernel: AnyKernel
    landmarks: Rows
    coefficients: FloatArray

    kind: ClassVar[str] = "landmarks"

    def __post_init__(self) -> None:
        own, C = self.landmarks.shape, self.coefficients.shape
        if len(own) != 2 or len(C) != 2 or own[0] != C[0]:
            allowed = "they must be matrices with the same number of rows"
            raise InputError(f"landmarks of shape {own} and coefficients of shape {C} are not allowed; {allowed}")

    @property
    def columns(self) -> int:  # type: ignore[override]
        """Number of the rows' columns, d."""
        return int(self.landmarks.shape[1])

    @property
    def width(self) -> int:  # type: ignore[override]
        """Number of coordinates, s."""
        return int(self.coefficients.shape[1])

    @staticmethod
    def rows(X: Any) -> Table:
        """Wrap rows as a table, which is checked when read."""
        return as_table(X, "X")

    def blocks(self, X: npt.ArrayLike | Rows | Table) -> Iterator[tuple[Rows, FloatArray]]:
        """Yield blocks of the rows X (n, d), a table of any kind, with their coordinates."""
        table: Table = self.checked(X)
        values = self.kernel.against(self.landmarks)
        for rows in row_blocks(len(table)):
            block = table.block(rows.start, rows.stop)
            yield block, values(block) @ self.coefficients

    def _embed(self, X: Table) -> FloatArray:
        return np.vstack([coordinates for _, coordinates in self.blocks(X)])

    def parts(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return plain fields and arrays for a file."""
        arrays = {f"landmarks.{name}": array for name, array in rows_to_arrays(self.landmarks).items()}
        fields = {"kernel": KERNEL_ADAPTER.dump_python(self.kernel, mode="json"), "columns": self.columns}
        return fields, {**arrays, "coefficients": self.coefficients}

    @classmethod
    def from_parts(cls, fields: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> "Landmarks":
        """Rebuild from `parts`."""
        parts = without_prefix("landmarks.", arrays)
        if len(arrays) != len(parts) + 1:
            raise ValueError("landmarks and coefficients are all there is")
        rows = rows_from_arrays(parts, _integer(fields["columns"], 1))
        return cls(KERNEL_ADAPTER.validate_python(fields["kernel"]), rows, arrays["coefficients"])


def _integer(value: Any, least: int) -> int:
    if type(value) is not int or value < least:
        raise ValueError("not such a number")
    return value


EMBEDDINGS: dict[str, type[Embedding]] = {embedding.kind: embedding for embedding in (FeatureChain, Landmarks)}
"""Embedding classes by the kind in a model's file."""
