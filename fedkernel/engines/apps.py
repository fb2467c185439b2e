"""Flower's two apps: which ones a job needs, how one answers a message, how the other carries out a job."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedkernel.ground import InputError, find
from fedkernel.run import FailedRun, log_event
from fedkernel.site import logged
from fedkernel.wire import Apps, Job, RunSpec, flower


def apps_of(job: Job) -> Apps:
    """Return where the apps are that a job needs, or an InputError if it does not say so."""
    if job.apps is None:
        raise InputError("apps = None, but whoever makes a job for an engine says where its server and client apps are")
    return job.apps


def import_paths() -> dict[str, str]:
    """Return the environment in which processes of this machine import what this one can, a script's folder too."""
    entries = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *map(os.path.abspath, sys.path)]
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(entries))}


def answer(app: ClientApp, message: Message, context: Context) -> Message:
    """Return the reply of a client app; an app that raises replies with its error."""
    try:
        reply = app(message, context)
    except Exception as error:  # an app of somebody else's may raise anything: the caller must hear of it
        reason = logged(error) if "data" in context.node_config else f"{type(error).__name__}: {error}"
        reply = Message(Error(0, reason), reply_to=message)
    flower.stamp(reply)
    return reply


def carry_out(job: Job, grid: Callable[[RunSpec, str], AbstractContextManager[Grid]]) -> Iterator[str | FailedRun]:
    """Carry out a job's runs one by one over grids of this process; yields each run's id when its results are there.

    Where the job goes on after a run that fails, that is yielded, too.

    `grid`: opens the grid for a run, given also the run as the JSON of a job of its own. Raises InputError if the job
    does not say where a ServerApp is that carries it out.
    """
    where = apps_of(job).server
    server = find(where, object, "pairs", "apps.server")
    if not isinstance(server, ServerApp):
        raise InputError(f"apps.server = {where!r} is no ServerApp")
    for run in job.runs:
        text = job.model_copy(update={"runs": [run], "go_on": False}).model_dump_json()
        ended: str | FailedRun = run.id
        try:
            with grid(run, text) as opened:
                server(opened, flower.new_context(0, {}, {"job": text}))
        except BaseException as error:
            log_event("run over", "run %s has failed", run.id, run=run.id, failed=True)
            if not job.go_on or not isinstance(error, Exception):
                raise
            ended = FailedRun.of(run.id, error)
        else:
            log_event("run over", "run %s is finished", run.id, run=run.id, failed=False)
        yield ended
