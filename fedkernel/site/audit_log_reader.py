"""Reader of a site's outbox, with its hash chain verified.

Changed or removed lines are noticed, the last ones only with a copy of the last hash kept elsewhere. The file's owner
can rewrite all of it.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pydantic

from fedkernel.ground import InputError, explain, open_npz
from fedkernel.site.gate import Standing
from fedkernel.wire import digest

OUTBOX = "outbox.jsonl"
PAYLOADS, IDENTITY = "payloads", "message.json"
FIRST = "0" * 64
"""Previous hash in the first line."""

Count = Annotated[int, pydantic.Field(ge=0)]
Hash = Annotated[str, pydantic.Field(pattern="^[0-9a-f]{64}$")]
Shapes = dict[str, tuple[Count, ...]]


class Departure(pydantic.BaseModel):
    """One line: a request, with the reply that left or the reason of its refusal.

    - `time`: UTC, to the second.
    - `round`: 0 for joining and alignment.
    - `request`, `parameters`, `arrays`: the request's type, its scalars, and the shapes of its arrays.
    - `reply`, `shapes`, `sha256`: the reply's type, the shapes of its arrays, and its `fedkernel.wire.digest`; empty if
      refused.
    - `floats`, `bytes`, `rows`: as in the coordinator's ledger: entries of arrays of floats, serialised content, rows
      of the site's table as they are.
    - `letters`: floats in the reply's sealed letters to peers.
    - `refused`: the reason, as the coordinator read it.
    - `rule`: of the site's policy that allows or refuses; empty if none of its rules does.
    - `study`: SHA-256 of the approved study; empty: none.
    - `standing`: totals with this line.
    - `previous`: SHA-256 of the line before, without its end.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    number: Annotated[int, pydantic.Field(ge=1)]
    time: str
    run: str
    round: Count
    request: str
    parameters: dict[str, Any]
    arrays: Shapes
    reply: str = ""
    shapes: Shapes = {}
    floats: Count = 0
    letters: Count = 0
    bytes: Count = 0
    rows: Count = 0
    sha256: Hash | Annotated[str, pydantic.Field(max_length=0)] = ""
    refused: str = ""
    rule: str = ""
    study: Hash | Annotated[str, pydantic.Field(max_length=0)] = ""
    standing: Standing = Standing()
    previous: Hash


class Record(NamedTuple):
    """An outbox's lines, and the hash of the last, which identifies its end."""

    departures: list[Departure]
    end: str


def payload_of(folder: Path, sha256: str) -> Path:
    """Return the path of a stored reply, named by its salted hash, so that none overwrites another."""
    return folder / PAYLOADS / f"{sha256}.npz"


def check_payload(path: Path, departure: Departure) -> bool:
    """Return whether a line's reply is stored; InputError if it differs from the line's hash."""
    stored = payload_of(path if path.is_dir() else path.parent, departure.sha256)
    if departure.refused or not stored.exists():
        return False
    with open_npz(stored) as file:
        arrays = [file[name] for name in file if name != IDENTITY]
        sha256 = digest(file.content(IDENTITY).decode(), arrays)
    if sha256 != departure.sha256:
        raise InputError(f"{stored} is not what line {departure.number} says has left")
    return True


def entry_of(line: bytes) -> Departure:
    """Parse a line; ValueError, in one sentence, if it is not valid."""
    try:
        return Departure.model_validate_json(line)
    except pydantic.ValidationError as error:
        raise ValueError(explain(error, quote=False) or "it is no entry") from None


def departures_of(path: Path) -> Iterator[tuple[Departure, str]]:
    """Read the outbox at a path, file or folder, line by line, each with its hash.

    Raises InputError if the file is missing, or at the first line that was changed.
    """
    path = path / OUTBOX if path.is_dir() else path
    try:
        *lines, rest = path.read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; allowed: the --out of a join") from None
    previous = FIRST
    for number, line in enumerate(lines, start=1):
        try:
            departure = entry_of(line)
        except ValueError as error:
            raise InputError(f"{path}, line {number}: {error}") from None
        if (departure.number, departure.previous) != (number, previous):
            raise InputError(
                f"{path}, line {number}: it does not follow the line before, which was changed or taken out"
            )
        previous = hashlib.sha256(line).hexdigest()
        yield departure, previous
    if rest:
        raise InputError(f"{path}, line {len(lines) + 1}: it has no end")


def read_outbox(path: Path) -> Record:
    """Read the whole outbox, as `departures_of` does."""
    lines = list(departures_of(path))
    return Record([departure for departure, _ in lines], lines[-1][1] if lines else FIRST)
