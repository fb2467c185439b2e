"""Which fedkernel this is: its version, and that its other packages are the ones that come with it."""

import tomllib
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fedkernel.ground.errors import InputError

HOME = Path(__file__).resolve().parents[2]
"""Where the packages are: a checkout, an environment's site-packages, or a Flower app bundle."""


def check_packages(*names: str) -> None:
    """Raise InputError where a folder or file of somebody else's is imported in place of a package of this name.

    `*names`: packages that come with this one; one that is not there, as in a bundle that needs it not, is passed over.
    """
    for name in names:
        own, spec = HOME / name / "__init__.py", PathFinder.find_spec(name)
        if not own.exists() or spec is None or spec.origin is None or own.samefile(spec.origin):
            continue
        place = Path(spec.origin)
        place = place.parent if place.stem == "__init__" else place
        raise InputError(
            f"{place} hides the package {name!r} of fedkernel, since {place.parent} comes first on Python's import "
            f"path; rename it, or start Python elsewhere"
        )


def installed_version() -> str:
    """Return the version: the installation's, or without one, as in a bundle, that of the pyproject.toml beside it."""
    try:
        return version("fedkernel")
    except PackageNotFoundError:
        project = HOME / "pyproject.toml"
        table = tomllib.loads(project.read_text(encoding="utf-8")).get("project", {}) if project.exists() else {}
        return str(table.get("version", "unknown")) if table.get("name") == "fedkernel" else "unknown"
