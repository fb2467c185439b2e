"""What travels in the two directions of a gRPC stream: messages of any size in chunks, and notes between the ends.

A message's first frame says which message it is, and how long; gRPC's flow control acts between the chunks, and its own
limit on the size of a frame is never met.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

VERSION = 1
"""Version of this form; both ends must have the same."""

METHOD = "/fedkernel.Hub/Connect"
NAME, INSTANCE, SPOKEN = "fedkernel-site", "fedkernel-instance", "fedkernel-transport"
"""Metadata with which a node calls: its site's name, a number for its process's life, and the version."""

CHUNK = 1 << 20
LIMIT = (1 << 31) - 1
"""Bytes of a message: protobuf's own limit."""

OPTIONS = [
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 2 * CHUNK),
    ("grpc.max_send_message_length", 2 * CHUNK),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
]
"""Of channel and server: the other end is known to be gone after 40 s in which nothing comes back."""

_NOTE, _FIRST, _MORE = b"\0", b"\1", b"\2"
_HEAD = struct.Struct(">36sQ")


@dataclass(frozen=True)
class Letter:
    """A whole message: Flower's, serialised, in parts, under the id of the message that it is or that it answers."""

    id: str
    parts: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """Its bytes."""
        return sum(map(len, self.parts))


class FrameError(Exception):
    """The other end sent what is no frame, or more than it may."""


def frames(letter: Letter) -> Iterator[bytes]:
    """Yield the frames of a message."""
    head = _FIRST + _HEAD.pack(letter.id.encode(), letter.size)
    chunks: list[memoryview] = []
    left = CHUNK
    for part in letter.parts:
        view = memoryview(part)
        while len(view) > left:
            yield b"".join((head, *chunks, view[:left]))
            head, chunks, view, left = _MORE, [], view[left:], CHUNK
        chunks.append(view)
        left -= len(view)
    if head != _MORE or any(chunks):
        yield b"".join((head, *chunks))


def note(**fields: Any) -> bytes:
    """Return the frame of a note."""
    return _NOTE + json.dumps(fields).encode()


class Inbox:
    """Puts frames together.

    Parameters
    ----------
    limit : int
        Bytes that a message may have.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._id = ""
        self._parts: list[memoryview] = []
        self._left = 0

    def take(self, frame: bytes) -> Letter | dict[str, Any] | None:
        """Return the message that this frame completes, or the note that it is; None: more is to come.

        Raises
        ------
        FrameError
        """
        kind, body = frame[:1], memoryview(frame)[1:]
        if kind == _NOTE and not self._left:
            try:
                return dict(json.loads(bytes(body)))
            except ValueError:
                raise FrameError("it sent a note that cannot be read") from None
        if kind == _FIRST and not self._left and len(body) >= _HEAD.size:
            identifier, self._left = _HEAD.unpack_from(body)
            if self._left > self._limit:
                raise FrameError(f"it announced a message of {self._left:,} bytes; allowed are {self._limit:,}")
            self._id, self._parts, body = identifier.decode("ascii", "replace"), [], body[_HEAD.size :]
        elif kind != _MORE or not self._left:
            raise FrameError("it sent a frame out of order")
        if len(body) > self._left or (self._left and not len(body)):
            raise FrameError("it sent another number of bytes than it announced")
        self._parts.append(body)
        self._left -= len(body)
        return None if self._left else Letter(self._id, (b"".join(self._parts),))
