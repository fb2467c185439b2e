"""Rows of runs.jsonl, one finished run each; an interruption costs at most the last line."""

import json
import os
import textwrap
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import pydantic

from fedkernel.ground import InputError, explain

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
    """Read the finished runs from a runs.jsonl, without a last line cut by an interruption.

    Raises InputError for any other invalid line, or a repeated id; names file and line number.
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
    """Append a run to runs.jsonl, created if missing, and sync the file, after removing a cut last line."""
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
    """Parse a line of JSON as a row; InputError, which begins with `where`, if it is invalid."""
    try:
        return kind.model_validate(json.loads(line))
    except pydantic.ValidationError as error:
        finding = textwrap.shorten(explain(error, tuple(kind.model_fields)), 300)
        raise InputError(f"{where}: {finding}") from None
    except ValueError:
        raise InputError(f"{where}: not JSON in UTF-8") from None
