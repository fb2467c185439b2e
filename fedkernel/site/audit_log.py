"""Writer of a site's outbox: a hash-chained log with a JSON line per reply that left and per refusal.

It omits Flower's own answers to unknown types of messages, and includes replies that an engine then refused as too
large. `fedkernel.site.audit_log_reader` reads it.
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
from fedkernel.site.gate import ENDED, Gate, Requests, RunProgress, Totals
from fedkernel.site.policy import ReplySize
from fedkernel.site.policy_reading import flag
from fedkernel.site.raw_request import MOST_TEXT, RawRequest, arrays_of, shapes_of
from fedkernel.wire import digest, flower_internals, identity_of, records_of

READ_BYTES = 8192  # bytes that are read at a time, backwards from the outbox's end

MOST_PARAMETER_TEXT = 20_000
"""Most characters of a request's parameters that are logged in full: ten times those of fedkernel's requests."""

MOST_ARRAYS_LISTED = 100  # most arrays of a request whose shapes are logged
MOST_REFUSALS = 10_000  # most refusals that are logged, so that vain requests do not fill the disk; replies always are
REFUSAL_SECONDS_LOGGED = 0.1  # computing seconds from which a refusal beyond `MOST_REFUSALS` is still logged


_write_context: ContextVar[AbstractContextManager[Any]] = ContextVar("context", default=nullcontext())  # noqa: B039 - has no state


def set_write_context(context: AbstractContextManager[Any]) -> None:
    """Set a context manager, such as a lock, that this thread enters whenever it uses an outbox."""
    _write_context.set(context)


class Answer(NamedTuple):
    """Reply about to leave a site: its Flower content, and the plain reply.

    `letters`: hash of the letters read for it, and of a masked reply. `masked`: number of sites in its masks' sum.
    `entries`: of the table that it is about.
    """

    content: RecordDict
    reply: Reply
    letters: bytes = b""
    masked: int = 0
    entries: int = 1


def keeps_outbox(node: Mapping[str, Any]) -> bool:
    """Return whether a node's configuration names data and a folder, so that the node keeps an outbox."""
    return "data" in node and "out" in node


def admit(node: Mapping[str, Any], request: RawRequest, gate: Gate) -> RunProgress:
    """Return a run's progress after a request. Raises RefusedError if the `Gate` or `Requests` refuses it."""
    folder = _folder(node)
    try:
        with _locked_outbox(folder) as file:
            end = _end_of(file, request.run, gate.study)
    except (OSError, ValueError) as error:
        raise _unwritable(folder, error) from None
    progress = gate.admit(end.progress, request)
    Requests(folder, gate.key).check(progress.taken - 1, request)
    return progress


def append_to_outbox(
    node: Mapping[str, Any],
    request: RawRequest,
    answer: Answer | None = None,
    *,
    refused: str = "",
    rule: str = "",
    gate: Gate | None = None,
    admitted: RunProgress | None = None,
    seconds: float = 0.0,
) -> str:
    """Append a request's reply or refusal to the outbox, and return the refusal's text. A reply gets a random salt.

    - `node`: the node's configuration (see `site_of_job`). Nothing is done for one without ``data`` and ``out``.
    - `refused`, `rule`: reason and rule of a refusal; the seconds of a computed `answer` still count.
    - `gate`: checks the reply, and the request once more, since other messages may have arrived meanwhile.
    - `admitted`: the result of `admit`; nothing leaves if another message of the run was answered since then. In a run
      of masked sums the first refusal after it ends the start, and others sent at the same time tell no more.
    - `seconds`: computing time before an error.

    Raises OwnFileError if the outbox cannot be written: then nothing may leave. Raises RefusedError, and writes
    nothing, if the gate forbids the reply.
    """
    if not keeps_outbox(node):
        return refused
    folder = _folder(node)
    line: dict[str, Any] = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "run": request.run,
        "round": request.round,
        "request": request.name[:MOST_TEXT],
        "parameters": _parameters(request, MOST_PARAMETER_TEXT if gate else MOST_TEXT),
        "arrays": dict(itertools.islice(_short_names(request.shapes).items(), MOST_ARRAYS_LISTED)),
        "study": gate.study if gate else "",
    }
    size: ReplySize | None = None
    if answer is not None:
        # without a salt, a small reply could be guessed from its hash, even if only summed up
        records_of(answer.content)[1]["salt"] = secrets.token_hex(16)
        size = _size_of(answer, request.round)
    if answer is None or size is None or refused:
        line |= {"refused": refused, "rule": rule}
    else:
        arrays, identity = arrays_of(answer.content), identity_of(records_of(answer.content)[1])
        names = ("reply", "shapes", "floats", "letters", "bytes", "rows", "masked")
        line |= {name: getattr(size, name) for name in names} | {"sha256": digest(identity, arrays.values())}
    try:
        with _locked_outbox(folder) as file:
            number, previous, progress = _end_of(file, line["run"] if gate else "", line["study"])
            if refused:
                ends, had_ended = bool(admitted and gate and gate.run.sums == "masked"), progress.ended
                line["refused"] = refused = ENDED if ends and had_ended else refused
                progress = progress.with_refusal(size.seconds if size else seconds, ends=ends)
                is_cheap = size is None and seconds < REFUSAL_SECONDS_LOGGED and progress.ended == had_ended
                if is_cheap and progress.total.refused > MOST_REFUSALS:
                    return refused
            elif answer is not None and size is not None:
                if gate is None:
                    progress = progress.with_reply(size)
                else:
                    progress, requests = gate.admit(progress, request), Requests(folder, gate.key)
                    requests.check(progress.taken - 1, request, answer.letters)
                    _check_no_other_request(progress, admitted or progress)
                    progress, line["rule"] = gate.release(progress, size)
                    requests.note(progress.taken - 1, request, answer.letters)
                if flag(node, "keep-payloads"):
                    path = payload_of(folder, line["sha256"])
                    write_atomic(path, lambda stored: _store(stored, identity, arrays), 0o600)
            line |= {"standing": progress.model_dump(mode="json"), "previous": previous}
            _append(file, _line_of({"number": number, **line}))
    except RefusedError:
        raise
    except (OSError, ValueError) as error:
        raise _unwritable(folder, error) from None
    return refused


def _check_no_other_request(progress: RunProgress, admitted: RunProgress) -> None:
    if (progress.run.begun, progress.taken) != (admitted.run.begun, admitted.taken):
        text = "another request of this run was answered at the same time; send requests one at a time (study.attempts)"
        raise RefusedError("study.attempts", text)


def _line_of(line: Mapping[str, Any]) -> bytes:
    """Serialise an outbox line so that it can be read again, whatever the request contains."""
    text = json.dumps(line, ensure_ascii=False).encode(errors="replace")
    try:
        _entry_of(text)
    except ValueError:
        cut = {"fields": json.dumps(line["parameters"], default=repr)[:MOST_TEXT]}
        text = json.dumps({**line, "parameters": cut}, ensure_ascii=False).encode(errors="replace")
    return text + b"\n"


def _unwritable(folder: Path, error: Exception) -> OwnFileError:
    return OwnFileError("the site cannot write its outbox, so nothing may leave", f"{folder / OUTBOX}: {error}")


def _folder(node: Mapping[str, Any]) -> Path:
    return Path(str(node["out"])).expanduser()


@contextmanager
def _locked_outbox(folder: Path) -> Iterator[FileIO]:
    """Open a folder's outbox for reading and appending, under an exclusive lock."""
    folder.mkdir(0o700, parents=True, exist_ok=True)
    with _write_context.get(), open(folder / OUTBOX, "a+b", buffering=0, opener=open_for_owner) as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # a SuperNode answers each message in a process of its own
        yield file


def _parameters(request: RawRequest, longest: int) -> Mapping[str, Any]:
    """Return a request's parameters for the log, or the start of their text if too long or unreadable."""
    is_short = len(request.text) <= longest and (request.fields or request.text == "{}")
    return request.fields if is_short else {"fields": request.text[:MOST_TEXT]}


def _short_names(shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, tuple[int, ...]]:
    """Return arrays' shapes by the arrays' names, or by position if the names are too long."""
    if sum(map(len, shapes)) <= MOST_PARAMETER_TEXT:
        return shapes
    return {str(place): shape for place, shape in enumerate(shapes.values())}


def _size_of(answer: Answer, round_number: int) -> ReplySize:
    reply, seconds = answer.reply, records_of(answer.content)[1].get("seconds", 0.0)
    return ReplySize(
        type(reply).__name__,
        shapes_of(reply.arrays()),
        reply.floats,
        sum(sealed.floats for sealed in sealed_in(reply)),
        reply.disclosed,
        flower_internals.content_bytes(answer.content),
        float(seconds),  # type: ignore[arg-type] # the site's own number
        isinstance(reply, Summed),
        answer.masked,
        round_number,
        answer.entries,
    )


_entry_of = lru_cache(maxsize=4)(entry_of)
"""Cached, since the last line is read twice: to admit a request and to append its reply."""


class _End(NamedTuple):
    """End of an outbox: the next line's number, the last line's hash, and a run's progress."""

    number: int
    previous: str
    progress: RunProgress


def _end_of(file: FileIO, run: str = "", study: str = "") -> _End:
    """Read the end of an outbox, and the progress in the last line of a run and study, if any."""
    end: _End | None = None
    for line in _backwards(file):
        entry = _entry_of(line)
        if end is None:
            total = RunProgress(total=entry.standing.total)
            end = _End(entry.number + 1, hashlib.sha256(line).hexdigest(), total)
        if not run:
            break
        # a refusal before the run's start has no totals of the run
        if (entry.run, entry.study) == (run, study) and entry.standing.run != Totals():
            return end._replace(progress=entry.standing.model_copy(update={"total": end.progress.total}))
    return end or _End(1, FIRST, RunProgress())


def _backwards(file: FileIO) -> Iterator[bytes]:
    """Yield an outbox's lines without line ends, last line first."""
    size = end = file.seek(0, os.SEEK_END)
    rest = b""
    while end > 0:
        begin = max(0, end - READ_BYTES)
        file.seek(begin)
        read = file.read(end - begin) + rest
        if end == size:
            if not read.endswith(b"\n"):
                raise ValueError("its last line is incomplete; move the file away, and the site starts a new one")
            read = read[:-1]
        rest, *lines = read.split(b"\n")
        yield from reversed(lines)
        end = begin
    if size:
        yield rest


def _store(file: BinaryIO, identity: str, arrays: Mapping[str, AnyArray]) -> None:
    """Write a reply's arrays and its `identity_of` to an .npz file."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(IDENTITY, identity)
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _append(file: FileIO, line: bytes) -> None:
    """Append a line completely or not at all, since no line may follow a partial one."""
    size = file.seek(0, os.SEEK_END)
    try:
        if file.write(line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        file.truncate(size)
        raise


def check_outbox(folder: Path) -> Totals:
    """Return the totals in a folder's outbox, which may be missing. Raises InputError if no line can be appended."""
    try:
        with open(folder / OUTBOX, "a+b", buffering=0, opener=open_for_owner) as file:
            return _end_of(file).progress.total
    except (OSError, ValueError) as error:
        raise InputError(f"{folder / OUTBOX}: {error}") from None
