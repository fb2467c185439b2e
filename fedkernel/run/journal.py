"""Append-only journal of a run's replies, for the resumption of a stopped run.

A protocol is deterministic: the same run and replies give the same requests and result. A resumed run is fed the
recorded replies without sending anything, and sends requests from there on: the result has the same bits.

An exchange holds the hash of its requests, each client's reply as received (or only the sum, in a summed round), and
the ledger's entries. Where sites outlive this process, an exchange is written and synchronised before the next request
is computed. Where they end with it, a second's exchanges form one record, with the changes of the sites' memory up to
the last of them; later computations are repeated.

Each record has its length and a SHA-256 over itself and its predecessor's, so a truncated or damaged file ends at its
last whole record. The first record is the header: a journal of other data, settings or versions is set aside, and never
used. Only its owner may read the file, which holds nothing that the coordinator has not received.
"""

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import secrets
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

from flwr.app import Message, RecordDict

from fedkernel.ground import InputError, open_for_owner, sync_folder
from fedkernel.wire import answer_hash, content_digest, flower_internals

log = logging.getLogger(__name__)

NAME, ASIDE = "journal", "journal.aside"
"""Names of the journal in a run's folder, and of one that was set aside as it did not fit the run."""

MOST_BYTES = 1 << 32  # largest size of a journal in bytes; beyond it, the run goes on without one
MOST_UNWRITTEN_BYTES = 1 << 24  # bytes of unwritten replies beyond which they are written at once

_HEAD = struct.Struct(">QI32s")
"""Head of a record: number of bytes that follow, number of these in its description, and SHA-256."""


class Exchange(NamedTuple):
    """Recorded requests and replies of one round.

    `requests`: their `requests_hash`. `nodes`: nodes that answered, in the order of `contents` unless these are summed.
    `account`: further values for the reader, as JSON. `contents`: of the replies, or of their sum.
    """

    requests: str
    nodes: list[int]
    account: dict[str, Any]
    contents: list[bytes]

    @property
    def summed(self) -> bool:
        """True if only the sum of the replies is recorded."""
        return len(self.contents) < len(self.nodes)

    def answer_of(self, node: int) -> str:
        """Return the `answer_hash` of a node's reply, or an empty text if only the sum is recorded."""
        if self.summed:
            return ""
        return answer_hash(flower_internals.content_from_bytes(self.contents[self.nodes.index(node)]))

    def check_again(self, node: int, called: str, reply: Message | None) -> None:
        """Raise RecordMismatchError unless a restarted node's reply equals the recorded one; `called`: its name."""
        if reply is None or reply.has_error():
            raise RecordMismatchError(f"{called} was restarted and does not repeat its recorded answer")
        if not self.summed and answer_hash(reply.content) != self.answer_of(node):
            raise RecordMismatchError(f"{called} was restarted, and its answer differs from the recorded one")


class Journal:
    """File with the recorded rounds of one run, which replays them and appends new ones.

    - `folder`: the run's. `header`: identity of the journal (`fedkernel.run.journal_header`); a file with another one
      is set aside. `every`: seconds between two writes; 0: each exchange is written before the next.
    - `answered`: number of requests that each node has answered.
    - `pending`: `requests_hash` of the last looked-up requests; empty once their replies are recorded.
    - `asked_again`: number of recorded exchanges that restarted sites had to answer again.
    - `beginning`: random id of this start of the run, kept on resuming; sites note their tables by it.
    - `resumed`: place from which the run was resumed; empty if it was not.
    """

    def __init__(self, folder: Path, header: Mapping[str, Any], every: float = 0.0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / NAME
        self._every = every
        self._begin()
        self._header = json.loads(json.dumps(header, default=repr))
        self._file = self._opened()
        self._read()

    def _begin(self) -> None:
        self.answered: Counter[int] = Counter()
        self.beginning = secrets.token_hex(16)
        self.pending = self.resumed = ""
        self.asked_again = 0
        self._count = self._replayed = 0  # numbers of recorded exchanges, and of those replayed
        self._waiting: list[Exchange] = []  # to be written
        self._waiting_bytes, self._written = 0, time.monotonic()
        self._chain, self._end = b"", 0
        self._recorded: Iterator[Exchange] = iter(())

    def _opened(self) -> FileIO:
        file = FileIO(self.path, "a+", opener=open_for_owner)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise InputError(f"{self.path} is locked: a different process executes this run") from None
        return file

    def _read(self) -> None:
        """Find the complete records, truncate the file after them, and compare the header with this run's."""
        size, header = os.fstat(self._file.fileno()).st_size, None
        while (record := self._record_at(self._end, self._chain)) is not None:
            description, chain = record
            if header is None:
                header = dict(description)
                self.beginning = header.pop("beginning", "")
            else:
                for exchange in description["exchanges"]:
                    self.answered.update(exchange["nodes"])
                self._count += len(description["exchanges"])
            self._chain, self._end = chain, self._file.tell()
        if self._end < size:
            log.warning(
                "%s is damaged or cut off after %d recorded exchanges; the rest is ignored", *(self.path, self._count)
            )
            self._file.truncate(self._end)
        if header is None:
            self._write_header()
        elif header != self._header:
            differing = [name for name in {**header, **self._header} if header.get(name) != self._header.get(name)]
            self.set_aside(f"it is of a different run ({', '.join(differing)})")
        self._recorded = (exchange for exchanges, _ in self._records() for exchange in exchanges)

    def _record_at(self, place: int, chain: bytes) -> tuple[dict[str, Any], bytes] | None:
        """Return description and hash of the record at a position, or None if no complete record begins there."""
        self._file.seek(place)
        head = self._file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return None
        length, described, sha256 = _HEAD.unpack(head)
        if length > os.fstat(self._file.fileno()).st_size - self._file.tell() or described > length:
            return None
        body = self._file.read(length)
        if len(body) < length or _hash(chain, described, [body]) != sha256:
            return None
        return json.loads(body[:described]), sha256

    def __len__(self) -> int:
        return self._count

    def checkpoints(self) -> Iterator[bytes]:
        """Yield each record's changes in the memory of sites within this process."""
        return (sites for _, sites in self._records())

    def _records(self) -> Iterator[tuple[list[Exchange], bytes]]:
        """Yield each record's exchanges and changes in the sites' memory."""
        place, end = 0, self._end
        while place < end:
            self._file.seek(place)
            length, described, _ = _HEAD.unpack(self._file.read(_HEAD.size))
            body = self._file.read(length)
            place, read = self._file.tell(), described
            exchanges = []
            for description in json.loads(body[:described]).get("exchanges", ()):  # the header has none
                contents = []
                for size in description.pop("sizes"):
                    contents.append(body[read : read + size])
                    read += size
                exchanges.append(Exchange(contents=contents, **description))
            yield exchanges, body[read:]

    def next(self, requests: str) -> Exchange | None:
        """Return the next recorded exchange, or None at the end. Raises RecordMismatchError if its requests differ."""
        self.pending = requests
        if (exchange := next(self._recorded, None)) is None:
            return None
        if exchange.requests != requests:
            raise RecordMismatchError(f"its exchange {self._replayed + 1} is of a different request")
        self._replayed += 1
        self.pending = ""
        return exchange

    @property
    def replays(self) -> bool:
        """True between the first replayed exchange and the first new request."""
        return self._replayed > 0 and not self.resumed

    def log_resumption(self, where: str) -> None:
        """Log once, at the first exchange that is not recorded, that the run was resumed at the round `where`."""
        if self.replays:
            self.resumed = where
            again = f", {self.asked_again} of them repeated by restarted sites" if self.asked_again else ""
            run, count = self._header["run"], self._replayed
            log.info("%s: resumed at %s, after %d recorded exchanges%s", run, where, count, again)

    def add(self, exchange: Exchange, checkpoint: Callable[[], bytes]) -> None:
        """Append an exchange, at once or with the next write. `checkpoint`: returns changes in the sites' memory."""
        if self._file.closed:
            return
        self._count += 1
        self.pending = ""
        self._waiting.append(exchange)
        self._waiting_bytes += sum(map(len, exchange.contents))
        if time.monotonic() - self._written >= self._every or self._waiting_bytes > MOST_UNWRITTEN_BYTES:
            self._write_waiting(checkpoint())

    def _write_waiting(self, sites: bytes) -> None:
        """Write all waiting exchanges as one record, with the changes in the sites' memory."""
        place = self._end
        if place + self._waiting_bytes + len(sites) > MOST_BYTES:
            log.warning("%s would be larger than %d bytes; the run goes on without one", self.path, MOST_BYTES)
            self.remove()
            return
        exchanges = [
            {name: value for name, value in exchange._asdict().items() if name != "contents"}
            | {"sizes": [len(content) for content in exchange.contents]}
            for exchange in self._waiting
        ]
        contents = [content for exchange in self._waiting for content in exchange.contents]
        try:
            self._write({"exchanges": exchanges}, [*contents, sites])
        except OSError as error:
            log.warning("%s cannot be written: %s; the run goes on without a journal", self.path, error)
            self._file.truncate(place)
            self.close()
            return
        for exchange in self._waiting:
            self.answered.update(exchange.nodes)
        self._waiting, self._waiting_bytes, self._written = [], 0, time.monotonic()

    def _write_header(self) -> None:
        try:
            self._write({**self._header, "beginning": self.beginning}, [])
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from None
        sync_folder(self.path.parent)  # or a power cut may lose the whole file

    def _write(self, description: Mapping[str, Any], contents: Sequence[bytes]) -> None:
        text = json.dumps(description).encode()
        parts, length = [text, *contents], len(text) + sum(map(len, contents))
        chain = _hash(self._chain, len(text), parts)
        for part in (_HEAD.pack(length, len(text), chain), *parts):
            written = 0
            while written < len(part):
                written += self._file.write(memoryview(part)[written:])
        os.fdatasync(self._file.fileno())
        self._chain, self._end = chain, self._end + _HEAD.size + length

    def set_aside(self, why: str) -> None:
        """Set the journal's file aside under a new name, log why, and begin a new file."""
        log.warning("%s is set aside as %s, and the run begins anew: %s", self.path, ASIDE, why)
        self.path.replace(self.path.with_name(ASIDE))
        self._file.close()
        self._file = self._opened()
        self._begin()
        self._write_header()

    def close(self) -> None:
        """Close the file, which stays; exchanges not yet written are lost."""
        self._file.close()

    def remove(self) -> None:
        """Delete the file before its lock is released, so that no other process resumes from it."""
        remove_journal(self.path.parent)
        self._file.close()


class RecordMismatchError(Exception):
    """Difference between a resumed run's request or reply and its record in the journal."""


def _hash(chain: bytes, described: int, parts: Iterable[bytes]) -> bytes:
    sha256 = hashlib.sha256(chain + struct.pack(">I", described))
    for part in parts:
        sha256.update(part)
    return sha256.digest()


def remove_journal(folder: Path) -> None:
    """Delete a run's journals, once the run has a result or must not be resumed."""
    for name in (NAME, ASIDE):
        with contextlib.suppress(FileNotFoundError):
            (folder / name).unlink()


def content_to_bytes(content: RecordDict) -> bytes:
    """Serialise the content of a reply for the journal."""
    return b"".join(flower_internals.content_to_parts(content))


def requests_hash(messages: Iterable[Message]) -> str:
    """Return the SHA-256 of a round's requests, with their nodes and kinds."""
    digests: dict[int, str] = {}  # most rounds send all nodes the same content
    addressed = []
    for message in messages:
        if (content := id(message.content)) not in digests:
            digests[content] = content_digest(message.content)
        addressed.append((message.metadata.dst_node_id, message.metadata.message_type, digests[content]))
    return hashlib.sha256(json.dumps(addressed).encode()).hexdigest()
