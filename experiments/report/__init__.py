"""Report of an experiment: tables, figures and pages."""

from typing import TYPE_CHECKING

from fedkernel.ground import lazily

if TYPE_CHECKING:
    from experiments.report.experiment_comparison import COSTS, compared_in_full, cost_table, metric_table
    from experiments.report.index import Entry, overview, pages, write_index
    from experiments.report.report_page import console_table, in_full, lay_out, metric_names, write_report
    from experiments.report.table_formats import Format, Layout, as_csv, as_latex, as_markdown, for_terminal
    from experiments.report.terminal_table import NARROWEST, WideTable
else:
    __getattr__, __all__ = lazily(__name__)
