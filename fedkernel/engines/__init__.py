"""Engines carry a run's messages; every engine runs the same apps and gives the same numbers."""

from collections.abc import Callable, Iterator

from fedkernel.engines import grpc, local, ray, superlink
from fedkernel.run.failure import FailedRun
from fedkernel.run.job import Job

Engine = Callable[[Job], Iterator[str | FailedRun]]
"""Carries out a job and yields the id of each run whose results are complete in the job's folder.

Of a job that goes on after a run that fails, that is yielded, too; of others it is raised.
"""

ENGINES: dict[str, Engine] = {
    "local": local.run_job,
    "ray": ray.run_job,
    "grpc": grpc.run_job,
    "superlink": superlink.run_job,
}
"""By name."""
