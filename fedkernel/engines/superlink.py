"""Engine on a Flower deployment: a running SuperLink, and a SuperNode at each site.

``flwr run`` submits the job to a connection of the user's Flower configuration. Starting takes about 10 s, a round
about 5 s: Flower's SuperNodes poll for work every 3 s and start a process for each message.

Results come back through the log of Flower's run, so the SuperLink and everyone who may read that log see the models.
If simulated sites share a file system with this process, results and the sites' files go to the job's folder instead.
"""

import os
import re
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import requires, version
from pathlib import Path
from tempfile import TemporaryDirectory

from fedkernel.engines.flwr_command import QUIET, SCRIPTS, cause, flwr_in, status_of, submit, write_app
from fedkernel.ground import EngineError, InputError, one_line, parse_toml
from fedkernel.run import FailedRun, result_transport
from fedkernel.wire import Job

STATUS_SECONDS = 3.0  # seconds before an interrupted log is read again, or an unreachable SuperLink is called again
STATUS_TRIES = 10  # number of failed status calls after which the run is given up


def run_job(job: Job, connection: str | None = None) -> Iterator[str | FailedRun]:
    """Run a job on a SuperLink; a caller that stops iterating early stops Flower's run.

    `connection`: name of a connection in the Flower configuration, ``$FLWR_HOME/config.toml``; by default its default.
    Raises EngineError if the SuperLink cannot be reached, refuses the run, or ends it without a result.
    """
    if job.out is None:
        raise InputError("the job needs a folder for its results (out) to run on a SuperLink")
    name, address = find_connection(connection)
    flwr, out = flwr_in(), Path(job.out)
    with _marked(job) as marked, TemporaryDirectory(prefix="fedkernel-superlink-") as folder:
        app = write_app(Path(folder) / "app", marked, _dependencies())
        try:
            run = submit(flwr, app, name)
        except EngineError as error:
            raise EngineError(f"connection {name!r}, {address}: {error}") from None
        where = f"run {run} of connection {name!r}"
        waiting, ended = [run.id for run in job.runs], False
        try:
            while not ended:
                with _log(run, name) as lines:
                    for parcel in filter(None, map(result_transport.read, lines)):
                        if parcel.error and not parcel.run:
                            ended = True
                            raise cause(parcel.error)
                        # after an interruption the log is read from its beginning
                        if parcel.run in waiting:
                            waiting.remove(parcel.run)
                            if parcel.error:
                                yield FailedRun(parcel.run, parcel.error["kind"], parcel.error["text"])
                                continue
                            result_transport.unpack_result(parcel, out / parcel.run)
                            yield parcel.run
                current, details = _patient_status(run, name, where)
                ended = current.startswith("finished")
                if ended and waiting:
                    why = one_line(details) or f"`flwr log {run} {name}` shows its log"
                    raise EngineError(f"{where} ended as {current} without a result for {waiting[0]!r}: {why}")
                if not ended:
                    time.sleep(STATUS_SECONDS)
        finally:
            if waiting and not ended:
                with suppress(EngineError):
                    flwr("stop", run, name, "--format", "json")


def find_connection(name: str | None) -> tuple[str, str]:
    """Return name and address of a connection in the Flower configuration. `name`: None stands for the default one."""
    path = Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr") / "config.toml"
    try:
        known = parse_toml(path.read_text(encoding="utf-8"), path).get("superlink", {})
    except FileNotFoundError:
        raise InputError(f"there is no Flower configuration {path}; deploy/README.md shows one") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the Flower configuration {path} cannot be read: {error}") from None
    chosen = known.get("default") if name is None else name
    names = [key for key, value in known.items() if isinstance(value, dict)]
    if chosen not in names:
        raise InputError(f"connection = {chosen!r}, but {path} has only {', '.join(names) or 'none'}")
    if not isinstance(address := known[chosen].get("address"), str) or address.startswith(":"):
        raise InputError(f"connection = {chosen!r}, but in {path} it has no address of a SuperLink")
    return str(chosen), address


@contextmanager
def _marked(job: Job) -> Iterator[Job]:
    """Mark a job's folder, so that simulated sites that share the file system use it. Yield the marked job."""
    out, mark = Path(str(job.out)), f".fedkernel-{uuid.uuid4().hex}"
    shared = all(run.sites is None for run in job.runs)
    out.mkdir(parents=True, exist_ok=True)
    (out / mark).touch()
    try:
        yield job.model_copy(update={"mark": mark, "out": str(out.resolve()) if shared else None})
    finally:
        (out / mark).unlink(missing_ok=True)


@contextmanager
def _log(run: str, connection: str) -> Iterator[Iterator[str]]:
    """Open the log of Flower's run; yield its lines from the beginning until it ends or breaks off."""
    process = subprocess.Popen(  # noqa: S603 - our own executable and arguments
        [str(SCRIPTS / "flwr"), "log", run, connection, "--stream"],
        env={**os.environ, **QUIET, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        errors="replace",
    )
    try:
        yield iter(process.stdout or ())
    finally:
        process.terminate()
        process.communicate()


def _patient_status(run: str, connection: str, where: str) -> tuple[str, str]:
    """Return the status of Flower's run and its details, with retries while the SuperLink is unreachable."""
    tries = 0
    while True:
        try:
            return status_of(flwr_in(), connection, run)
        except EngineError as error:
            tries += 1
            if tries == STATUS_TRIES:
                raise EngineError(f"{where}: the SuperLink does not answer any more: {error}") from None
            time.sleep(STATUS_SECONDS)


def _dependencies() -> list[str]:
    """Return the app bundle's requirements, for a SuperLink that installs them."""
    needed = [line for line in requires("fedkernel") or [] if "extra ==" not in line]
    return [f"flwr=={version('flwr')}" if re.match(r"flwr\b", line) else line for line in needed]
