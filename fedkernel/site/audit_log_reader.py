"""Reader of a site's outbox (`fedkernel.site.audit_log`), with verification of its hash chain.

Changed or removed lines are detected, the last ones only with a copy of the last hash kept elsewhere. The file's owner
can rewrite all of it.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pydantic

from fedkernel.ground import InputError, explain, open_npz
from fedkernel.site.gate import RunProgress, Totals
from fedkernel.wire import digest

OUTBOX = "outbox.jsonl"
PAYLOADS, IDENTITY = "payloads", "message.json"
FIRST = "0" * 64  # previous hash in the first line

Count = Annotated[int, pydantic.Field(ge=0)]
Hash = Annotated[str, pydantic.Field(pattern="^[0-9a-f]{64}$")]
Shapes = dict[str, tuple[Count, ...]]


class Departure(pydantic.BaseModel, extra="forbid", frozen=True):
    """Line of an outbox: a request, with the reply that left or the reason for refusing it.

    - `time`: UTC, to the second.
    - `round`: number of the round; 0 for joining and alignment.
    - `request`, `parameters`, `arrays`: the request's type, its scalars, and the shapes of its arrays.
    - `reply`, `shapes`, `sha256`: the reply's type, the shapes of its arrays, and its `fedkernel.wire.digest`; empty if
      refused.
    - `floats`, `bytes`, `rows`: as in the coordinator's ledger (`fedkernel.run.Entry`).
    - `letters`: floats in the reply's sealed letters to peers.
    - `masked`: number of sites in whose sum the reply's masks cancel; 0: none.
    - `refused`: the reason, as sent to the coordinator; empty if the reply left.
    - `rule`: rule of the site's policy that allows or refuses the reply. `study`: SHA-256 of the approved one.
    - `standing`: the run's progress including this line.
    - `previous`: SHA-256 of the line before, without its end.
    """

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
    masked: Count = 0
    sha256: Hash | Annotated[str, pydantic.Field(max_length=0)] = ""
    refused: str = ""
    rule: str = ""
    study: Hash | Annotated[str, pydantic.Field(max_length=0)] = ""
    standing: RunProgress = RunProgress()
    previous: Hash


class Outbox(NamedTuple):
    """Lines of a site's outbox, and the hash of the last one, which identifies the outbox's end."""

    departures: list[Departure]
    end: str


def payload_of(folder: Path, sha256: str) -> Path:
    """Return the path of a stored reply, named by its salted hash, so that no reply overwrites another."""
    return folder / PAYLOADS / f"{sha256}.npz"


def check_payload(path: Path, departure: Departure) -> bool:
    """Return whether a line's reply is stored. Raises InputError if the stored reply has a different hash."""
    stored = payload_of(path if path.is_dir() else path.parent, departure.sha256)
    if departure.refused or not stored.exists():
        return False
    with open_npz(stored) as file:
        arrays = [file[name] for name in file if name != IDENTITY]
        sha256 = digest(file.content(IDENTITY).decode(), arrays)
    if sha256 != departure.sha256:
        raise InputError(f"{stored} differs from the reply that left by line {departure.number}")
    return True


def entry_of(line: bytes) -> Departure:
    """Parse an outbox line. Raises ValueError, with a text of one sentence, if the line is invalid."""
    try:
        return Departure.model_validate_json(line)
    except pydantic.ValidationError as error:
        raise ValueError(explain(error, quote=False) or "it is no entry") from None


def departures_of(path: Path) -> Iterator[tuple[Departure, str]]:
    """Yield the lines of an outbox, a file or its folder, with their hashes. Raises InputError at a changed line."""
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
            raise InputError(f"{path}, line {number}: the line before it was changed or removed (hash chain)")
        previous = hashlib.sha256(line).hexdigest()
        yield departure, previous
    if rest:
        raise InputError(f"{path}, line {len(lines) + 1}: it is incomplete")


def read_outbox(path: Path) -> Outbox:
    """Read a whole outbox, with the checks of `departures_of`."""
    lines = list(departures_of(path))
    return Outbox([departure for departure, _ in lines], lines[-1][1] if lines else FIRST)


def totals_of(path: Path) -> Totals:
    """Return the totals of all runs in an outbox, checked by `departures_of`. A folder without an outbox has zeros."""
    if path.is_dir() and not (path / OUTBOX).exists():
        return Totals()
    return next((line.standing.total for line in read_outbox(path).departures[-1:]), Totals())
