"""The coordinator of one run: its clients, rounds, journal, ledger and result."""

from typing import TYPE_CHECKING

from fedkernel.ground.lazy_imports import lazily

if TYPE_CHECKING:
    from .client_joining import JOINING_PHASES, join, minority_nodes
    from .driver import Execution, RunningProtocol
    from .events import EventName, Observer, log_event
    from .flower_grids import CHECK_SECONDS, MessageGrid, Serialise
    from .journal import Journal, remove_journal
    from .ledger import Account, Entry, Ledger
    from .progress import ProgressReporter, show_progress
    from .result import Result, read_ledger
    from .result_plot import HUES, MARKERS, MOST_ROWS, STYLE, rows_to_draw, two_coordinates
    from .result_transport import NOT_RUN, FailedRun
    from .row_matching import common_rows
    from .settings import RunSettings
else:
    __getattr__, __all__ = lazily(__name__)
