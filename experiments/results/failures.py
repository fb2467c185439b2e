"""Rows of failures.jsonl: runs that failed and have not succeeded since."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pydantic

from experiments.results.rows import parse_line
from fedkernel.ground import and_more, one_line, write_atomic
from fedkernel.run import NOT_RUN, FailedRun

MOST_CAUSE_CHARACTERS = 1000

MOST_CAUSES = 3


class Failure(pydantic.BaseModel):
    """Row of failures.jsonl: a failed run and the cause.

    - `id`, `name`, `point`, `seed`: as in `Run`.
    - `kind`: name of the error's class, or ``NotRun``.
    - `cause`: one sentence.
    - `when`: end of the last try, in UTC.
    - `tried`: number of tries.
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
    """Read the failed runs from failures.jsonl, without those in `finished`.

    Raises InputError for an invalid line; names file and line number.
    """
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
    """Write the failed runs to failures.jsonl; without any, delete the file."""
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
