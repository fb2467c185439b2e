"""What a run measured: one row per run, and what rows say together."""

from experiments.results.rows import Run, append_run, read_runs
from experiments.results.summaries import (
    Spread,
    Summary,
    by_iteration,
    by_setting,
    in_order,
    leading_metric,
    point_key,
    setting,
    summarise,
)

__all__ = [
    "Run",
    "Spread",
    "Summary",
    "append_run",
    "by_iteration",
    "by_setting",
    "in_order",
    "leading_metric",
    "point_key",
    "read_runs",
    "setting",
    "summarise",
]
