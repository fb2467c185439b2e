"""Flower app bundle of a job, and the error that its ServerApp reported."""

import importlib.util
import json
import shutil
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from fedkernel.engines.app_execution import apps_of
from fedkernel.ground import EngineError, FedkernelError, Group, InputError, ProtocolError, QuorumError, own_short_names
from fedkernel.wire import Job


def write_app(folder: Path, job: Job, dependencies: Sequence[str]) -> Path:
    """Write a Flower app bundle: fedkernel, the job's packages and, in the bundle's configuration, the job.

    Further packages that a third-party strategy imports must be installed where the bundle runs.
    """
    apps = apps_of(job)
    packages = ["fedkernel", *sorted(job.packages - {"fedkernel"})]
    for package in packages:
        spec = importlib.util.find_spec(package)
        if spec is None:
            raise EngineError(f"package {package} cannot be imported, but Flower's app bundle needs it")
        for source in spec.submodule_search_locations or ():
            shutil.copytree(source, folder / package, ignore=_not_code, dirs_exist_ok=True)
        if not spec.submodule_search_locations and spec.origin is not None:
            shutil.copy(spec.origin, folder)
    # A JSON string is a TOML string too.
    quoted = json.dumps
    groups: tuple[Group, ...] = ("pairs", "clients")
    entry_points = "".join(
        f'[project.entry-points."fedkernel.{group}"]\n'
        + "".join(f"{name} = {quoted(address)}\n" for name, address in own_short_names(group).items())
        for group in groups
    )
    (folder / "pyproject.toml").write_text(
        f"""
[project]
name = "fedkernel"
version = {quoted(version("fedkernel"))}
license = "Apache-2.0"
dependencies = {quoted(list(dependencies))}

{entry_points}
[tool.flwr.app]
publisher = "fedkernel"
fab-include = {quoted(["**/*.py"])}

[tool.flwr.app.components]
serverapp = {quoted(apps.server)}
clientapp = {quoted(apps.client)}

[tool.flwr.app.config]
job = {quoted(job.model_dump_json())}
"""
    )
    return folder


def _not_code(folder: str, entries: Sequence[str]) -> set[str]:
    """Return a folder's entries that are not Python code, which bundles omit."""
    return {name for name in entries if not (Path(folder, name).is_dir() or name.endswith(".py"))} | {"__pycache__"}


def cause(error: Mapping[str, str]) -> FedkernelError:
    """Rebuild the error that a failed ServerApp reported, from its kind and text."""
    kinds = {kind.__name__: kind for kind in (InputError, ProtocolError, QuorumError)}
    return kinds.get(error["kind"], EngineError)(error["text"])
