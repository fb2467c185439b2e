"""Identity of a run's journal, and its location if the run's folder is on another machine."""

import hashlib
import json
import os
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedkernel.data import file_hash
from fedkernel.ground import PACKAGES_FOLDER, installed_version
from fedkernel.wire import Job, RunSpec

FORMAT = 3  # version of the journal's format


def folder_here(run: RunSpec) -> Path:
    """Return the folder in Flower's home for a run's journal, if the run's own folder is on a different machine."""
    return Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr") / "fedkernel-journals" / run.key


def header_of(job: Job, run: RunSpec, strategy: object) -> dict[str, Any]:
    """Return a journal's header: all that decides the bits of the run's result, except real sites' data.

    Changed data show in the sites' introductions, the first recorded exchange; files of simulated sites are hashed
    here.
    """
    files = [str(file) if isinstance(file, str) else str(file.path) for file in run.shards or ()]
    files += [file for file in run.labels or () if file is not None]
    files += [] if run.data is None else [run.data.name]
    return {
        "format": FORMAT,
        "run": run.id,
        "settings": json.loads(run.model_dump_json()),
        "study": "" if job.study is None else job.study.sha256,
        "strategy": repr(strategy),
        "threads": job.threads,
        "versions": _versions(),
        "code": _code_of(type(strategy), *([] if (client := getattr(strategy, "client", None)) is None else [client])),
        # a missing file is an error for its reader
        "data": {path: file_hash(path) for path in files if Path(path).is_file()},
    }


def _code_of(*kinds: type) -> str:
    """Return the SHA-256 of the code that computes: fedkernel's packages and the modules of given classes."""
    modules = {owner.__module__ for kind in kinds for owner in kind.__mro__}
    files = [getattr(sys.modules.get(name), "__file__", None) for name in sorted(modules)]
    hashes = [file_hash(file) for file in files if file is not None]
    return hashlib.sha256("".join([_own_code(), *hashes]).encode()).hexdigest()


@cache
def _versions() -> dict[str, str]:
    """Return the versions of the packages that decide a result's bits."""
    packages = ("flwr", "numpy", "scipy", "scikit-learn")
    return {"fedkernel": installed_version()} | {name: version(name) for name in packages}


@cache
def _own_code() -> str:
    sha256 = hashlib.sha256()
    package = PACKAGES_FOLDER / "fedkernel"
    rooms = {path.parent.name for path in package.glob("*/__init__.py")} - {"experiments"} | {"clients", "strategies"}
    folders = [PACKAGES_FOLDER / name if not (package / name).is_dir() else package / name for name in sorted(rooms)]
    for path in [*sorted(package.glob("*.py")), *(path for room in folders for path in sorted(room.rglob("*.py")))]:
        sha256.update(path.read_bytes())
    return sha256.hexdigest()
