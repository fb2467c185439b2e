"""Array types, block iteration and finiteness checks for all numerical code."""

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fedkernel.ground.errors import InputError

AnyArray = npt.NDArray[Any]
ArrayT = TypeVar("ArrayT", bound=AnyArray)
FloatArray = npt.NDArray[np.float64]
Rows: TypeAlias = FloatArray | sparse.csr_array
"""Rows of a table, dense or sparse: shape (n, d)."""

Division: TypeAlias = Literal["vertical", "horizontal"]
"""Partition of a table: columns of the same rows (vertical), or rows with the same columns (horizontal)."""

Positions: TypeAlias = npt.NDArray[np.integer[Any]]
"""Positions of rows in a table, from 0."""

Precision: TypeAlias = Literal["float64", "float32"]
"""Floating-point type of computations or messages."""

Sums: TypeAlias = Literal["plain", "masked"]
"""Form of replies that are only summed: readable by the coordinator, or under masks."""

EPS = float(np.finfo(np.float64).eps)


def check_finite(values: npt.NDArray[Any], name: str) -> None:
    """Raise InputError, with the array's name, if an entry is NaN or infinite."""
    if not all_finite(values):
        raise InputError(f"{name} has entries that are not finite")


def all_finite(values: npt.NDArray[Any]) -> bool:
    """Return whether no entry is NaN or infinite."""
    if values.dtype.kind == "c":  # complex numbers are ordered by their real parts first
        return all_finite(values.real) and all_finite(values.imag)
    # Not isfinite(values).all(), which would allocate; NaN goes through max.
    return bool(np.isfinite(values.max(initial=0.0)) and np.isfinite(values.min(initial=0.0)))


def sum_in_order(terms: Sequence[FloatArray]) -> FloatArray:
    """Add arrays in the given order, so that the last bits are reproducible."""
    total = terms[0].copy()
    for term in terms[1:]:
        total += term
    return total


def stack_rows(parts: Sequence[Rows]) -> Rows:
    """Stack tables' rows, as CSR if any table is sparse. A single table is returned without a copy."""
    if len(parts) == 1:
        return parts[0]
    dense = [part for part in parts if isinstance(part, np.ndarray)]
    if len(dense) == len(parts):
        return np.vstack(dense)
    return sparse.csr_array(sparse.vstack([sparse.csr_array(part) for part in parts], format="csr"))


BLOCK_ROWS = 2048
"""Rows of a block: with 100 columns they take 1.6 MB, which fits the cache."""


def row_blocks(n: int) -> Iterator[slice]:
    """Yield the slices that cut n rows into blocks of at most `BLOCK_ROWS`."""
    for first in range(0, n, BLOCK_ROWS):
        yield slice(first, min(first + BLOCK_ROWS, n))


def read_only(array: ArrayT) -> ArrayT:
    """Make an array read-only and return it, so that a client can save it without a copy."""
    array.flags.writeable = False
    return array


MOST_ENTRIES_SHOWN = 6  # longest list that `short_repr` shows in full


def short_repr(value: Any) -> str:
    """Return a short repr: shapes of arrays, lengths of long lists, dataclasses without defaults and hidden fields."""
    name = type(value).__name__
    if isinstance(value, np.ndarray | sparse.csr_array):
        return f"<array {' x '.join(map(str, value.shape))}>"
    if is_dataclass(value) and not isinstance(value, type):
        own_fields = {field.name: getattr(value, field.name) for field in fields(value) if field.repr}
        usual = {field.name for field in fields(value) if _is_default(own_fields.get(field.name), field.default)}
        shown = {field: short_repr(own) for field, own in own_fields.items() if field not in usual}
        return f"{name}({', '.join(f'{field}={own}' for field, own in shown.items())})"
    if isinstance(value, list | tuple | dict) and len(value) > MOST_ENTRIES_SHOWN:
        return f"<{name} of {len(value)}>"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {short_repr(entry)}" for key, entry in value.items()) + "}"
    if type(value) in (list, tuple):
        entries = ", ".join(map(short_repr, value))
        return f"[{entries}]" if isinstance(value, list) else f"({entries}{',' * (len(value) == 1)})"
    return repr(value)


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, bool | int | float | str | tuple) and value == default)
