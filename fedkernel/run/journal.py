"""A run's replies as they came, in one file that is only added to, so that the same command goes on where it stopped.

A protocol is pure: given the same run and the same replies it does the same. So a run is resumed by handing its course
the replies again that are recorded, without asking anybody, and asking from there on: the result has the same bits.

Of each exchange it has what was asked, as a hash; what each client replied, as it came, or of a round that is summed
nothing but the sum; and the ledger's entries. Where sites outlive this process, an exchange is written down and
synchronised before the next request is computed. Where they end with it, the exchanges of a second are one record, with
what has changed in the sites' memory until the last of them; what was computed since is computed again.

Each record has its length and the SHA-256 of itself and of the one before, so a file that was cut off or damaged ends
at its last whole record. The first says whose journal it is: one of other data, settings or versions is set aside, and
never used.

What stands in it the coordinator has seen, and no more: addends of a sum are not in it. Only its owner may read it.
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

from fedkernel.ground import InputError, owner_only, synchronise
from fedkernel.wire import answer_hash, content_digest, flower

log = logging.getLogger(__name__)

NAME, ASIDE = "journal", "journal.aside"
"""The file in a run's folder, and where one is put that does not fit the run."""

MOST_BYTES = 1 << 32
"""Of a journal: a run that would write more goes on without one."""

MOST_WAITING = 1 << 24
"""Bytes of replies that wait to be written: with more, they are."""

_HEAD = struct.Struct(">QI32s")
"""Of a record: the bytes that follow, how many of these are its description, and the SHA-256."""


class Exchange(NamedTuple):
    """What is written down of one exchange.

    - `requests`: what `requests_hash` is of them.
    - `nodes`: that answered, in the order of `contents` unless these are summed.
    - `account`: what else its reader wants to know again, as JSON has it.
    - `contents`: of replies, or of their sum.
    """

    requests: str
    nodes: list[int]
    account: dict[str, Any]
    contents: list[bytes]

    @property
    def summed(self) -> bool:
        """Whether only the sum of the replies is recorded."""
        return len(self.contents) < len(self.nodes)

    def answer_of(self, node: int) -> str:
        """Return what `answer_hash` is of what a node has replied; empty: only a sum is known."""
        return "" if self.summed else answer_hash(flower.content_from_bytes(self.contents[self.nodes.index(node)]))

    def check_again(self, node: int, called: str, reply: Message | None) -> None:
        """Raise StrayError unless a node that texts call so has answered again what it had answered."""
        if reply is None or reply.has_error():
            raise StrayError(f"{called}, which was restarted, does not answer again what it had answered")
        if not self.summed and answer_hash(reply.content) != self.answer_of(node):
            raise StrayError(f"{called}, which was restarted, answers otherwise than is recorded of it")


class Journal:
    """The journal of one run.

    - `answered`: how many requests each node has answered.
    - `pending`: what `requests_hash` is of the requests that were looked up last; empty: what was replied to these is
      recorded.
    - `asked_again`: how many of the exchanges that it has were asked again of sites that did not stand where it ends.
    - `beginning`: tells this beginning of the run from any other, also after the run was resumed: sites note their
      tables by it.
    - `resumed`: from where the run went on, once it has; empty: it did not.

    `folder`: the run's. `header`: whose journal it is, see `fedkernel.run.journal_header`; another one's is set aside.
    `every`: seconds from one writing to the next; 0: each exchange is written before the next.
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
        """Know of no record."""
        self.answered: Counter[int] = Counter()
        self.beginning = secrets.token_hex(16)
        self.pending = self.resumed = ""
        self.asked_again = 0
        self._count = self._replayed = 0  # exchanges that are known, and those that were handed out again
        self._waiting: list[Exchange] = []  # to be written
        self._waiting_bytes, self._written = 0, time.monotonic()
        self._chain, self._end = b"", 0
        self._first = 0  # where the record after the header begins
        self._recorded: Iterator[Exchange] = iter(())

    # --- what is there

    def _opened(self) -> FileIO:
        file = FileIO(self.path, "a+", opener=owner_only)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise InputError(f"{self.path} is being written: another process carries this run out") from None
        return file

    def _read(self) -> None:
        """Find the whole records, leave out what comes after them, and see whether they are of this run."""
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
            self._first = self._first or self._end
        if self._end < size:
            log.warning(
                "%s is damaged or was cut off after %d recorded exchanges; what follows is left out",
                *(self.path, self._count),
            )
            self._file.truncate(self._end)
        if header is None:
            self._write_header()
        elif header != self._header:
            differing = [name for name in {**header, **self._header} if header.get(name) != self._header.get(name)]
            self.set_aside(f"it is of another run ({', '.join(differing)})")
        self._recorded = (exchange for exchanges, _ in self._records() for exchange in exchanges)

    def _record_at(self, place: int, chain: bytes) -> tuple[dict[str, Any], bytes] | None:
        """Return the description and the hash of the record at a place; None: there is no whole one."""
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
        """Yield what has changed in the memory of sites that end with this process, from one record to the next."""
        return (sites for _, sites in self._records())

    def _records(self) -> Iterator[tuple[list[Exchange], bytes]]:
        """Yield of each record its exchanges and what has changed at the sites."""
        place, end = self._first, self._end
        while place < end:
            self._file.seek(place)
            length, described, _ = _HEAD.unpack(self._file.read(_HEAD.size))
            body = self._file.read(length)
            place, read = self._file.tell(), described
            exchanges = []
            for description in json.loads(body[:described])["exchanges"]:
                contents = []
                for size in description.pop("sizes"):
                    contents.append(body[read : read + size])
                    read += size
                exchanges.append(Exchange(contents=contents, **description))
            yield exchanges, body[read:]

    # --- what the course of a run does

    def next(self, requests: str) -> Exchange | None:
        """Return what was replied to requests, of which this is the hash; None: they were not sent yet.

        Raises StrayError if something else was asked there.
        """
        self.pending = requests
        if (exchange := next(self._recorded, None)) is None:
            return None
        if exchange.requests != requests:
            raise StrayError(f"its exchange {self._replayed + 1} is of another request")
        self._replayed += 1
        self.pending = ""
        return exchange

    @property
    def replays(self) -> bool:
        """Whether what was recorded has been handed out, and nothing was asked since."""
        return self._replayed > 0 and not self.resumed

    def note_live(self, where: str) -> None:
        """Say from where the run goes on, if what came before was recorded and this is the first that is not."""
        if self.replays:
            self.resumed = where
            again = f", {self.asked_again} of them asked again of restarted sites" if self.asked_again else ""
            run, count = self._header["run"], self._replayed
            log.info("%s: resumed at %s, after %d recorded exchanges%s", run, where, count, again)

    def add(self, exchange: Exchange, checkpoint: Callable[[], bytes]) -> None:
        """Write an exchange down, for good, or have it wait to be written with those of the next moments.

        `checkpoint` returns what has changed in the memory of sites since it was called last.
        """
        if self._file.closed:
            return
        self._count += 1
        self.pending = ""
        self._waiting.append(exchange)
        self._waiting_bytes += sum(map(len, exchange.contents))
        if time.monotonic() - self._written >= self._every or self._waiting_bytes > MOST_WAITING:
            self._write_waiting(checkpoint())

    def _write_waiting(self, sites: bytes) -> None:
        """Write the exchanges that wait, as one record."""
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
            log.warning("%s cannot be written: %s; the run goes on, and is not recorded any more", self.path, error)
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
        synchronise(self.path.parent)  # or the file may be gone after a power cut, with all that is in it
        self._first = self._end

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

    # --- its end

    def set_aside(self, why: str) -> None:
        """Put it aside, say why, and begin anew."""
        log.warning("%s is set aside as %s, and the run begins anew: %s", self.path, ASIDE, why)
        self.path.replace(self.path.with_name(ASIDE))
        self._file.close()
        self._file = self._opened()
        self._begin()
        self._write_header()

    def close(self) -> None:
        """Let go of the file, which stays; of exchanges that wait nobody knows any more where the sites stand."""
        self._file.close()

    def remove(self) -> None:
        """Remove the file, and only then let go of it: nobody else goes on with it meanwhile."""
        remove_journal(self.path.parent)
        self._file.close()


class StrayError(Exception):
    """A run asks something else than is recorded of it."""


def _hash(chain: bytes, described: int, parts: Iterable[bytes]) -> bytes:
    sha256 = hashlib.sha256(chain + struct.pack(">I", described))
    for part in parts:
        sha256.update(part)
    return sha256.digest()


def remove_journal(folder: Path) -> None:
    """Remove what a run's folder holds of journals: its result is there, or nobody is to go on with it."""
    for name in (NAME, ASIDE):
        with contextlib.suppress(FileNotFoundError):
            (folder / name).unlink()


def content_to_bytes(content: RecordDict) -> bytes:
    """Return a reply's content as it is recorded."""
    return b"".join(flower.content_to_parts(content))


def requests_hash(messages: Iterable[Message]) -> str:
    """Return the SHA-256 of what is asked of nodes."""
    digests: dict[int, str] = {}  # most rounds ask everybody the same
    addressed = []
    for message in messages:
        if (content := id(message.content)) not in digests:
            digests[content] = content_digest(message.content)
        addressed.append((message.metadata.dst_node_id, message.metadata.message_type, digests[content]))
    return hashlib.sha256(json.dumps(addressed).encode()).hexdigest()
