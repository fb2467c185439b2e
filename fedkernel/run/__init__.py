"""One run: joining, conversation, ledger, memory, result, and what stands at a site."""

from typing import TYPE_CHECKING

from fedkernel.lazily import lazily

if TYPE_CHECKING:
    from fedkernel.run.approval import approve, approved_guards, check_approved, check_hash, is_approved, sign
    from fedkernel.run.departures import OUTBOX, Departure, check_payload, departures_of, read_outbox
    from fedkernel.run.failure import NOT_RUN, FailedRun
    from fedkernel.run.foresight import TABLE, ReplySize, foreseen, needed_share, reply_sizes, table_shares
    from fedkernel.run.job import SHORT, Job, Projecting, RunSpec, Study
    from fedkernel.run.journal import remove_journal
    from fedkernel.run.limits import LEAST_MEMORY, LEAST_MESSAGE, MIN_ROWS, MIN_SITES, MOST_MESSAGE, USUAL_SECONDS
    from fedkernel.run.outbox import check_record
    from fedkernel.run.own_files import own_file, own_shape, read_own_data
    from fedkernel.run.own_keys import check_own_pin, read_own_keys
    from fedkernel.run.policy import FREE, Policy, own_policy, read_policy
    from fedkernel.run.raw_sites import raw_shard
    from fedkernel.run.result import Result, read_ledger
    from fedkernel.run.settings import RunSettings
    from fedkernel.run.simulated import simulated_partition, simulated_raw
    from fedkernel.run.verdict import verdicts
    from fedkernel.run.willing import allowed
else:
    __getattr__ = lazily(__name__)

__all__ = [
    "FREE",
    "LEAST_MEMORY",
    "LEAST_MESSAGE",
    "MIN_ROWS",
    "MIN_SITES",
    "MOST_MESSAGE",
    "NOT_RUN",
    "OUTBOX",
    "SHORT",
    "TABLE",
    "USUAL_SECONDS",
    "Departure",
    "FailedRun",
    "Job",
    "Policy",
    "Projecting",
    "ReplySize",
    "Result",
    "RunSettings",
    "RunSpec",
    "Study",
    "allowed",
    "approve",
    "approved_guards",
    "check_approved",
    "check_hash",
    "check_own_pin",
    "check_payload",
    "check_record",
    "departures_of",
    "foreseen",
    "is_approved",
    "needed_share",
    "own_file",
    "own_policy",
    "own_shape",
    "raw_shard",
    "read_ledger",
    "read_outbox",
    "read_own_data",
    "read_own_keys",
    "read_policy",
    "remove_journal",
    "reply_sizes",
    "sign",
    "simulated_partition",
    "simulated_raw",
    "table_shares",
    "verdicts",
]
