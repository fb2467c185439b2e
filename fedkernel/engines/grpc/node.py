"""Site's process: joins the server under its name, keeps its memory, and answers requests."""

import logging
import math
import queue
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import grpc
from flwr.app import ConfigRecord, Context, Error, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp

from fedkernel.engines.app_execution import answer
from fedkernel.engines.grpc.activity_reports import FIRST, Signs
from fedkernel.engines.grpc.certificates import TLS
from fedkernel.engines.grpc.defaults import LIMIT, SITE_PATIENCE
from fedkernel.engines.grpc.frames import (
    INSTANCE,
    METHOD,
    NAME,
    OPTIONS,
    SPOKEN,
    STANDS,
    TAKEN,
    VERSION,
    Envelope,
    FrameError,
    Inbox,
    Welcome,
)
from fedkernel.engines.grpc.operator_messages import heedless
from fedkernel.engines.grpc.renewal import ExpiredError, Renewing
from fedkernel.engines.grpc.reply_queue import Outgoing, Standing
from fedkernel.ground import EngineError, InputError, ProtocolError, format_duration, one_line, printable, quoted
from fedkernel.site import write_with
from fedkernel.wire import FAILED, Job, content_digest, flower_internals

log = logging.getLogger(__name__)

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
TAKEN_IDS = 64
"""Number of remembered request ids, for recognising repeated requests."""

SMALL_REQUEST = 1 << 16
"""Size up to which a request is kept whole for comparison; a larger one is kept as its digest."""

RECORD = 10.0
"""Longest wait for the outbox's writer at the process's end, in seconds."""

CLOSINGS = 5
"""Consecutive connections closed without a reason after which the server's protocol is assumed to differ."""


@dataclass
class Node:
    """Process of one site: connects to a server and answers its requests.

    - `name`: the site's.
    - `config`: Flower's node configuration, such as the paths of the site's data.
    - `tell`: called with a sentence on each event.
    - `keep`: called with the name and the bytes of each file that the server sends.
    - `consider`: called with each job before its first request is answered, so that an operator can approve its study;
      requests wait until it returns.
    - `limit`: bytes of a message, even if the server allows more.
    - `instance`: random id of the process, by which the server recognises it when it reconnects.

    `work`: the server's current job; None before the first. `ended`: whether the server has ended the work, with
    success or failure, for good.
    """

    app: ClientApp
    name: str
    config: Mapping[str, str | int]
    tell: Callable[[str], object] = log.info
    keep: Callable[[str, bytes], object] = lambda name, data: None
    consider: Callable[[Job], object] = lambda job: None
    limit: int = LIMIT
    instance: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        """Set up Flower's process-wide identity."""
        flower_internals.ensure_task_identity()
        self.tell = heedless(self.tell)
        self._context: Context | None = None
        self._job = ""
        self.work: Job | None = None
        self._limit = self.limit
        self._files: frozenset[str] = frozenset()
        self._welcomed = self.ended = False
        # shared by the stream's thread and the computing thread
        self._lock = threading.Lock()
        self._tasks: queue.SimpleQueue[Job | tuple[Envelope, Context] | None] = queue.SimpleQueue()
        self._taken: deque[str] = deque(maxlen=TAKEN_IDS)
        self._last = Envelope("", ())
        self._last_request: tuple[tuple[str, str], bytes | bytearray | str] | None = None
        self._stands = Standing()
        self._outbox: Outgoing | None = None
        self._call: grpc.Call | None = None
        self._broken: BaseException | None = None
        self._signs = Signs(self.tell)

    def attend(self, address: str, tls: TLS | None, patience: float = SITE_PATIENCE) -> None:
        """Answer the server's requests until it ends the work.

        `address`: ``host:port``, or ``unix:`` and the path of a socket. `tls`: None: plaintext. `patience`: seconds of
        retrying to connect, counted anew after each success; computing never breaks the connection. Raises EngineError
        if the server refuses this node, cannot be reached, or reports a failure of the work.
        """
        pen = threading.Lock()
        computing = threading.Thread(target=self._compute, args=(pen,), name=f"computing-{self.name}", daemon=True)
        computing.start()
        try:
            with self._signs.told():
                failure = self._attend(address, tls, patience)
        finally:
            self._tasks.put(None)
            # never released: the record in progress is completed, and none is begun
            pen.acquire(timeout=RECORD)
        if failure:
            raise EngineError(f"the server ended the work: {quoted(failure)}")

    def _attend(self, address: str, tls: TLS | None, patience: float) -> str:
        """Connect repeatedly until the server ends the work; return its failure, empty after success."""
        began, pause, closings = time.monotonic(), FIRST_PAUSE, 0
        last_told = -math.inf
        own = None if tls is None else Renewing(tls, "site", self.tell)
        while True:
            self._welcomed = False
            details = "it closed the stream"
            try:
                tls = None if own is None else own.current()
                if (failure := self._converse(address, tls)) is not None:
                    return failure
            except ExpiredError as error:
                details = str(error)
            except grpc.RpcError as error:
                if self._broken is not None:
                    raise self._broken from None
                details = printable(error.details() or "")
                if cause := self._hopeless(error.code(), details):
                    raise EngineError(f"{address} cannot be joined: {cause}") from None
            if self._welcomed:
                began, pause, closings = time.monotonic(), FIRST_PAUSE, 0
                last_told = began
                self.tell(f"the connection to {address} is lost; trying to come back")
            closings = closings + 1 if "Socket closed" in details or "Connection reset" in details else 0
            if closings == CLOSINGS:
                wants = "accepts this site's certificate" if tls else "speaks plaintext"
                raise EngineError(f"{address} closes every connection: it is doubtful that it {wants}")
            if time.monotonic() - began > patience:
                raise EngineError(f"{address} could not be reached for {patience:g} s: {_cause(details)}")
            left = max(0.0, patience - (time.monotonic() - began))
            if time.monotonic() - last_told > FIRST:
                looked = "yet" if last_told < began else f"for {format_duration(patience - left)}"
                self.tell(f"{address} is not reached {looked} ({_cause(details)}); given up in {format_duration(left)}")
                last_told = time.monotonic()
            time.sleep(min(pause, left))
            pause = min(2 * pause, LONGEST_PAUSE)

    def _hopeless(self, code: grpc.StatusCode, details: str) -> str | None:
        """Return the reason why further attempts to connect would fail, too; None if they might succeed."""
        if code in _REFUSED:
            return details
        return next((cause for sign, cause in _UNTRUSTED.items() if sign in details), None)

    def _converse(self, address: str, tls: TLS | None) -> str | None:
        """Serve one stream to its end.

        Returns the failure that ended the work, empty after success; None if the stream ended without such a note.
        """
        outbox = Outgoing()
        metadata = [(NAME, self.name), (INSTANCE, self.instance), (SPOKEN, str(VERSION)), (STANDS, self._stands.text)]
        if self._taken:
            metadata.append((TAKEN, self._taken[-1]))
        with _channel(address, tls) as channel:
            call = channel.stream_stream(METHOD)(outbox.frames(), metadata=metadata)
            inbox, file = Inbox(self._limit, notes=True), ""
            with self._lock:
                self._outbox, self._call = outbox, call
                if self._broken is not None:
                    call.cancel()
            try:
                for frame in call:
                    item = inbox.take(frame)
                    if item is None:
                        continue
                    if isinstance(item, bytes):
                        outbox.answer()
                    elif isinstance(item, Envelope):
                        self._take(item, file)
                        file = ""
                    elif item.welcome is not None:
                        self._settle(item.welcome)
                        inbox = Inbox(self._limit, notes=True)
                        self.tell(f"joined {address} as {self.name}")
                        self._signs.idle("nothing has been asked")
                    elif item.file is not None:
                        file = item.file
                        if file not in self._files:
                            raise FrameError(f"it sent a file {printable(file)!r}, which it had not announced")
                    else:
                        self.ended = True
                        return item.end
            except FrameError as error:
                raise EngineError(
                    f"{address} does not speak as a fedkernel server does: {printable(str(error))}"
                ) from None
            finally:
                self._signs.idle("")
                with self._lock:
                    self._outbox = self._call = None
                outbox.put(None)
        return None

    def _settle(self, welcome: Welcome) -> None:
        """Adopt the server's job; the client's memory is kept if it belongs to one of the job's runs."""
        if self._context is None or welcome.job != self._job:
            self._look_at(welcome.job)
            self._job = welcome.job
            if self._context is not None and self._stands.run in self._keys():
                # a restarted server has fewer runs left; a run's key covers its sites
                self._context.run_config["job"] = welcome.job
            else:
                place = {"partition-id": welcome.client, "num-partitions": welcome.clients}
                context = flower_internals.new_context(
                    welcome.client + 1, {**self.config, **place}, {"job": welcome.job}
                )
                with self._lock:
                    self._context, self._stands = context, Standing()
        self._welcomed = True
        self._limit, self._files = min(self.limit, welcome.limit), frozenset(welcome.files)

    def _keys(self) -> set[str]:
        """Return the keys of the job's runs."""
        return set() if self.work is None else {run.key for run in self.work.runs}

    def _look_at(self, text: str) -> None:
        """Report a job's summary, and queue the job for consideration."""
        if not text:
            return
        try:
            job = Job.from_json(text)
        except InputError as error:
            raise FrameError(str(error)) from None
        self.tell(f"the work: {printable(job.work)}")
        self.work = job
        self._tasks.put(job)

    def _take(self, request: Envelope, file: str) -> None:
        """Queue a request, or send a repeated one's reply again; store an announced file."""
        if file:
            self.keep(file, b"".join(request.parts))
            return
        if self._context is None:
            raise FrameError("it asked before it had welcomed this site")
        with self._lock:
            if request.id == self._last.id and self._outbox is not None:
                self._outbox.put(self._last)
            elif request.id not in self._taken:
                self._taken.append(request.id)
                self._tasks.put((request, self._context))

    def _compute(self, pen: AbstractContextManager[Any] = nullcontext()) -> None:  # noqa: B008 - has no state
        """Answer requests one by one, holding `pen` while writing; an exception ends `attend`."""
        write_with(pen)
        try:
            while (task := self._tasks.get()) is not None:
                if isinstance(task, Job):
                    self._consider(task)
                    continue
                reply = self._reply(*task)
                with self._lock:
                    self._last = reply
                    if self._outbox is not None:
                        self._outbox.put(reply)
        except BaseException as error:
            with self._lock:
                self._broken = error
                if self._call is not None:
                    self._call.cancel()

    def _consider(self, job: Job) -> None:
        """Call `consider`; if it fails, the job is not approved and its requests are refused."""
        try:
            self.consider(job)
        except Exception as error:
            log.exception("the job could not be considered")
            self.tell(f"the work could not be considered ({type(error).__name__}); the log has the details")

    def _reply(self, request: Envelope, context: Context) -> Envelope:
        try:
            message = flower_internals.from_bytes(*request.parts)
        except ProtocolError as error:
            raise EngineError(f"the server does not speak as a fedkernel server does: {error}") from None
        begins = message.metadata.message_type == MessageType.QUERY
        if not begins and self._is_last(message):  # from a server that restarted before it had the reply
            again = Message(RecordDict(), reply_to=message)
            flower_internals.stamp(again)
            return Envelope(request.id, (flower_internals.to_parts(again)[0], *self._last.parts[1:]))
        with self._signs.during(f"computing {_asked(message)}"):
            reply = Envelope(request.id, flower_internals.to_parts(answer(self.app, message, context)))
        if reply.size > self._limit:
            whose = f"site {self.name!r}" if self._limit == self.limit else "the server"
            reason = f"the reply of site {self.name!r} has {reply.size:,} bytes; allowed are {self._limit:,}"
            reason += f" (--max-message of {whose})"
            refusal = Message(Error(FAILED, reason), reply_to=message)
            flower_internals.stamp(refusal)
            self.tell(reason)
            reply = Envelope(request.id, flower_internals.to_parts(refusal))
        is_answered = len(reply.parts) > 1  # not an error
        self._last_request = (_step(message), _content_of(request, message)) if is_answered else None
        with self._lock:
            # else the server has begun another job meanwhile, with a new memory
            if context is self._context:
                stands = Standing(self._key_of(message)) if begins else self._stands
                self._stands = Standing(stands.run, stands.taken + is_answered)
        return reply

    def _is_last(self, message: Message) -> bool:
        """Return whether a request repeats the last answered one: same type, round and content."""
        step, content = self._last_request or (None, "")
        if step != _step(message) or not message.has_content():
            return False
        if not isinstance(content, str):
            content = content_digest(flower_internals.from_bytes(content).content)
        return content == content_digest(message.content)

    def _key_of(self, message: Message) -> str:
        """Return the key of the run that a message begins; empty if it is not one of the job's."""
        runs = () if self.work is None or not message.has_content() else self.work.runs
        config = message.content.config_records.get("config", ConfigRecord()) if runs else ConfigRecord()
        return next((run.key for run in runs if run.id == config.get("run")), "")


def _asked(message: Message) -> str:
    """Return the name of a request, as its sender wrote it."""
    # not by `content.config_records`, which builds a dictionary
    config = message.content.get("config") if message.has_content() else None
    return _called(str(config.get("message", "") if isinstance(config, ConfigRecord) else "")[:60])


@lru_cache(maxsize=64)
def _called(request: str) -> str:
    return one_line(request) or "a request"


def _cause(details: str) -> str:
    """Return the end of gRPC's text on a failed connection, which has the reason."""
    return printable(details.rpartition(": ")[2] if details.startswith(("failed to connect", "DNS")) else details)


def _step(message: Message) -> tuple[str, str]:
    """Return a request's type and round, a quick test for repetition."""
    return message.metadata.message_type, message.metadata.group_id


def _content_of(request: Envelope, message: Message) -> bytes | bytearray | str:
    """Return a request's content for later comparison: its bytes if small, else their digest."""
    is_kept = request.size <= SMALL_REQUEST or not message.has_content()
    return request.parts[0] if is_kept else content_digest(message.content)


def _channel(address: str, tls: TLS | None) -> grpc.Channel:
    if tls is None:
        return grpc.insecure_channel(address, OPTIONS)
    credentials = grpc.ssl_channel_credentials(tls.authority, tls.key, tls.certificate)
    return grpc.secure_channel(address, credentials, OPTIONS)
