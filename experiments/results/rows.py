"""The rows of runs.jsonl, one finished run each, written so that an interruption costs at most the last line."""

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
    saved model's path relative to the output folder. A metric is null where it does not apply. `findings` say
    in words what the run chose by itself and why, and what the measures of its model warn of.
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
    """Read the finished runs of an experiment; a torn last line is none: it was interrupted while being written.

    Parameters
    ----------
    path : str or Path
        A runs.jsonl; if there is none, there are no runs yet.

    Raises
    ------
    InputError
        For any other line that is no run, or repeats the id of one; names file and line number.
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


def _is_json(line: bytes) -> bool:
    """Tell a whole row from a torn one: no proper prefix of a JSON object is JSON."""
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def parse_line(kind: type[Row], line: bytes, where: str) -> Row:
    """Return the row of a file that has JSON in each line; InputError, which says where, if it is none of its kind."""
    try:
        return kind.model_validate(json.loads(line))
    except pydantic.ValidationError as error:
        finding = textwrap.shorten(explain(error, tuple(kind.model_fields)), 300)
        raise InputError(f"{where}: {finding}") from None
    except ValueError:
        raise InputError(f"{where}: not JSON in UTF-8") from None
