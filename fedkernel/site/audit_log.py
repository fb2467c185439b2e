"""Writer of a site's outbox: JSON lines of all that left, chained by hashes.

It lacks Flower's own answers to kinds of messages that no client has. A reply that an engine then refused as too large
is in it. `fedkernel.site.audit_log_reader` reads it.
"""

import errno
import fcntl
import hashlib
import itertools
import json
import os
import secrets
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from flwr.app import RecordDict

from fedkernel.ground import AnyArray, InputError, OwnFileError, RefusedError, open_for_owner, write_atomic
from fedkernel.peers import sealed_in
from fedkernel.protocol import Reply, Summed
from fedkernel.site.audit_log_reader import FIRST, IDENTITY, OUTBOX, entry_of, payload_of
from fedkernel.site.gate import Gate, Standing, Sums
from fedkernel.site.policy import Leaving, flag
from fedkernel.site.raw_request import TEXT, Asking, arrays_of, shapes_of
from fedkernel.site.restart_guard import Requests
from fedkernel.wire import digest, flower_internals, identity_of, records_of

STEP = 8192
"""Bytes that are read at a time, from the outbox's end."""

LONGEST = 20_000
"""Characters of parameters that are written in full, over ten times those of fedkernel's own requests."""

MOST = 100
"""Arrays of a request that are listed, at most."""

MOST_REFUSED = 10_000
"""Refusals that are written, so that vain requests do not fill the disk; replies always are."""

LITTLE = 0.1
"""Computing seconds of a refusal below which no line beyond `MOST_REFUSED` is written."""


_pen: ContextVar[AbstractContextManager[Any]] = ContextVar("pen", default=nullcontext())  # noqa: B039 - has no state


def write_with(pen: AbstractContextManager[Any]) -> None:
    """Set a context, such as a lock, that this thread enters whenever it uses an outbox."""
    _pen.set(pen)


class Answer(NamedTuple):
    """A reply about to leave, its content, and a hash of the letters read for it."""

    content: RecordDict
    reply: Reply
    letters: bytes = b""


def has_record(node: Mapping[str, Any]) -> bool:
    """Return whether a node keeps an outbox: it has data of its own, and a folder."""
    return "data" in node and "out" in node


def admit(node: Mapping[str, Any], asking: Asking, gate: Gate) -> Standing:
    """Return the totals after a request; RefusedError if the gate or the log of earlier requests forbids it."""
    folder = _folder(node)
    try:
        with _opened(folder) as file:
            end = _end_of(file, asking.run, gate.study)
    except (OSError, ValueError) as error:
        raise _unwritable(folder, error) from None
    standing = gate.admit(end.standing, asking)
    Requests(folder, gate.key).check(standing.taken - 1, asking)
    return standing


def record(
    node: Mapping[str, Any],
    asking: Asking,
    answer: Answer | None = None,
    *,
    refused: str = "",
    rule: str = "",
    gate: Gate | None = None,
    admitted: Standing | None = None,
    seconds: float = 0.0,
) -> None:
    """Append a reply or refusal to the outbox, and add a salt to the reply.

    - `node`: the node's configuration: ``data``, ``out`` (the outbox's folder), and ``keep-payloads``: whether replies
      are stored beside it, readable for the owner only. Nothing is done for a node without ``data`` and ``out``.
    - `refused`, `rule`: reason and rule of a refusal; the seconds of an answer that was computed still count.
    - `gate`: checks the reply, and the request once more, since other messages may have come since.
    - `admitted`: the result of `admit`; nothing leaves if another message of the run was answered since.
    - `seconds`: computing time before an error.

    Raises OwnFileError if the outbox cannot be written: then nothing may leave. Raises RefusedError, and writes
    nothing, if the gate forbids the reply.
    """
    if not has_record(node):
        return
    folder = _folder(node)
    line: dict[str, Any] = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "run": asking.run,
        "round": asking.round,
        "request": asking.request[:TEXT],
        "parameters": _parameters(asking, LONGEST if gate else TEXT),
        "arrays": dict(itertools.islice(_short_names(asking.shapes).items(), MOST)),
        "study": gate.study if gate else "",
    }
    leaving: Leaving | None = None
    if answer is not None:
        # without a salt, a small reply could be guessed from its hash, even if only summed up
        records_of(answer.content)[1]["salt"] = secrets.token_hex(16)
        leaving = _leaving(answer)
    if answer is None or leaving is None or refused:
        line |= {"refused": refused, "rule": rule}
    else:
        arrays, identity = arrays_of(answer.content), identity_of(records_of(answer.content)[1])
        entries = {name: getattr(leaving, name) for name in ("reply", "shapes", "floats", "letters", "bytes", "rows")}
        line |= {**entries, "sha256": digest(identity, arrays.values())}
    try:
        with _opened(folder) as file:
            number, previous, standing = _end_of(file, line["run"] if gate else "", line["study"])
            if refused:
                standing = standing.with_refusal(leaving.seconds if leaving else seconds)
                if leaving is None and seconds < LITTLE and standing.total.refused > MOST_REFUSED:
                    return
            elif answer is not None and leaving is not None:
                if gate is None:
                    standing = standing.with_reply(leaving)
                else:
                    standing, requests = gate.admit(standing, asking), Requests(folder, gate.key)
                    requests.check(standing.taken - 1, asking, answer.letters)
                    _check_alone(standing, admitted or standing)
                    standing, line["rule"] = gate.release(standing, leaving)
                    requests.note(standing.taken - 1, asking, answer.letters)
                if flag(node, "keep-payloads"):
                    path = payload_of(folder, line["sha256"])
                    write_atomic(path, lambda stored: _store(stored, identity, arrays), 0o600)
            line |= {"standing": standing.model_dump(mode="json"), "previous": previous}
            _append(file, _line_of({"number": number, **line}))
    except RefusedError:
        raise
    except (OSError, ValueError) as error:
        raise _unwritable(folder, error) from None


def _check_alone(standing: Standing, admitted: Standing) -> None:
    """Raise RefusedError if another request of the run was answered since, unseen by this one's guards."""
    if (standing.run.begun, standing.taken) != (admitted.run.begun, admitted.taken):
        rule = "study.attempts"
        raise RefusedError(rule, f"another request was answered meanwhile; allowed: one after the other ({rule})")


def _line_of(line: Mapping[str, Any]) -> bytes:
    """Return a line as bytes that can be read again, whatever the request contains."""
    text = json.dumps(line, ensure_ascii=False).encode(errors="replace")
    try:
        _entry_of(text)
    except ValueError:
        cut = {"fields": json.dumps(line["parameters"], default=repr)[:TEXT]}
        text = json.dumps({**line, "parameters": cut}, ensure_ascii=False).encode(errors="replace")
    return text + b"\n"


def _unwritable(folder: Path, error: Exception) -> OwnFileError:
    outline = "the site cannot write down what would leave it"
    return OwnFileError(outline, f"{folder / OUTBOX}: {error}")


def _folder(node: Mapping[str, Any]) -> Path:
    return Path(str(node["out"])).expanduser()


@contextmanager
def _opened(folder: Path) -> Iterator[FileIO]:
    """Open a folder's outbox for reading and appending, under an exclusive lock."""
    folder.mkdir(0o700, parents=True, exist_ok=True)
    with _pen.get(), open(folder / OUTBOX, "a+b", buffering=0, opener=open_for_owner) as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # a SuperNode answers each message in a process of its own
        yield file


def _parameters(asking: Asking, longest: int) -> Mapping[str, Any]:
    """Return a request's parameters, or the beginning of their text if too long or unreadable."""
    is_short = len(asking.text) <= longest and (asking.fields or asking.text == "{}")
    return asking.fields if is_short else {"fields": asking.text[:TEXT]}


def _short_names(shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, tuple[int, ...]]:
    """Return the shapes by name, or by position if the names are too long."""
    if sum(map(len, shapes)) <= LONGEST:
        return shapes
    return {str(place): shape for place, shape in enumerate(shapes.values())}


def _leaving(answer: Answer) -> Leaving:
    reply, seconds = answer.reply, records_of(answer.content)[1].get("seconds", 0.0)
    return Leaving(
        type(reply).__name__,
        shapes_of(reply.arrays()),
        reply.floats,
        sum(sealed.floats for sealed in sealed_in(reply)),
        reply.disclosed,
        flower_internals.content_bytes(answer.content),
        float(seconds),  # type: ignore[arg-type] # the site's own number
        isinstance(reply, Summed),
    )


_entry_of = lru_cache(maxsize=4)(entry_of)
"""Cached, since the last line is read twice: to admit a request and to append its reply."""


class _End(NamedTuple):
    """The outbox's next line number, last hash, and the totals of a run."""

    number: int
    previous: str
    standing: Standing


def _end_of(file: FileIO, run: str = "", study: str = "") -> _End:
    """Read an outbox backwards, until a line of the given run and study."""
    end: _End | None = None
    for line in _backwards(file):
        entry = _entry_of(line)
        if end is None:
            total = Standing(total=entry.standing.total)
            end = _End(entry.number + 1, hashlib.sha256(line).hexdigest(), total)
        if not run:
            break
        # a refusal before the run's start has no totals of the run
        if (entry.run, entry.study) == (run, study) and entry.standing.run != Sums():
            return end._replace(standing=entry.standing.model_copy(update={"total": end.standing.total}))
    return end or _End(1, FIRST, Standing())


def _backwards(file: FileIO) -> Iterator[bytes]:
    """Yield the outbox's lines without line ends, last one first."""
    size = end = file.seek(0, os.SEEK_END)
    rest = b""
    while end > 0:
        begin = max(0, end - STEP)
        file.seek(begin)
        read = file.read(end - begin) + rest
        if end == size:
            if not read.endswith(b"\n"):
                raise ValueError("its last line has no end; put the file aside and keep it, and a new one is begun")
            read = read[:-1]
        rest, *lines = read.split(b"\n")
        yield from reversed(lines)
        end = begin
    if size:
        yield rest


def _store(file: BinaryIO, identity: str, arrays: Mapping[str, AnyArray]) -> None:
    """Write a message's arrays as .npz, under any names, with its `identity_of`."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(IDENTITY, identity)
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _append(file: FileIO, line: bytes) -> None:
    """Append a line whole or not at all: none could follow half of one."""
    size = file.seek(0, os.SEEK_END)
    try:
        if file.write(line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        file.truncate(size)
        raise


def check_record(folder: Path) -> None:
    """Raise InputError if the outbox in a folder, which may be missing, cannot be appended to."""
    try:
        with open(folder / OUTBOX, "a+b", buffering=0, opener=open_for_owner) as file:
            _end_of(file)
    except (OSError, ValueError) as error:
        raise InputError(f"{folder / OUTBOX}: {error}") from None
