"""What a run measured: one row per run, and what rows say together."""

from experiments.results.comparison import Compared, Matched, compare_figure, match
from experiments.results.directions import read_directions, write_directions
from experiments.results.rows import Run, append_run, read_runs
from experiments.results.summaries import (
    NOISE,
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

__all__ = [
    "NOISE",
    "Compared",
    "Difference",
    "Matched",
    "Run",
    "Spread",
    "Summary",
    "append_run",
    "by_iteration",
    "by_setting",
    "compare_figure",
    "difference",
    "in_order",
    "leading_metric",
    "match",
    "mean_and_error",
    "measured",
    "point_key",
    "read_directions",
    "read_runs",
    "setting",
    "summarise",
    "write_directions",
]
