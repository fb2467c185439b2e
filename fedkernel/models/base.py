"""Base class of all models, with saving and loading."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
import pydantic

from fedkernel.ground import InputError, ModelParts, class_address, imported, load_parts, save_parts, short_repr
from fedkernel.numerics import WIDE_MEAN, AnyKernel, Kernel, is_bounded, width_warning


def _refuse_rule(kernel: Kernel) -> Kernel:
    if kernel.rule is not None:
        raise ValueError(f"{kernel!r} has no width, but a model's kernel must have a number")
    return kernel


KERNEL_ADAPTER: pydantic.TypeAdapter[AnyKernel] = pydantic.TypeAdapter(
    Annotated[Kernel, pydantic.AfterValidator(_refuse_rule)]
)
"""pydantic's serialiser of a model's kernel, whose width must be a number."""


@dataclass(frozen=True)
class Choice:
    """Parameter value that a run chose itself, such as a number of clusters, with the reason in a sentence."""

    name: str
    value: float
    why: str


RESULT_FIELDS = ("choice_", "kernel_mean_", "findings_")
"""Fields of a result's file that a model's file leaves out."""


@dataclass(frozen=True, kw_only=True)
class Model(ABC):
    """Base class of all models, the results of runs.

    A model ignores names: a frame's columns must be in the order of the first shard's. `FittedModel` adds the names.
    Only a result's file has these fields, since a model's file may go to sites:

    - `choice_`: choice of the number of clusters or components.
    - `findings_`: sentences for the run's result.
    - `kernel_mean_`: mean of the kernel's values between different rows, if known to the run.
    """

    choice_: Choice | None = field(default=None, repr=False)
    findings_: tuple[str, ...] = field(default=(), repr=False)
    kernel_mean_: float | None = field(default=None, repr=False)

    __repr__ = short_repr

    @property
    def own_kernel(self) -> Kernel | None:
        """Kernel of the model or its embedding, or None."""
        return getattr(self, "kernel", None) or getattr(getattr(self, "embedding", None), "kernel", None)

    @property
    def sees_all_alike(self) -> bool:
        """True if the kernel is so wide that all rows look alike but for their mean."""
        return is_bounded(self.own_kernel) and (self.kernel_mean_ or 0.0) > WIDE_MEAN

    def width_warning(self) -> str | None:
        """Return a warning if the kernel's mean value shows it to be too wide or too narrow, else None."""
        return None if self.own_kernel is None else width_warning(self.own_kernel, self.kernel_mean_)

    def result_fields(self) -> dict[str, Any]:
        """Return the fields that only a result's file has (`RESULT_FIELDS`), as plain data."""
        fields = {name: getattr(self, name) for name in RESULT_FIELDS}
        present = {name: value for name, value in fields.items() if value not in (None, ())}
        return {name: vars(value) if isinstance(value, Choice) else value for name, value in present.items()}

    def with_result_fields(self, known: Mapping[str, Any]) -> Self:
        """Return the model with its `RESULT_FIELDS` restored from the plain data in a result's file."""
        fields: dict[str, Any] = {name: tuple(own) if isinstance(own, list) else own for name, own in known.items()}
        fields |= {name: Choice(**own) for name, own in known.items() if isinstance(own, dict)}
        return replace(self, **fields) if fields else self

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model as npz, atomically."""
        fields, arrays = self._parts()
        return save_parts(path, ModelParts(type(self).__name__, fields, arrays))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model that `save` wrote. Raises InputError if missing, damaged or of a different class."""
        return cls._from_file(path, load_parts(path))

    @classmethod
    def _from_file(cls, path: str | os.PathLike[str], parts: ModelParts) -> Self:
        if parts.model != cls.__name__:
            raise InputError(f"{path} holds a {parts.model} model, not a {cls.__name__} model")
        check_imported(path, parts)
        with rebuild_errors(path):
            if any(array.dtype not in (np.float64, np.int32) for array in parts.arrays.values()):
                raise TypeError("dtype")
            return cls._from_parts(parts.fields, parts.arrays)

    @abstractmethod
    def _parts(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return the model as plain fields and arrays."""

    @classmethod
    @abstractmethod
    def _from_parts(cls, fields: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """Rebuild the model. Raises ValueError, KeyError or TypeError for inconsistent parts."""


@contextmanager
def rebuild_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors in rebuilding a model into an InputError that calls the file damaged."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        cause = f"its parts do not fit together ({type(error).__name__})"
        raise InputError(f"{path} is a damaged fedkernel model: {cause}") from None


def check_imported(path: str | os.PathLike[str], parts: ModelParts, kind: type[Any] | None = None) -> None:
    """Raise InputError if a file names a class of a module that is not imported."""
    for name in [parts.model, *_addresses(parts.fields)]:
        if ":" in name and imported(name) is None and (kind is None or class_address(kind) != name):
            module = name.partition(":")[0]
            raise InputError(f"{path} holds a {parts.model} model, which needs {name}: import {module} first")


def _addresses(value: Any) -> list[str]:
    entries = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    own = [value[key] for key in ("type", "of") if isinstance(value, dict) and isinstance(value.get(key), str)]
    return own + [name for entry in entries for name in _addresses(entry)]
