"""Submission of jobs by Flower's command ``flwr``: app bundles, calls with parsed JSON output, reported errors."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedkernel.engines.app_execution import apps_of
from fedkernel.ground import EngineError, FedkernelError, Group, InputError, ProtocolError, QuorumError, own_short_names
from fedkernel.wire import Job

Flwr = Callable[..., dict[str, Any]]

SCRIPTS = Path(sys.executable).parent  # folder of Flower's commands, next to the running Python

QUIET = {
    "PATH": f"{SCRIPTS}{os.pathsep}{os.environ.get('PATH', '')}",
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
}
"""Environment variables for Flower's commands: no telemetry, no update check."""


def flwr_in(folder: Path | None = None, environment: Mapping[str, str] | None = None) -> Flwr:
    """Return a function that calls ``flwr`` in a folder and environment, and returns its parsed output."""

    def flwr(*arguments: str) -> dict[str, Any]:
        done = subprocess.run(  # noqa: S603 - our own executable and arguments
            [str(SCRIPTS / "flwr"), *arguments],
            cwd=folder,
            env={**os.environ, **QUIET, **(environment or {})},
            capture_output=True,
            text=True,
            check=False,
        )
        try:
            return dict(json.loads(done.stdout))
        except ValueError:
            raise EngineError(f"flwr {arguments[0]} failed: {(done.stderr or done.stdout).strip()[-500:]}") from None

    return flwr


def submit(flwr: Flwr, app: Path, connection: str, *options: str) -> str:
    """Submit an app bundle to a SuperLink, and return the id of Flower's run."""
    answer = flwr("run", str(app), connection, *options, "--format", "json")
    if not answer.get("success"):
        raise EngineError(f"flwr run was refused: {_one_line(answer)}")
    return str(answer["run-id"])


def status_of(flwr: Flwr, connection: str, run_id: str) -> tuple[str, str]:
    """Return the status of Flower's run, such as ``finished:completed``, and its details."""
    answer = flwr("list", connection, "--run-id", run_id, "--format", "json")
    if not answer.get("success", True):
        raise EngineError(f"flwr list failed: {_one_line(answer)}")
    runs = answer.get("runs") or [{}]
    return str(runs[0].get("status", "unknown")), str(runs[0].get("status-details", ""))


def _one_line(answer: Mapping[str, Any]) -> str:
    """Return the error in the output of ``flwr``: the last line, since log lines may precede it."""
    lines = str(answer.get("error-message") or answer).strip().splitlines()
    return lines[-1]


def write_app(folder: Path, job: Job, dependencies: Sequence[str]) -> Path:
    """Write a Flower app bundle: fedkernel, the job's packages and, in the bundle's configuration, the job.

    Further packages that a third-party strategy imports must be installed where the bundle runs.
    """
    apps = apps_of(job)
    for package in ["fedkernel", *sorted(job.packages - {"fedkernel"})]:
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
    """Return the entries of a folder that app bundles omit: caches, non-Python files and fedkernel's command line."""
    omitted = {"__pycache__", "experiments"} if Path(folder).name == "fedkernel" else {"__pycache__"}
    return {name for name in entries if not (Path(folder, name).is_dir() or name.endswith(".py"))} | omitted


def cause(error: Mapping[str, str]) -> FedkernelError:
    """Rebuild an error from the kind and text that a failed ServerApp reported."""
    kinds = {kind.__name__: kind for kind in (InputError, ProtocolError, QuorumError)}
    return kinds.get(error["kind"], EngineError)(error["text"])
