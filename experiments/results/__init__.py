"""What a run measured: one row per run, and what rows say together."""

from typing import TYPE_CHECKING

from fedkernel.lazily import lazily

if TYPE_CHECKING:
    from experiments.results.comparison import Compared, compare_figure, match
    from experiments.results.directions import read_directions, write_directions
    from experiments.results.failures import Failure, read_failures, summary_of, write_failures
    from experiments.results.recommendation import findings, recommendations
    from experiments.results.row_pictures import (
        MOST_ROWS,
        RowPicture,
        along_two,
        chosen_rows,
        read_row_pictures,
        write_row_picture,
    )
    from experiments.results.rows import Run, append_run, read_runs
    from experiments.results.shapes import Columns, read_columns, read_dropped, read_shapes, write_shapes
    from experiments.results.summaries import (
        LEADING,
        NOISE,
        TOOK,
        Spread,
        Summary,
        by_iteration,
        by_setting,
        difference,
        in_order,
        leading_metric,
        mean_and_error,
        measured,
        point_key,
        setting,
        summarise,
    )
else:
    __getattr__ = lazily(__name__)

__all__ = [
    "LEADING",
    "MOST_ROWS",
    "NOISE",
    "TOOK",
    "Columns",
    "Compared",
    "Failure",
    "RowPicture",
    "Run",
    "Spread",
    "Summary",
    "along_two",
    "append_run",
    "by_iteration",
    "by_setting",
    "chosen_rows",
    "compare_figure",
    "difference",
    "findings",
    "in_order",
    "leading_metric",
    "match",
    "mean_and_error",
    "measured",
    "point_key",
    "read_columns",
    "read_directions",
    "read_dropped",
    "read_failures",
    "read_row_pictures",
    "read_runs",
    "read_shapes",
    "recommendations",
    "setting",
    "summarise",
    "summary_of",
    "write_directions",
    "write_failures",
    "write_row_picture",
    "write_shapes",
]
