"""Execution of a job's ClientApp and ServerApp within this process."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedkernel.ground import InputError, load_class
from fedkernel.run import FailedRun, log_event
from fedkernel.site import logged
from fedkernel.wire import Apps, Job, RunSpec, flower_internals


def apps_of(job: Job) -> Apps:
    """Return the addresses of a job's apps; InputError if the job has none."""
    if job.apps is None:
        raise InputError("apps = None, but an engine needs the addresses of the job's server and client apps")
    return job.apps


def import_paths() -> dict[str, str]:
    """Return environment variables that let subprocesses import whatever this process can."""
    entries = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *map(os.path.abspath, sys.path)]
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(entries))}


def short_folder(most: int) -> str | None:
    """Return ``/tmp``, for sockets, if the default temporary folder's path has more than `most` bytes, else None."""
    too_long = len(os.fsencode(tempfile.gettempdir())) > most
    return "/tmp" if too_long and os.access("/tmp", os.W_OK) else None  # noqa: S108 - the parent of a folder of our own


def answer(app: ClientApp, message: Message, context: Context) -> Message:
    """Return a client app's reply to a message; an exception becomes an error reply."""
    try:
        reply = app(message, context)
    except Exception as error:  # a third-party app may raise anything: the caller must get it
        reason = logged(error) if "data" in context.node_config else f"{type(error).__name__}: {error}"
        reply = Message(Error(0, reason), reply_to=message)
    flower_internals.stamp(reply)
    return reply


def carry_out(job: Job, grid: Callable[[RunSpec, str], AbstractContextManager[Grid]]) -> Iterator[str | FailedRun]:
    """Execute a job's runs, as an `Engine` does. `grid`: opens a run's grid, given the run and its own job as JSON."""
    where = apps_of(job).server
    server = load_class(where, object, "pairs", "apps.server")
    if not isinstance(server, ServerApp):
        raise InputError(f"apps.server = {where!r}, but must be a ServerApp")
    for run in job.runs:
        text = job.model_copy(update={"runs": [run], "go_on": False}).model_dump_json()
        ended: str | FailedRun = run.id
        try:
            with grid(run, text) as opened:
                server(opened, flower_internals.new_context(0, {}, {"job": text}))
        except BaseException as error:
            log_event("run over", "run %s has failed", run.id, run=run.id, failed=True)
            if not job.go_on or not isinstance(error, Exception):
                raise
            ended = FailedRun.of(run.id, error)
        else:
            log_event("run over", "run %s is finished", run.id, run=run.id, failed=False)
        yield ended
