"""What a site's record says has left it: its lines, read and checked.

A line can be added, and none be changed or taken out unnoticed but the last ones, which the hash of the last line holds
where that was written down elsewhere. Whoever owns the file can write all of it anew.
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
"""What the first line has for the hash of the one before."""

Count = Annotated[int, pydantic.Field(ge=0)]
Hash = Annotated[str, pydantic.Field(pattern="^[0-9a-f]{64}$")]
Shapes = dict[str, tuple[Count, ...]]


class Departure(pydantic.BaseModel):
    """One request, and the reply that left the site or why none did.

    - `number`: of the line, from 1.
    - `time`: UTC, to the second.
    - `round`: 0 where clients join and agree on their rows.
    - `request`: its type.
    - `parameters`: its scalars: kernel, sizes and the like.
    - `arrays`: shapes of the arrays that came with it.
    - `reply`: its type; empty where nothing left.
    - `shapes`: of the arrays that left.
    - `floats`, `bytes`, `rows`: as the coordinator's ledger counts them: entries of arrays of floats, serialised
      content, rows of the site's table as they are.
    - `letters`: floats of the letters to peers in it, sealed.
    - `sha256`: of the reply (`fedkernel.wire.digest`); empty where nothing left.
    - `refused`: why nothing left, as the coordinator read it.
    - `rule`: of the site's policy: which one allows it, or refuses; empty where that is none of its rules.
    - `study`: SHA-256 of the study that was approved; empty: none.
    - `standing`: how much has left with this line.
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
    """What a file says has left a site, and the hash of its last line, by which its end can be known again."""

    departures: list[Departure]
    end: str


def payload_of(folder: Path, sha256: str) -> Path:
    """Return where a reply is stored: under its salted hash, so that none takes another's place."""
    return folder / PAYLOADS / f"{sha256}.npz"


def check_payload(path: Path, departure: Departure) -> bool:
    """Return whether what left is stored, or raise InputError if that is not what the record says.

    `path`: as `read_outbox` takes it.
    """
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
    """Read a line; ValueError with one sentence if it is none."""
    try:
        return Departure.model_validate_json(line)
    except pydantic.ValidationError as error:
        raise ValueError(explain(error, quote=False) or "it is no entry") from None


def departures_of(path: Path) -> Iterator[tuple[Departure, str]]:
    """Read the record of what left a site line by line, each with its hash.

    `path`: the file, or the folder that it is in. Raises InputError if there is none, or at the first line that is not
    as it was written.
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
    """Read the whole record, as `departures_of` does."""
    lines = list(departures_of(path))
    return Record([departure for departure, _ in lines], lines[-1][1] if lines else FIRST)
