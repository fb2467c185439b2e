"""Wire format of a gRPC stream: messages of any size in chunks, heartbeats, and the server's notes.

A message's first frame has its id and length. gRPC's flow control acts between the chunks, and its own limit on the
size of a frame is never reached.
"""

import queue
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated

import pydantic

from fedkernel.engines.grpc.defaults import MAX_MESSAGE_BYTES

VERSION = 2  # version of this format; both ends must have the same

METHOD = "/fedkernel.Hub/Connect"
NAME, INSTANCE, TRANSPORT = "fedkernel-site", "fedkernel-instance", "fedkernel-transport"
"""Metadata names of a call: the site's name, a random id of its process, and the version."""

POSITION = "fedkernel-stands"
"""Metadata name for a node that remembers a run: the run's `RunSpec.key` and number of answered requests."""

LAST_REQUEST = "fedkernel-taken"  # metadata name for a node that reconnects: id of the last request that it received

CHUNK = 1 << 20

MAX_NOTE_BYTES = 2 * CHUNK - 1024  # most bytes of a note: gRPC's limit in `OPTIONS`, less its overhead

OPTIONS = [
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 2 * CHUNK),
    ("grpc.max_send_message_length", 2 * CHUNK),
    ("grpc.compression_enabled_algorithms_bitset", 1),  # none: 2 MiB could be a frame of a thousand times as many
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
]
"""gRPC options of channel and server; a lost connection is noticed after 40 to 60 s without data.

The keepalive ping follows at the first turn of 20 s without data, 20 to 40 s after the last. The last option is the
shortest interval of pings that a server accepts: by default a site that computes for two minutes would be disconnected.
"""

_NOTE, _FIRST, _MORE = b"\0", b"\1", b"\2"
_HEAD = struct.Struct(">36sQ")


HEARTBEAT = b"\3"  # heartbeat frame, which the other end sends back; allowed between the frames of a message


@dataclass(frozen=True)
class Envelope:
    """Serialised Flower message in parts, with the id of the request that it is or answers. A file's id is empty."""

    id: str
    parts: tuple[bytes | bytearray, ...]

    @property
    def size(self) -> int:
        """Total bytes of all parts."""
        return sum(map(len, self.parts))


class FrameError(Exception):
    """Violation of the wire format or size limit by the other end of a stream."""


FileName = Annotated[str, pydantic.StringConstraints(pattern=r"^[\w=,+-][\w.=,+-]*\.npz$", max_length=255)]


class Welcome(pydantic.BaseModel, extra="forbid", frozen=True, strict=True):
    """Server's first note to a site.

    `client`, `clients`: the site's number, and the number of sites. `job`: JSON for Flower's run configuration of each
    app. `limit`: most bytes of a message. `files`: names of all files that the server may send to be stored.
    """

    client: Annotated[int, pydantic.Field(ge=0)]
    clients: Annotated[int, pydantic.Field(ge=1)]
    job: str
    limit: Annotated[int, pydantic.Field(ge=1, le=MAX_MESSAGE_BYTES)]
    files: list[FileName] = []


class Note(pydantic.BaseModel, extra="forbid", frozen=True, strict=True):
    """Server's control message: a welcome, the name of a file that follows, or the end of work (empty: success)."""

    welcome: Welcome | None = None
    file: FileName | None = None
    end: str | None = None

    @pydantic.model_validator(mode="after")
    def _has_one_field(self) -> "Note":
        if len(self.model_fields_set) != 1:
            raise ValueError("a note must have exactly one field")
        return self

    @property
    def frame(self) -> bytes:
        """Serialised note, as a frame."""
        return _NOTE + self.model_dump_json(exclude_unset=True).encode()


def frames(envelope: Envelope) -> Iterator[bytes]:
    """Yield the frames of a message, in chunks of `CHUNK` bytes."""
    head = _FIRST + _HEAD.pack(envelope.id.encode(), envelope.size)
    chunks: list[memoryview] = []
    left = CHUNK
    for part in envelope.parts:
        view = memoryview(part)
        while len(view) > left:
            yield b"".join((head, *chunks, view[:left]))
            head, chunks, view, left = _MORE, [], view[left:], CHUNK
        chunks.append(view)
        left -= len(view)
    if head != _MORE or any(chunks):
        yield b"".join((head, *chunks))


@dataclass
class FrameDecoder:
    """Decoder of received frames; its memory grows with the bytes received, not with the announced length.

    `limit`: most bytes of a message. `notes`: the other end may send notes. `is_awaited`: decides by a message's id
    whether it is stored; of others only the length is counted.
    """

    limit: int = MAX_MESSAGE_BYTES
    notes: bool = False
    is_awaited: Callable[[str], bool] = lambda message_id: True

    def __post_init__(self) -> None:
        self._id = ""
        self._data: bytearray | None = None
        self._left = 0

    def decode(self, frame: bytes) -> Envelope | Note | bytes | None:
        """Decode a frame to a note, `HEARTBEAT` or the message that it completes, else None. Raises FrameError."""
        if frame == HEARTBEAT:
            return HEARTBEAT
        kind, body = frame[:1], memoryview(frame)[1:]
        if kind == _NOTE and self.notes and not self._left:
            try:
                return Note.model_validate_json(bytes(body))
            except pydantic.ValidationError:
                raise FrameError("it sent an invalid note") from None
        if kind == _FIRST and not self._left and len(body) >= _HEAD.size:
            identifier, self._left = _HEAD.unpack_from(body)
            if self._left > self.limit:
                text = f"it announced a message of {self._left:,} bytes; allowed are {self.limit:,} (--max-message)"
                raise FrameError(text)
            self._id, body = identifier.decode("ascii", "replace"), body[_HEAD.size :]
            self._data = bytearray() if self.is_awaited(self._id) else None
        elif kind != _MORE or not self._left:
            raise FrameError("it sent a frame out of order")
        if len(body) > self._left or (self._left and not len(body)):
            raise FrameError("the number of bytes that it sent differs from the announced one")
        self._left -= len(body)
        if self._data is None:
            return None
        self._data += body
        if self._left:
            return None
        data, self._data = self._data, None
        return Envelope(self._id, (data,))


@dataclass(frozen=True)
class ResumeState:
    """Resume state of a node: key of the run that it remembers, and number of answered requests."""

    run: str = ""
    answered: int = 0

    @property
    def text(self) -> str:
        """Value of the call metadata `POSITION`; empty if no run is remembered."""
        return f"{self.run} {self.answered}" if self.run else ""


class ReplyQueue:
    """Queue of a stream's replies, sent as frames and interleaved with heartbeat answers."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Envelope | bytes | None] = queue.SimpleQueue()
        self._asked = False

    def put(self, envelope: Envelope | None) -> None:
        """Queue a reply; None ends the stream."""
        self._queue.put(envelope)

    def answer(self) -> None:
        """Send a heartbeat back before the next frame."""
        self._asked = True
        self._queue.put(HEARTBEAT)  # wakes a `frames` that waits

    def frames(self) -> Iterator[bytes]:
        """Yield frames until the queue is closed."""
        while (item := self._queue.get()) is not None:
            for frame in frames(item) if isinstance(item, Envelope) else ():
                yield frame
                yield from self._answers()
            yield from self._answers()

    def _answers(self) -> Iterator[bytes]:
        if self._asked:
            self._asked = False
            yield HEARTBEAT
