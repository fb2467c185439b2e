"""Saving and loading of models as npz files: fedkernel's classes, arrays, numbers and users' dataclasses."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkernel import ground
from fedkernel.ground import InputError, ModelParts
from fedkernel.models.base import KERNEL_ADAPTER, Model, check_imported, rebuild_errors
from fedkernel.models.clusters import KernelKMeans
from fedkernel.models.components import KernelPCA, LandmarkPCA, NodeComponents, PeerComponents
from fedkernel.numerics import Kernel

MODELS: dict[str, type[Model]] = {
    kind.__name__: kind for kind in (KernelPCA, LandmarkPCA, KernelKMeans, PeerComponents, NodeComponents)
}
"""Model classes by the name in a file."""

PLAIN_VALUE = "value"  # name in a file of a model that is an array or a number


def save_model(model: Any, path: str | os.PathLike[str], about: Mapping[str, Any] = MappingProxyType({})) -> Path:
    """Write a model as npz: one of `MODELS`, an array, a number, or a user's dataclass.

    `about` is stored beside the model, as plain data: see `fedkernel.models.FittedModel`. A dataclass may have fields
    of arrays of finite numbers, numbers, texts, None, kernels, and lists, tuples and dataclasses of these. The file
    names its class by address. Raises InputError, with the field's name, for anything else.
    """
    name = _name_in_files(type(model))
    if name in MODELS:
        fields, own = model._parts()
        return ground.save_parts(path, ModelParts(name, fields, own, about))
    if name != PLAIN_VALUE and not dataclasses.is_dataclass(model):
        allowed = f"an array, a dataclass of arrays and numbers, or a model of fedkernel.models ({', '.join(MODELS)})"
        kind = type(model).__name__
        raise InputError(f"the protocol's result, of type {kind}, cannot be saved; allowed: {allowed}")
    arrays: dict[str, npt.NDArray[Any]] = {}
    return ground.save_parts(path, ModelParts(name, {PLAIN_VALUE: _packed(model, PLAIN_VALUE, arrays)}, arrays, about))


def load_model(path: str | os.PathLike[str], kind: type[Any] | None = None) -> Any:
    """Read a model from its npz file or its result's folder. Raises InputError if missing, damaged or of unknown kind.

    A file may come from another party, so nothing that it names is imported. A user's dataclass must be given as
    `kind`, the required class, or be imported before, as with its strategy; its ``__init__``, and those of its fields,
    get the values.
    """
    return model_of(ground.load_parts(path), path, kind)


def model_of(parts: ModelParts, path: str | os.PathLike[str], kind: type[Any] | None = None) -> Any:
    """Build the model from a file's parts; errors are as in `load_model`."""
    if kind is not None and parts.model != _name_in_files(kind):
        raise InputError(f"{path} holds a {parts.model} model, not a {_name_in_files(kind)} model")
    if parts.model in MODELS:
        return MODELS[parts.model]._from_file(path, parts)
    if parts.model != PLAIN_VALUE and ":" not in parts.model:
        raise InputError(f"{path} holds a {parts.model} model, but this version knows {', '.join(MODELS)}")
    check_imported(path, parts, kind)
    with rebuild_errors(path):
        return _unpacked(parts.fields[PLAIN_VALUE], parts.arrays, kind)


def _name_in_files(kind: type[Any]) -> str:
    """Return a model class's name in files: its own, or its address for a user's class."""
    if issubclass(kind, np.ndarray | np.generic | int | float):
        return PLAIN_VALUE
    return kind.__name__ if MODELS.get(kind.__name__) is kind else ground.class_address(kind)


def _packed(value: Any, where: str, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    """Convert a value to JSON data, and store its arrays in `arrays` by path. `_unpacked` is the inverse."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Kernel):
        return {"kernel": KERNEL_ADAPTER.dump_python(value, mode="json")}
    if isinstance(value, list | tuple):
        items = [_packed(item, f"{where}.{number}", arrays) for number, item in enumerate(value)]
        return {type(value).__name__: items}
    if isinstance(value, np.ndarray) and value.dtype.kind in ground.NUMBER_KINDS and ground.all_finite(value):
        arrays[where] = value
        return {"array": where}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
        packed = {name: _packed(inner, f"{where}.{name}", arrays) for name, inner in fields.items()}
        return {"fields": packed, "of": ground.class_address(type(value))}
    kind = f"{value.dtype} array" if isinstance(value, np.ndarray) else type(value).__name__
    field = f"{where.removeprefix(f'{PLAIN_VALUE}.')} of the model, of type {kind},"
    raise InputError(f"{field} cannot be saved; allowed: finite numbers, arrays of them, text, kernels")


def _unpacked(value: Any, arrays: Mapping[str, npt.NDArray[Any]], kind: type[Any] | None) -> Any:
    if not isinstance(value, dict):
        return value
    if "of" in value:
        inner = {name: _unpacked(field, arrays, None) for name, field in value["fields"].items()}
        known = kind is not None and ground.class_address(kind) == value["of"]
        model_class = kind if known else ground.imported(value["of"])
        if not (isinstance(model_class, type) and dataclasses.is_dataclass(model_class)):
            raise TypeError("no dataclass")
        return model_class(**inner)
    ((how, content),) = value.items()
    if how == "array":
        return arrays[content]
    if how == "kernel":
        return KERNEL_ADAPTER.validate_python(content)
    items = [_unpacked(item, arrays, None) for item in content]
    return tuple(items) if how == "tuple" else items
