"""Engines that execute jobs: all run the same Flower apps and give the same numbers."""

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedkernel.run import FailedRun
    from fedkernel.wire import Job

Engine = Callable[["Job"], Iterator["str | FailedRun"]]
"""Function that executes a job, and yields each run's id once its results are in the job's folder.

A failed run is yielded if the job goes on after failures, else raised.
"""


def _run_job(name: str, job: "Job") -> "Iterator[str | FailedRun]":
    engine: Engine = import_module(f"fedkernel.engines.{name}").run_job  # unused engines are not imported
    return engine(job)


ENGINES: dict[str, Engine] = {name: partial(_run_job, name) for name in ("local", "ray", "grpc", "superlink")}
