"""A site's end: a process that joins the server under its name, keeps its memory, and answers what it is asked."""

import logging
import queue
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import grpc
from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp

from fedkernel.certificates import TLS
from fedkernel.engines import _flower
from fedkernel.engines.apps import answer
from fedkernel.engines.grpc.frames import (
    INSTANCE,
    LIMIT,
    METHOD,
    NAME,
    OPTIONS,
    SPOKEN,
    VERSION,
    FrameError,
    Inbox,
    Letter,
    frames,
)
from fedkernel.errors import EngineError
from fedkernel.site import FAILED

log = logging.getLogger(__name__)

PATIENCE = 600.0
"""Seconds for which a node tries to connect, again and again, before it gives up."""

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
"""Seconds before the second attempt to connect, doubled for each further one up to the longest."""

_REFUSED = {
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,
}
_UNTRUSTED = {
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not of the authority in ca.crt, has expired or is of another host",
    "WRONG_VERSION_NUMBER": "it does not speak TLS; is it run with --insecure?",
    "Hostname Verification": "its certificate is of another host",
}
_FILE = re.compile(r"[\w.=,+-]+\.npz")

CLOSINGS = 5
"""So many connections that are closed at once in a row, without a word, mean that the server wants something else."""


@dataclass
class Node:
    """One site's process.

    Parameters
    ----------
    app : ClientApp
    name : str
        The site's.
    config : mapping
        Flower's node configuration: where the site's data are, and the like.
    tell : callable
        Told in a sentence what happens.
    keep : callable, optional
        Given the name and the bytes of each file that the server sends.

    Attributes
    ----------
    instance : str
        Tells the server that it is the same process when it comes back.
    """

    app: ClientApp
    name: str
    config: Mapping[str, str | int]
    tell: Callable[[str], object] = log.info
    keep: Callable[[str, bytes], object] = lambda name, data: None
    instance: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        """Set up Flower's process-wide identity."""
        _flower.ensure_task_identity()
        self._context: Context | None = None
        self._job = ""
        self._limit = LIMIT
        self._last = Letter("", ())
        self._welcomed = False

    def attend(self, address: str, tls: TLS | None, patience: float = PATIENCE) -> None:
        """Answer the server's questions until it says that the work is done.

        Parameters
        ----------
        address : str
            ``host:port``.
        tls : TLS or None
            None: plaintext.
        patience : float
            Seconds for which it is tried to connect; each time that succeeds they begin anew.

        Raises
        ------
        EngineError
            If the server refuses this node, cannot be reached, or says that the work has failed.
        """
        began, pause, closings = time.monotonic(), FIRST_PAUSE, 0
        while True:
            self._welcomed = False
            details = "it closed the stream"
            try:
                if (failure := self._converse(address, tls)) is not None:
                    break
            except grpc.RpcError as error:
                details = error.details() or ""
                if cause := self._hopeless(error.code(), details):
                    raise EngineError(f"{address} cannot be joined: {cause}") from None
            if self._welcomed:
                began, pause, closings = time.monotonic(), FIRST_PAUSE, 0
                self.tell(f"the connection to {address} is lost; trying to come back")
            closings = closings + 1 if "Socket closed" in details or "Connection reset" in details else 0
            if closings == CLOSINGS:
                wants = "accepts this site's certificate" if tls else "speaks plaintext"
                raise EngineError(f"{address} closes every connection: it is doubtful that it {wants}")
            if time.monotonic() - began > patience:
                raise EngineError(f"{address} could not be reached for {patience:g} s: {details}")
            time.sleep(min(pause, max(0.0, patience - (time.monotonic() - began))))
            pause = min(2 * pause, LONGEST_PAUSE)
        if failure:
            raise EngineError(f"the server ended the work: {failure}")

    def _hopeless(self, code: grpc.StatusCode, details: str) -> str | None:
        """Return why another attempt would fail, too; None: it might not."""
        if code in _REFUSED:
            return details
        return next((cause for sign, cause in _UNTRUSTED.items() if sign in details), None)

    def _converse(self, address: str, tls: TLS | None) -> str | None:
        """Attend to one stream to its end.

        Returns
        -------
        str or None
            What the server says the work failed with; empty: it is done; None: the stream ended without such a word.
        """
        outbox: queue.SimpleQueue[Letter | None] = queue.SimpleQueue()
        metadata = ((NAME, self.name), (INSTANCE, self.instance), (SPOKEN, str(VERSION)))
        with _channel(address, tls) as channel:
            call = channel.stream_stream(METHOD)(_frames_of(outbox), metadata=metadata)
            inbox, file = Inbox(self._limit), None
            try:
                for frame in call:
                    item = inbox.take(frame)
                    if isinstance(item, Letter) and file is not None:
                        self.keep(file, *item.parts)
                        file = None
                    elif isinstance(item, Letter):
                        outbox.put(self._reply(item))
                    elif item is not None and "welcome" in item:
                        inbox = Inbox(self._settle(item["welcome"]))
                        self.tell(f"joined {address} as {self.name}")
                    elif item is not None and "file" in item:
                        file = str(item["file"])
                        if not _FILE.fullmatch(file):
                            raise FrameError(f"it sent a file named {file!r}")
                    elif item is not None and "end" in item:
                        return str(item["end"])
            except (FrameError, KeyError, TypeError, ValueError) as error:
                raise EngineError(f"{address} does not speak as a fedkernel server does: {error}") from None
            finally:
                outbox.put(None)
        return None

    def _settle(self, welcome: Mapping[str, object]) -> int:
        """Take in what the server says of the run; the memory stays unless it is another job's."""
        job, number, clients = (welcome[name] for name in ("job", "client", "clients"))
        place = {"partition-id": int(str(number)), "num-partitions": int(str(clients))}
        if self._context is None or job != self._job:
            config = {**self.config, **place}
            self._context = _flower.new_context(place["partition-id"] + 1, config, {"job": str(job)})
            self._job = str(job)
        self._welcomed = True
        self._limit = int(str(welcome["limit"]))
        return self._limit

    def _reply(self, letter: Letter) -> Letter:
        """Return the reply; a message that comes again gets the same."""
        if self._context is None:
            raise FrameError("it asked before it had welcomed this site")
        if letter.id != self._last.id:
            message = _flower.from_bytes(*letter.parts)
            reply = Letter(letter.id, answer(self.app, message, self._context))
            if reply.size > self._limit:
                reason = f"the reply of site {self.name!r} has {reply.size:,} bytes; allowed are {self._limit:,}"
                refusal = Message(Error(FAILED, reason), reply_to=message)
                _flower.stamp(refusal)
                self.tell(reason)
                reply = Letter(letter.id, _flower.to_parts(refusal))
            self._last = reply
        return self._last


def _frames_of(outbox: "queue.SimpleQueue[Letter | None]") -> Iterator[bytes]:
    while (letter := outbox.get()) is not None:
        yield from frames(letter)


def _channel(address: str, tls: TLS | None) -> grpc.Channel:
    if tls is None:
        return grpc.insecure_channel(address, OPTIONS)
    credentials = grpc.ssl_channel_credentials(tls.authority, tls.key, tls.certificate)
    return grpc.secure_channel(address, credentials, OPTIONS)
