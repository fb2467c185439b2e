"""What the engine carries out: `serve` with sites from wherever they are, `run_job` with processes of its own."""

import logging
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from fedkernel.engines.apps import carry_out, import_paths
from fedkernel.engines.grpc.certificates import SERVER, TLS, make_certificates, read_tls
from fedkernel.engines.grpc.defaults import LIMIT, MEND, SERVER_PATIENCE
from fedkernel.engines.grpc.hub import Hub
from fedkernel.engines.grpc.notify import Tell, heedless
from fedkernel.engines.grpc.retry import Attempts, raise_for, sentence_of
from fedkernel.engines.grpc.serving import listening
from fedkernel.ground import EngineError
from fedkernel.run import FailedRun
from fedkernel.wire import Job

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
SOCKET = "hub"
"""Name of the socket at which the processes of `run_job` meet."""

SOCKET_BYTES = 103
"""Of the path of a Unix socket, at most: 107 on Linux, fewer elsewhere."""

LOST = 5.0
"""Seconds for which a process of `run_job` may be gone, or look for a server that is."""

STOP_SECONDS = 10.0
"""How long a process may take to end by itself before it is killed."""


def serve(
    job: Job,
    sites: Sequence[str],
    address: str,
    tls: TLS | None,
    *,
    patience: float = SERVER_PATIENCE,
    limit: int = LIMIT,
    share_model: bool = False,
    mend: float = MEND,
    set_aside: int = 0,
    tell: Tell | None = None,
    ready: Callable[[int], object] = lambda port: None,
) -> Iterator[str | FailedRun]:
    """Carry out a job with sites that join from wherever they are; yields each run's id when its results are there.

    A run that fails is yielded where the job goes on after such; else it is told, and raised after the last. A site
    that cannot take part in the first run, for what is wrong with its table or files, is told why and may come back
    mended, while the others wait.

    - `job`: its runs name the sites.
    - `sites`: their names, in the order of the clients' numbers; the work begins when all are there.
    - `address`: ``host:port`` to listen at.
    - `tls`: None: plaintext, which anybody on the way can read and change.
    - `patience`: seconds that a site may be gone before what it was asked counts as failed.
    - `limit`: bytes of a message.
    - `share_model`: send every run's model to all sites.
    - `mend`: seconds for which a site that cannot take part is waited for.
    - `set_aside`: after so many failed runs in a row whose cause lies with a site, none is tried with it; 0: all are.
    - `tell`: told in a sentence who comes, goes and is refused.
    - `ready`: told the port once sites can join.
    """
    files = [f"{run.id}.model.npz" for run in job.runs] if share_model else []
    hub = Hub(sites, job=_for_sites(job), patience=patience, limit=limit, tell=tell, files=files)
    tell_of_runs = heedless(tell or log.warning)
    attempts, failures = Attempts(hub, mend, set_aside, tell_of_runs), list[FailedRun]()
    with listening(hub, address, tls) as port:
        ready(port)
        hub.wait_for_all()
        for run in job.runs:
            own = job.model_copy(update={"runs": [run], "go_on": False})
            if (failed := attempts.carry_out(run, partial(_finish, hub, own))) is None:
                yield run.id
                if share_model and job.out is not None:
                    hub.give(f"{run.id}.model.npz", (Path(job.out) / run.id / "model.npz").read_bytes())
                continue
            failures.append(failed)
            if job.go_on:
                yield failed
            else:
                tell_of_runs(f"run {run.id} has failed: {failed.text}")
        if not job.go_on:
            raise_for(failures)
        hub.close(sentence_of(failures))


def hand_out(
    job: Job,
    files: Mapping[str, Path],
    sites: Sequence[str],
    address: str,
    tls: TLS | None,
    *,
    patience: float = SERVER_PATIENCE,
    limit: int = LIMIT,
    ready: Callable[[int], object] = lambda port: None,
) -> None:
    """Wait until all sites have joined, send each the files, by name, and ask nothing.

    Parameters are those of `serve`; of the job, sites are told which runs the files are of.
    """
    hub = Hub(sites, job=_for_sites(job), patience=patience, limit=limit, files=list(files))
    with listening(hub, address, tls) as port:
        ready(port)
        hub.wait_for_all()
        for name, path in files.items():
            hub.give(name, path.read_bytes())


def run_job(job: Job) -> Iterator[str | FailedRun]:
    """Carry out a job with a process for each client on this machine.

    They meet at a Unix socket in a folder that no other user may enter; where there can be none, over loopback with
    mutual TLS.
    """
    names = [f"client-{number}" for number in range(max(run.clients or 1 for run in job.runs))]
    hub = Hub(names, job=job.model_dump_json(), patience=LOST)
    with _private_folder() as folder:
        for name in names:
            (folder / name).mkdir()
        address, tls = f"unix:{quote(str(folder / SOCKET))}", None
        if why := _no_socket(folder / SOCKET):
            log.warning("the processes of --engine grpc meet over loopback, with TLS: %s", why)
            make_certificates(folder, [LOOPBACK], names)
            address, tls = f"{LOOPBACK}:0", read_tls(folder / SERVER, "server")
        with (
            listening(hub, address, tls) as port,
            _processes(folder, names, f"{LOOPBACK}:{port}" if tls else address) as look,
        ):
            hub.wait_for_all(look)
            # its processes end with this one: there would be nothing to go on with
            yield from _run_over(hub, job.model_copy(update={"journals": False}))


@contextmanager
def _private_folder() -> Iterator[Path]:
    """Make a folder of this user alone, in /tmp where the usual place is too deep for a socket, and delete it."""
    place = None
    if len(os.fsencode(tempfile.gettempdir())) > SOCKET_BYTES - len(f"/fedkernel-{8 * 'x'}/{SOCKET}"):
        place = "/tmp" if os.access("/tmp", os.W_OK) else None  # noqa: S108 - a folder of our own in it
    with TemporaryDirectory(prefix="fedkernel-", dir=place) as temporary:  # mode 0700
        yield Path(temporary)


def _no_socket(path: Path) -> str:
    """Return why there can be no Unix socket at a path; empty: there can be one."""
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
    """Return a job as sites are sent it: without the server's folders, and what it keeps there."""
    return job.model_copy(
        update={"out": None, "models": {}, "journals": False, "go_on": False, "whole": False}
    ).model_dump_json()


def _run_over(hub: Hub, job: Job) -> Iterator[str | FailedRun]:
    return carry_out(job, lambda run, text: nullcontext(hub))


def _finish(hub: Hub, job: Job) -> None:
    for _ in _run_over(hub, job):
        pass


@contextmanager
def _processes(folder: Path, names: Sequence[str], address: str) -> Iterator[Callable[[], None]]:
    """Start the clients' processes; what it yields raises EngineError if one of them has ended."""
    started: dict[str, subprocess.Popen[bytes]] = {}
    logs = {name: folder / name / "log" for name in names}
    command = [sys.executable, "-m", "fedkernel.engines.grpc.process", address]
    try:
        for name in names:
            with logs[name].open("wb") as sink:
                started[name] = subprocess.Popen(  # noqa: S603 - ourselves
                    [*command, str(folder / name), str(LOST)],
                    env={**os.environ, **import_paths()},
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                )

        def look() -> None:
            for name, process in started.items():
                if process.poll() is not None:
                    *_, last = ["no word", *logs[name].read_text(errors="replace").split("\n")[:-1]]
                    raise EngineError(f"the process of {name} has ended with code {process.returncode}: {last}")

        yield look
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
