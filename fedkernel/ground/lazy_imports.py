"""Packages whose names are imported as each is first used, so that nobody waits for what another name needs."""

import ast
import importlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType


def lazily(package: str) -> tuple[Callable[[str], object], list[str]]:
    """Return the ``__getattr__`` and ``__all__`` of a package that imports each public name where it is first used.

    Which module has which name the package says once, for readers and type checkers: by the imports beneath
    ``if TYPE_CHECKING:`` in its ``__init__.py``, which are read here.

    `package`: its ``__name__``. No name may be that of one of its own modules, which importing that module would
    replace.
    """

    def find(name: str) -> object:
        if (module := modules_by_name(sys.modules[package]).get(name)) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    return find, sorted(modules_by_name(sys.modules[package]))


@cache
def modules_by_name(package: ModuleType) -> dict[str, str]:
    """Return the module that each lazy name of a package is imported from."""
    tree = ast.parse(Path(str(package.__file__)).read_text(encoding="utf-8"))
    blocks = (node.body for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    imports = (node for block in blocks for node in block if isinstance(node, ast.ImportFrom))
    return {name.name: str(node.module) for node in imports for name in node.names}
