"""Tables and figures of an experiment."""

from experiments.report.index import Entry, overview, write_index
from experiments.report.tables import console_table, write_report
from experiments.report.wide import NARROWEST, WideTable

__all__ = [
    "NARROWEST",
    "Entry",
    "WideTable",
    "console_table",
    "overview",
    "write_index",
    "write_report",
]
