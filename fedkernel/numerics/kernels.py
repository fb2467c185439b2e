"""Kernels as value objects: Gram matrices, diagonals, and combination of vertical parts.

Gram matrices use `fedkernel.numerics.pairwise`. A TOML or JSON table builds a kernel by its field `type`, a short
name or an address: see `kernel_from`. Fields of pydantic models are annotated as `Kernel`, and take the short name
alone, ``kernel="rbf"``. A kernel without `gamma` has a width rule, by default the data's own scale, settled before a
protocol begins (`fedkernel.numerics.widths`).

In a vertical federation each client holds some columns of the same rows. It computes `part` on its own, and `combine`
forms the Gram matrix on all columns from the clients' parts.
"""

import abc
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pydantic
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

from fedkernel.ground import (
    FloatArray,
    InputError,
    Rows,
    class_address,
    imported,
    load_class,
    short_names,
    value_object,
)
from fedkernel.numerics import pairwise
from fedkernel.numerics.kernel_values import (
    arc_cosine_against,
    checked_pair,
    checked_rows,
    exponential,
    power,
    rbf_against,
    rbf_values,
)
from fedkernel.numerics.pairwise import RowFunction, in_dtype, mirrored, products_with, squared_norms

Vertical: TypeAlias = Literal["sum", "sum-then-map", "product", "none"]
WidthRule: TypeAlias = Literal["median", "mean", "scale", "dimension", "columns"]
SWEEP = 'widths are compared by an experiment, with "strategy.NAME.kernel.gamma" = [0.1, 1.0] in its table [sweep]'


def _refuse_several(value: Any) -> Any:
    if isinstance(value, list | tuple):
        raise ValueError(f"{value} is not one number; {SWEEP}")
    return value


Positive = Annotated[float, pydantic.Field(gt=0), pydantic.BeforeValidator(_refuse_several)]


class Kernel(abc.ABC):
    """Base class of kernels whose Gram matrix is an entrywise map of the columns' contributions.

    A user's kernel is a frozen `value_object` that derives from it, sets `vertical`, and overrides what differs from
    the linear kernel: `_part` for columns, `_map` for combined parts, and `_diag` and `_against` with them. Tables and
    messages name it by address, ``package.module:Name``; a message or a file never imports it.
    """

    vertical: ClassVar[Vertical]
    """Combination of several clients' parts; "none": impossible."""

    semidefinite: ClassVar[bool] = True
    """True if all Gram matrices are positive semidefinite."""

    gamma: float | None = 1.0
    """Factor of distances or products; None: by rule. A kernel without a width has 1."""

    @property
    def rule(self) -> WidthRule | None:
        """Rule that will compute the width from data, or None for a number or 1 / number of columns."""
        return self.width if isinstance(self, KernelWithWidth) and self.width != "columns" else None

    def gram(self, X: Rows, Y: Rows | None = None) -> FloatArray:
        """Compute the Gram matrix, float64 (n, m), of rows X (n, d) and Y (m, d). By default Y is X."""
        X, Y = checked_pair(X, Y)
        gamma = self._gamma_for(X)
        return self._map(self._part(X, Y, gamma), gamma)

    def diag(self, X: Rows) -> FloatArray:
        """Compute k(x, x) for the rows of X (n, d), float64 (n,), without a Gram matrix. Rows of float32 stay so."""
        X = checked_rows(X, "X", keep=True)
        return self._diag(X, self._gamma_for(X))

    def against(self, Y: Rows, dtype: npt.DTypeLike = np.float64) -> RowFunction:
        """Return a function that computes kernel values (n, m) between a block X (n, d) and rows Y (m, d).

        Work that depends on Y only is done once. The function takes dense and CSR blocks of any numeric type, which it
        does not check, and returns a new array. float64 values are those of `gram` up to rounding; float32 values have
        about five digits of the largest, if the rows are not far from each other in terms of the kernel's width and,
        for sparse rows, of the origin.
        """
        Y = checked_rows(Y, "Y")
        return self._against(Y, pairwise.float_type(dtype), self._gamma_for(Y))

    def part(self, X: Rows, Y: Rows | None = None) -> FloatArray:
        """Compute the contribution (n, m) of some columns to the Gram matrix, for `combine`.

        That is their inner products, or the Gram matrix on them (RBF, Laplacian), which needs `gamma`.
        """
        if self.vertical in ("product", "none"):
            self.require_vertical()
        X, Y = checked_pair(X, Y)
        return self._part(X, Y, self._gamma_for(X))

    def combine(self, parts: Iterable[FloatArray]) -> FloatArray:
        """Combine the parts of all clients, each of shape (n, m), to the Gram matrix on all columns.

        In place: the first part becomes the result (a copy if it is read-only or not float64). With a generator of
        parts at most two of the arrays exist at any time.
        """
        self.require_vertical()
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
            del part  # else it stays in memory while the next is computed
        if total is None:
            raise InputError("parts must hold at least one part to combine")
        return self._map(total, self._gamma_for(total))  # a number, as require_vertical has checked

    def require_vertical(self) -> None:
        """Raise InputError unless the kernel works for vertical data: different columns of the same rows at clients."""
        name = type(self).__name__
        if self.rule is not None:
            return  # settled to a number before any computation
        if self.vertical == "none":
            why = "if columns are split over clients, no sum or product of their parts gives it"
            raise InputError(f"{name} is for horizontally divided data only: {why}")
        if self.gamma is None:
            raise InputError(
                f'{name}: width = "columns" is not for columns that are split over clients, since no client knows '
                f'the number of all columns; give a different rule, such as {name}(width="mean"), or gamma'
            )

    def settled(self, columns: int) -> Self:
        """Return the kernel with a number as gamma. The width "columns" gives 1 / columns, over the squared factor."""
        self._require_number()
        factor = self.factor if isinstance(self, KernelWithWidth) else 1.0
        return self.with_gamma(1.0 / columns / factor**2) if self.gamma is None else self

    def with_gamma(self, gamma: float) -> Self:
        """Return the kernel with this gamma in place of its rule or number."""
        settled = {"width": None, "factor": 1.0} if isinstance(self, KernelWithWidth) else {}
        return dataclasses.replace(self, gamma=gamma, **settled)  # type: ignore[type-var]

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: pydantic.GetCoreSchemaHandler) -> CoreSchema:
        """Let fields annotated as `Kernel` take any kernel, or its table."""
        if cls is not Kernel:
            return handler(source)
        return core_schema.no_info_plain_validator_function(
            _validated, serialization=core_schema.plain_serializer_function_ser_schema(_table_of)
        )

    def _require_number(self) -> None:
        if self.rule is not None:
            raise InputError(
                f"{self!r} has no width yet: a strategy computes it from the sites' data before it begins; for data in "
                "one place, fedkernel.numerics.with_width(kernel, X) does"
            )

    def _gamma_for(self, X: Rows) -> float:
        return float(self.settled(X.shape[1]).gamma or 0.0)

    def _part(self, X: Rows, Y: Rows, gamma: float) -> FloatArray:
        return np.asarray(pairwise.inner_products(X, Y), dtype=np.float64)

    def _map(self, K: FloatArray, gamma: float) -> FloatArray:
        """Map combined parts, the sums over columns, to kernel values, in place."""
        return K

    def _diag(self, X: Rows, gamma: float) -> FloatArray:
        return self._map(squared_norms(X), gamma)

    def _against(self, Y: Rows, dtype: np.dtype[Any], gamma: float) -> RowFunction:
        products = products_with(Y, dtype)
        return lambda X: self._map(products(in_dtype(X, dtype)), gamma)


@value_object()
class Linear(Kernel):
    """k(x, y) = x^T y."""

    vertical: ClassVar[Vertical] = "sum"

    type: Literal["linear"] = dataclasses.field(default="linear", kw_only=True, repr=False)


@value_object()
class KernelWithWidth(Kernel):
    """Base class of kernels with a width. It is a number, or a rule computes it from all sites' data before a run.

    `width`: the rule, by default `default_rule`. `factor`: multiplier of its sigma: gamma is divided by its square.
    """

    default_rule: ClassVar[WidthRule] = "mean"

    width: WidthRule | None = dataclasses.field(default=None, kw_only=True)
    factor: Positive = dataclasses.field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        self._settle_rule()

    def _settle_rule(self, sigma: float | None = None) -> None:
        """Set the default width rule of a kernel without a number. Raises ValueError for contradictory fields."""
        if self.gamma is None and sigma is None:
            object.__setattr__(self, "width", self.width or self.default_rule)
            return
        number = "sigma" if sigma is not None else "gamma"
        if self.width is not None:
            raise ValueError(f"width and {number} are the same thing; give only one of them")
        if self.factor != 1:
            raise ValueError(f"factor is for a width by rule, not for a given {number}")

    def __repr__(self) -> str:
        more = {name: value for name, value in vars(self).items() if name in ("degree", "coef0")}
        width = {"gamma": self.gamma} if self.width is None else {"width": self.width}
        factor = {} if self.factor == 1 else {"factor": self.factor}
        fields = ", ".join(f"{name}={value!r}" for name, value in (more | width | factor).items())
        return f"{type(self).__name__}({fields})"

    @pydantic.model_serializer(mode="wrap")
    def _to_table(self, table: pydantic.SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the kernel's table without a default rule and factor, in the order of the signature."""
        own, defaults = table(self), (("width", None), ("factor", 1.0))
        return {name: own[name] for name in vars(self) if name in own and (name, own[name]) not in defaults}


@value_object()
class RBF(KernelWithWidth):
    """k(x, y) = exp(-gamma ||x - y||^2).

    One width at most is given. `gamma`: above 0. `sigma`: above 0, gamma = 1 / (2 sigma^2), which alone is kept.
    `width`: the rule, "mean" (by default), "median", "scale", "dimension" or "columns", settled on the data of all
    sites before the run (`fedkernel.numerics.widths`). `factor`: above 0, by default 1; it multiplies the rule's width.
    """

    vertical: ClassVar[Vertical] = "product"

    gamma: Positive | None = None
    sigma: dataclasses.InitVar[Positive | None] = None
    type: Literal["rbf"] = dataclasses.field(default="rbf", kw_only=True, repr=False)

    __repr__ = KernelWithWidth.__repr__

    def __post_init__(self, sigma: float | None) -> None:
        self._settle_rule(sigma)
        if sigma is None:
            return
        if self.gamma is not None:
            raise ValueError("gamma and sigma are the same width; give only one of them")
        gamma = 0.5 / sigma / sigma
        if not 0 < gamma < np.inf:
            raise ValueError(f"sigma = {sigma} gives gamma = {gamma}, which is not a positive number")
        object.__setattr__(self, "gamma", gamma)

    def _part(self, X: Rows, Y: Rows, gamma: float) -> FloatArray:
        return rbf_values(X, Y, gamma)

    def _diag(self, X: Rows, gamma: float) -> FloatArray:
        return np.ones(X.shape[0])

    def _against(self, Y: Rows, dtype: np.dtype[Any], gamma: float) -> RowFunction:
        return rbf_against(Y, dtype, gamma)


@value_object()
class Laplacian(KernelWithWidth):
    """k(x, y) = exp(-gamma ||x - y||_1).

    `gamma`, `width` and `factor` are as for `RBF`. Rules but "mean" use Euclidean distances, shorter by up to sqrt(d).
    """

    vertical: ClassVar[Vertical] = "product"

    gamma: Positive | None = None
    type: Literal["laplacian"] = dataclasses.field(default="laplacian", kw_only=True, repr=False)

    __repr__ = KernelWithWidth.__repr__

    def _part(self, X: Rows, Y: Rows, gamma: float) -> FloatArray:
        return exponential(pairwise.city_block_distances(X, Y), gamma)

    def _diag(self, X: Rows, gamma: float) -> FloatArray:
        return np.ones(X.shape[0])

    def _against(self, Y: Rows, dtype: np.dtype[Any], gamma: float) -> RowFunction:
        Y = Y.copy()
        return lambda X: exponential(pairwise.city_block_distances(X, Y).astype(dtype, copy=False), gamma)


@value_object()
class Polynomial(KernelWithWidth):
    """k(x, y) = (gamma x^T y + coef0)^degree; coef0 is at least 0, else the kernel is not positive semidefinite.

    By default `width` is "scale", as in scikit-learn's support vector machines, so that products are of the order of
    coef0 in any units of the columns.
    """

    vertical: ClassVar[Vertical] = "sum-then-map"
    default_rule: ClassVar[WidthRule] = "scale"

    degree: Annotated[int, pydantic.Field(ge=1, le=100)] = 3
    gamma: Positive | None = None
    coef0: Annotated[float, pydantic.Field(ge=0)] = 1.0
    type: Literal["polynomial"] = dataclasses.field(default="polynomial", kw_only=True, repr=False)

    __repr__ = KernelWithWidth.__repr__

    def _map(self, K: FloatArray, gamma: float) -> FloatArray:
        K *= gamma
        K += self.coef0
        return power(K, self.degree)


@value_object()
class Sigmoid(KernelWithWidth):
    """k(x, y) = tanh(gamma x^T y + coef0), in general not positive semidefinite; `width` as for `Polynomial`."""

    vertical: ClassVar[Vertical] = "sum-then-map"
    semidefinite: ClassVar[bool] = False
    default_rule: ClassVar[WidthRule] = "scale"

    gamma: Positive | None = None
    coef0: float = 1.0
    type: Literal["sigmoid"] = dataclasses.field(default="sigmoid", kw_only=True, repr=False)

    __repr__ = KernelWithWidth.__repr__

    def _map(self, K: FloatArray, gamma: float) -> FloatArray:
        K *= gamma
        K += self.coef0
        return np.tanh(K, out=K)


@value_object()
class ArcCosine(Kernel):
    """k(x, y) = ||x||^n ||y||^n J_n(theta) / pi, with the degree n and the angle theta between x and y.

    It is 0 if x or y is 0.
    J_0 = pi - theta, J_1 = sin theta + (pi - theta) cos theta,
    J_2 = 3 sin theta cos theta + (pi - theta) (1 + 2 cos^2 theta).

    Source: Cho and Saul, Kernel Methods for Deep Learning, NIPS 2009, equations 3 to 7. For horizontally divided data
    only: else clients would have to send lengths beside the inner products. Each value is exact to some units in the
    last place of ||x||^n ||y||^n, also for nearly parallel rows.
    """

    vertical: ClassVar[Vertical] = "none"

    degree: Literal[0, 1, 2] = 1
    type: Literal["arc-cosine"] = dataclasses.field(default="arc-cosine", kw_only=True, repr=False)

    def _part(self, X: Rows, Y: Rows, gamma: float) -> FloatArray:
        K = self._against(Y, np.dtype(np.float64), gamma)(X)
        if Y is X:
            np.fill_diagonal(mirrored(K), self._diag(X, gamma))
        return K

    def _diag(self, X: Rows, gamma: float) -> FloatArray:
        norms = squared_norms(X)
        if self.degree == 0:
            return (norms > 0).astype(np.float64)
        return norms if self.degree == 1 else 3 * norms**2

    def _against(self, Y: Rows, dtype: np.dtype[Any], gamma: float) -> RowFunction:
        return arc_cosine_against(Y, dtype, self.degree)


AnyKernel: TypeAlias = Kernel
KERNELS: dict[str, type[Kernel]] = {
    str(vars(kernel)["type"]): kernel for kernel in (Linear, RBF, Laplacian, Polynomial, Sigmoid, ArcCosine)
}
"""Kernel classes of this module by their type in a table, such as "rbf"."""


def kernel_from(table: Mapping[str, Any]) -> Kernel:
    """Build a kernel from a table such as {"type": "rbf", "gamma": 0.1}. Raises InputError if it is invalid."""
    fields = dict(table)
    kind = _kind_of(name := fields.pop("type", None))
    if kind is None:
        problem = "type is required" if name is None else f"type = {name!r} is not known"
        raise InputError(f"kernel: {problem} (allowed: {_allowed(name)})")
    return kind(**fields)


def import_kernels(table: Any) -> None:
    """Import all kernels that a table, or an inner one, names by address or by another package's short name.

    Only for tables written or approved by the user of this process.
    """
    for name in (inner["type"] for inner in kernel_tables(table)):
        if ":" in name or name in short_names("kernels"):
            load_class(name, Kernel, "kernels", "kernel.type")


def kernel_tables(table: Any) -> list[Mapping[str, Any]]:
    """Return all tables within nested data that have a field `type`, as kernels' tables do."""
    if isinstance(table, list | tuple):
        return [inner for value in table for inner in kernel_tables(value)]
    if not isinstance(table, Mapping):
        return []
    own = [table] if isinstance(table.get("type"), str) else []
    return own + [inner for value in table.values() for inner in kernel_tables(value)]


def _kind_of(name: Any) -> type[Kernel] | None:
    """Return the kernel class of a type, from this module or imported already, or None."""
    if not isinstance(name, str):
        return None
    kind = KERNELS.get(name) or imported(name if ":" in name else short_names("kernels").get(name, ""))
    return kind if isinstance(kind, type) and issubclass(kind, Kernel) and kind is not Kernel else None


def _allowed(name: Any) -> str:
    more = ", or one that has been imported here, at a site by --allow" if ":" in str(name) else ""
    return f"{', '.join(KERNELS)}{more}"


def _validated(value: Any) -> Kernel:
    """Return a field's kernel, or build it from a table or name."""
    value = table_of_name(value)
    if isinstance(value, Kernel):
        return value
    if not isinstance(value, Mapping):
        raise ValueError(f"{value!r} is no kernel; allowed: a name such as 'rbf', or a table with its type")
    fields = dict(value)
    tag = fields.pop("type", None)
    if tag is None:
        raise PydanticKnownError("union_tag_not_found", {"discriminator": "'type'"})
    if (kind := _kind_of(tag)) is None:
        raise PydanticKnownError(
            "union_tag_invalid", {"discriminator": "'type'", "tag": str(tag), "expected_tags": _allowed(tag)}
        )
    return pydantic.TypeAdapter(kind).validate_python(fields)


def table_of_name(value: Any) -> Any:
    """Return the table for a kernel's name, or for scikit-learn's "poly". Any other value is returned unchanged."""
    return {"type": "polynomial" if value == "poly" else value} if isinstance(value, str) else value


def _table_of(kernel: Kernel) -> dict[str, Any]:
    """Return a kernel's table of plain values, the inverse of `kernel_from`."""
    table: dict[str, Any] = pydantic.TypeAdapter(type(kernel)).dump_python(kernel, mode="json")
    known = KERNELS.get(table.get("type", "")) is type(kernel)
    return table if known else table | {"type": class_address(type(kernel))}


def normalised_gram(kernel: AnyKernel, X: FloatArray, Y: FloatArray | None = None) -> FloatArray:
    """Compute the cosines (n, m) of rows in feature space, k(x, y) / sqrt(k(x, x) k(y, y))."""
    K = kernel.gram(X, Y)
    rows = kernel.diag(X)
    columns = rows if Y is None else kernel.diag(Y)
    if min(rows.min(), columns.min()) <= 0:
        raise InputError("a row has k(x, x) = 0 and cannot be normalised; leave it out or choose a different kernel")
    for lengths in (np.sqrt(rows)[:, None], np.sqrt(columns)):
        if (lengths != 1).any():  # never for kernels of distances
            K /= lengths
    return K
