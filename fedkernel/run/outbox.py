"""The record of what left a site: a file of JSON lines, each of which holds the hash of the one before.

A line can be added, and none be changed or taken out unnoticed but the last ones, which the hash of the last line holds
where that was written down elsewhere. Whoever owns the file can write all of it anew. Not in it: what Flower itself
answers to messages of kinds that no client has; and that an engine refused a reply as too large, once its line was
there.
"""

import errno
import fcntl
import hashlib
import itertools
import json
import os
import secrets
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NamedTuple

import numpy as np
import pydantic
from flwr.app import ConfigRecord, Message, RecordDict

from fedkernel.arrays import AnyArray
from fedkernel.errors import InputError, OwnFileError
from fedkernel.protocol.messages import FIELDS
from fedkernel.run import flower
from fedkernel.run.ledger import Entry, Ledger
from fedkernel.run.wire import digest, identity_of
from fedkernel.storage import write_whole
from fedkernel.validation import explain

OUTBOX = "outbox.jsonl"
PAYLOADS, IDENTITY = "payloads", "message.json"
LONGEST = 20_000
"""Characters of parameters that are written down whole; none of ours have a tenth as many."""

MOST = 100
"""Arrays of a request that are listed."""

TEXT = 1000
"""Characters of other texts that somebody else wrote."""
FIRST = "0" * 64
"""What the first line has for the hash of the one before."""

Count = Annotated[int, pydantic.Field(ge=0)]
Hash = Annotated[str, pydantic.Field(pattern="^[0-9a-f]{64}$")]
Shapes = dict[str, tuple[Count, ...]]


class Departure(pydantic.BaseModel):
    """One request, and the reply that left the site or why none did.

    Attributes
    ----------
    number : int
        Of the line, from 1.
    time : str
        UTC, to the second.
    run : str
    round : int
        0 where clients join and agree on their rows.
    request : str
        Its type.
    parameters : dict
        Its scalars: kernel, sizes and the like.
    arrays : dict of str to tuple of int
        Shapes of the arrays that came with it.
    reply : str
        Its type; empty where nothing left.
    shapes : dict of str to tuple of int
        Of the arrays that left.
    floats, bytes, rows : int
        As the coordinator's ledger counts them: entries of arrays of floats, serialised content, rows of the site's
        table as they are.
    sha256 : str
        Of the reply (`fedkernel.run.wire.digest`); empty where nothing left.
    refused : str
        Why nothing left, as the coordinator read it.
    previous : str
        SHA-256 of the line before, without its end.
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
    bytes: Count = 0
    rows: Count = 0
    sha256: Hash | Annotated[str, pydantic.Field(max_length=0)] = ""
    refused: str = ""
    previous: Hash


class Record(NamedTuple):
    """What a file says has left a site, and the hash of its last line, by which its end can be known again."""

    departures: list[Departure]
    end: str


def record(
    node: Mapping[str, Any], request: Message, reply: RecordDict | None = None, rows: int = 0, refused: str = ""
) -> None:
    """Write down what is about to leave a site that has data of its own and a folder, and put a salt into it.

    Parameters
    ----------
    node : mapping
        The node's configuration: ``data``, ``out`` (the folder of the record), and ``keep-payloads``: whether replies
        are stored beside it, for the owner only to read.
    request : flwr.app.Message
    reply : flwr.app.RecordDict, optional
        None: nothing leaves, for a reason that `refused` says.
    rows : int
        Rows of the table that leave as they are.
    refused : str

    Raises
    ------
    OwnFileError
        If it cannot be written: then nothing may leave.
    """
    if "data" not in node or "out" not in node:
        return
    folder = Path(str(node["out"])).expanduser()
    content = request.content if request.has_content() else RecordDict()
    config = content.config_records.get("config", ConfigRecord())
    number = config.get("round", 0)
    line: dict[str, Any] = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "run": str(config.get("run", ""))[:TEXT],
        "round": max(0, number) if isinstance(number, int) else 0,
        "request": str(config.get("message", ""))[:TEXT],
        "parameters": _parameters(config),
        "arrays": {},
    }
    with suppress(Exception):  # nothing that stands in a request is worth a line that is missing
        line["arrays"] = dict(itertools.islice(_shapes(_arrays(content)).items(), MOST))
    if reply is None:
        line["refused"] = refused
    else:
        # or a small reply could be guessed from its hash, also where a coordinator is to keep a sum only
        reply.config_records["config"]["salt"] = secrets.token_hex(16)
        arrays, identity = _arrays(reply), identity_of(reply)
        line |= {
            "reply": str(reply.config_records["config"]["message"]),
            "shapes": _shapes(arrays),
            "floats": sum(array.size for array in arrays.values() if array.dtype.kind == "f"),
            "bytes": flower.content_bytes(reply),
            "rows": rows,
            "sha256": digest(identity, arrays.values()),
        }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / OUTBOX, "a+b", buffering=0, opener=_own) as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # a SuperNode answers each message in a process of its own
            number, previous = _end_of(file)
            if reply is not None and flower.flag(node, "keep-payloads"):
                write_whole(_payload(folder, line["sha256"]), lambda stored: _store(stored, identity, arrays), 0o600)
            text = json.dumps({"number": number, **line, "previous": previous}, ensure_ascii=False)
            _append(file, text.encode(errors="replace") + b"\n")
    except (OSError, ValueError) as error:
        outline = "the site cannot write down what would leave it; its log says why"
        raise OwnFileError(outline, f"{folder / OUTBOX}: {error}") from None


def _own(path: str, flags: int) -> int:
    """Open a file for its owner only."""
    return os.open(path, flags, 0o600)


def _payload(folder: Path, sha256: str) -> Path:
    """Return where a reply is stored: under its salted hash, so that none takes another's place."""
    return folder / PAYLOADS / f"{sha256}.npz"


def _store(file: BinaryIO, identity: str, arrays: Mapping[str, AnyArray]) -> None:
    """Write a message as .npz, whose arrays may have any names, with its `identity_of` beside them."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(IDENTITY, identity)
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def check_payload(path: Path, departure: Departure) -> bool:
    """Return whether what left is stored, or raise InputError if that is not what the record says.

    Parameters
    ----------
    path : Path
        As `read_outbox` takes it.
    departure : Departure
    """
    stored = _payload(path if path.is_dir() else path.parent, departure.sha256)
    if departure.refused or not stored.exists():
        return False
    try:
        with stored.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = [file[name] for name in file.files if name != IDENTITY]
            sha256 = digest(file[IDENTITY].decode(), arrays)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{stored} is damaged ({type(error).__name__})") from None
    if sha256 != departure.sha256:
        raise InputError(f"{stored} is not what line {departure.number} says has left")
    return True


def _append(file: FileIO, line: bytes) -> None:
    """Write a line whole or not at all: with half of one, none could follow."""
    size = file.seek(0, os.SEEK_END)
    try:
        if file.write(line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        file.truncate(size)
        raise


def _parameters(config: ConfigRecord) -> dict[str, Any]:
    """Return a message's own scalars, or the text that stands there: whoever asks decides what that is."""
    text = str(config.get("fields", "{}"))
    if len(text) <= LONGEST:
        with suppress(ValueError):
            return FIELDS.validate_json(text)
    return {"fields": text[:TEXT]}


def _arrays(content: RecordDict) -> dict[str, AnyArray]:
    """Return a message's arrays by the names of their fields, or by their places where these do not fit."""
    named = str(content.config_records["config"].get("arrays", ""))
    names = [name for name in named.split(",") if name] if len(named) <= LONGEST else []
    arrays = flower.read_arrays(content.array_records["arrays"])
    fit = len(names) == len(set(names)) == len(arrays)
    return dict(zip(names if fit else map(str, range(len(arrays))), arrays, strict=True))


def _shapes(arrays: Mapping[str, AnyArray]) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in arrays.items()}


def _end_of(file: FileIO) -> tuple[int, str]:
    """Return the number that the next line has, and the hash of the last."""
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return 1, FIRST
    file.seek(size - 1)
    if file.read() != b"\n":
        raise ValueError("its last line has no end; put the file aside and keep it, and a new one is begun")
    step = 4096
    while True:
        file.seek(max(0, size - step))
        lines = file.read().rstrip(b"\n").split(b"\n")
        if len(lines) > 1 or step >= size:
            return _entry(lines[-1]).number + 1, hashlib.sha256(lines[-1]).hexdigest()
        step *= 4


def _entry(line: bytes) -> Departure:
    """Read a line; ValueError with one sentence if it is none."""
    try:
        return Departure.model_validate(json.loads(line))
    except pydantic.ValidationError as error:
        raise ValueError(explain(error)) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no entry ({type(error).__name__})") from None


def check_record(folder: Path) -> None:
    """Raise InputError if no line can be added to the record in a folder, which need not be there yet."""
    try:
        with open(folder / OUTBOX, "a+b", buffering=0, opener=_own) as file:
            _end_of(file)
    except (OSError, ValueError) as error:
        raise InputError(f"{folder / OUTBOX}: {error}") from None


def departures_of(path: Path) -> Iterator[tuple[Departure, str]]:
    """Read the record of what left a site line by line, each with its hash.

    Parameters
    ----------
    path : Path
        The file, or the folder that it is in.

    Raises
    ------
    InputError
        If there is none, or at the first line that is not as it was written.
    """
    path = path / OUTBOX if path.is_dir() else path
    try:
        *lines, rest = path.read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; allowed: the --out of a join") from None
    previous = FIRST
    for number, line in enumerate(lines, start=1):
        try:
            departure = _entry(line)
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


def missing_from(departures: Sequence[Departure], run: str, ledger: Ledger) -> list[Entry]:
    """Return what a coordinator's ledger of a run has of one client, but the record of that site has not.

    Parameters
    ----------
    departures : sequence of Departure
    run : str
    ledger : Ledger
        Of the client (`Ledger.of_client`). A site that was asked again has left more than the ledger has.
    """
    left = {
        (departure.round, departure.floats, departure.bytes, departure.rows, departure.sha256)
        for departure in departures
        if departure.run == run and not departure.refused
    }
    return [
        entry
        for entry in ledger.entries
        if (entry.round, entry.floats_up, entry.bytes_up, entry.rows_up, entry.sha256) not in left
    ]
