"""Base classes of requests and replies, with typed fields and rules for their arrays.

Array fields carry symbolic shapes::

    class Eigenpairs(Reply):
        vectors: Annotated[FloatArray, Shape("N", "D_m")]
        values: Annotated[FloatArray, Shape("D_m")]

    class FindLocalEigenpairs(Request[Eigenpairs]):
        n_components: Annotated[int, Field(ge=1)]

A dimension whose name ends in ``_m`` may differ from client to client; every other name stands for one number in the
whole round: in the request, in each reply and between the replies. The coordinator checks each reply against the sizes
of the client's table, as introduced: n_m and d_m, its rows and columns; n_new, its new rows; N, the common rows of a
vertical partition; d, the common columns of a horizontal one.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType, NoneType
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar, get_args, get_origin

import numpy as np
import numpy.typing as npt
import pydantic
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from fedkernel.data import ROW_ARRAYS, rows_from_arrays, rows_to_arrays
from fedkernel.ground import Rows, accept_former_names, all_finite, sum_in_order
from fedkernel.protocol.constraints import FLOAT32_ROUNDING, ROUNDING, Rule, Within, surely_within

NOISY = frozenset({"(noise)"})
"""Validation context of sums with noise, which need not obey the rules of their class."""

MAX_NUMBER = 1e150
"""Largest number allowed in an array: squares of larger ones, or their sums, are infinite."""

_ROUNDING = "(rounding)"  # key of the cached `Message.rounding` in a message's `__dict__`
_SIZES = "_(sizes)"  # key of the cached sizes of a message's dimensions in its `__dict__`

Size = Annotated[int, pydantic.Field(ge=0, le=10**10)]
"""Number of rows or columns of a table, at most ten thousand million."""

Count = Annotated[int, pydantic.Field(ge=1, le=1_000_000)]
Iterations = Annotated[int, pydantic.Field(ge=1, le=10_000)]
"""Number of iterations that a site is asked for, bounded since its time and memory grow with it."""


class Shape:
    """Annotation of an array field: its dimensions by name, and its dtype.

    A field without dimensions, ``Annotated[float, Shape()]``, is a number: a float here, an array of one entry on the
    wire, and counted among the message's floats. `*dimensions`: one name per axis, see this module's docstring.
    `dtype`: the one allowed on the wire. `empty`: an array without entries is allowed.
    """

    def __init__(self, *dimensions: str, dtype: str = "float64", empty: bool = False) -> None:
        self.dimensions = dimensions
        self.dtype = np.dtype(dtype)
        self.empty = empty

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Let pydantic check an array field with `check`, and allow None only for an optional field."""
        optional = NoneType in get_args(source)
        return core_schema.no_info_plain_validator_function(
            lambda value: None if optional and value is None else self.check(value)
        )

    def check(self, value: Any) -> npt.NDArray[Any] | float:
        """Check an array against the declared shape, and return it. Without dimensions it is returned as a float."""
        if isinstance(value, float) and not self.dimensions:
            value = np.array([value])
        if not isinstance(value, np.ndarray):
            raise self._refusal(f", not {type(value).__name__}")
        if value.dtype != self.dtype or value.ndim != max(1, len(self.dimensions)):
            raise self._refusal(f", not {value.dtype} {value.shape}")
        if not (value.size or self.empty) or (value.size > 1 and not self.dimensions):
            raise self._refusal(f" with {'at least' if self.dimensions else 'just'} one entry, not {value.shape}")
        if self.dtype.kind == "f" and not surely_within(value, MAX_NUMBER):
            # two passes only: NaN is both the least and the largest
            least, largest = float(value.min(initial=0.0)), float(value.max(initial=0.0))
            if not -MAX_NUMBER <= least <= largest <= MAX_NUMBER:
                if count := np.count_nonzero(~np.isfinite(value)):
                    raise self._refusal(f", but {count} of its entries are not finite")
                raise self._refusal(f" with entries of up to {MAX_NUMBER:g}, but there are larger ones")
        elif self.dtype.kind == "c" and not all_finite(value):
            raise self._refusal(f", but {np.count_nonzero(~np.isfinite(value))} of its entries are not finite")
        return value if self.dimensions else float(value[0])

    def _refusal(self, why: str) -> ValueError:
        dimensions = ", ".join(self.dimensions) or 1
        return ValueError(f"must be a finite {self.dtype} array of shape ({dimensions}){why}")


class Message(pydantic.BaseModel):
    """Base class of requests and replies: immutable, without unknown fields, with arrays of matching shapes."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True)

    exact: ClassVar[bool] = False
    """True if arrays are float64 on every wire, since other clients need the same bits or values are counts."""

    @property
    def rounding(self) -> float:
        """Relative rounding error of sums of the message's numbers, larger for numbers sent as float32."""
        rounding: float = self.__dict__.get(_ROUNDING, ROUNDING)  # a private attribute would cost 2 us per message
        return rounding

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse array fields without a shape, since they could not be checked."""
        super().__pydantic_init_subclass__(**kwargs)
        for name in cls.model_fields.keys() - cls.shapes().keys():
            kind = cls.model_fields[name].annotation
            if np.ndarray in (kind, get_origin(kind), *map(get_origin, get_args(kind))):
                raise TypeError(f"{cls.__name__}.{name} has no shape; write Annotated[FloatArray, Shape(...)]")

    @classmethod
    @cache
    def shapes(cls) -> Mapping[str, Shape]:
        """Return the declared shape of each array field, in the order of the fields."""
        shapes = {name: [m for m in field.metadata if isinstance(m, Shape)] for name, field in cls.model_fields.items()}
        return {name: annotations[0] for name, annotations in shapes.items() if annotations}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the array fields that are set, by name. A number becomes an array of one entry."""
        # called a dozen times per message, so without getattr and atleast_1d
        fields = self.__dict__
        return {
            name: value if isinstance(value, np.ndarray) else np.array([value])
            for name in self.shapes()
            if (value := fields[name]) is not None
        }

    def dimensions(self, known: Mapping[str, int] | None = None) -> dict[str, int]:
        """Return the size of every named dimension, `known` ones included; ValueError if a name has two sizes."""
        own: dict[str, int] | None = self.__dict__.get(_SIZES)
        if own is None:
            own = self.__dict__[_SIZES] = self._sizes({})
        if not known:
            return own.copy()
        if all(known.get(name, size) == size for name, size in own.items()):
            return {**known, **own}
        return self._sizes(dict(known))

    def _sizes(self, sizes: dict[str, int]) -> dict[str, int]:
        """Add the sizes of the arrays' dimensions to known sizes; ValueError at the first that differs."""
        shapes = self.shapes()
        for field, array in self.arrays().items():
            # a number's axis has no name
            for axis, (name, size) in enumerate(zip(shapes[field].dimensions, array.shape, strict=False)):
                if sizes.setdefault(name, size) != size:
                    raise ValueError(f"{field} has {size} entries along axis {axis}, but {name} = {sizes[name]}")
        return sizes

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy of the message, perhaps with other arrays. Values cached from the old arrays are dropped."""
        copy = super().model_copy(update=update, deep=deep)
        for name in copy.__dict__.keys() - type(self).model_fields.keys() - {_ROUNDING}:
            del copy.__dict__[name]
        return copy

    @property
    def floats(self) -> int:
        """Number of floats in the arrays, the papers' measure of communication. Of sparse rows, nonzeros count."""
        return sum(array.size for array in self.arrays().values() if array.dtype.kind == "f")

    @property
    def floats_by_reader(self) -> Mapping[int | None, int]:
        """Number of floats for each reader: the coordinator (None) and each peer that a letter is addressed to."""
        return {None: self.floats}

    @property
    def disclosed(self) -> int:
        """Number of the sender's rows that the message shows unchanged."""
        return 0

    @classmethod
    @cache
    def whole_numbers(cls) -> frozenset[str]:
        """Return the names of the arrays of whole numbers."""
        rules = _rules_of(cls).items()
        return frozenset(name for name, own in rules if any(isinstance(rule, Within) and rule.whole for rule in own))

    @classmethod
    @cache
    def narrowed(cls) -> frozenset[str]:
        """Return the names of the arrays that a float32 wire rounds: all float64 arrays except counts."""
        floats = (name for name, shape in cls.shapes().items() if shape.dtype == np.float64)
        return frozenset() if cls.exact else frozenset(floats) - cls.whole_numbers()

    @pydantic.model_validator(mode="after")
    def _arrays_agree(self, info: pydantic.ValidationInfo) -> "Message":
        self.dimensions()
        narrowed: frozenset[str] = info.context or frozenset()
        if narrowed is NOISY:
            return self
        if narrowed:
            self.__dict__[_ROUNDING] = FLOAT32_ROUNDING
        if not (rules := _rules_of(type(self))):
            return self
        for name, array in self.arrays().items():
            for rule in rules.get(name, ()):
                try:
                    (rule.rounded() if name in narrowed else rule).check(array)
                except ValueError as error:
                    raise ValueError(f"{name} {error}") from None
        return self


@cache
def _rules_of(kind: type[Message]) -> dict[str, list[Rule]]:
    rules = {name: [m for m in field.metadata if isinstance(m, Rule)] for name, field in kind.model_fields.items()}
    return {name: of_field for name, of_field in rules.items() if of_field}


class CarriesRows(Message):
    """Base class of messages with rows of a table, dense or sparse. `of` makes the fields, float64 on every wire.

    `width`: d, columns of the table. `dense` (c, d). `values`, `indices`, `starts`: the entries of sparse rows, their
    columns, and the position where each row starts.
    """

    exact: ClassVar = True
    width: Annotated[int, pydantic.Field(ge=1, lt=2**31)]
    dense: Annotated[npt.NDArray[np.float64] | None, Shape("c_m", "width", empty=True)] = None
    values: Annotated[npt.NDArray[np.float64] | None, Shape("nnz_m", empty=True)] = None
    indices: Annotated[npt.NDArray[np.int32] | None, Shape("nnz_m", dtype="int32", empty=True)] = None
    starts: Annotated[npt.NDArray[np.int32] | None, Shape("starts_m", dtype="int32", empty=True)] = None

    @staticmethod
    def of(rows: Rows) -> dict[str, Any]:
        """Return the fields that carry these rows."""
        return {"width": rows.shape[1], **rows_to_arrays(rows)}

    def dimensions(self, known: Mapping[str, int] | None = None) -> dict[str, int]:
        """Return the size of every named dimension, the width included, which all clients share."""
        sizes = super().dimensions({"width": self.width} | dict(known or {}))
        if sizes["width"] != self.width:
            raise ValueError(f"rows have {self.width} columns, but width = {sizes['width']}")
        return sizes

    @property
    def rows(self) -> Rows:
        """The rows, of shape (c, d)."""
        arrays = self.arrays()
        return rows_from_arrays({name: arrays[name] for name in ROW_ARRAYS if name in arrays}, self.width)

    @pydantic.model_validator(mode="after")
    def _rows_are_whole(self) -> "CarriesRows":
        _ = self.rows
        return self


class Reply(Message):
    """Base class of replies, which carry all that leaves a site. A subclass's docstring says what a reply reveals."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse float fields without a shape, which no ledger would count."""
        super().__pydantic_init_subclass__(**kwargs)
        for name in cls.model_fields.keys() - cls.shapes().keys():
            kind = cls.model_fields[name].annotation
            if float in (kind, *get_args(kind)):
                raise TypeError(f"{cls.__name__}.{name} would not be counted; write Annotated[float, Shape()]")


class Summed(Reply):
    """Base class of replies that are only added up over the clients, for protocols that use `to_sum`."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        shapes = cls.shapes()
        for name in cls.model_fields:
            if name not in shapes or shapes[name].dtype != np.float64:
                raise TypeError(f"{cls.__name__}.{name} cannot be summed; allowed: Annotated[FloatArray, Shape(...)]")
            if own := [dimension for dimension in shapes[name].dimensions if dimension.endswith("_m")]:
                raise TypeError(f"{cls.__name__}.{name}: {own[0]} may differ between clients, so it cannot be summed")

    @classmethod
    def sum_of(cls, replies: Sequence[Self]) -> Self:
        """Return the sum of replies, in their order; ValueError if it is too large."""
        arrays = [reply.arrays() for reply in replies]
        with np.errstate(over="ignore", invalid="ignore"):  # the sum's own check reports it
            return cls(**{name: sum_in_order([reply[name] for reply in arrays]) for name in arrays[0]})


ReplyT = TypeVar("ReplyT", bound=Reply)
SummedT = TypeVar("SummedT", bound=Summed)


class Request(Message, Generic[ReplyT]):
    """Base class of requests to a site, generic in the class of the reply."""

    reply_type: ClassVar[type[Reply]] = Reply

    # declarations for guards, see fedkernel.protocol.guards
    probes: ClassVar[tuple[str, ...]] = ()
    """Array fields whose columns weigh the rows of the table, or of a matrix with a row for each: (n, b), or (n,).

    Vectors that combine columns, over all rows alike, are not among them, nor are arrays that no reply depends on.
    """

    once: ClassVar[bool] = False
    """True if the request may come once only in a run."""

    sampled: ClassVar[str | None] = None
    """Name of the field with the number of rows whose coordinates leave the site."""

    sketched: ClassVar[str | None] = None
    """Name of the field with the number of sums that the rows are sketched into."""

    posts: ClassVar[tuple[type[Message], ...]] = ()
    """Letter classes that the client may write to its peers with the answer."""

    seeded: ClassVar[bool] = False
    """True if the reply depends on numbers that the site draws from the run's seed."""

    setting: ClassVar[str] = ""
    """Name of the strategy's parameter that sets `sampled` or `sketched`."""

    largest: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Upper bounds of the reply's dimensions, each by the name of a field, perhaps a nested one (``D.size``)."""

    def sensitivity(self, radius: float) -> Mapping[str, float]:
        """Return the largest L2 norm that a row of length `radius` or less adds to each array of the reply.

        Overridden for sums to which noise can be added (`fedkernel.protocol.privacy`). An array at 0.0 is then the same
        for all tables.
        """
        return {}

    def memory_floats(self, rows: int, columns: int) -> int:
        """Return the least memory in floats that an answer takes by the request's fields, beside request and table."""
        return 0

    @property
    def draw(self) -> int:
        """Index of the random-feature draw whose probe vectors are checked together; it never decreases in a run."""
        return 0

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Set the reply type from the subclass's generic argument."""
        super().__pydantic_init_subclass__(**kwargs)
        accept_former_names(cls, {"takes": "memory_floats"})
        arguments = [base.__pydantic_generic_metadata__["args"] for base in cls.__mro__ if issubclass(base, Message)]
        replies = [args[0] for args in arguments if args and isinstance(args[0], type)]
        if replies:
            cls.reply_type = replies[0]

    def known_dimensions(self) -> dict[str, int]:
        """Return the sizes of dimensions that the request fixes for its reply; subclasses may add some."""
        return {name: size for name, size in self.dimensions().items() if not name.endswith("_m")}

    def check_reply(self, reply: ReplyT) -> None:
        """Raise ValueError if the reply does not fit the request. A request with more to check overrides this."""
        reply.dimensions(self.known_dimensions())

    def check_table(self, reply: ReplyT, sizes: Mapping[str, int]) -> None:
        """Raise ValueError if the reply does not fit `sizes`, those of the client's table. May be overridden, too."""
        reply.dimensions(sizes)


class Done(Reply):
    """Confirmation that the request was carried out; reveals nothing."""


MessageT = TypeVar("MessageT", bound=Message)
