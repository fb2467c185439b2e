"""Import of classes and functions by address or by an entry point's short name, and fedkernel's own version.

An address is ``package.module:Name``. `load_class` imports, so its names must come from the user of this process. Names
from messages or files go to `imported`, which imports nothing.
"""

import importlib
import sys
import tomllib
from collections.abc import Callable
from functools import cache
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import Any, Literal
from warnings import warn

from fedkernel.ground.errors import InputError

Group = Literal["pairs", "clients", "kernels", "metrics", "datasets", "advice"]
"""Entry point groups, as ``fedkernel.pairs``: strategies, clients, kernels, metrics, data loaders, choice of a pair."""

PACKAGES_FOLDER = Path(__file__).resolve().parents[2]
"""Folder of the packages: a checkout, an environment's site-packages, or a Flower app bundle."""

IN_A_MODULE = "put it in a module, a file such as my_pairs.py, and import it from there"


def _own_project() -> dict[str, Any]:
    """Return fedkernel's table in a pyproject.toml beside the packages, a bundle's only metadata, or an empty one."""
    try:
        project = tomllib.loads((PACKAGES_FOLDER / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        return dict(project) if project["name"] == "fedkernel" else {}
    except (OSError, ValueError, KeyError, TypeError):  # an installation, or another project's file
        return {}


def installed_version() -> str:
    """Return fedkernel's installed version or, in a Flower app bundle, the version in pyproject.toml."""
    try:
        return version("fedkernel")
    except PackageNotFoundError:
        return str(_own_project().get("version", "unknown"))


class FormerNames(Loader):
    """Importer of packages that have moved into fedkernel, under their names until version 0.1, with a warning.

    Other packages of such a name are left alone. The modules are those of today, so that no class exists twice.
    """

    def __init__(self, *names: str) -> None:
        self.names = names

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """Return a module's specification by its former name, or None for other names and other projects' modules."""
        first = name.partition(".")[0]
        if first not in self.names:
            return None
        own, found = find_spec(f"fedkernel.{first}"), PathFinder.find_spec(first)
        files = [Path(str(spec.origin)) for spec in (own, found) if spec is not None]
        if own is None or not all(file.exists() and file.samefile(files[0]) for file in files):
            return None
        warn(f"{name} is now fedkernel.{name}; the former name goes with the next version", DeprecationWarning, 2)
        return ModuleSpec(name, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module under its present name. `exec_module` restores the module's own specification."""
        module = importlib.import_module(f"fedkernel.{spec.name}")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the specification that the import system has replaced in a complete module."""
        assert module.__spec__ is not None  # noqa: S101 - the import system has set it
        module.__spec__ = module.__spec__.loader_state


@cache
def own_short_names(group: Group) -> dict[str, str]:
    """Return the addresses of fedkernel's own classes in a group, by short name."""
    if (named := _own_project().get("entry-points", {}).get(f"fedkernel.{group}")) is not None:
        return dict(named)
    return {point.name: point.value for point in entry_points(group=f"fedkernel.{group}") if _is_own(point)}


def _is_own(point: Any) -> bool:
    return point.dist is not None and point.dist.name == "fedkernel"


@cache
def short_names(group: Group) -> dict[str, str]:
    """Return a group's addresses by short name, or "" for a name that two packages claim. fedkernel's prevail."""
    others: dict[str, str] = {}
    for point in entry_points(group=f"fedkernel.{group}"):
        if not _is_own(point) and others.setdefault(point.name, point.value) != point.value:
            others[point.name] = ""
    return others | own_short_names(group)


def resolve_address(name: str, group: Group, setting: str) -> str:
    """Return a name's address without importing it. Raises InputError, which quotes `setting`, if it is invalid."""
    module, colon, inner = name.partition(":")
    if colon and f"fedkernel.{name}" in own_short_names(group).values():  # as written until version 0.1
        return f"fedkernel.{name}"
    if not colon:
        addresses = short_names(group)
        if name not in addresses:
            allowed = f"{', '.join(addresses)}, or an address such as my_lab.{group}:Name"
            raise InputError(f"{setting} = {name!r}, but must be one of {allowed}")
        if not addresses[name]:
            raise InputError(f"{setting} = {name!r} is ambiguous: several packages claim it; give the address")
        return addresses[name]
    if not all(part.isidentifier() for part in [*module.split("."), *inner.split(".")]):
        raise InputError(f"{setting} = {name!r}, but an address has the form package.module:Name")
    return name


def short_name(name: str, group: Group) -> str:
    """Return fedkernel's short name of an address, or the address itself if it has none."""
    return next((own for own, whole in own_short_names(group).items() if whole == name), name)


def load_class(name: str, wanted: type, group: Group, setting: str) -> Any:
    """Import and return the class at an address or short name. With ``wanted=object``, it may be any object.

    Raises InputError if the name is invalid (see `resolve_address`), its module fails to import or lacks it, or it is
    no subclass of `wanted`.
    """
    named = _imported(name, group, setting)
    if wanted is not object and not (isinstance(named, type) and issubclass(named, wanted)):
        raise InputError(f"{setting} = {name!r} is no {wanted.__name__}: it must be a class that derives from it")
    return named


def load_function(name: str, group: Group, setting: str) -> Callable[..., Any]:
    """Import and return the function at an address or short name; errors are as in `load_class`."""
    named = _imported(name, group, setting)
    if not callable(named):
        raise InputError(f"{setting} = {name!r} is no function")
    return named


def _imported(name: str, group: Group, setting: str) -> object:
    where = f"{setting} = {name!r}"
    module, _, inner = resolve_address(name, group, setting).partition(":")
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


def imported(name: str) -> object | None:
    """Return the object at an address if its module is imported already, else None."""
    module, _, inner = name.partition(":")
    return _within(sys.modules.get(module), inner)


def checked_address(kind: type) -> str:
    """Return the address of a class. Raises InputError if other processes cannot import the class from there."""
    inner, or_local = kind.__qualname__, f"{IN_A_MODULE}, or use engine = 'local'"
    if kind.__module__ == "__main__":
        raise InputError(f"{inner} is in a script or notebook, which other processes cannot import; {or_local}")
    if imported(whole := class_address(kind)) is not kind:
        raise InputError(f"other processes cannot import {whole}; {or_local}")
    return whole


def class_address(kind: type) -> str:
    """Return the address of a class, importable or not."""
    return f"{kind.__module__}:{kind.__qualname__}"
