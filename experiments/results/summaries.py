"""Summaries of runs: order, means and spreads over seeds, and values along the iterations."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fedkernel.experiments.results.rows import Round, Run
from fedkernel.models import MAIN_METRIC, metric_of


def in_order(runs: Iterable[Run]) -> list[Run]:
    """Sort runs as configured: by sweep point and seed, strategies before baselines."""
    runs = list(runs)
    points = {key: place for place, key in enumerate(dict.fromkeys(point_key(run.point) for run in runs))}
    seeds = {seed: place for place, seed in enumerate(dict.fromkeys(run.seed for run in runs))}
    return sorted(runs, key=lambda run: (points[point_key(run.point)], seeds[run.seed], run.kind == "baseline"))


@dataclass(frozen=True)
class Spread:
    """Mean, standard deviation and extremes of a figure over n seeds. The deviation has divisor n - 1; None for n = 1.

    `values` are the seeds', in their order; empty if one is not finite.
    """

    mean: float
    std: float | None
    low: float
    high: float
    n: int
    values: tuple[float, ...] = ()

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Summarise at least one value. Mean and extremes are NaN if any value is not finite."""
        x = np.array(values, dtype=float)
        if not np.isfinite(x).all():
            return cls(float("nan"), None, float("nan"), float("nan"), len(x))
        std = float(x.std(ddof=1)) if len(x) > 1 else None
        return cls(float(x.mean()), std, float(x.min()), float(x.max()), len(x), tuple(x.tolist()))


NOISE = 2.0  # standard errors of a mean over seeds that count as noise


@dataclass(frozen=True)
class Difference:
    """Difference of two means over seeds, with its standard error. `paired`: whether it is taken seed by seed.

    `mean` is NaN where a value is not finite; `error` is 0 if all seeds agree, None with a single seed on a side.
    """

    mean: float
    error: float | None
    paired: bool


def difference(a: Mapping[int, float], b: Mapping[int, float]) -> Difference:
    """Return the mean of `b` minus the mean of `a`, figures by seed.

    It is taken seed by seed where both have the same seeds, which share all random draws; else with Welch's standard
    error, ``sqrt(var(a) / n_a + var(b) / n_b)``. Both need at least one seed.
    """
    if a.keys() == b.keys():
        return Difference(*mean_and_error([b[seed] - value for seed, value in a.items()]), paired=True)
    (mean_a, error_a), (mean_b, error_b) = mean_and_error([*a.values()]), mean_and_error([*b.values()])
    known = error_a is not None and error_b is not None
    return Difference(mean_b - mean_a, math.hypot(error_a or 0.0, error_b or 0.0) if known else None, paired=False)


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean of one number per seed, and its standard error. The error is None with one seed."""
    spread = Spread.of(values)
    if spread.std is None:
        return spread.mean, None
    if spread.low == spread.high:  # the mean's rounding is no noise
        return spread.low, 0.0
    return spread.mean, spread.std / math.sqrt(spread.n)


RUN_COSTS = ("floats_up", "floats_down", "bytes_up", "bytes_down", "rounds", "seconds")  # that every run has


@dataclass(frozen=True)
class Summary:
    """Figures of one method at one sweep point over its seeds. A metric that never applied is None."""

    name: str
    point: dict[str, Any]
    kind: Literal["strategy", "baseline"]
    method: str
    group: str | None
    seeds: int
    metrics: dict[str, Spread | None]
    floats_up: Spread
    floats_down: Spread
    bytes_up: Spread
    bytes_down: Spread
    rounds: Spread
    seconds: Spread
    phases: dict[str, Spread]

    def spread(self, figure: str) -> Spread | None:
        """Return the spread of a metric or of a run's count, or None where it does not apply."""
        counted: Spread | None = getattr(self, figure, None)
        return counted if metric_of(figure).counted else self.metrics.get(figure)


def summarise(runs: Iterable[Run]) -> list[Summary]:
    """Return means and spreads over seeds, one entry per name and sweep point, in order of first appearance."""
    return [_summary(same) for same in by_setting(runs).values()]


def by_setting(runs: Iterable[Run]) -> dict[tuple[str, str], list[Run]]:
    """Group runs that differ only by seed, by name and `point_key`, in order of first appearance."""
    settings: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        settings.setdefault((run.name, point_key(run.point)), []).append(run)
    return settings


def point_key(point: dict[str, Any]) -> str:
    """Return a text that is the same for equal points, whatever the order of their names."""
    return json.dumps(point, sort_keys=True, default=str)


def setting(point: Mapping[str, Any]) -> str:
    """Format swept values for a reader."""
    return ", ".join(f"{name} = {value}" for name, value in point.items())


LEADING = (MAIN_METRIC, "simplified_silhouette", "nmi", "ari", "stability")
"""Default leading metrics, in order; unlike an objective they compare across settings."""


def leading_metric(summaries: Iterable[Summary], preferred: str | None = None) -> str | None:
    """Return the metric for tables and figures: `preferred`, else the first of `LEADING`, else any that leads."""
    names = [name for summary in summaries for name, spread in summary.metrics.items() if spread]
    others = (name for name in names if metric_of(name).leads)
    return next((name for name in (preferred, *LEADING) if name in names), next(others, None))


def measured(run: Run, figure: str) -> float | None:
    """Return a metric or a count of a run, or None where it does not apply."""
    value: float | None = getattr(run, figure) if metric_of(figure).counted else run.metrics.get(figure)
    return value


def by_iteration(run: Run, value: str) -> dict[int, float]:
    """Return a value by outer iteration t, that of t's last round in a run. Counts are summed over t's rounds."""
    values: dict[int, float] = {}
    adds_up = metric_of(value).counted and value in Round.model_fields
    for row in run.history:
        if (t := row.values.get("t")) is None:
            continue
        if adds_up:
            values[int(t)] = values.get(int(t), 0.0) + getattr(row, value)
        elif (it := row.values.get(value)) is not None:
            values[int(t)] = it
    return dict(sorted(values.items()))


def _summary(runs: list[Run]) -> Summary:
    first = runs[0]
    metrics: dict[str, list[float]] = {name: [] for run in runs for name in run.metrics}
    for run in runs:
        for name, value in run.metrics.items():
            if value is not None:
                metrics[name].append(value)
    phases = dict.fromkeys(phase for run in runs for phase in run.phases)

    return Summary(
        name=first.name,
        point=first.point,
        kind=first.kind,
        method=first.method,
        group=first.group,
        seeds=len(runs),
        metrics={name: Spread.of(values) if values else None for name, values in metrics.items()},
        **{name: Spread.of([getattr(run, name) for run in runs]) for name in RUN_COSTS},
        # a phase that a run did not enter took it no time
        phases={phase: Spread.of([run.phases.get(phase, 0.0) for run in runs]) for phase in phases},
    )
