"""Base class of all models, with saving and loading."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
import pydantic

from fedkernel.ground import InputError, Parts, load_parts, loaded, named, save_parts
from fedkernel.numerics import WIDE, AnyKernel, Kernel, saturates, width_finding


def _with_number(kernel: Kernel) -> Kernel:
    if kernel.rule is not None:
        raise ValueError(f"a model's kernel has a number, but {kernel!r} has none")
    return kernel


KERNEL: pydantic.TypeAdapter[AnyKernel] = pydantic.TypeAdapter(Annotated[Kernel, pydantic.AfterValidator(_with_number)])
"""Serialiser of a model's kernel."""


@dataclass(frozen=True)
class Choice:
    """Choice of a parameter by a run: its name, its value and the reason in a sentence."""

    name: str
    value: float
    why: str


BESIDE = ("choice_", "kernel_mean_", "findings_")
"""Fields of a result's file that a model's file, which may go to sites, leaves out."""


class Model(ABC):
    """Base of all models.

    A model ignores names: a frame's columns must be in the order of the first shard's. `fedkernel.models.FittedModel`
    adds the names.
    """

    kernel_mean_: float | None = None
    """Mean of the kernel's values between different rows, if known to the run; not in a model's file."""

    @property
    def own_kernel(self) -> Kernel | None:
        """The model's kernel or its embedding's, or None."""
        return getattr(self, "kernel", None) or getattr(getattr(self, "embedding", None), "kernel", None)

    @property
    def sees_all_alike(self) -> bool:
        """True if the kernel is so wide that all rows look alike but for their mean."""
        return saturates(self.own_kernel) and (self.kernel_mean_ or 0.0) > WIDE

    def width_finding(self) -> str | None:
        """Return the fault of the kernel's width according to its mean value, or None."""
        return None if self.own_kernel is None else width_finding(self.own_kernel, self.kernel_mean_)

    def beside(self) -> dict[str, Any]:
        """Return the `BESIDE` fields, unknown to the model's file, as plain data."""
        known = {name: getattr(self, name, None) for name in BESIDE}
        present = {name: value for name, value in known.items() if value not in (None, ())}
        return {name: vars(value) if isinstance(value, Choice) else value for name, value in present.items()}

    def with_beside(self, known: Mapping[str, Any]) -> Self:
        """Return the model with the fields of `beside` restored from JSON."""
        fields: dict[str, Any] = {}
        for name, value in known.items():
            fields[name] = Choice(**value) if isinstance(value, dict) else value
            fields[name] = tuple(value) if isinstance(value, list) else fields[name]
        return replace(self, **fields) if fields else self  # type: ignore[type-var] # all models are dataclasses

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model as npz, atomically."""
        fields, arrays = self._parts()
        return save_parts(path, Parts(type(self).__name__, fields, arrays))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model that `save` wrote; InputError if missing, damaged or of another class."""
        return cls._from_file(path, load_parts(path))

    @classmethod
    def _from_file(cls, path: str | os.PathLike[str], parts: Parts) -> Self:
        if parts.model != cls.__name__:
            raise InputError(f"{path} holds a {parts.model} model, not a {cls.__name__} model")
        check_imported(path, parts)
        with fitting_together(path):
            if any(array.dtype not in (np.float64, np.int32) for array in parts.arrays.values()):
                raise TypeError("dtype")
            return cls._from_parts(parts.fields, parts.arrays)

    @abstractmethod
    def _parts(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return the model as plain fields and arrays."""

    @classmethod
    @abstractmethod
    def _from_parts(cls, fields: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """Rebuild the model; ValueError, KeyError or TypeError for inconsistent parts."""


@contextmanager
def fitting_together(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors in rebuilding a model into InputError, as a damaged file."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{path} is a damaged fedkernel model: its parts do not fit together ({type(error).__name__})"
        ) from None


def check_imported(path: str | os.PathLike[str], parts: Parts, kind: type[Any] | None = None) -> None:
    """Raise InputError if a file names a class of a module that is not imported."""
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
