"""Tables and figures of an experiment."""

from experiments.report.formats import Format, Layout, as_csv, as_latex, as_markdown, for_terminal
from experiments.report.index import Entry, overview, write_index
from experiments.report.tables import console_table, in_full, lay_out, write_report
from experiments.report.wide import NARROWEST, WideTable

__all__ = [
    "NARROWEST",
    "Entry",
    "Format",
    "Layout",
    "WideTable",
    "as_csv",
    "as_latex",
    "as_markdown",
    "console_table",
    "for_terminal",
    "in_full",
    "lay_out",
    "overview",
    "write_index",
    "write_report",
]
