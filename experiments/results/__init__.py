"""Results of runs: one row per run in runs.jsonl, and summaries over seeds."""

from typing import TYPE_CHECKING

from fedkernel.ground import lazily

if TYPE_CHECKING:
    from experiments.results.component_vectors import read_directions, write_directions
    from experiments.results.data_shapes import Columns, read_columns, read_dropped, read_shapes, write_shapes
    from experiments.results.experiment_comparison import ComparedFigure, compare_figure, match
    from experiments.results.failures import Failure, read_failures, summary_of, write_failures
    from experiments.results.rows import Run, append_run, read_runs
    from experiments.results.run_findings import findings, recommendations
    from experiments.results.scatter_points import (
        MOST_ROWS,
        RowPicture,
        read_row_pictures,
        rows_to_draw,
        two_coordinates,
        write_row_picture,
    )
    from experiments.results.summaries import (
        LEADING,
        NOISE,
        RUN_COSTS,
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
