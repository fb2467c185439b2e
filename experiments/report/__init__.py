"""Tables and figures of an experiment."""

from experiments.report.axes import looks, value_scale
from experiments.report.iterations import value_by_iteration
from experiments.report.plots import draw
from experiments.report.report import console_table, write_report
from experiments.report.wide import NARROWEST, WideTable

__all__ = [
    "NARROWEST",
    "WideTable",
    "console_table",
    "draw",
    "looks",
    "value_by_iteration",
    "value_scale",
    "write_report",
]
