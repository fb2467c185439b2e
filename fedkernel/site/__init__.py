"""Code on a data owner's machine: ClientApp, policy, approvals, checks, files, and a log of all that left."""

from typing import TYPE_CHECKING

from fedkernel.ground.lazy_imports import lazily

if TYPE_CHECKING:
    from .approval import approve, approved_policy, check_approved, check_hash, is_approved, sign
    from .audit_log import check_outbox, set_write_context
    from .audit_log_reader import OUTBOX, Departure, check_payload, departures_of, read_outbox, totals_of
    from .context_state import apply_changes, changes_of, copy_state
    from .data_files import own_file, own_shape, read_own_data
    from .gate import Totals
    from .keys import check_own_pin, read_own_keys
    from .policy import EXEMPT, FULL_RUNS, Policy, values_of
    from .policy_defaults import LEAST_MEMORY, LEAST_MESSAGE, MIN_ROWS, MIN_SITES, MOST_MESSAGE, USUAL_SECONDS
    from .policy_forecast import TABLE, ReplyBounds, foreseen, needed_share, reply_bounds, table_shares
    from .policy_reading import own_policy, read_policy
    from .privacy_receipt import RECEIPTS, described, faults_of, read_receipts, write_receipts
    from .resource_limits import within_seconds
    from .result_files import MOST_CSV_COLUMNS, RunRows
    from .row_order import find_rows
    from .simulated_sites import simulated_partition, simulated_raw
    from .site_builder import allowed, site_of_job
    from .site_setup import FindSite, Site, logged
    from .study_check import verdicts
else:
    __getattr__, __all__ = lazily(__name__)
