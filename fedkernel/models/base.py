"""The base of all models: how one becomes a file, and a file one of them."""

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
"""How a model's file holds a kernel: by its table."""


@dataclass(frozen=True)
class Choice:
    """What a run chose by itself, where it was left to: the parameter, its value, and why in a sentence."""

    name: str
    value: float
    why: str


BESIDE = ("choice_", "kernel_mean_", "findings_")
"""Fields that a result's file has and a model's, which may go to sites, has not."""


class Model(ABC):
    """Base of all models.

    They know no names: a frame's columns are taken as they stand, and must be in the order of the first shard's. Beside
    the names that its file tells, a model is a `fedkernel.models.FittedModel`.
    """

    kernel_mean_: float | None = None
    """The mean of the kernel's values between different rows, where a run knows it; not in a model's file."""

    @property
    def own_kernel(self) -> Kernel | None:
        """The kernel, its own or its embedding's; None: it has none."""
        return getattr(self, "kernel", None) or getattr(getattr(self, "embedding", None), "kernel", None)

    @property
    def sees_all_alike(self) -> bool:
        """Whether the kernel's width is so large that all rows are alike but for their mean."""
        return saturates(self.own_kernel) and (self.kernel_mean_ or 0.0) > WIDE

    def width_finding(self) -> str | None:
        """Return what is wrong with the kernel's width, where the mean of its values shows that; None: nothing."""
        return None if self.own_kernel is None else width_finding(self.own_kernel, self.kernel_mean_)

    def beside(self) -> dict[str, Any]:
        """Return what a run knows of the model and the model's file has not, but for a coreset: plain data by field."""
        known = {name: getattr(self, name, None) for name in BESIDE}
        present = {name: value for name, value in known.items() if value not in (None, ())}
        return {name: vars(value) if isinstance(value, Choice) else value for name, value in present.items()}

    def with_beside(self, known: Mapping[str, Any]) -> Self:
        """Return the model with the fields that `beside` returned, as JSON has them."""
        fields: dict[str, Any] = {}
        for name, value in known.items():
            fields[name] = Choice(**value) if isinstance(value, dict) else value
            fields[name] = tuple(value) if isinstance(value, list) else fields[name]
        return replace(self, **fields) if fields else self  # type: ignore[type-var] # all models are dataclasses

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model as npz; the file appears whole or not at all."""
        fields, arrays = self._parts()
        return save_parts(path, Parts(type(self).__name__, fields, arrays))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model that `save` wrote.

        Raises
        ------
        InputError
            If the file is missing, damaged, or something else than such a model.
        """
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
        """Rebuild the model, raising ValueError, KeyError or TypeError for parts that do not fit together."""


@contextmanager
def fitting_together(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise InputError, that a file is damaged, where what is built from its parts refuses them."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{path} is a damaged fedkernel model: its parts do not fit together ({type(error).__name__})"
        ) from None


def check_imported(path: str | os.PathLike[str], parts: Parts, kind: type[Any] | None = None) -> None:
    """Raise InputError if a file names a class, of a model or a kernel, whose module has not been imported."""
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
