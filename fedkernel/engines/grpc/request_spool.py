"""The requests of the run under way, kept for sites whose processes are restarted, in a file without a name."""

import os
import struct
import tempfile
from contextlib import suppress
from typing import BinaryIO

from fedkernel.engines.grpc.frames import Envelope

SPOOL_BYTES = 1 << 33
"""Of a run's requests; beyond, a process that was restarted cannot be asked for all of its run again."""

_RECORD = struct.Struct(">QQQI36s")


class Spool:
    """A temporary file, in the folder that TMPDIR names, which ends with its process, however that ends.

    A record has a request's id, what it says to its site alone, and where its content is: that of a broadcast is
    written once. Records of a site are a chain, so that nothing in memory grows with the rounds.
    """

    def __init__(self) -> None:
        self._file: BinaryIO | None = None
        self.clear()

    def clear(self) -> None:
        """Forget all, as a run begins or the last has ended, and give the file back."""
        self.size = 0
        self._content: tuple[bytes | bytearray, ...] = ()
        self._place = 0
        if self._file is not None:
            with suppress(OSError):  # what a full disk has not taken is tried once more as the file is closed
                self._file.close()
            self._file = None

    def __del__(self) -> None:
        """Give the file back of a hub that was never closed."""
        self.clear()

    def keep(self, previous: int | None, envelope: Envelope) -> int:
        """Keep a request.

        `previous`: the place of the same site's request before. `envelope`: its parts from the third on are its
        content, as `fedkernel.wire.flower.to_parts` makes it. Returns its place. Raises OSError if there is no room for
        it, by the limit or on the disk.
        """
        head, content = b"".join(envelope.parts[:2]), envelope.parts[2:]
        if len(content) != len(self._content) or any(a is not b for a, b in zip(content, self._content, strict=True)):
            self._content, self._place = (), self._write(*content)
            self._content = content
        before = 0 if previous is None else previous + 1
        size = sum(map(len, content))
        return self._write(_RECORD.pack(before, self._place, size, len(head), envelope.id.encode()) + head)

    def places(self, last: int | None) -> list[int]:
        """Return the places of a site's requests, the first one first."""
        chain: list[int] = []
        while last is not None:
            chain.append(last)
            before = self._record(last)[0]
            last = before - 1 if before else None
        return chain[::-1]

    def id_at(self, place: int) -> str:
        """Return the id of a request."""
        return self._record(place)[4].decode()

    def at(self, place: int) -> Envelope:
        """Return a request."""
        _, content, size, head, identifier = self._record(place)
        parts = self._read(place + _RECORD.size, head), self._read(content, size)
        return Envelope(identifier.decode(), parts)

    def _record(self, place: int) -> tuple[int, int, int, int, bytes]:
        before, content, size, head, identifier = _RECORD.unpack(self._read(place, _RECORD.size))
        return before, content, size, head, identifier

    def _write(self, *parts: bytes | bytearray) -> int:
        """Append something; what could not be written whole is not counted."""
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
