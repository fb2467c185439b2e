"""The rows of runs.jsonl, one finished run each, and their summary over seeds.

Rows are written so that an interruption costs at most the line being written.
"""

import json
import os
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pydantic

from fedkernel.errors import InputError
from fedkernel.models import metric_of
from fedkernel.validation import explain

Count = pydantic.NonNegativeInt
Seconds = Annotated[float, pydantic.Field(ge=0, allow_inf_nan=False)]
# A figure that does not apply is null; one that was computed and is not finite stays visible as "NaN" or "Infinity".
ROW = pydantic.ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")


class Round(pydantic.BaseModel):
    """One communication round of a run.

    `seconds` are those on the clock, `slowest_seconds` those that the slowest client computed. `clients` is how many
    answered; `floats_*` and `bytes_*` are sums over them, up is towards the coordinator. An iterative method's rounds
    tell the outer iteration that they belong to as the value `t`.
    """

    model_config = ROW

    round: Count
    phase: str
    seconds: Seconds
    slowest_seconds: Seconds = 0.0
    clients: Count
    floats_up: Count
    floats_down: Count
    bytes_up: Count
    bytes_down: Count
    rows_up: Count = 0
    values: dict[str, float | None] = {}


class Run(pydantic.BaseModel):
    """One finished run of a strategy or a baseline: a line of runs.jsonl.

    `name` is what the user calls this method and its parameters, `point` the values of the swept parameters by dotted
    path ({} without a sweep), `group` what figures draw together, `phases` the seconds spent in each phase, `model` the
    saved model's path relative to the output folder. A metric is null where it does not apply.
    """

    model_config = ROW

    id: str
    name: str
    kind: Literal["strategy", "baseline"]
    method: str
    parameters: dict[str, Any]
    point: dict[str, Any] = {}
    seed: int
    engine: str
    clients: Count
    group: str | None = None
    metrics: dict[str, float | None]
    rounds: Count
    floats_up: Count
    floats_down: Count
    bytes_up: Count
    bytes_down: Count
    rows_up: Count = 0
    seconds: Seconds
    phases: dict[str, Seconds] = {}
    history: list[Round] = []
    model: str | None = None


class Runs(list[Run]):
    """The runs of a file in its order; `note` is one sentence for the user if an unfinished last line was ignored."""

    def __init__(self, runs: Iterable[Run] = (), note: str | None = None) -> None:
        super().__init__(runs)
        self.note = note


def read_runs(path: str | Path) -> Runs:
    """Read the finished runs of an experiment.

    Parameters
    ----------
    path : str or Path
        A runs.jsonl; if there is none, there are no runs yet.

    Returns
    -------
    Runs
        A list of `Run`. Its `note` is set if the last line was torn: the run was interrupted while being written.

    Raises
    ------
    InputError
        For any other line that is no run, or repeats the id of one; names file and line number.
    """
    path = Path(path)
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return Runs()
    runs, seen, note = Runs(), dict[str, int](), None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if number == len(lines) and not _is_json(line):
            note = f"{path}, line {number}: ignored, it was interrupted while being written"
            continue
        run = _parse(line, f"{path}, line {number}")
        if run.id in seen:
            raise InputError(f"{path}, line {number}: repeats the id {run.id!r} of line {seen[run.id]}")
        seen[run.id] = number
        runs.append(run)
    runs.note = note
    return runs


def append_run(path: str | Path, run: Run) -> None:
    """Add a run to the file and return when it is on disk; a torn last line is cut first.

    Parameters
    ----------
    path : str or Path
        A runs.jsonl; made, with its folder, if there is none.
    run : Run
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    line = run.model_dump_json().encode() + b"\n"
    with path.open("a+b") as file:
        file.seek(0)
        written = file.read()
        last = written[written.rfind(b"\n") + 1 :]
        if last and _is_json(last):
            line = b"\n" + line  # a whole row that only lacks its line end, as some editors leave it
        elif last:
            file.truncate(len(written) - len(last))
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def in_order(runs: Iterable[Run]) -> list[Run]:
    """Sort by sweep point and seed, each in order of first appearance, strategies before baselines.

    That is the order of the configuration; in the file all strategies come first, since they run first.
    """
    runs = list(runs)
    points = {key: place for place, key in enumerate(dict.fromkeys(point_key(run.point) for run in runs))}
    seeds = {seed: place for place, seed in enumerate(dict.fromkeys(run.seed for run in runs))}
    return sorted(runs, key=lambda run: (points[point_key(run.point)], seeds[run.seed], run.kind == "baseline"))


@dataclass(frozen=True)
class Spread:
    """A figure over seeds: mean, sample standard deviation (divisor n - 1; None for n = 1), smallest and largest."""

    mean: float
    std: float | None
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Summarise at least one value; the figures are NaN if any of the values is not finite."""
        x = np.array(values, dtype=float)
        if not np.isfinite(x).all():
            return cls(float("nan"), None, float("nan"), float("nan"), len(x))
        std = float(x.std(ddof=1)) if len(x) > 1 else None
        return cls(float(x.mean()), std, float(x.min()), float(x.max()), len(x))


@dataclass(frozen=True)
class Summary:
    """What the seeds of one method at one sweep point say; `seeds` is how many, a metric that never applied is None."""

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


def summarise(runs: Iterable[Run]) -> list[Summary]:
    """Take means and spreads over seeds, one entry per name and sweep point, in order of first appearance."""
    return [_summary(same) for same in by_setting(runs).values()]


def by_setting(runs: Iterable[Run]) -> dict[tuple[str, str], list[Run]]:
    """Put the runs that differ only by seed together: by name and `point_key`, in order of first appearance."""
    settings: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        settings.setdefault((run.name, point_key(run.point)), []).append(run)
    return settings


def point_key(point: dict[str, Any]) -> str:
    """Give equal points the same text, whatever the order of their names."""
    return json.dumps(point, sort_keys=True, default=str)


def setting(point: Mapping[str, Any]) -> str:
    """Write the values of swept parameters for a reader."""
    return ", ".join(f"{name} = {value}" for name, value in point.items())


def leading_metric(summaries: Iterable[Summary], wanted: str | None = None) -> str | None:
    """Name the metric that tables and figures show: the one wanted, else `error`, else the first that any run has.

    None that does not lead, unless it is wanted: across sites there may be no other, and traffic has its own columns.
    """
    names = [name for summary in summaries for name, spread in summary.metrics.items() if spread]
    others = (name for name in names if metric_of(name).leads)
    return next((name for name in (wanted, "error") if name in names), next(others, None))


def by_iteration(run: Run, value: str) -> dict[int, float]:
    """Give a value of a run's rounds by the outer iteration t that they belong to.

    Of the rounds of an iteration the last that has the value gives it; `floats_up` is the sum over the rounds.
    """
    found: dict[int, float] = {}
    for row in run.history:
        if (t := row.values.get("t")) is None:
            continue
        if value == "floats_up":
            found[int(t)] = found.get(int(t), 0.0) + row.floats_up
        elif (it := row.values.get(value)) is not None:
            found[int(t)] = it
    return dict(sorted(found.items()))


def _summary(runs: list[Run]) -> Summary:
    first = runs[0]
    metrics: dict[str, list[float]] = {name: [] for run in runs for name in run.metrics}
    for run in runs:
        for name, value in run.metrics.items():
            if value is not None:
                metrics[name].append(value)
    phases = dict.fromkeys(phase for run in runs for phase in run.phases)

    def spread(field: str) -> Spread:
        return Spread.of([getattr(run, field) for run in runs])

    return Summary(
        name=first.name,
        point=first.point,
        kind=first.kind,
        method=first.method,
        group=first.group,
        seeds=len(runs),
        metrics={name: Spread.of(values) if values else None for name, values in metrics.items()},
        floats_up=spread("floats_up"),
        floats_down=spread("floats_down"),
        bytes_up=spread("bytes_up"),
        bytes_down=spread("bytes_down"),
        rounds=spread("rounds"),
        seconds=spread("seconds"),
        # a phase that a run did not enter took it no time
        phases={phase: Spread.of([run.phases.get(phase, 0.0) for run in runs]) for phase in phases},
    )


def _is_json(line: bytes) -> bool:
    """Tell a whole row from a torn one: no proper prefix of a JSON object is JSON."""
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _parse(line: bytes, where: str) -> Run:
    try:
        return Run.model_validate(json.loads(line))
    except pydantic.ValidationError as error:
        finding = textwrap.shorten(explain(error, tuple(Run.model_fields)), 300)
        raise InputError(f"{where}: {finding}") from None
    except ValueError:
        raise InputError(f"{where}: not JSON in UTF-8") from None
