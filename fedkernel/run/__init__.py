"""One run: joining, conversation, ledger, memory, result, and what stands at a site."""

from fedkernel.run.cohort import RunSettings
from fedkernel.run.job import Job, RunSpec
from fedkernel.run.placement import MIN_ROWS, allowed, read_own_data, read_own_keys, simulated_partition
from fedkernel.run.result import Result

__all__ = [
    "MIN_ROWS",
    "Job",
    "Result",
    "RunSettings",
    "RunSpec",
    "allowed",
    "read_own_data",
    "read_own_keys",
    "simulated_partition",
]
