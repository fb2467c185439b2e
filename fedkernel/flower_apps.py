"""Server and client app of every Flower app bundle. They run any strategy and client that a job's runs name."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

# First the package, then its modules: a thread that imports a module before its package, and one that imports the
# package, which imports that module, wait for each other; Flower's simulation has two threads that import.
from fedkernel.ground import InputError, load_class, own_short_names
from fedkernel.run.server_app import server_app
from fedkernel.site import site_of_job
from fedkernel.site.client_app import client_app
from fedkernel.wire import Apps

_KERNEL = "parameters.kernel"
FLAT_KEYS = {
    **{key: key for key in ("seed", "evaluate", "sums", "wire")},
    **{"num-clients": "clients", "dataset": "data.name", "partition": "partition.method", "kernel": f"{_KERNEL}.type"},
    **{key: f"data.{key}" for key in ("scale", "rows")},
    **{key: f"partition.{key}" for key in ("alpha", "shuffle")},
    **{key: f"{_KERNEL}.{key}" for key in ("gamma", "width", "degree", "coef0")},
}
"""Fields of a run by a Flower app's run-config keys; further keys are parameters of the method, with hyphens."""


def job_of_keys(keys: Mapping[str, Any]) -> str:
    """Translate a Flower app's run configuration into the JSON of a job with one run. The job is not checked yet.

    An empty text leaves a key at its default. ``method`` names one of fedkernel's own pairs, since a site imports
    nothing else that a coordinator names; the method decides whether rows or columns are divided. A relative ``out``,
    the folder for the results, counts from that of the SuperLink.
    """
    method, methods = keys.get("method"), own_short_names("pairs")
    if method not in methods:
        raise InputError(f"method = {method!r}, but must be one of {', '.join(methods)}")
    kind = load_class(method, object, "pairs", "method").partition
    run: dict[str, Any] = {"id": method, "strategy": method, "data": {}, "partition": {"kind": kind}}
    for key, value in keys.items():
        if value == "" or key in ("method", "out"):
            continue
        *tables, name = FLAT_KEYS.get(key, f"parameters.{key.replace('-', '_')}").split(".")
        table = run
        for inner in tables:
            table = table.setdefault(inner, {})
        table[name] = value
    return json.dumps({"runs": [run], "out": keys.get("out") or None})


def _with_job(context: Context) -> Context:
    """Return a context whose run configuration has a job: its own, or one translated from flat keys."""
    keys = context.run_config
    return context if "job" in keys else replace(context, run_config=keys | {"job": job_of_keys(keys)})


_run_job = server_app()
server = ServerApp()
client = client_app({}, lambda context, header: site_of_job(_with_job(context), header))


@server.main()
def _main(grid: Grid, context: Context) -> None:
    _run_job(grid, _with_job(context))


APPS = Apps(server=f"{__name__}:server", client=f"{__name__}:client")
"""Addresses of the two apps, for a job."""
