"""Addresses of classes and functions: ``package.module:Name``, or the short name of an entry point.

`find` imports, so its names must come from the user of this process. Names from messages or files go to `loaded`,
which imports nothing.
"""

import importlib
import sys
import tomllib
from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

from fedkernel.ground.errors import InputError

Group = Literal["pairs", "clients", "kernels", "metrics", "datasets"]
"""Entry point groups, ``fedkernel.pairs`` and so on: strategies, their clients, kernels, metrics, data loaders."""

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
"""Project file beside the packages in a checkout and in a Flower app bundle, which has no other metadata."""

IN_A_MODULE = "put it in a module, a file such as my_pairs.py, and import it from there"


@cache
def own_names(group: Group) -> dict[str, str]:
    """Return the addresses of fedkernel's own short names."""
    try:
        project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
        if project["name"] == "fedkernel":
            return dict(project["entry-points"][f"fedkernel.{group}"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # an installation, or another project's file
    return {point.name: point.value for point in entry_points(group=f"fedkernel.{group}") if _is_own(point)}


def _is_own(point: Any) -> bool:
    return point.dist is not None and point.dist.name == "fedkernel"


@cache
def names(group: Group) -> dict[str, str]:
    """Return the addresses of all installed short names, where fedkernel's own take precedence.

    The address is "" if two other packages claim the name.
    """
    others: dict[str, str] = {}
    for point in entry_points(group=f"fedkernel.{group}"):
        if not _is_own(point) and others.setdefault(point.name, point.value) != point.value:
            others[point.name] = ""
    return others | own_names(group)


def address(name: str, group: Group, what: str) -> str:
    """Return the address of a name, which is an address or a short name, without an import.

    `what`: the setting's name in error texts, for instance ``method``. Raises InputError if the name is unknown,
    ambiguous or malformed.
    """
    module, colon, inner = name.partition(":")
    if not colon:
        known = names(group)
        if name not in known:
            raise InputError(
                f"{what} = {name!r}, but must be one of {', '.join(known)}, or an address such as my_lab.{group}:Name"
            )
        if not known[name]:
            raise InputError(f"{what} = {name!r} is ambiguous: several installed packages claim it; give the address")
        return known[name]
    if not all(part.isidentifier() for part in [*module.split("."), *inner.split(".")]):
        raise InputError(f"{what} = {name!r}, but an address has the form package.module:Name")
    return name


def short(name: str, group: Group) -> str:
    """Return fedkernel's short name of an address, or the address itself if it has none."""
    return next((own for own, whole in own_names(group).items() if whole == name), name)


def find(name: str, wanted: type, group: Group, what: str) -> Any:
    """Import and return the class at an address or short name; `wanted` object admits any object.

    Raises InputError if the name is invalid (see `address`), its module fails to import or lacks it, or it is no
    subclass of `wanted`.
    """
    named = _imported(name, group, what)
    if wanted is not object and not (isinstance(named, type) and issubclass(named, wanted)):
        raise InputError(f"{what} = {name!r} is no {wanted.__name__}: it must be a class that derives from it")
    return named


def find_function(name: str, group: Group, what: str) -> Callable[..., Any]:
    """Import and return the function at an address or short name; errors are as in `find`."""
    named = _imported(name, group, what)
    if not callable(named):
        raise InputError(f"{what} = {name!r} is no function")
    return named


def _imported(name: str, group: Group, what: str) -> object:
    where = f"{what} = {name!r}"
    module, _, inner = address(name, group, what).partition(":")
    if module == "__main__":
        raise InputError(f"{where} is in a script or notebook, which cannot be imported; {IN_A_MODULE}")
    try:
        # a package before its modules: two threads that import them in opposite order can see a half-made module
        imported = [importlib.import_module(package) for package in accumulate(module.split("."), "{}.{}".format)][-1]
    except Exception as error:  # a foreign module may raise anything
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            missing = f"there is no module {error.name} here; install it, or start in the folder that holds it"
            raise InputError(f"{where}: {missing}") from None
        raise InputError(f"{where}: {module} cannot be imported ({type(error).__name__}: {error})") from error
    first, _, rest = inner.partition(".")
    inside = getattr(imported, first, None)  # a package may import it lazily
    if rest and inside is not None:
        inside = _within(inside, rest)
    if inside is None:
        raise InputError(f"{where}: the module {module} has no {inner}")
    return inside


def _within(module: object, inner: str) -> object | None:
    """Return the object with a dotted name in a module, without calling the module's ``__getattr__``."""
    inside: Any = module
    for part in inner.split("."):
        inside = getattr(inside, "__dict__", {}).get(part)
    return inside  # type: ignore[no-any-return]


def loaded(name: str) -> object | None:
    """Return the object at an address if its module is imported already, else None."""
    module, _, inner = name.partition(":")
    return _within(sys.modules.get(module), inner)


def address_of(kind: type) -> str:
    """Return the address of a class; InputError if other processes cannot import the class from there."""
    inner = kind.__qualname__
    if kind.__module__ == "__main__":
        raise InputError(
            f"{inner} is defined in a script or notebook, which other processes cannot import; {IN_A_MODULE}, "
            "or use engine = 'local'"
        )
    if loaded(whole := named(kind)) is not kind:
        raise InputError(
            f"{whole} is not where other processes would import it from; {IN_A_MODULE}, or use engine = 'local'"
        )
    return whole


def named(kind: type) -> str:
    """Return the address of a class, importable or not."""
    return f"{kind.__module__}:{kind.__qualname__}"
