"""Rows of runs.jsonl, one per finished run, and of failures.jsonl. An interruption costs at most the last line."""

import json
import os
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import pydantic

from fedkernel.ground import InputError, and_more, explain, one_line, write_atomic
from fedkernel.run import NOT_RUN, FailedRun

Row = TypeVar("Row", bound=pydantic.BaseModel)
Count = pydantic.NonNegativeInt
Seconds = Annotated[float, pydantic.Field(ge=0, allow_inf_nan=False)]
# A figure that does not apply is null; one that was computed and is not finite stays visible as "NaN" or "Infinity".
ROW = pydantic.ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")


class Round(pydantic.BaseModel):
    """Row of a run's history: one communication round.

    `seconds` are wall clock, `slowest_seconds` the slowest client's computing. `clients` is the number of replies;
    `floats_*` and `bytes_*` are sums over the clients, up is towards the coordinator. The value `t` in `values` is the
    outer iteration of an iterative method.
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
    """Row of runs.jsonl: a finished run of a strategy or a baseline.

    `name` is the user's name of the method with its parameters, `point` the swept values by dotted path, `group` the
    methods that figures draw together, `phases` the seconds of each phase, `model` the saved model's path in the output
    folder. A metric is null where it does not apply. `findings` are sentences about the run's automatic choices and its
    model's warnings.
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
    findings: list[str] = []


def read_runs(path: str | Path) -> list[Run]:
    """Read the runs from a runs.jsonl, without a last line cut by an interruption.

    Raises InputError, with file and line number, for any other invalid line, or a repeated id.
    """
    path = Path(path)
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    runs, seen = list[Run](), dict[str, int]()
    for number, line in enumerate(lines, start=1):
        if not line.strip() or (number == len(lines) and not _is_json(line)):
            continue
        run = parse_line(Run, line, f"{path}, line {number}")
        if run.id in seen:
            raise InputError(f"{path}, line {number}: repeats the id {run.id!r} of line {seen[run.id]}")
        seen[run.id] = number
        runs.append(run)
    return runs


def append_run(path: str | Path, run: Run) -> None:
    """Append a run to runs.jsonl and sync it. A missing file is created, and a last line that was cut is removed."""
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


def _is_json(line: bytes) -> bool:
    """Return whether a line is a whole row: no proper prefix of a JSON object is JSON."""
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def parse_line(kind: type[Row], line: bytes, where: str) -> Row:
    """Parse a line of JSON as a row. Raises InputError, which begins with `where`, if the line is invalid."""
    try:
        return kind.model_validate(json.loads(line))
    except pydantic.ValidationError as error:
        finding = textwrap.shorten(explain(error, tuple(kind.model_fields)), 300)
        raise InputError(f"{where}: {finding}") from None
    except ValueError:
        raise InputError(f"{where}: not JSON in UTF-8") from None


MOST_CAUSE_CHARACTERS = 1000
MOST_CAUSES = 3


class Failure(pydantic.BaseModel):
    """Row of failures.jsonl: a failed run, and the cause in one sentence.

    `kind` is the error's class, or ``NotRun``; `when` the end of the last try, in UTC; `tried` the number of tries.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    id: str
    name: str
    point: dict[str, Any] = {}
    seed: int
    kind: str
    cause: str
    when: str
    tried: int = pydantic.Field(ge=0)

    @classmethod
    def of(cls, failed: FailedRun, name: str, point: dict[str, Any], seed: int, before: "Failure | None") -> "Failure":
        """Return the row of a run that has just failed, perhaps again."""
        tried = (0 if before is None else before.tried) + (failed.kind != NOT_RUN)
        when = datetime.now(UTC).isoformat(timespec="seconds")
        cause = one_line(failed.text)[:MOST_CAUSE_CHARACTERS]
        return cls(
            id=failed.run, name=name, point=point, seed=seed, kind=failed.kind, cause=cause, when=when, tried=tried
        )

    @property
    def tries(self) -> str:
        """Number of tries in words."""
        return {0: "not tried", 1: "tried once", 2: "tried twice"}.get(self.tried, f"tried {self.tried} times")


def read_failures(path: Path, finished: Iterable[str] = ()) -> list[Failure]:
    """Read the failed runs from failures.jsonl, without those in `finished`. An InputError names an invalid line."""
    done, failures = set(finished), list[Failure]()
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    for number, line in enumerate(lines, start=1):
        failure = parse_line(Failure, line, f"{path}, line {number}")
        if failure.id not in done:
            failures.append(failure)
    return failures


def write_failures(path: Path, failures: Sequence[Failure]) -> None:
    """Write the failed runs to failures.jsonl, or delete the file if there are none."""
    if not failures:
        path.unlink(missing_ok=True)
        return
    text = "".join(f"{failure.model_dump_json()}\n" for failure in failures)
    write_atomic(path, lambda file: file.write(text.encode()))


def summary_of(failures: Sequence[Failure], total: int) -> str:
    """Return one sentence about failed runs, grouped by cause."""
    if total == 1:
        return f"run {failures[0].id} has failed: {failures[0].cause}"
    counts = Counter(failure.cause for failure in failures)
    causes = []
    for cause, count in counts.most_common(MOST_CAUSES):
        first = next(failure.id for failure in failures if failure.cause == cause)
        causes.append(f"run {first}{and_more(count - 1)}: {cause}")
    others = len(failures) - sum(count for _, count in counts.most_common(MOST_CAUSES))
    have = "has" if len(failures) == 1 else "have"
    return f"{len(failures)} of {total} runs {have} failed: {'; '.join(causes)}{and_more(others)}"
