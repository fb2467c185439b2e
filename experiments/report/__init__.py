"""Report of an experiment: tables, figures and pages."""

from typing import TYPE_CHECKING

from fedkernel.ground import lazily

if TYPE_CHECKING:
    from .experiment_comparison import COSTS, compare_figure, compared_in_full, cost_table, match, metric_table
    from .index import Entry, overview, pages, write_index
    from .report_page import in_full, lay_out, metric_names, write_report
    from .table_formats import NARROWEST, Format, Layout, WideTable, as_csv, as_latex, as_markdown, for_terminal
else:
    __getattr__, __all__ = lazily(__name__)
