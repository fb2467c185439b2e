"""Coordinator of the gRPC engine: `serve` runs a job with remote sites, `run_job` with local processes."""

import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from fedkernel.engines.app_execution import carry_out, import_paths, short_folder
from fedkernel.engines.grpc.certificates import SERVER, TLS, make_certificates, read_tls
from fedkernel.engines.grpc.defaults import MAX_MESSAGE_BYTES, REPAIR_SECONDS, SERVER_PATIENCE
from fedkernel.engines.grpc.reports import Report, ignore_print_errors
from fedkernel.engines.grpc.run_attempts import RunRetries, raise_for, sentence_of
from fedkernel.engines.grpc.serving import listening
from fedkernel.engines.grpc.stream_grid import StreamGrid
from fedkernel.ground import EngineError
from fedkernel.run import FailedRun
from fedkernel.wire import Job

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
SOCKET = "hub"  # name of the Unix socket between the processes of `run_job`
SOCKET_BYTES = 103  # longest path of a Unix socket: 107 on Linux, fewer elsewhere
LOCAL_PATIENCE = 5.0  # seconds after which either end of `run_job` gives the other up
STOP_SECONDS = 10.0  # seconds that a process may take to end before it is killed


def serve(
    job: Job,
    sites: Sequence[str],
    address: str,
    tls: TLS | None,
    *,
    patience: float = SERVER_PATIENCE,
    limit: int = MAX_MESSAGE_BYTES,
    share_model: bool = False,
    repair_seconds: float = REPAIR_SECONDS,
    set_aside: int = 0,
    report: Report | None = None,
    ready: Callable[[int], object] = lambda port: None,
) -> Iterator[str | FailedRun]:
    """Run a job with sites that join over the network; yield each run's id once its results are complete.

    A failed run is yielded if the job goes on after failures; else it is reported, and raised after the last run. A
    site that cannot take part in the first run, because of its table or files, is dismissed with the reason and may
    come back repaired, while the others wait. The first run starts when all sites are connected.

    `address`, `tls`: see `listening`; `ready` is called with the port once sites can join. `share_model`: send every
    run's model to all sites. `repair_seconds`, `set_aside`: see `RunRetries`; the others: see `StreamGrid`.
    """
    files = [f"{run.id}.model.npz" for run in job.runs] if share_model else []
    grid = StreamGrid(sites, job=_for_sites(job), patience=patience, limit=limit, report=report, files=files)
    report_run = ignore_print_errors(report or log.warning)
    attempts, failures = RunRetries(grid, repair_seconds, set_aside, report_run), list[FailedRun]()
    with listening(grid, address, tls) as port:
        ready(port)
        grid.wait_for_all()
        for run in job.runs:
            own = job.model_copy(update={"runs": [run], "go_on": False})
            if (failed := attempts.carry_out(run, partial(_finish, grid, own))) is None:
                yield run.id
                if share_model and job.out is not None:
                    grid.send_file(f"{run.id}.model.npz", (Path(job.out) / run.id / "model.npz").read_bytes())
                continue
            failures.append(failed)
            if job.go_on:
                yield failed
            else:
                report_run(f"run {run.id} has failed: {failed.text}")
        if not job.go_on:
            raise_for(failures)
        grid.close(sentence_of(failures))


def hand_out(
    job: Job,
    files: Mapping[str, Path],
    sites: Sequence[str],
    address: str,
    tls: TLS | None,
    *,
    patience: float = SERVER_PATIENCE,
    limit: int = MAX_MESSAGE_BYTES,
    ready: Callable[[int], object] = lambda port: None,
) -> None:
    """Send model files to all sites once all have joined. `job`: describes the models' runs; it is not executed."""
    grid = StreamGrid(sites, job=_for_sites(job), patience=patience, limit=limit, files=list(files))
    with listening(grid, address, tls) as port:
        ready(port)
        grid.wait_for_all()
        for name, path in files.items():
            grid.send_file(name, path.read_bytes())


def run_job(job: Job) -> Iterator[str | FailedRun]:
    """Run a job with a process for each client on this machine; yield each run's id once it is complete.

    They connect by a Unix socket in a folder that no other user may enter; if that is impossible, over loopback with
    mutual TLS.
    """
    names = [f"client-{number}" for number in range(max(run.clients or 1 for run in job.runs))]
    grid = StreamGrid(names, job=job.model_dump_json(), patience=LOCAL_PATIENCE)
    most = SOCKET_BYTES - len(f"/fedkernel-{8 * 'x'}/{SOCKET}")
    with TemporaryDirectory(prefix="fedkernel-", dir=short_folder(most)) as temporary:  # mode 0700
        folder = Path(temporary)
        for name in names:
            (folder / name).mkdir()
        address, tls = f"unix:{quote(str(folder / SOCKET))}", None
        if why := _socket_fault(folder / SOCKET):
            log.warning("the processes of --engine grpc connect over loopback, with TLS: %s", why)
            make_certificates(folder, [LOOPBACK], names)
            address, tls = f"{LOOPBACK}:0", read_tls(folder / SERVER, "server")
        with (
            listening(grid, address, tls) as port,
            _processes(folder, names, f"{LOOPBACK}:{port}" if tls else address) as check_processes,
        ):
            grid.wait_for_all(check_processes)
            # no journal: its processes end with this one, and their memory with them
            yield from carry_out(job.model_copy(update={"journals": False}), lambda run, text: nullcontext(grid))


def _socket_fault(path: Path) -> str:
    """Return the reason why no Unix socket can be bound at a path, or an empty text if one can."""
    if not hasattr(socket, "AF_UNIX"):
        return "this system has no Unix sockets"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
            trial.bind(str(path))
        path.unlink()
    except OSError as error:
        return f"a Unix socket at {path} cannot be bound ({error.strerror or error})"
    return ""


def _for_sites(job: Job) -> str:
    """Return a job's JSON for the sites, without the server's folders and options."""
    own: dict[str, Any] = {"out": None, "models": {}, "journals": False, "go_on": False, "whole": False}
    return job.model_copy(update=own).model_dump_json()


def _finish(grid: StreamGrid, job: Job) -> None:
    for _ in carry_out(job, lambda run, text: nullcontext(grid)):
        pass


@contextmanager
def _processes(folder: Path, names: Sequence[str], address: str) -> Iterator[Callable[[], None]]:
    """Start the clients' processes; yield a function that raises EngineError if one has ended."""
    started: dict[str, subprocess.Popen[bytes]] = {}
    logs = {name: folder / name / "log" for name in names}
    command = [sys.executable, "-m", "fedkernel.engines.grpc.client_process", address]
    try:
        for name in names:
            with logs[name].open("wb") as sink:
                started[name] = subprocess.Popen(  # noqa: S603 - ourselves
                    [*command, str(folder / name), str(LOCAL_PATIENCE)],
                    env={**os.environ, **import_paths()},
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                )

        def check_processes() -> None:
            for name, process in started.items():
                if process.poll() is not None:
                    *_, last = ["no output", *logs[name].read_text(errors="replace").split("\n")[:-1]]
                    raise EngineError(f"the process of {name} has ended with code {process.returncode}: {last}")

        yield check_processes
    finally:
        for process in started.values():
            process.terminate()
        give_up = time.monotonic() + STOP_SECONDS
        for process in started.values():
            try:
                process.wait(max(0.0, give_up - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
