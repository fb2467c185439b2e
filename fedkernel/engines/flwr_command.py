"""Calls of Flower's command ``flwr``, with parsed JSON output."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedkernel.ground import EngineError

Flwr = Callable[..., dict[str, Any]]

SCRIPTS = Path(sys.executable).parent
"""Folder of Flower's commands, next to the running Python."""

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
