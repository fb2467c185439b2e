"""Replacement of kernels with a rule-based width by kernels with numeric width, anywhere in a strategy's fields."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from fedkernel.numerics import Kernel

T = TypeVar("T")


def ruled_kernels(value: Any) -> tuple[Kernel, ...]:
    """Return the kernels with a rule-based width among a value's nested fields, in order, each once."""
    if isinstance(value, Kernel):
        return () if value.rule is None else (value,)
    inner = (ruled_kernels(part) for part in _fields(value).values())
    return tuple(dict.fromkeys(kernel for kernels in inner for kernel in kernels))


def with_kernels(value: T, settled: Mapping[Kernel, Kernel]) -> T:
    """Replace kernels with a rule-based width among a value's nested fields by those with numeric width."""
    if isinstance(value, Kernel):
        return value if value.rule is None else settled[value]  # type: ignore[return-value]
    if not ruled_kernels(value):
        return value
    changed = {name: with_kernels(part, settled) for name, part in _fields(value).items() if ruled_kernels(part)}
    return dataclasses.replace(value, **changed)  # type: ignore[type-var]


def _fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass instance by name; of any other value, none."""
    if not dataclasses.is_dataclass(value) or not hasattr(value, "__dict__"):
        return {}
    return {field.name: vars(value).get(field.name) for field in dataclasses.fields(value)}
