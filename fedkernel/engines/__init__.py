"""Engines carry a run's messages; every engine runs the same apps and gives the same numbers."""

from collections.abc import Callable, Iterator

from fedkernel.engines import grpc, local, ray, superlink
from fedkernel.run.job import Job

Engine = Callable[[Job], Iterator[str]]
"""Carries out a job and yields the id of each run whose results are complete in the job's folder."""

ENGINES: dict[str, Engine] = {
    "local": local.run_job,
    "ray": ray.run_job,
    "grpc": grpc.run_job,
    "superlink": superlink.run_job,
}
"""By name."""
