"""Kernels as value objects: Gram matrices, their diagonals, and how parts of the columns combine into a whole.

Gram matrices come through `sklearn.metrics.pairwise`. A TOML or JSON table builds a kernel by its field `type`: see
`kernel_from`, and `Kernel` for fields of pydantic models. A kernel without `gamma` takes 1 / number of columns of the
data it is given, as scikit-learn does.

In a vertical federation each client holds some columns of the same rows. It computes `part` on its own, and `combine`
makes the Gram matrix on all columns of the clients' parts.
"""

import abc
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, get_args

import numpy as np
import pydantic
import scipy.sparse
from sklearn.metrics import pairwise
from sklearn.utils.extmath import row_norms

from fedkernel.arrays import FloatArray
from fedkernel.errors import InputError, value_object

Rows: TypeAlias = FloatArray | scipy.sparse.csr_array | scipy.sparse.csr_matrix
Vertical: TypeAlias = Literal["sum", "sum-then-map", "product"]
Positive = Annotated[float, pydantic.Field(gt=0)]

_BLOCK = 256


class _Kernel(abc.ABC):
    """What all kernels share: the Gram matrix is a map, entry by entry, of what the columns contribute."""

    vertical: ClassVar[Vertical]
    """How the parts of several clients combine."""

    def gram(self, X: Rows, Y: Rows | None = None) -> FloatArray:
        """Compute k(x, y) for all rows of X (n, d) and of Y (m, d), or of X again: float64 of shape (n, m)."""
        X, Y = _checked(X, Y)
        gamma = self._gamma_for(X)
        return self._map(self._part(X, Y, gamma), gamma)

    def diag(self, X: Rows) -> FloatArray:
        """Compute k(x, x) for the rows of X (n, d) without the Gram matrix: shape (n,)."""
        X, _ = _checked(X, None)
        return self._diag(X, self._gamma_for(X))

    def part(self, X: Rows, Y: Rows | None = None) -> FloatArray:
        """Compute what some of the columns contribute to the Gram matrix, to be given to `combine`: shape (n, m).

        The inner products (Linear, Polynomial, Sigmoid), or the Gram matrix on these columns (RBF, Laplacian), which
        needs `gamma`.
        """
        if self.vertical == "product":
            self.require_gamma()
        X, Y = _checked(X, Y)
        return self._part(X, Y, self._gamma_for(X))

    def combine(self, parts: Iterable[FloatArray]) -> FloatArray:
        """Combine the parts of all clients, each of shape (n, m), to the Gram matrix on all columns.

        In place: the first part becomes the result (a copy of it, where it is read-only or not float64). With a
        generator of parts no more than two of the arrays live at any time.
        """
        self.require_gamma()
        total: FloatArray | None = None
        for part in parts:
            if total is None:
                total = np.require(part, dtype=np.float64, requirements="W")
            elif part.shape != total.shape:
                raise InputError(f"a part of shape {part.shape} cannot be combined with parts of shape {total.shape}")
            elif self.vertical == "product":
                total *= part
            else:
                total += part
            del part  # else it lives on while the next is made
        if total is None:
            raise InputError("parts must hold at least one part to combine")
        return self._map(total, getattr(self, "gamma", 1.0))

    def require_gamma(self) -> None:
        """Raise an InputError if `gamma` was left to the number of columns, which no client of a vertical run knows."""
        if getattr(self, "gamma", 1.0) is None:
            name = type(self).__name__
            raise InputError(
                f"{name}: gamma is required where columns are split over clients, since the number of all columns is "
                f"not known there; give it, for example {name}(gamma=0.1)"
            )

    def settled(self, columns: int) -> Self:
        """Return the kernel with gamma = 1 / columns where it was left to the number of columns."""
        unknown = getattr(self, "gamma", 1.0) is None
        return dataclasses.replace(self, gamma=1.0 / columns) if unknown else self  # type: ignore[type-var]

    def _gamma_for(self, X: Rows) -> float:
        gamma = getattr(self, "gamma", 1.0)
        return 1.0 / X.shape[1] if gamma is None else float(gamma)

    def _part(self, X: Rows, Y: Rows, gamma: float) -> FloatArray:
        return np.asarray(pairwise.linear_kernel(X, Y), dtype=np.float64)

    def _map(self, K: FloatArray, gamma: float) -> FloatArray:
        """Map combined parts to kernel values, in place."""
        return K

    def _diag(self, X: Rows, gamma: float) -> FloatArray:
        return self._map(np.asarray(row_norms(X, squared=True), dtype=np.float64), gamma)


@value_object(frozen=True)
class Linear(_Kernel):
    """k(x, y) = x^T y."""

    vertical: ClassVar[Vertical] = "sum"

    type: Literal["linear"] = dataclasses.field(default="linear", kw_only=True, repr=False)


@value_object(frozen=True)
class RBF(_Kernel):
    """k(x, y) = exp(-gamma ||x - y||^2).

    Parameters
    ----------
    gamma : float, optional
        Above 0; 1 / number of columns if neither it nor `sigma` is given.
    sigma : float, optional
        The same width as gamma = 1 / (2 sigma^2); only one of the two may be given. It is not kept: only `gamma` is.
    """

    vertical: ClassVar[Vertical] = "product"

    gamma: Positive | None = None
    sigma: dataclasses.InitVar[Positive | None] = None
    type: Literal["rbf"] = dataclasses.field(default="rbf", kw_only=True, repr=False)

    def __post_init__(self, sigma: float | None) -> None:
        if sigma is None:
            return
        if self.gamma is not None:
            raise ValueError("gamma and sigma are the same width; give only one of them")
        gamma = 0.5 / sigma / sigma
        if not 0 < gamma < np.inf:
            raise ValueError(f"sigma = {sigma} gives gamma = {gamma}, which is not a positive number")
        object.__setattr__(self, "gamma", gamma)

    def _part(self, X: Rows, Y: Rows, gamma: float) -> FloatArray:
        if not scipy.sparse.issparse(X) and not scipy.sparse.issparse(Y):
            # Distances do not change, but the rounding of far-off data does: squared norms cancel in them.
            mean = X.mean(axis=0)
            X, Y = (X - mean,) * 2 if Y is X else (X - mean, Y - mean)
        K = _exponential(pairwise.euclidean_distances(X, Y, squared=True), gamma)
        return _mirrored(K) if Y is X else K

    def _diag(self, X: Rows, gamma: float) -> FloatArray:
        return np.ones(X.shape[0])


@value_object(frozen=True)
class Laplacian(_Kernel):
    """k(x, y) = exp(-gamma ||x - y||_1)."""

    vertical: ClassVar[Vertical] = "product"

    gamma: Positive | None = None
    type: Literal["laplacian"] = dataclasses.field(default="laplacian", kw_only=True, repr=False)

    def _part(self, X: Rows, Y: Rows, gamma: float) -> FloatArray:
        return _exponential(pairwise.manhattan_distances(X, Y), gamma)

    def _diag(self, X: Rows, gamma: float) -> FloatArray:
        return np.ones(X.shape[0])


@value_object(frozen=True)
class Polynomial(_Kernel):
    """k(x, y) = (gamma x^T y + coef0)^degree; coef0 is at least 0, else the kernel is not positive semidefinite."""

    vertical: ClassVar[Vertical] = "sum-then-map"

    degree: Annotated[int, pydantic.Field(ge=1)] = 3
    gamma: Positive | None = None
    coef0: Annotated[float, pydantic.Field(ge=0)] = 1.0
    type: Literal["polynomial"] = dataclasses.field(default="polynomial", kw_only=True, repr=False)

    def _map(self, K: FloatArray, gamma: float) -> FloatArray:
        K *= gamma
        K += self.coef0
        K **= self.degree
        return K


@value_object(frozen=True)
class Sigmoid(_Kernel):
    """k(x, y) = tanh(gamma x^T y + coef0); not positive semidefinite in general."""

    vertical: ClassVar[Vertical] = "sum-then-map"

    gamma: Positive | None = None
    coef0: float = 1.0
    type: Literal["sigmoid"] = dataclasses.field(default="sigmoid", kw_only=True, repr=False)

    def _map(self, K: FloatArray, gamma: float) -> FloatArray:
        K *= gamma
        K += self.coef0
        return np.tanh(K, out=K)


AnyKernel: TypeAlias = Linear | RBF | Laplacian | Polynomial | Sigmoid
Kernel = Annotated[AnyKernel, pydantic.Field(discriminator="type")]
"""For fields of pydantic models: a table with `type` becomes the kernel of that name."""
KERNELS: dict[str, type[AnyKernel]] = {kernel.type: kernel for kernel in get_args(AnyKernel)}


def kernel_from(table: Mapping[str, Any]) -> AnyKernel:
    """Build a kernel from a table such as {"type": "rbf", "gamma": 0.1}.

    Raises
    ------
    InputError
        If `type` is missing or unknown, or the kernel refuses a field.
    """
    fields = dict(table)
    name = fields.pop("type", None)
    if not isinstance(name, str) or name not in KERNELS:
        found = "type is required" if name is None else f"type = {name!r} is not known"
        raise InputError(f"kernel: {found} (allowed: {', '.join(KERNELS)})")
    return KERNELS[name](**fields)


def _exponential(distances: FloatArray, gamma: float) -> FloatArray:
    """Compute exp(-gamma distances) in place."""
    distances *= -gamma
    return np.exp(distances, out=distances)


def _mirrored(K: FloatArray) -> FloatArray:
    """Copy the upper triangle to the lower one, in place: rounding differs between entry (i, j) and (j, i)."""
    for first in range(0, len(K), _BLOCK):
        last = first + _BLOCK
        corner = K[first:last, first:last]
        corner[...] = np.triu(corner) + np.triu(corner, 1).T
        K[last:, first:last] = K[first:last, last:].T
    return K


def _checked(X: Rows, Y: Rows | None) -> tuple[Rows, Rows]:
    """Convert both to float64; Y is X itself where it was or is missing, so that its distances to itself are zero."""
    rows = _checked_rows(X, "X")
    others = rows if Y is None or Y is X else _checked_rows(Y, "Y")
    if rows.shape[1] != others.shape[1]:
        raise InputError(f"X has {rows.shape[1]} columns and Y {others.shape[1]}; they must have the same")
    return rows, others


def _checked_rows(X: Any, name: str) -> Any:
    sparse = scipy.sparse.issparse(X)
    try:
        X = scipy.sparse.csr_array(X, dtype=np.float64) if sparse else np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be an array of numbers") from None
    if X.ndim != 2 or min(X.shape) == 0:
        raise InputError(f"{name} of shape {X.shape} is not allowed; it must have two dimensions, none of them 0")
    if not np.isfinite(X.data if sparse else X).all():
        raise InputError(f"{name} of shape {X.shape} has entries that are not finite")
    return X
