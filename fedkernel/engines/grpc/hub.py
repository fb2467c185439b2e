"""The coordinator's end: a Flower Grid whose nodes are processes that have connected by gRPC under their names."""

import logging
import queue
import resource
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

import grpc
from flwr.app import Error, Message, MessageType
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from fedkernel.engines.grpc.certificates import TLS
from fedkernel.engines.grpc.frames import (
    INSTANCE,
    LIMIT,
    METHOD,
    NAME,
    OPTIONS,
    SPOKEN,
    STANDS,
    VERSION,
    Envelope,
    FileName,
    FrameError,
    Inbox,
    Note,
    Welcome,
    frames,
)
from fedkernel.engines.grpc.revocation import Revoked
from fedkernel.errors import EngineError, InputError, ProtocolError, shown
from fedkernel.run import flower
from fedkernel.run.events import Happened, log_event
from fedkernel.run.grid import CARRIERS, GONE, UNFIT, MessageGrid

HANDSHAKE = ("grpc.server_handshake_timeout_ms", 10_000)
"""How long somebody who has connected may take to show a certificate."""

PATIENCE = 30.0
"""Seconds that a site may be gone before what it was asked counts as failed."""

KEPT_BYTES = 1 << 28
"""Of a site's requests of a run; beyond, they cannot be sent again to a process that was restarted."""

HANDOVER = 2.0
"""Seconds for which a process waits that takes the place of one whose stream has not ended yet."""

FAREWELL = 5.0
"""Seconds that the streams have to end by themselves."""

Tell = Callable[[str], object]


@dataclass
class _Seat:
    """A site's place: whether it is taken, and what was asked of whoever takes it.

    Attributes
    ----------
    sent, sent_bytes
        The requests of the run under way, and their size; only the last one if they are not `complete`.
    behind : bool
        Whether the site's process was restarted and has not answered yet what is waited for.
    stands : str
        Which run it said that it remembers, when it came, and how much of that.
    waiting : dict of str to Message
        Requests that are not answered yet, by id.
    """

    name: str
    node: int
    outbox: "queue.SimpleQueue[bytes | Envelope | None] | None" = None
    instance: str = ""
    peer: str = ""
    stands: str = ""
    since: float = 0.0
    sent: list[Envelope] = field(default_factory=list)
    sent_bytes: int = 0
    complete: bool = True
    behind: bool = False
    waiting: dict[str, Message] = field(default_factory=dict)


class Hub(MessageGrid):
    """A Flower Grid over gRPC streams; every site has its seat, by name.

    Parameters
    ----------
    names : sequence of str
        The sites, in the order of the clients' numbers.
    job : str
        What Flower hands to every app of a run, as JSON: what the sites may know of it.
    patience : float
        Seconds that a site may be gone before what it was asked counts as failed.
    limit : int
        Bytes of a message.
    tell : callable, optional
        Told in a sentence who comes, goes and is refused; by default the log is.
    files : sequence of str
        Names of all files that `give` may send.

    Attributes
    ----------
    is_revoked : callable
        Tells whether a certificate (PEM) is no longer taken; `listening` sets it.

    Notes
    -----
    A site that comes back while it is asked something is asked again: the same process, whose reply may have been lost,
    for just that; one that was restarted for everything in the run under way, which brings its memory back.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        job: str = "",
        patience: float = PATIENCE,
        limit: int = LIMIT,
        tell: Tell | None = None,
        files: Sequence[FileName] = (),
    ) -> None:
        super().__init__()
        self._seats = {name: _Seat(name, node) for node, name in enumerate(names, start=1)}
        self._nodes = list(self._seats.values())
        self._job = job
        self._patience = patience
        self._limit = limit
        self._told = tell
        self._files = list(files)
        self.is_revoked: Callable[[bytes], bool] = lambda certificate: False
        self._over = False

    # What Flower's Grid does.

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of the nodes that are connected, or were a moment ago: the clients' numbers plus 1."""
        with self._arrived:
            return [seat.node for seat in self._nodes if seat.instance and not self._is_gone(seat)]

    def called(self, node: int) -> str:
        """Return a site's name."""
        return f"site {self._nodes[node - 1].name!r}"

    def _post(self, message: Message, message_id: str, parts: tuple[bytes, ...]) -> None:
        seat, envelope = self._nodes[message.metadata.dst_node_id - 1], Envelope(message_id, parts)
        if envelope.size > self._limit:
            raise EngineError(
                f"a message of {envelope.size:,} bytes is to go to {seat.name}, but {self._limit:,} are allowed "
                "(--max-message)"
            )
        with self._arrived:
            self._keep(seat, message, envelope)
            seat.waiting[message_id] = message
            if seat.outbox is not None:
                seat.outbox.put(envelope)

    @staticmethod
    def _keep(seat: _Seat, message: Message, envelope: Envelope) -> None:
        """Keep a request for a process that may be restarted."""
        if message.metadata.message_type == MessageType.QUERY:  # a run begins
            seat.sent, seat.sent_bytes, seat.complete, seat.behind = [], 0, True, False
        seat.sent.append(envelope)
        seat.sent_bytes += envelope.size
        if seat.sent_bytes > KEPT_BYTES:
            seat.sent, seat.sent_bytes, seat.complete = [envelope], envelope.size, False

    def come_back(self, run: str, answered: Mapping[int, int], checkpoints: Iterable[bytes]) -> str:
        """Return which site does not remember the run as far as it went, if there is one.

        Each may have answered one request more, whose reply was not recorded any more: its answer comes again.
        """
        for seat in self._nodes:
            key, _, taken = seat.stands.partition(" ")
            count = answered.get(seat.node, 0)
            if count and (key != run or taken not in (str(count), str(count + 1))):
                return f"site {seat.name!r} does not stand where it ended, as after a restart"
        return ""

    def recall(self, messages: Iterable[Message]) -> None:
        """Keep messages that were answered before this process began, as if it had sent them."""
        for message in messages:
            envelope = Envelope(flower.stamp(message), flower.to_parts(message))
            with self._arrived:
                self._keep(self._nodes[message.metadata.dst_node_id - 1], message, envelope)

    def _is_gone(self, seat: _Seat) -> bool:
        return seat.outbox is None and time.monotonic() - seat.since > self._patience

    def _look_after(self) -> None:
        for seat in self._nodes:
            if seat.waiting and self._is_gone(seat):
                reason = f"site {seat.name!r} is no longer connected ({self._patience:g} s)"
                for message_id, message in list(seat.waiting.items()):
                    self._settle(seat, message_id, Message(Error(GONE, reason), reply_to=message))

    # What a node meets.

    def handler(self) -> grpc.GenericRpcHandler:
        """Return what a gRPC server is to be given."""
        method = grpc.stream_stream_rpc_method_handler(self.connect)
        service, name = METHOD.strip("/").split("/")
        return grpc.method_handlers_generic_handler(service, {name: method})

    def connect(self, incoming: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """Attend to a node as long as it is connected."""
        seat, outbox = self._admit(context)
        if not context.add_callback(lambda: outbox.put(None)):
            outbox.put(None)  # the stream has ended already
        threading.Thread(
            target=self._listen, args=(seat, incoming, context), name=f"from-{seat.name}", daemon=True
        ).start()
        try:
            while (item := outbox.get()) is not None:
                if isinstance(item, Envelope):
                    yield from frames(item)
                else:
                    yield item
        finally:
            self._leave(seat, outbox)

    def _admit(self, context: grpc.ServicerContext) -> tuple[_Seat, "queue.SimpleQueue[bytes | Envelope | None]"]:
        metadata = {key: str(value) for key, value in context.invocation_metadata()}
        name, instance = metadata.get(NAME, ""), metadata.get(INSTANCE, "")

        def refuse(code: grpc.StatusCode, reason: str) -> NoReturn:
            cause = code.name.lower().replace("_", " ")
            self._tell("refused", f"refused {shown(name)!r} from {context.peer()}: {reason}", cause=cause)
            context.abort(code, reason)
            raise AssertionError  # abort has raised

        if self._over:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the server is about to end")
        if metadata.get(SPOKEN) != str(VERSION):
            reason = f"it speaks transport version {shown(metadata.get(SPOKEN, ''))}, the server {VERSION}"
            refuse(grpc.StatusCode.FAILED_PRECONDITION, reason)
        certified = [text.decode() for text in context.auth_context().get("x509_common_name", [])]
        if certified and certified != [name]:
            refuse(grpc.StatusCode.PERMISSION_DENIED, f"its certificate names {shown(certified[0])!r}")
        for certificate in context.auth_context().get("x509_pem_cert", []):
            try:
                if self.is_revoked(certificate):
                    refuse(grpc.StatusCode.PERMISSION_DENIED, "its certificate is revoked")
            except InputError as error:  # rather nobody than somebody who should not
                refuse(grpc.StatusCode.UNAVAILABLE, f"the list of revoked certificates cannot be read: {error}")
        if name not in self._seats or not instance:
            refuse(grpc.StatusCode.PERMISSION_DENIED, f"no site of this run is called {shown(name)!r}")
        seat = self._seats[name]
        with self._arrived:
            if seat.instance != instance and not self._arrived.wait_for(lambda: seat.outbox is None, HANDOVER):
                refuse(grpc.StatusCode.ALREADY_EXISTS, f"site {name!r} is connected already, from {seat.peer}")
            if seat.outbox is not None:
                seat.outbox.put(None)  # the same process: it knows that its old stream is broken before we do
            restarted, again = seat.instance not in ("", instance), seat.instance == instance
            outbox: queue.SimpleQueue[bytes | Envelope | None] = queue.SimpleQueue()
            welcome = Welcome(
                client=seat.node - 1, clients=len(self._nodes), job=self._job, limit=self._limit, files=self._files
            )
            outbox.put(Note(welcome=welcome).frame)
            seat.behind = seat.complete and (restarted or seat.behind)
            for envelope in seat.sent:
                if seat.behind or envelope.id in seat.waiting:
                    outbox.put(envelope)
            seat.outbox, seat.instance, seat.peer = outbox, instance, context.peer()
            seat.stands = metadata.get(STANDS, "")
            self._arrived.notify_all()
        how = "is back" if again else "is back, restarted" if restarted else "is here"
        text = f"{name} {how}, from {seat.peer} ({self.present} of {len(self._nodes)})"
        self._tell("site here", text, site=name)
        return seat, outbox

    def _listen(self, seat: _Seat, incoming: Iterator[bytes], context: grpc.ServicerContext) -> None:
        inbox = Inbox(self._limit)
        try:
            for frame in incoming:
                item = inbox.take(frame)
                if isinstance(item, Envelope):
                    self._receive(seat, item)
        except grpc.RpcError:
            pass  # the stream has ended, which `connect` notices
        except Exception as error:
            why = str(error) if isinstance(error, FrameError) else f"{type(error).__name__}: {error}"
            self._tell("refused", f"{seat.name} is disconnected: {shown(why)}", site=seat.name, cause="frames")
            context.cancel()  # and so its seat is free

    def _receive(self, seat: _Seat, envelope: Envelope) -> None:
        """Take what a site sent for the reply to a request, if it is one, whatever it says about itself."""
        with self._arrived:
            request = seat.waiting.get(envelope.id)
        if request is None:
            return  # nobody waits for it any more
        try:
            reply = flower.from_bytes(*envelope.parts)
            fault = flower.mismatch(request, reply)
            if fault is None and reply.has_error() and reply.error.code in CARRIERS:
                fault = f"error {reply.error.code}, which only the server has"
        except ProtocolError as error:
            fault = str(error)
        if fault is not None:
            reason = f"site {seat.name!r} sent something else than a reply to what it was asked: {fault}"
            reply = Message(Error(UNFIT, reason), reply_to=request)
        self._settle(seat, envelope.id, reply)

    def _settle(self, seat: _Seat, message_id: str, reply: Message) -> None:
        with self._arrived:
            if seat.waiting.pop(message_id, None) is not None:
                seat.behind = False
                self._deliver(message_id, reply)

    def _leave(self, seat: _Seat, outbox: Any) -> None:
        with self._arrived:
            if seat.outbox is not outbox:
                return
            seat.outbox, seat.since = None, time.monotonic()
            self._arrived.notify_all()
        if not self._over:
            self._tell("site gone", f"{seat.name} is gone ({self.present} of {len(self._nodes)})", site=seat.name)

    def _tell(self, happened: Happened, text: str, **known: Any) -> None:
        """Tell whoever is to be told, or the log, for people; and those that observe what happens, in any case."""
        if self._told is not None:
            self._told(text)
        log_event(happened, "%s", text, level=logging.INFO if self._told is None else logging.DEBUG, **known)

    # What the engine does.

    @property
    def present(self) -> int:
        """How many sites are connected."""
        return sum(seat.outbox is not None for seat in self._nodes)

    @property
    def missing(self) -> list[str]:
        """The names of the sites that are not connected."""
        return [seat.name for seat in self._nodes if seat.outbox is None]

    @property
    def lost(self) -> list[str]:
        """The names of the sites that have been missing for longer than the patience."""
        return [seat.name for seat in self._nodes if self._is_gone(seat)]

    def wait_for_all(self, look: Callable[[], object] = lambda: None, every: float = 0.25) -> None:
        """Wait until every site is connected.

        Parameters
        ----------
        look : callable
            Called again and again; may raise to end the waiting.
        every : float
            Seconds between two calls.
        """
        with self._arrived:
            while self.missing:
                look()
                self._arrived.wait(every)

    def give(self, name: str, data: bytes) -> None:
        """Send a file that was announced to every site that is connected."""
        with self._arrived:
            for seat in self._nodes:
                if seat.outbox is not None:
                    seat.outbox.put(Note(file=name).frame)
                    seat.outbox.put(Envelope("", (data,)))

    def close(self, failure: str | None = "") -> None:
        """Tell all sites that the work is done, or what it failed with, and wait until their streams have ended.

        Parameters
        ----------
        failure : str or None
            Empty: it is done. None: nothing is told, so that the sites look for a server that goes on.
        """
        with self._arrived:
            self._over = True
            for seat in self._nodes:
                if seat.outbox is not None:
                    if failure is not None:
                        seat.outbox.put(Note(end=failure).frame)
                    seat.outbox.put(None)
            self._arrived.wait_for(lambda: not self.present, FAREWELL)


@contextmanager
def listening(hub: Hub, address: str, tls: TLS | None) -> Iterator[int]:
    """Serve a hub's nodes, and gRPC's health checks, at an address.

    Parameters
    ----------
    hub : Hub
    address : str
        ``host:port``; port 0: any that is free.
    tls : TLS or None
        None: plaintext.

    Yields
    ------
    port : int

    Raises
    ------
    EngineError
        If the address cannot be listened at.
    """
    if tls is not None:
        hub.is_revoked = Revoked(tls.folder)
    # every stream keeps a thread; one that is refused needs one, too, and so does a health check
    _allow_open_files()
    pool = ThreadPoolExecutor(len(hub.missing) + 8, thread_name_prefix="hub")
    server = grpc.server(pool, options=[*OPTIONS, HANDSHAKE])
    checks = health.HealthServicer()
    checks.set("", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    server.add_generic_rpc_handlers([hub.handler()])
    try:
        if tls is None:
            port = server.add_insecure_port(address)
        else:
            pairs = [(tls.key, tls.certificate)]
            credentials = grpc.ssl_server_credentials(pairs, tls.authority, require_client_auth=True)
            port = server.add_secure_port(address, credentials)
    except RuntimeError:
        raise EngineError(f"cannot listen at {address}: the port is taken, or the host is no address here") from None
    server.start()
    failure = None  # whoever stops the server can start it again
    try:
        yield port
        failure = ""
    except Exception as error:
        failure = str(error) or type(error).__name__
        raise
    finally:
        checks.enter_graceful_shutdown()
        hub.close(failure)
        server.stop(grace=1).wait()


def _allow_open_files() -> None:
    """Have as many connections open as the system lets this process: one that shows no certificate takes one, too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # where the system says more than it means
        if soft != hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
