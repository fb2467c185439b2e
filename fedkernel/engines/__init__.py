"""Engines that execute jobs: all run the same Flower apps and give the same numbers."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedkernel.run import FailedRun
    from fedkernel.wire import Job

Engine = Callable[["Job"], Iterator["str | FailedRun"]]
"""Function that executes a job, and yields each run's id once its results are in the job's folder.

A failed run is yielded if the job goes on after failures, else raised.
"""


def _local(job: "Job") -> "Iterator[str | FailedRun]":
    from fedkernel.engines import local  # noqa: PLC0415 - unused engines are not imported

    return local.run_job(job)


def _ray(job: "Job") -> "Iterator[str | FailedRun]":
    from fedkernel.engines import ray  # noqa: PLC0415

    return ray.run_job(job)


def _grpc(job: "Job") -> "Iterator[str | FailedRun]":
    from fedkernel.engines import grpc  # noqa: PLC0415

    return grpc.run_job(job)


def _superlink(job: "Job") -> "Iterator[str | FailedRun]":
    from fedkernel.engines import superlink  # noqa: PLC0415

    return superlink.run_job(job)


ENGINES: dict[str, Engine] = {"local": _local, "ray": _ray, "grpc": _grpc, "superlink": _superlink}
