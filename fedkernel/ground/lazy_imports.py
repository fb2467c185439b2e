"""Lazy imports of a package's public names, each on first use."""

import ast
import importlib
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

AST_LOCK = threading.RLock()
"""Lock held while Python's ast module parses: numpy's array headers, and this module's packages.

CPython before 3.11.8 counts the depth for all threads together, so that two that parse at once can fail.
"""


def lazily(package: str) -> tuple[Callable[[str], object], list[str]]:
    """Return a package's ``__getattr__`` and ``__all__`` that import each public name on first use.

    The names and their modules are read from the imports beneath ``if TYPE_CHECKING:`` in the package's
    ``__init__.py``. `package`: its ``__name__``. A name must not be that of one of the package's modules: importing the
    module would replace the name.
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
    """Return the module of each public name that a package imports on first use."""
    with AST_LOCK:
        tree = ast.parse(Path(str(package.__file__)).read_text(encoding="utf-8"))
    blocks = (node.body for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    imports = (node for block in blocks for node in block if isinstance(node, ast.ImportFrom))
    prefix = f"{package.__name__}."  # of a relative import, whose level is 1
    return {name.name: f"{prefix * node.level}{node.module}" for node in imports for name in node.names}
