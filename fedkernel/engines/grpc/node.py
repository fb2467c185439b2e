"""Site's process in the gRPC engine. It joins the server by name, keeps the client's memory and answers requests."""

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
from typing import Any

import grpc
from flwr.app import ConfigRecord, Context, Error, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp

from fedkernel.engines.app_execution import answer
from fedkernel.engines.grpc import frames
from fedkernel.engines.grpc.certificates import TLS
from fedkernel.engines.grpc.defaults import MAX_MESSAGE_BYTES, SITE_PATIENCE
from fedkernel.engines.grpc.frames import Envelope, FrameDecoder, FrameError, ReplyQueue, ResumeState, Welcome
from fedkernel.engines.grpc.renewal import ExpiredError, RenewedCertificate
from fedkernel.engines.grpc.reports import FIRST, ActivityReporter, ignore_print_errors
from fedkernel.ground import EngineError, InputError, ProtocolError, format_duration, one_line, printable, quoted
from fedkernel.site import set_write_context
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
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not signed by ca.crt, has expired or is for a different host",
    "WRONG_VERSION_NUMBER": "it does not use TLS; was it started with --insecure?",
    "Hostname Verification": "its certificate is for a different host",
}
MOST_REMEMBERED_IDS = 64  # number of remembered request ids, for recognising repeated requests
LEAST_WEIGHT = 1 << 12  # bytes that the smallest queued request counts for
SMALL_REQUEST = 1 << 16  # largest bytes of a request that is kept for comparison; of a larger one, the digest is kept
OUTBOX_SECONDS = 10.0  # longest wait for the outbox's writer at the process's end, in seconds
CLOSINGS = 5  # number of consecutive connections closed without a reason after which the site gives up


@dataclass
class Node:
    """Process of one site, which connects to a server and answers its requests.

    - `name`: the site's. `config`: Flower's node configuration, such as the paths of the site's data.
    - `report`: called with a sentence on each event.
    - `store`: called with the name and the bytes of each file that the server sends.
    - `review`: called with each job before its first request is answered, so that an operator can approve its study;
      requests wait until it returns.
    - `limit`: most bytes of a message, even if the server allows more.
    - `instance`: random id of the process, by which the server recognises it when it reconnects.
    - `work`: the server's current job; None before the first. `ended`: whether the server has ended it for good.
    """

    app: ClientApp
    name: str
    config: Mapping[str, str | int]
    report: Callable[[str], object] = log.info
    store: Callable[[str, bytes], object] = lambda name, data: None
    review: Callable[[Job], object] = lambda job: None
    limit: int = MAX_MESSAGE_BYTES
    instance: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        """Set up Flower's process-wide identity, and the node's state."""
        flower_internals.ensure_task_identity()
        self.report = ignore_print_errors(self.report)
        self._context: Context | None = None
        self._job = ""
        self.work: Job | None = None
        self._limit = self.limit
        self._files: frozenset[str] = frozenset()
        self._welcomed = self.ended = False
        # shared by the stream's thread and the computing thread
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._queued_bytes = 0
        self._tasks: queue.SimpleQueue[Job | tuple[Envelope, Context] | None] = queue.SimpleQueue()
        self._received_ids: deque[str] = deque(maxlen=MOST_REMEMBERED_IDS)
        self._last_reply = Envelope("", ())
        self._last_request: tuple[tuple[str, str], bytes | bytearray | str] | None = None
        self._journal_position = ResumeState()
        self._outbox: ReplyQueue | None = None
        self._call: grpc.Call | None = None
        self._broken: BaseException | None = None
        self._reporter = ActivityReporter(self.report)

    def serve(self, address: str, tls: TLS | None, patience: float = SITE_PATIENCE) -> None:
        """Connect to the server and answer its requests until it ends the work.

        `address`: ``host:port``, or ``unix:`` and the path of a socket. `tls`: None: plaintext. `patience`: seconds of
        retrying to connect, counted anew after each success; computing never breaks the connection. Raises EngineError
        if the server refuses this node, cannot be reached, or reports a failure of the work.
        """
        outbox_lock = threading.Lock()
        name = f"computing-{self.name}"
        threading.Thread(target=self._compute, args=(outbox_lock,), name=name, daemon=True).start()
        try:
            with self._reporter.running():
                failure = self._connect_repeatedly(address, tls, patience)
        finally:
            self._tasks.put(None)
            # never released: the record in progress is completed, and none is begun
            outbox_lock.acquire(timeout=OUTBOX_SECONDS)
        if failure:
            raise EngineError(f"the server ended the work: {quoted(failure)}")

    def _connect_repeatedly(self, address: str, tls: TLS | None, patience: float) -> str:
        """Connect repeatedly until the server ends the work. Return the failure, or an empty text after success."""
        began, pause, closings = time.monotonic(), FIRST_PAUSE, 0
        last_report = -math.inf
        own = None if tls is None else RenewedCertificate(tls, "site", self.report)
        while True:
            self._welcomed = False
            details = "it closed the stream"
            try:
                tls = None if own is None else own.current()
                if (failure := self._answer_stream(address, tls)) is not None:
                    return failure
            except ExpiredError as error:
                details = str(error)
            except grpc.RpcError as error:
                if self._broken is not None:
                    raise self._broken from None
                details = printable(error.details() or "")
                known = next((cause for sign, cause in _UNTRUSTED.items() if sign in details), "")
                if cause := details if error.code() in _REFUSED else known:  # further attempts would fail, too
                    raise EngineError(f"{address} cannot be joined: {cause}") from None
            if self._welcomed:
                began, pause, closings = time.monotonic(), FIRST_PAUSE, 0
                last_report = began
                self.report(f"the connection to {address} is lost; reconnecting")
            closings = closings + 1 if "Socket closed" in details or "Connection reset" in details else 0
            if closings == CLOSINGS:
                does = "rejects this site's certificate" if tls else "requires TLS"
                raise EngineError(f"{address} closes every connection: the server probably {does}")
            if time.monotonic() - began > patience:
                raise EngineError(f"{address} could not be reached for {patience:g} s: {_cause(details)}")
            left = max(0.0, patience - (time.monotonic() - began))
            if time.monotonic() - last_report > FIRST:
                looked = "yet" if last_report < began else f"for {format_duration(patience - left)}"
                self.report(
                    f"{address} is not reached {looked} ({_cause(details)}); giving up in {format_duration(left)}"
                )
                last_report = time.monotonic()
            time.sleep(min(pause, left))
            pause = min(2 * pause, LONGEST_PAUSE)

    def _answer_stream(self, address: str, tls: TLS | None) -> str | None:
        """Answer the requests of one stream. Return the work's failure, empty after success, or None if it goes on."""
        outbox = ReplyQueue()
        metadata = [(frames.NAME, self.name), (frames.INSTANCE, self.instance), (frames.TRANSPORT, str(frames.VERSION))]
        metadata.append((frames.POSITION, self._journal_position.text))
        if self._received_ids:
            metadata.append((frames.LAST_REQUEST, self._received_ids[-1]))
        with _channel(address, tls) as channel:
            call = channel.stream_stream(frames.METHOD)(outbox.frames(), metadata=metadata)
            decoder, file = FrameDecoder(self._limit, notes=True), ""
            with self._lock:
                self._outbox, self._call = outbox, call
                if self._broken is not None:
                    call.cancel()
            try:
                for frame in call:
                    item = decoder.decode(frame)
                    if item is None:
                        continue
                    if isinstance(item, bytes):
                        outbox.answer()
                    elif isinstance(item, Envelope):
                        self._queue_request(item, file)
                        file = ""
                    elif item.welcome is not None:
                        self._adopt_welcome(item.welcome)
                        decoder = FrameDecoder(self._limit, notes=True)
                        self.report(f"joined {address} as {self.name}")
                        self._reporter.idle("no request has come")
                    elif item.file is not None:
                        file = item.file
                        if file not in self._files:
                            raise FrameError(f"it sent the file {printable(file)!r} without announcing it")
                    else:
                        self.ended = True
                        return item.end
            except FrameError as error:
                raise EngineError(f"{address} is not a valid fedkernel server: {printable(str(error))}") from None
            finally:
                self._reporter.idle("")
                with self._lock:
                    self._outbox = self._call = None
                outbox.put(None)
        return None

    def _adopt_welcome(self, welcome: Welcome) -> None:
        """Adopt the server's job and limits. The client's memory is kept if it belongs to one of the job's runs."""
        if self._context is None or welcome.job != self._job:
            self._queue_job(welcome.job)
            self._job = welcome.job
            keys = set() if self.work is None else {run.key for run in self.work.runs}
            if self._context is not None and self._journal_position.run in keys:
                # a restarted server has fewer runs left; a run's key covers its sites
                self._context.run_config["job"] = welcome.job
            else:
                config = {**self.config, "partition-id": welcome.client, "num-partitions": welcome.clients}
                context = flower_internals.new_context(welcome.client + 1, config, {"job": welcome.job})
                with self._lock:
                    self._context, self._journal_position = context, ResumeState()
        self._welcomed = True
        self._limit, self._files = min(self.limit, welcome.limit), frozenset(welcome.files)

    def _queue_job(self, text: str) -> None:
        """Report a job's summary, and queue the job for `review`."""
        if not text:
            return
        try:
            job = Job.from_json(text)
        except InputError as error:
            raise FrameError(str(error)) from None
        self.report(f"the work: {printable(job.work)}")
        self.work = job
        self._put(job)

    def _queue_request(self, request: Envelope, file: str) -> None:
        """Queue a request, send the reply to a repeated one again, or store an announced file."""
        if file:
            self.store(file, b"".join(request.parts))
            return
        if self._context is None:
            raise FrameError("it sent a request before its welcome")
        with self._lock:
            if is_answered := request.id == self._last_reply.id and self._outbox is not None:
                self._outbox.put(self._last_reply)
            if is_answered or request.id in self._received_ids:
                return
            self._received_ids.append(request.id)
        self._put((request, self._context))

    def _put(self, task: Job | tuple[Envelope, Context]) -> None:
        """Queue a request once all waiting ones fit into a message's size limit; queue a job once none waits.

        Until then no frame is read: else a server that does not wait for replies would fill this process's memory.
        """
        size = _weight(task)
        with self._room:
            self._room.wait_for(
                lambda: self._tasks.empty() or self._broken or 0 < size <= self._limit - self._queued_bytes
            )
            self._queued_bytes += size
            self._tasks.put(task)

    def _compute(self, outbox_lock: AbstractContextManager[Any] = nullcontext()) -> None:  # noqa: B008 - has no state
        """Answer queued requests one by one; an error ends `serve`. `outbox_lock`: held while the outbox is used."""
        set_write_context(outbox_lock)
        try:
            while (task := self._tasks.get()) is not None:
                with self._room:
                    self._queued_bytes -= _weight(task)
                    self._room.notify()
                if isinstance(task, Job):
                    self._review(task)
                    continue
                reply = self._reply(*task)
                with self._lock:
                    self._last_reply = reply
                    if self._outbox is not None:
                        self._outbox.put(reply)
        except BaseException as error:
            with self._room:
                self._broken = error
                self._room.notify()
                if self._call is not None:
                    self._call.cancel()

    def _review(self, job: Job) -> None:
        """Call `review` with a job; if it fails, the job is not approved and its requests are refused."""
        try:
            self.review(job)
        except Exception as error:
            log.exception("the job could not be reviewed")
            self.report(f"the work could not be reviewed ({type(error).__name__}); the log has the details")

    def _reply(self, request: Envelope, context: Context) -> Envelope:
        try:
            message = flower_internals.from_bytes(*request.parts)
        except ProtocolError as error:
            raise EngineError(f"the server sent an invalid request: {error}") from None
        begins = message.metadata.message_type == MessageType.QUERY
        if not begins and self._is_last(message):  # from a server that restarted before it had the reply
            again = Message(RecordDict(), reply_to=message)
            flower_internals.stamp(again)
            return Envelope(request.id, (flower_internals.to_parts(again)[0], *self._last_reply.parts[1:]))
        with self._reporter.during(f"computing {_request_name(message)}"):
            reply = Envelope(request.id, flower_internals.to_parts(answer(self.app, message, context)))
        if reply.size > self._limit:
            whose = f"site {self.name!r}" if self._limit == self.limit else "the server"
            reason = f"the reply of site {self.name!r} has {reply.size:,} bytes; allowed are {self._limit:,}"
            reason += f" (--max-message of {whose})"
            refusal = Message(Error(FAILED, reason), reply_to=message)
            flower_internals.stamp(refusal)
            self.report(reason)
            reply = Envelope(request.id, flower_internals.to_parts(refusal))
        is_answered = len(reply.parts) > 1  # not an error
        is_kept = request.size <= SMALL_REQUEST or not (is_answered and message.has_content())
        content = request.parts[0] if is_kept else content_digest(message.content)
        self._last_request = (_kind_and_round(message), content) if is_answered else None
        with self._lock:
            # else the server has begun another job meanwhile, with a new memory
            if context is self._context:
                journal_position = ResumeState(self._key_of(message)) if begins else self._journal_position
                self._journal_position = ResumeState(journal_position.run, journal_position.answered + is_answered)
        return reply

    def _is_last(self, message: Message) -> bool:
        """Return whether a request repeats the last answered one, with the same type, round and content."""
        step, content = self._last_request or (None, "")
        if step != _kind_and_round(message) or not message.has_content():
            return False
        if not isinstance(content, str):
            content = content_digest(flower_internals.from_bytes(content).content)
        return content == content_digest(message.content)

    def _key_of(self, message: Message) -> str:
        """Return the key of the run that a message begins; empty if the job has no such run."""
        runs = () if self.work is None or not message.has_content() else self.work.runs
        config = message.content.config_records.get("config", ConfigRecord()) if runs else ConfigRecord()
        return next((run.key for run in runs if run.id == config.get("run")), "")


def _weight(task: Job | tuple[Envelope, Context]) -> int:
    """Return the bytes of memory that a queued request counts for; 0 for a job, which waits alone."""
    return max(task[0].size, LEAST_WEIGHT) if isinstance(task, tuple) else 0


def _request_name(message: Message) -> str:
    """Return the class name of a request, as its sender wrote it."""
    # not by `content.config_records`, which builds a dictionary
    config = message.content.get("config") if message.has_content() else None
    name = config.get("message", "") if isinstance(config, ConfigRecord) else ""
    return one_line(str(name)[:60]) or "a request"


def _cause(details: str) -> str:
    """Return the reason of a failed connection, which is the end of gRPC's text on it."""
    return printable(details.rpartition(": ")[2] if details.startswith(("failed to connect", "DNS")) else details)


def _kind_and_round(message: Message) -> tuple[str, str]:
    """Return a request's type and round, as a quick test for repetition."""
    return message.metadata.message_type, message.metadata.group_id


def _channel(address: str, tls: TLS | None) -> grpc.Channel:
    if tls is None:
        return grpc.insecure_channel(address, frames.OPTIONS)
    credentials = grpc.ssl_channel_credentials(tls.authority, tls.key, tls.certificate)
    return grpc.secure_channel(address, credentials, frames.OPTIONS)
