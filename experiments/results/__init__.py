"""What a run measured: one row per run, and what rows say together."""

from experiments.results.rows import (
    Run,
    Runs,
    Spread,
    Summary,
    append_run,
    by_iteration,
    by_setting,
    in_order,
    leading_metric,
    point_key,
    read_runs,
    setting,
    summarise,
)

__all__ = [
    "Run",
    "Runs",
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
