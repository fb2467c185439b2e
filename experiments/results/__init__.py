"""Results of runs: one row per run in runs.jsonl, and summaries over seeds."""

from typing import TYPE_CHECKING

from fedkernel.ground import lazily

if TYPE_CHECKING:
    from .report_data import (
        Columns,
        RowPicture,
        read_columns,
        read_directions,
        read_row_pictures,
        read_shapes,
        write_directions,
        write_row_picture,
        write_shapes,
    )
    from .rows import Failure, Run, append_run, read_failures, read_runs, summary_of, write_failures
    from .run_findings import findings, recommendations
    from .summaries import (
        LEADING,
        NOISE,
        RUN_COSTS,
        Difference,
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
    __getattr__, __all__ = lazily(__name__)
