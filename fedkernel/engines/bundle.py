"""The Flower app bundle of a job, and the cause that its ServerApp leaves where it fails."""

import importlib.util
import json
import shutil
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from fedkernel.engines.apps import CLIENT_APP, SERVER_APP
from fedkernel.errors import EngineError, FedkernelError, InputError, ProtocolError
from fedkernel.job import Job


def write_app(folder: Path, job: Job, dependencies: Sequence[str]) -> Path:
    """Write an app bundle of the packages as they are imported here, installed or not, with the job in its config."""
    packages = ["fedkernel", *sorted({address.split(".")[0] for address in (SERVER_APP, CLIENT_APP)})]
    for package in packages:
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise EngineError(f"the package {package} is not importable, but Flower's app bundle needs it")
        source = Path(spec.submodule_search_locations[0])
        shutil.copytree(source, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    # A JSON string is a TOML string too.
    quoted = json.dumps
    (folder / "pyproject.toml").write_text(
        f"""
[project]
name = "fedkernel"
version = {quoted(version("fedkernel"))}
license = "Apache-2.0"
dependencies = {quoted(list(dependencies))}

[tool.flwr.app]
publisher = "fedkernel"
fab-include = {quoted([f"{package}/**/*.py" for package in packages])}

[tool.flwr.app.components]
serverapp = {quoted(SERVER_APP)}
clientapp = {quoted(CLIENT_APP)}

[tool.flwr.app.config]
job = {quoted(job.model_dump_json())}
"""
    )
    return folder


def cause(told: Mapping[str, str]) -> FedkernelError:
    """Return the error that a ServerApp told of: its kind and its text."""
    kinds = {"InputError": InputError, "ProtocolError": ProtocolError}
    return kinds.get(told["kind"], EngineError)(told["text"])
