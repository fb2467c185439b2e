"""One run: joining, conversation, ledger, memory, result, and what stands at a site."""

from fedkernel.run.cohort import RunSettings
from fedkernel.run.job import Job, RunSpec
from fedkernel.run.outbox import Departure, check_payload, check_record, departures_of, missing_from, read_outbox
from fedkernel.run.placement import MIN_ROWS, allowed, read_own_data, read_own_keys, simulated_partition
from fedkernel.run.result import Result, read_ledger

__all__ = [
    "MIN_ROWS",
    "Departure",
    "Job",
    "Result",
    "RunSettings",
    "RunSpec",
    "allowed",
    "check_payload",
    "check_record",
    "departures_of",
    "missing_from",
    "read_ledger",
    "read_outbox",
    "read_own_data",
    "read_own_keys",
    "simulated_partition",
]
