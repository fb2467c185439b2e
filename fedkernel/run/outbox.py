"""The record of what left a site: a file of JSON lines, each of which holds the hash of the one before.

A line can be added, and none be changed or taken out unnoticed but the last ones, which the hash of the last line holds
where that was written down elsewhere. Whoever owns the file can write all of it anew.
"""

import fcntl
import hashlib
import json
import os
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import pydantic
from flwr.app import ConfigRecord, Message, RecordDict

from fedkernel.errors import InputError, OwnFileError, ProtocolError, one_line
from fedkernel.run import flower
from fedkernel.run.ledger import Entry, Ledger
from fedkernel.run.wire import digest
from fedkernel.storage import write_whole
from fedkernel.validation import explain

OUTBOX = "outbox.jsonl"
PAYLOADS = "payloads"
LONGEST = 20_000
"""Characters of parameters that are written down whole; none of ours have a tenth as many."""

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
        The node's configuration: ``data``, ``out`` (the folder of the record), and ``keep-payloads``: whether arrays
        are stored beside it, readable for their owner only.
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
    config = request.content.config_records.get("config", ConfigRecord())
    number = config.get("round", 0)
    line: dict[str, Any] = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "run": str(config.get("run", ""))[:TEXT],
        "round": max(0, number) if isinstance(number, int) else 0,
        "request": str(config.get("message", ""))[:TEXT],
        "parameters": _parameters(config),
        "arrays": {},
    }
    with suppress(KeyError, ProtocolError):  # a request that is none is refused, and written down all the same
        line["arrays"] = _shapes(_arrays(request.content))
    if reply is None:
        line["refused"] = one_line(refused)[:TEXT]
    else:
        # or a small reply could be guessed from its hash, also where a coordinator is to keep a sum only
        reply.config_records["config"]["salt"] = secrets.token_hex(16)
        arrays = _arrays(reply)
        line |= {
            "reply": str(reply.config_records["config"]["message"]),
            "shapes": _shapes(arrays),
            "floats": sum(array.size for array in arrays.values() if array.dtype.kind == "f"),
            "bytes": flower.content_bytes(reply),
            "rows": rows,
            "sha256": digest(reply),
        }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / OUTBOX).open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # a SuperNode answers each message in a process of its own
            number, previous = _end_of(file)
            if reply is not None and flower.flag(node, "keep-payloads"):
                payload = folder / PAYLOADS / f"{number:06}.npz"
                write_whole(payload, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays), 0o600)
            text = json.dumps({"number": number, **line, "previous": previous}, ensure_ascii=False)
            file.write(text.encode(errors="replace") + b"\n")
    except (OSError, ValueError) as error:
        outline = "the site cannot write down what would leave it; its log says why"
        raise OwnFileError(outline, f"{folder / OUTBOX}: {error}") from None


def _parameters(config: ConfigRecord) -> dict[str, Any]:
    """Return a message's own scalars, or the text that stands there: whoever asks decides what that is."""
    text = str(config.get("fields", "{}"))
    fields = None
    with suppress(ValueError, RecursionError):
        fields = json.loads(text) if len(text) <= LONGEST else None
    return fields if isinstance(fields, dict) else {"fields": text[:TEXT]}


def _arrays(content: RecordDict) -> dict[str, npt.NDArray[Any]]:
    """Return a message's arrays by the names of their fields, or by their places where these do not fit."""
    names = [name for name in str(content.config_records["config"].get("arrays", "")).split(",") if name]
    arrays = flower.read_arrays(content.array_records["arrays"])
    return dict(zip(names if len(set(names)) == len(arrays) else map(str, range(len(arrays))), arrays, strict=True))


def _shapes(arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in arrays.items()}


def _end_of(file: BinaryIO) -> tuple[int, str]:
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
            return json.loads(lines[-1])["number"] + 1, hashlib.sha256(lines[-1]).hexdigest()
        step *= 4


def read_outbox(path: Path) -> Record:
    """Read the record of what left a site, and check every line of it.

    Parameters
    ----------
    path : Path
        The file, or the folder that it is in.

    Raises
    ------
    InputError
        If there is none, or for the first line that is not as it was written.
    """
    path = path / OUTBOX if path.is_dir() else path
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    if lines.pop() != b"":
        raise InputError(f"{path}, line {len(lines) + 1}: it has no end")
    departures: list[Departure] = []
    previous = FIRST
    for number, line in enumerate(lines, start=1):
        try:
            departure = Departure.model_validate(json.loads(line))
        except pydantic.ValidationError as error:
            raise InputError(f"{path}, line {number}: {explain(error)}") from None
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}, line {number}: it is no entry ({type(error).__name__})") from None
        if (departure.number, departure.previous) != (number, previous):
            raise InputError(
                f"{path}, line {number}: it does not follow the line before, which was changed or taken out"
            )
        departures.append(departure)
        previous = hashlib.sha256(line).hexdigest()
    return Record(departures, previous)


def missing_from(departures: Sequence[Departure], run: str, ledger: Ledger) -> list[Entry]:
    """Return what a coordinator's ledger of a run has of one client, but the record of that site has not.

    Parameters
    ----------
    departures : sequence of Departure
    run : str
    ledger : Ledger
        Of the client (`Ledger.of_client`). A site that was asked again has left more than the ledger has.
    """
    left = Counter(
        (departure.round, departure.floats, departure.bytes, departure.rows, departure.sha256)
        for departure in departures
        if departure.run == run and not departure.refused
    )
    return [
        entry
        for entry in ledger.entries
        if not left[entry.round, entry.floats_up, entry.bytes_up, entry.rows_up, entry.sha256]
    ]
