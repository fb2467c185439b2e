"""Installed version of fedkernel, and check that its packages are not shadowed."""

import tomllib
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fedkernel.ground.errors import InputError

PACKAGES_FOLDER = Path(__file__).resolve().parents[2]
"""Folder of the packages: a checkout, an environment's site-packages, or a Flower app bundle."""


def check_packages(*names: str) -> None:
    """Raise InputError if a foreign folder or file shadows a package that comes with fedkernel.

    `*names`: packages to check; those absent here, as in a bundle, are ignored.
    """
    for name in names:
        own, spec = PACKAGES_FOLDER / name / "__init__.py", PathFinder.find_spec(name)
        if not own.exists() or spec is None or spec.origin is None or own.samefile(spec.origin):
            continue
        place = Path(spec.origin)
        place = place.parent if place.stem == "__init__" else place
        raise InputError(
            f"{place} hides the package {name!r} of fedkernel, since {place.parent} comes first on Python's import "
            f"path; rename it, or start Python elsewhere"
        )


def installed_version() -> str:
    """Return the installed version or, in a bundle, that of the pyproject.toml."""
    try:
        return version("fedkernel")
    except PackageNotFoundError:
        project = PACKAGES_FOLDER / "pyproject.toml"
        table = tomllib.loads(project.read_text(encoding="utf-8")).get("project", {}) if project.exists() else {}
        return str(table.get("version", "unknown")) if table.get("name") == "fedkernel" else "unknown"
