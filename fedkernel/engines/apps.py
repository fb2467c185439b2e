"""Flower's two apps: where a bundle has them, how one answers a message, how the other carries out a job."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedkernel.engines import _flower
from fedkernel.errors import InputError
from fedkernel.job import Job, RunSpec

SERVER_APP, CLIENT_APP = "strategies.server_app:app", "clients.client_app:app"
"""Where a Flower app bundle has its components, as pyproject.toml names them."""


TO_REGISTER = (
    "to register a pair of your own, add its strategy to strategies/__init__.py and its client to clients/__init__.py "
    "of a checkout"
)
"""How other processes and configuration files find a pair, which they know by its name."""


def check_registered(strategy: type, client: type) -> None:
    """Refuse a pair that other processes would not find, or would take for another one of the same name."""
    for address, kind in ((SERVER_APP, strategy), (CLIENT_APP, client)):
        registry = importlib.import_module(address.partition(".")[0]).REGISTRY
        if registry.get(kind.__name__) is not kind:
            raise InputError(
                f"{kind.__module__}.{kind.__qualname__} is not registered, but other processes know pairs by their "
                f"names only; allowed: engine = 'local', or {TO_REGISTER}"
            )


def component(address: str) -> Any:
    """Return what stands at ``module:name``."""
    module, name = address.split(":")
    return getattr(importlib.import_module(module), name)


def answer(app: ClientApp, message: Message, context: Context) -> tuple[bytes, ...]:
    """Return the reply of a client app, serialised in parts; an app that raises replies with its error."""
    try:
        reply = app(message, context)
    except Exception as error:  # an app of somebody else's may raise anything: the caller must hear of it
        reply = Message(Error(0, f"{type(error).__name__}: {error}"), reply_to=message)
    _flower.stamp(reply)
    return _flower.to_parts(reply)


def carry_out(job: Job, grid: Callable[[RunSpec, str], AbstractContextManager[Grid]]) -> Iterator[str]:
    """Carry out a job's runs one by one over grids of this process; yields each run's id when its results are there.

    Parameters
    ----------
    job : Job
    grid : callable
        Opens the grid for a run, given also the run as the JSON of a job of its own.
    """
    server: ServerApp = component(SERVER_APP)
    for run in job.runs:
        told = job.model_copy(update={"runs": [run]}).model_dump_json()
        with grid(run, told) as opened:
            server(opened, _flower.new_context(0, {}, {"job": told}))
        yield run.id
