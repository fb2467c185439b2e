"""Engine on Flower's Ray simulation, which is started once per job and stopped afterwards.

``flwr run`` submits the job to a SuperLink of our own, with its own home and port: the one that ``flwr run`` starts by
itself has a fixed port and may be another user's. Starting takes about 10 s, a round 0.1 s with 5 clients.
"""

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from fedkernel.data import FOLDER_VARIABLE
from fedkernel.engines.app_execution import import_paths, short_folder
from fedkernel.engines.flwr_command import QUIET, SCRIPTS, Flwr, cause, flwr_in, status_of, submit, write_app
from fedkernel.ground import EngineError, InputError
from fedkernel.run import FailedRun
from fedkernel.wire import Job

START_SECONDS = 60.0  # longest wait for the SuperLink to start, in seconds

STOP_SECONDS = {signal.SIGTERM: 3.0, signal.SIGKILL: 15.0}
"""Longest wait for all processes to end after a signal, in seconds (idle Ray workers end after 6 s)."""

STATUS_SECONDS = 10.0  # seconds between two checks of the run's status, each of which costs a core two seconds

CONNECTION = "simulation"
LOG = "superlink.log"


def run_job(job: Job) -> Iterator[str | FailedRun]:
    """Run a job in Flower's simulation; EngineError if that cannot start or ends without a result."""
    if importlib.util.find_spec("ray") is None:
        raise EngineError("the ray engine needs Ray: pip install 'fedkernel[simulation]'")
    if job.out is None:
        raise InputError("the job needs a folder for its results (out) to run in the simulation")
    clients = max(run.clients or 1 for run in job.runs)
    with superlink() as (flwr, folder):
        for failed in (Path(job.out) / run.id / "error.json" for run in job.runs):
            failed.unlink(missing_ok=True)  # from an earlier try
        app = write_app(folder / "app", job, ["flwr[simulation]==" + version("flwr")])
        size = f"num-supernodes={clients} client-resources-num-cpus=1"
        run = submit(flwr, app, CONNECTION, "--federation-config", size)
        try:
            yield from _results(job, Path(job.out), lambda: status_of(flwr, CONNECTION, run))
        except EngineError as error:
            copy = Path(job.out) / LOG
            with suppress(OSError):
                shutil.copy(folder / LOG, copy)
                raise EngineError(f"{error}; Flower's log is {copy}") from None
            raise


def _results(job: Job, out: Path, status: Callable[[], tuple[str, str]]) -> Iterator[str | FailedRun]:
    """Yield runs in order as their results or failures appear, until the job or the simulation ends."""
    waiting, checked = [run.id for run in job.runs], time.monotonic()
    ended = False
    while waiting:
        if (out / waiting[0] / "result.json").exists():
            yield waiting.pop(0)
        elif (failure := out / waiting[0] / "error.json").exists():
            yield FailedRun(waiting.pop(0), **json.loads(failure.read_text()))
        elif (out / "error.json").exists():
            raise cause(json.loads((out / "error.json").read_text()))
        elif ended:
            raise EngineError(f"the simulation ended without a result for run {waiting[0]}")
        elif time.monotonic() - checked > STATUS_SECONDS:
            current, details = status()
            checked = time.monotonic()
            # One more look at the results follows, since they may have come while the status was on its way.
            ended = current == "finished:completed"
            if current.startswith("finished") and not ended and not (out / "error.json").exists():
                raise EngineError(f"the simulation ended as {current}: {details or 'its log has the cause'}")
        else:
            time.sleep(0.05)


@contextmanager
def superlink() -> Iterator[tuple[Flwr, Path]]:
    """Run a SuperLink for simulations; yield the function that calls ``flwr`` for it, and its folder."""
    with TemporaryDirectory(prefix="fedkernel-ray-", dir=short_folder(30), ignore_cleanup_errors=True) as name:
        folder, port = Path(name), free_port()
        home, log = folder / "home", folder / LOG
        home.mkdir()
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
            f'address = "127.0.0.1:{port}"\ninsecure = true\n'
        )
        own = {"FLWR_HOME": str(home), "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1", "RAY_TMPDIR": name}
        if sets := os.environ.get(FOLDER_VARIABLE):
            own[FOLDER_VARIABLE] = str(Path(sets).expanduser().resolve())  # its processes run in another folder
        with log.open("wb") as sink:
            command = ["--insecure", "--simulation", "--host", "127.0.0.1", "--port", str(port)]
            process = subprocess.Popen(  # noqa: S603 - our own executable and arguments
                [str(SCRIPTS / "flower-superlink"), *command, "--disable-runtime-dependency-installation"],
                cwd=folder,
                env={**os.environ, **QUIET, **import_paths(), **own},
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            _wait_until_healthy(process, port, log)
            yield flwr_in(folder, own), folder
        finally:
            _stop(process, home)


def _wait_until_healthy(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    give_up = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < give_up:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise EngineError(f"the SuperLink did not start: {log.read_text(errors='replace').strip()[-500:]}")


def _stop(process: subprocess.Popen[bytes], home: Path) -> None:
    """Terminate, then kill, the SuperLink and its descendants, and wait until they have ended."""
    family: dict[int, str] = {}
    for how, seconds in STOP_SECONDS.items():
        family = _descendants(home, family)
        for pid in {process.pid, *family}:
            with suppress(ProcessLookupError):
                os.kill(pid, how)
        give_up = time.monotonic() + seconds
        while time.monotonic() < give_up:
            family = _descendants(home, family)
            if process.poll() is not None and not family:
                return
            time.sleep(0.1)


def _descendants(home: Path, known: Mapping[int, str]) -> dict[int, str]:
    """Return the process ids of a SuperLink's living descendants, with their start times.

    A process counts if its environment names our private home (some overwrite it with a title), if its parent counts,
    or if it was known before (some outlive their parents).
    """
    marker = f"FLWR_HOME={home}".encode()
    parents: dict[int, int] = {}
    starts: dict[int, str] = {}
    family: set[int] = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, parent, *fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if state == "Z":
                continue
            pid, start = int(entry.name), fields[17]
            parents[pid], starts[pid] = int(parent), start
            if known.get(pid) == start or marker in (entry / "environ").read_bytes().split(b"\0"):
                family.add(pid)
    while children := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= children
    return {pid: starts[pid] for pid in family}


def free_port() -> int:
    """Return a free port of this machine's loopback address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
