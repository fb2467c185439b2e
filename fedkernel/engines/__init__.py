"""Engines carry a run's messages; every engine runs the same apps and gives the same numbers."""

from collections.abc import Callable, Iterator

from fedkernel.engines import local, ray
from fedkernel.job import Job

ENGINES: dict[str, Callable[[Job], Iterator[str]]] = {"local": local.run_job, "ray": ray.run_job}
"""By name: carries out a job and yields the id of each run whose results are complete in the job's folder."""
