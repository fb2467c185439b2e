"""Names that everything numerical shares."""

import threading
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

Divided: TypeAlias = Literal["vertical", "horizontal"]
"""Whether clients hold columns of the same rows, or rows with the same columns."""

Positions: TypeAlias = npt.NDArray[np.integer[Any]]
"""Of rows in a table, from 0."""

READING = threading.RLock()
"""Held while numpy reads the headers of arrays.

It does so by CPython's ast module, whose depth counter is shared by all threads in 3.11: two at once can fail.
"""

Precision: TypeAlias = Literal["float64", "float32"]
"""What numbers are computed in, or travel as, where there is a choice."""

EPS = float(np.finfo(np.float64).eps)


def check_finite(values: npt.NDArray[Any], what: str) -> None:
    """Raise InputError if an entry is NaN or infinite."""
    if not all_finite(values):
        raise InputError(f"{what} has entries that are not finite")


def all_finite(values: npt.NDArray[Any]) -> bool:
    """Tell whether no entry is NaN or infinite."""
    if values.dtype.kind == "c":  # whose order looks at the real parts first
        return all_finite(values.real) and all_finite(values.imag)
    # Not isfinite(values).all(), which would allocate; NaN goes through max.
    return bool(np.isfinite(values.max(initial=0.0)) and np.isfinite(values.min(initial=0.0)))


def sum_in_order(terms: Sequence[FloatArray]) -> FloatArray:
    """Add arrays up in their order, so that the last bits are always the same."""
    total = terms[0].copy()
    for term in terms[1:]:
        total += term
    return total


def stack_rows(parts: Sequence[Rows]) -> Rows:
    """Put the rows of tables with the same columns under each other; CSR as soon as one of them is.

    A single table is returned as it is.
    """
    if len(parts) == 1:
        return parts[0]
    dense = [part for part in parts if isinstance(part, np.ndarray)]
    if len(dense) == len(parts):
        return np.vstack(dense)
    return sparse.csr_array(sparse.vstack([sparse.csr_array(part) for part in parts], format="csr"))


BLOCK_ROWS = 2048
"""Rows of a table that are worked on at a time: with 100 columns they take 1.6 MB, which stays in cache."""


def row_blocks(n: int) -> Iterator[slice]:
    """Cut n rows into blocks of `BLOCK_ROWS` or fewer."""
    for first in range(0, n, BLOCK_ROWS):
        yield slice(first, min(first + BLOCK_ROWS, n))


def frozen(array: ArrayT) -> ArrayT:
    """Make an array read-only, as a client does with a large one before it saves it: then no copy of it is made."""
    array.flags.writeable = False
    return array


FEW = 6
"""Entries of a list that `brief` shows."""


def brief(value: Any) -> str:
    """Return the repr of an object in a line or two: of arrays the shape, of long lists the length.

    As `__repr__` of a dataclass it names the class and its fields, but for those that have ``repr=False`` or their
    default.
    """
    name = type(value).__name__
    if isinstance(value, np.ndarray | sparse.csr_array):
        return f"<array {' x '.join(map(str, value.shape))}>"
    if is_dataclass(value) and not isinstance(value, type):
        own_fields = {field.name: getattr(value, field.name) for field in fields(value) if field.repr}
        usual = {field.name for field in fields(value) if _is_default(own_fields.get(field.name), field.default)}
        return (
            f"{name}({', '.join(f'{field}={brief(own)}' for field, own in own_fields.items() if field not in usual)})"
        )
    if isinstance(value, list | tuple | dict) and len(value) > FEW:
        return f"<{name} of {len(value)}>"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {brief(entry)}" for key, entry in value.items()) + "}"
    if type(value) in (list, tuple):
        entries = ", ".join(map(brief, value))
        return f"[{entries}]" if isinstance(value, list) else f"({entries}{',' * (len(value) == 1)})"
    return repr(value)


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, bool | int | float | str | tuple) and value == default)
