"""A data owner's machine: its ClientApp, policy, approvals, checks, outbox and files."""

from typing import TYPE_CHECKING

from fedkernel.ground.lazy_imports import lazily

if TYPE_CHECKING:
    from fedkernel.site.approval import approve, approved_policy, check_approved, check_hash, is_approved, sign
    from fedkernel.site.audit_log import check_outbox, set_write_context
    from fedkernel.site.audit_log_reader import OUTBOX, Departure, check_payload, departures_of, read_outbox, totals_of
    from fedkernel.site.context_state import apply_changes, changes_of, copy_state
    from fedkernel.site.data_files import own_file, own_shape, read_own_data
    from fedkernel.site.gate import Totals
    from fedkernel.site.keys import check_own_pin, read_own_keys
    from fedkernel.site.policy import EXEMPT, FULL_RUNS, Policy, values_of
    from fedkernel.site.policy_defaults import (
        LEAST_MEMORY,
        LEAST_MESSAGE,
        MIN_ROWS,
        MIN_SITES,
        MOST_MESSAGE,
        USUAL_SECONDS,
    )
    from fedkernel.site.policy_forecast import TABLE, ReplyBounds, foreseen, needed_share, reply_bounds, table_shares
    from fedkernel.site.policy_reading import own_policy, read_policy
    from fedkernel.site.privacy_receipt import RECEIPTS, described, faults_of, read_receipts, write_receipts
    from fedkernel.site.resource_limits import within_seconds
    from fedkernel.site.result_files import MOST_CSV_COLUMNS, RunRows
    from fedkernel.site.row_order import find_rows
    from fedkernel.site.simulated_sites import simulated_partition, simulated_raw
    from fedkernel.site.site_builder import allowed, site_of_job
    from fedkernel.site.site_setup import FindSite, Site, logged
    from fedkernel.site.study_check import verdicts
else:
    __getattr__, __all__ = lazily(__name__)
