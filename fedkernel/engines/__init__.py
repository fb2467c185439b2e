"""Engines carry a run's messages; every engine runs the same apps and gives the same numbers."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedkernel.run import FailedRun
    from fedkernel.wire import Job

Engine = Callable[["Job"], Iterator["str | FailedRun"]]
"""Carries out a job and yields the id of each run whose results are complete in the job's folder.

Of a job that goes on after a run that fails, that is yielded, too; of others it is raised.
"""


def _local(job: "Job") -> "Iterator[str | FailedRun]":
    from fedkernel.engines import local  # noqa: PLC0415 - nobody waits for an engine that he does not use

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
"""By name."""
