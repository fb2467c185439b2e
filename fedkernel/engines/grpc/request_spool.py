"""Temporary file with the current run's requests, to send them again to restarted sites."""

import os
import struct
import tempfile
from contextlib import suppress
from typing import BinaryIO

from fedkernel.engines.grpc.frames import Envelope

SPOOL_BYTES = 1 << 33  # most bytes of a run's requests; beyond them, a restarted process cannot repeat the run

_RECORD = struct.Struct(">QQQI36s")


class Spool:
    """Anonymous temporary file of requests, in the folder of TMPDIR, that vanishes with its process.

    A record has a request's id, its site's own part, and the position of its content, which is written once for a
    broadcast. A site's records form a chain, so that memory does not grow with the rounds.
    """

    def __init__(self) -> None:
        self._file: BinaryIO | None = None
        self.clear()

    def clear(self) -> None:
        """Discard all requests, and delete the file."""
        self.size = 0
        self._content: tuple[bytes | bytearray, ...] = ()
        self._place = 0
        if self._file is not None:
            with suppress(OSError):  # closing retries a write that failed on a full disk
                self._file.close()
            self._file = None

    def __del__(self) -> None:
        """Delete the file of a grid that was never closed."""
        self.clear()

    def keep(self, previous: int | None, envelope: Envelope) -> int:
        """Append a request, and return its position in the file.

        `previous`: position of the same site's previous request. `envelope`: parts from the third on are the content
        (`fedkernel.wire.flower_internals.to_parts`). Raises OSError beyond the size limit or on a full disk.
        """
        head, content = b"".join(envelope.parts[:2]), envelope.parts[2:]
        if len(content) != len(self._content) or any(a is not b for a, b in zip(content, self._content, strict=True)):
            self._content, self._place = (), self._write(*content)
            self._content = content
        before = 0 if previous is None else previous + 1
        size = sum(map(len, content))
        return self._write(_RECORD.pack(before, self._place, size, len(head), envelope.id.encode()) + head)

    def places(self, last: int | None) -> dict[str, int]:
        """Return the positions of a site's requests in the file by id, oldest first. `last`: that of the latest."""
        chain: list[tuple[str, int]] = []
        while last is not None:
            before, *_, identifier = self._record(last)
            chain.append((identifier.decode(), last))
            last = before - 1 if before else None
        return dict(reversed(chain))

    def at(self, place: int) -> Envelope:
        """Return the request at a position."""
        _, content, size, head, identifier = self._record(place)
        parts = self._read(place + _RECORD.size, head), self._read(content, size)
        return Envelope(identifier.decode(), parts)

    def _record(self, place: int) -> tuple[int, int, int, int, bytes]:
        before, content, size, head, identifier = _RECORD.unpack(self._read(place, _RECORD.size))
        return before, content, size, head, identifier

    def _write(self, *parts: bytes | bytearray) -> int:
        """Append bytes, and return their position; an incomplete write is overwritten by the next."""
        length = sum(map(len, parts))
        if self.size + length > SPOOL_BYTES:
            raise OSError(f"the requests of a run have more than {SPOOL_BYTES:,} bytes")
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="fedkernel-requests-")  # noqa: SIM115 - `close` does
        self._file.seek(self.size)
        self._file.writelines(parts)
        self._file.flush()
        place, self.size = self.size, self.size + length
        return place

    def _read(self, place: int, length: int) -> bytes:
        return os.pread(self._file.fileno(), length, place) if self._file is not None else b""
