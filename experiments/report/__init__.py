"""Tables and figures of an experiment."""

from experiments.report.tables import console_table, write_report
from experiments.report.wide import NARROWEST, WideTable

__all__ = [
    "NARROWEST",
    "WideTable",
    "console_table",
    "write_report",
]
