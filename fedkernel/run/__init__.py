"""The coordinator of one run: its clients, rounds, journal, ledger and result."""

from typing import TYPE_CHECKING

from fedkernel.ground.lazy_imports import lazily

if TYPE_CHECKING:
    from fedkernel.run.client_joining import JOINING_PHASES, join, minority_nodes
    from fedkernel.run.driver import Execution, RunningProtocol
    from fedkernel.run.events import EventName, Observer, log_event
    from fedkernel.run.flower_grids import CHECK_SECONDS, MessageGrid, Serialise
    from fedkernel.run.journal import Journal, remove_journal
    from fedkernel.run.ledger import Account, Entry, Ledger
    from fedkernel.run.progress import ProgressReporter, show_progress
    from fedkernel.run.result import Result, read_ledger
    from fedkernel.run.result_plot import HUES, MARKERS, MOST_ROWS, STYLE, rows_to_draw, two_coordinates
    from fedkernel.run.result_transport import NOT_RUN, FailedRun
    from fedkernel.run.row_matching import common_rows
    from fedkernel.run.settings import RunSettings
else:
    __getattr__, __all__ = lazily(__name__)
