"""Coordinator's Flower Grid; its nodes are the processes connected under sites' names."""

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

from flwr.app import Error, Message, MessageType

from fedkernel.engines.grpc.admission import check_caller
from fedkernel.engines.grpc.defaults import LIMIT, SERVER_PATIENCE
from fedkernel.engines.grpc.frames import (
    BEAT,
    INSTANCE,
    MOST_NOTE,
    NAME,
    STANDS,
    TAKEN,
    Envelope,
    FileName,
    FrameError,
    Inbox,
    Note,
    Welcome,
)
from fedkernel.engines.grpc.idle_connections import MOST
from fedkernel.engines.grpc.operator_messages import Seldom, Tell, heedless
from fedkernel.engines.grpc.request_spool import Spool
from fedkernel.engines.grpc.site_slots import Seat
from fedkernel.engines.grpc.streams import Caller, RefusedError, Stream
from fedkernel.ground import EngineError, InputError, ProtocolError, printable
from fedkernel.run import LOOK, Happened, MessageGrid, Serialise, log_event
from fedkernel.wire import CARRIERS, GONE, UNFIT, flower_internals

log = logging.getLogger(__name__)

ANSWER = 3.0
"""Seconds for a process to answer a heartbeat when another one claims its slot."""

STREAMS = 8
"""Most streams of a site, including ones that are over: gRPC ends an unread stream only with its connection."""

FAREWELL = 5.0
"""Seconds for streams to end by themselves once nothing is in flight."""

STALLED = 60.0
"""Longest time of a frame in flight at the end: 1 MiB (`fedkernel.engines.grpc.frames.CHUNK`) at 17 kB/s."""

LONGEST_FAREWELL = 3600.0
"""Longest time for streams to end, in seconds, even while data move."""


class Hub(MessageGrid):
    """Flower Grid over streams of frames, with a slot for each site by name.

    - `names`: the sites, in the order of the clients' numbers.
    - `job`: JSON of the job as sites may know it, for Flower's run configuration of every app.
    - `patience`: seconds of absence after which a site's pending requests fail.
    - `limit`: bytes of a message.
    - `tell`: called with a sentence whenever a site comes, goes or is refused; by default these are logged.
    - `files`: names of all files that `give` may send.
    - `clock`: returns seconds.

    Two attributes are set by the carrier of the streams: `is_revoked` decides whether a certificate (PEM) is revoked;
    `on_ready` is called, in any thread, when `ready` has streams to return.

    The hub knows no transport, starts no thread and sleeps only where the engine waits. The carrier
    (`fedkernel.engines.grpc.serving`, or a test's simulated network) admits each stream (`admit`). Whenever `ready`
    returns a stream, it sends the frames of `next_frame`, one after the other. It passes on received frames (`take`),
    ends a stream that is `over`, reports ended ones (`leave`), and calls `tend` a few times a second. With `clock` and
    `_wait` replaced, a single thread controls everything, reproducibly.

    A site that reconnects with requests pending is sent these again if its process is the same, since the reply may
    have been lost. A restarted process is sent all of the run's requests, which restores its memory.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        job: str = "",
        patience: float = SERVER_PATIENCE,
        limit: int = LIMIT,
        tell: Tell | None = None,
        files: Sequence[FileName] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._seats = {name: Seat(name, node) for node, name in enumerate(names, start=1)}
        self._nodes = list(self._seats.values())
        self._job = job
        self._patience = patience
        self._limit = limit
        self._told = None if tell is None else heedless(tell)
        self._files = list(files)
        self._clock = clock
        self.is_revoked: Callable[[bytes], bool] = lambda certificate: False
        self.on_ready: Callable[[], object] = lambda: None
        self._ready: set[Stream] = set()
        self._spool = Spool()
        self._under_way = False
        self._over = False
        self._refusals: dict[str, Seldom] = {}  # by certificates' names
        self._closings = Seldom(clock)
        self._faults: list[str] = []  # to be reported once the lock is free
        if (size := len(self._welcome(0).frame)) > MOST_NOTE:
            raise InputError(
                f"the work has {size:,} bytes as it is told to sites, its runs, plans and signatures; allowed: "
                f"{MOST_NOTE:,}, so fewer runs in one study"
            )

    # Flower's Grid.

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of nodes connected now or within the patience: the clients' numbers plus 1."""
        with self._arrived:
            return [seat.node for seat in self._nodes if self._is_there(seat)]

    def absent(self) -> list[int]:
        """Return the ids of the disconnected nodes."""
        with self._arrived:
            return [seat.node for seat in self._nodes if seat.stream is None]

    def called(self, node: int) -> str:
        """Return a site's name."""
        return f"site {self._nodes[node - 1].name!r}"

    def _post(self, message: Message, message_id: str, serialise: Serialise) -> None:
        seat, envelope = self._nodes[message.metadata.dst_node_id - 1], Envelope(message_id, serialise())
        if envelope.size > self._limit:
            raise EngineError(
                f"a message of {envelope.size:,} bytes is to go to {seat.name}, but {self._limit:,} are allowed "
                "(--max-message)"
            )
        with self._arrived:
            self._keep(seat, message, envelope)
            seat.waiting[message_id] = message, envelope
            if seat.stream is not None:
                seat.stream.queue.append(envelope)
                self._ready.add(seat.stream)
        self._tell_faults()

    def _posted(self) -> None:
        self.on_ready()  # once per round

    def _keep(self, seat: Seat, message: Message, envelope: Envelope) -> None:
        """Spool a request for a process that may be restarted."""
        if message.metadata.message_type == MessageType.QUERY:  # a run begins
            if self._under_way:
                self._forget_run()
            seat.begin_run()
        else:
            self._under_way = True
        try:
            if seat.complete:
                seat.last = self._spool.keep(seat.last, envelope)
        except OSError as error:
            self._give_up(seat, "kept", error)

    def _give_up(self, seat: Seat, what: str, error: OSError) -> None:
        """Stop spooling a site's requests for the rest of this run."""
        if all(other.complete for other in self._nodes):  # else it was reported before
            text = (
                f"a site that is restarted now fails this run: its requests cannot be {what} ({printable(str(error))})"
            )
            self._faults.append(text)
        seat.last, seat.complete, seat.behind = None, False, False

    def _forget_run(self) -> None:
        """Discard the previous run's requests, sent or not."""
        self._under_way = False
        for seat in self._nodes:
            seat.forget_run()
        self._spool.clear()

    def _forget(self, ids: Set[str]) -> None:
        for seat in self._nodes:
            for message_id in ids & seat.waiting.keys():
                del seat.waiting[message_id]

    def come_back(self, run: str, answered: Mapping[int, int], checkpoints: Iterable[bytes]) -> str:
        """Mark the sites whose memory is older than the journal as `behind`; every resume is possible.

        A site may have answered one request more, whose reply was not recorded: it sends that answer again.
        """
        self.behind = frozenset(
            seat.node
            for seat in self._nodes
            if (count := answered.get(seat.node, 0)) and seat.stands not in (f"{run} {count}", f"{run} {count + 1}")
        )
        return ""

    def recall(self, messages: Iterable[Message]) -> None:
        """Spool messages that were answered before this process started."""
        contents: dict[int, list[bytes]] = {}
        for message in messages:
            if (content := id(message.content)) not in contents:
                contents[content] = flower_internals.content_to_parts(message.content)
            envelope = Envelope(flower_internals.stamp(message), flower_internals.to_parts(message, contents[content]))
            with self._arrived:
                self._keep(self._nodes[message.metadata.dst_node_id - 1], message, envelope)
        self._tell_faults()

    def _is_there(self, seat: Seat) -> bool:
        """Return whether a site is connected, or has been within the patience."""
        return bool(seat.instance) and not self._is_gone(seat)

    def _is_gone(self, seat: Seat) -> bool:
        return seat.stream is None and self._clock() - seat.since > self._patience

    def _look_after(self) -> None:
        for seat in self._nodes:
            if seat.waiting and self._is_gone(seat):
                reason = f"site {seat.name!r} is no longer connected (waited {self._patience:g} s)"
                for message_id, (message, _) in list(seat.waiting.items()):
                    self._settle(seat, message_id, Message(Error(GONE, reason), reply_to=message))

    # Called by the carrier of the streams, in any thread.

    def admit(self, caller: Caller) -> Stream:
        """Admit a stream into its site's slot, or let it wait for the holder's answer to a heartbeat.

        Every returned stream must be ended with `leave`. Raises RefusedError.
        """
        name = caller.metadata.get(NAME, "")
        try:
            if self._over:
                raise RefusedError("UNAVAILABLE", "the server is about to end")
            check_caller(name, caller, self._seats, self.is_revoked)
            with self._arrived:
                stream, text = self._place(self._seats[name], caller)
        except RefusedError as refusal:
            seldom = self._refusals.setdefault(" ".join(caller.names), Seldom(self._clock))
            if not self._over:
                cause = refusal.code.lower().replace("_", " ")
                self._tell("refused", f"refused {printable(name)!r} from {caller.peer}: {refusal}", seldom, cause=cause)
            raise
        self._tell("site here", text, site=name)
        self.on_ready()
        return stream

    def tell_closed(self, connections: int) -> None:
        """Report closed idle connections."""
        text = f"closed {connections} connections over which nothing was called; allowed: {MOST} at a time"
        self._tell("refused", text, self._closings, cause="idle")

    def _place(self, seat: Seat, caller: Caller) -> tuple[Stream, str]:
        instance = caller.metadata[INSTANCE]
        if seat.open >= STREAMS:
            raise RefusedError("RESOURCE_EXHAUSTED", f"site {seat.name!r} has {STREAMS} streams, and may have no more")
        holder, waiter = seat.stream, seat.next
        if holder is not None and holder.instance != instance and waiter is not None and waiter.instance != instance:
            raise RefusedError("UNAVAILABLE", f"another process waits for the seat of site {seat.name!r}")
        metadata, inbox = caller.metadata, Inbox(self._limit, is_awaited=seat.waiting.__contains__)
        stands, taken = metadata.get(STANDS, ""), metadata.get(TAKEN, "")
        stream = Stream(seat.name, instance, caller.peer, stands, taken, inbox, self._clock())
        text = ""
        if holder is None or holder.instance == instance:
            text = self._sit_down(seat, stream)  # a process may notice its broken stream before the hub does
        else:
            if waiter is not None:
                self._cut(waiter)
            seat.next, seat.asked_at = stream, self._clock()
            holder.ask()
            self._ready.add(holder)
        seat.open += 1  # only for returned streams, which `leave` ends
        return stream, text

    def _sit_down(self, seat: Seat, stream: Stream) -> str:
        """Give a stream its slot and the pending requests, and return the text to report."""
        if seat.stream is not None:
            self._cut(seat.stream)
        restarted, again = seat.instance not in ("", stream.instance), seat.instance == stream.instance
        stream.queue.append(self._welcome(seat.node - 1).frame)
        seat.behind = seat.complete and (restarted or seat.behind)
        taken = stream.taken if again else ""
        try:
            requests = list(seat.asked_again(self._spool, taken))
        except OSError as error:
            self._give_up(seat, "read", error)
            requests = list(seat.asked_again(self._spool, taken))
        stream.queue.extend(requests)
        seat.stream, seat.instance, seat.next, seat.stands = stream, stream.instance, None, stream.stands
        self._ready.add(stream)
        self._arrived.notify_all()
        how = "is back" if again else "is back, restarted" if restarted else "is here"
        return f"{seat.name} {how}, from {stream.peer} ({self.present} of {len(self._nodes)})"

    def _welcome(self, client: int) -> Note:
        sites = len(self._nodes)
        return Note(welcome=Welcome(client=client, clients=sites, job=self._job, limit=self._limit, files=self._files))

    def _cut(self, stream: Stream, refusal: RefusedError | None = None) -> None:
        stream.cut(refusal)
        self._ready.add(stream)

    def ready(self) -> set[Stream]:
        """Return the streams with new frames, or an end, since the last call."""
        with self._arrived:
            streams, self._ready = self._ready, set()
        return streams

    def next_frame(self, stream: Stream) -> bytes | None:
        """Return a stream's next frame; None if there is none now, or the stream is over."""
        with self._arrived:
            try:
                return stream.next_frame(self._clock())
            except OSError as error:
                self._give_up(self._seats[stream.site], "read", error)
                # it reconnects, and is sent the pending requests
                self._cut(stream, RefusedError("UNAVAILABLE", "what it was asked cannot be read any more"))
        self._tell_faults()
        return None

    def take(self, stream: Stream, frame: bytes) -> None:
        """Process a frame received over a stream; an invalid one ends the stream."""
        seat = self._seats[stream.site]
        if seat.stream is not stream:
            return  # the stream waits for the slot, or has lost it
        stream.heard = self._clock()
        try:
            item = stream.inbox.take(frame)
        except Exception as error:
            why = printable(str(error) if isinstance(error, FrameError) else f"{type(error).__name__}: {error}")
            self._tell("refused", f"{seat.name} is disconnected: {why}", site=seat.name, cause="frames")
            with self._arrived:
                self._cut(stream, RefusedError("ABORTED", why))
                text = self._vacate(seat, stream)
            self._tell_change(seat, text)
            self.on_ready()
            return
        if isinstance(item, Envelope):
            self._settle(seat, item.id, item)
        elif item == BEAT:
            with self._arrived:
                stream.note_beat()
                if seat.next is None:
                    return
                other, seat.next = seat.next, None
                reason = f"site {seat.name!r} is connected already, from {stream.peer}"
                self._cut(other, RefusedError("ALREADY_EXISTS", reason))
            self._tell("refused", f"refused {seat.name!r} from {other.peer}: {reason}", cause="already exists")
            self.on_ready()

    def leave(self, stream: Stream) -> None:
        """Register the end of a stream."""
        seat = self._seats[stream.site]
        with self._arrived:
            stream.cut(stream.refusal)
            seat.open -= 1
            text = self._vacate(seat, stream)
        self._tell_change(seat, text)
        self.on_ready()

    def _vacate(self, seat: Seat, stream: Stream) -> str:
        """Free a stream's slot for the one waiting, if any, and return the text to report."""
        if seat.next is stream:
            seat.next = None
        if seat.stream is not stream:
            return ""
        seat.stream, seat.since = None, self._clock()
        self._arrived.notify_all()
        if seat.next is not None:
            return self._sit_down(seat, seat.next)
        return "" if self._over else f"{seat.name} is gone ({self.present} of {len(self._nodes)})"

    def tend(self) -> None:
        """Give slots of silent processes to waiting ones; to be called a few times a second."""
        now, changes = self._clock(), []
        with self._arrived:
            for seat in self._nodes:
                holder, waiter = seat.stream, seat.next
                if holder is None or waiter is None:
                    continue
                # while frames arrive, the answer may follow them
                if now - max(seat.asked_at, min(holder.heard, seat.asked_at + SERVER_PATIENCE)) >= ANSWER:
                    text = f"{seat.name} from {holder.peer} does not answer, and loses its place"
                    changes.append((seat, text, self._sit_down(seat, waiter)))
        for seat, gone, here in changes:
            self._tell("site gone", gone, site=seat.name)
            self._tell("site here", here, site=seat.name)
        if changes:
            self.on_ready()

    def _settle(self, seat: Seat, message_id: str, reply: Envelope | Message) -> None:
        with self._arrived:
            if message_id not in seat.waiting:
                return
            request, _ = seat.waiting.pop(message_id)
            seat.behind = False
        self._deliver(seat.node, message_id, (seat, request, reply) if isinstance(reply, Envelope) else reply)

    def _open(self, reply: tuple[Seat, Message, Envelope] | Message) -> Message:
        """Decode a reply, or return an error reply if it does not match its request."""
        if isinstance(reply, Message):
            return reply
        seat, request, envelope = reply
        try:
            message = flower_internals.from_bytes(*envelope.parts)
            fault = flower_internals.mismatch(request, message)
            if fault is None and message.has_error() and message.error.code in CARRIERS:
                fault = f"error {message.error.code}, which only the server has"
        except ProtocolError as error:
            fault = str(error)
        if fault is None:
            return message
        reason = f"site {seat.name!r} sent something else than a reply to what it was asked: {fault}"
        return Message(Error(UNFIT, reason), reply_to=request)

    def _tell_change(self, seat: Seat, text: str) -> None:
        """Report that a slot was left, and perhaps taken again; an empty text reports nothing."""
        self._tell("site gone" if seat.stream is None else "site here", text, site=seat.name)

    def _tell(self, happened: Happened, text: str, seldom: Seldom | None = None, **known: Any) -> None:
        """Report an event, to the callback or else the log, and to observers."""
        self._tell_faults()
        if not text:
            return
        ending = "" if seldom is None else seldom.ending()
        if self._told is not None and ending is not None:
            self._told(text + ending)
        level = logging.DEBUG if self._told is not None or ending is None else logging.INFO
        log_event(happened, "%s", text, level=level, **known)

    def _tell_faults(self) -> None:
        with self._arrived:
            faults, self._faults = self._faults, []
        for text in faults:
            (self._told or log.warning)(text)

    # Called by the engine.

    @property
    def present(self) -> int:
        """Number of connected sites."""
        return sum(seat.stream is not None for seat in self._nodes)

    @property
    def missing(self) -> list[str]:
        """Names of the disconnected sites."""
        return [seat.name for seat in self._nodes if seat.stream is None]

    @property
    def lost(self) -> list[str]:
        """Names of the sites disconnected for longer than the patience."""
        return [seat.name for seat in self._nodes if self._is_gone(seat)]

    @property
    def instances(self) -> dict[str, str]:
        """Ids of the sites' present or last processes, by the sites' names."""
        return {seat.name: seat.instance for seat in self._nodes}

    def names_of(self, nodes: Iterable[int]) -> list[str]:
        """Return the names of sites by their ids."""
        return [self._nodes[node - 1].name for node in nodes]

    def wait_for_all(self, look: Callable[[], object] = lambda: None, seconds: float = math.inf) -> bool:
        """Wait until every site is connected, and return whether they are.

        `look`: called repeatedly; may raise to end the wait. `seconds`: longest wait.
        """
        give_up = time.monotonic() + seconds
        with self._arrived:
            while self.missing and time.monotonic() < give_up:
                look()
                self._arrived.wait(0.25)
            return not self.missing

    def dismiss(self, name: str, reason: str) -> None:
        """Send a site's process the reason for its end, and free the slot for another process."""
        seat, text = self._seats[name], ""
        with self._arrived:
            stream = seat.stream
            seat.last, seat.complete, seat.behind, seat.instance = None, True, False, ""
            if stream is not None:
                stream.queue.append(Note(end=reason).frame)
                stream.finish()
                self._ready.add(stream)
                self.on_ready()
                self._see_off([stream], FAREWELL)
                if seat.stream is stream:
                    self._cut(stream, RefusedError("FAILED_PRECONDITION", reason))
                    text = self._vacate(seat, stream)
        self._tell_change(seat, text)
        self.on_ready()

    def _see_off(self, streams: Iterable[Stream], longest: float) -> None:
        """Wait, holding the lock, until streams have ended: as long as their data move."""
        began = self._clock()
        while unended := [stream for stream in streams if self._seats[stream.site].stream is stream]:
            now = self._clock()
            until = max(
                max(stream.moved, stream.heard, 0.0 if stream.in_flight else began)
                + (STALLED if stream.in_flight else FAREWELL)
                for stream in unended
            )
            if (seconds := min(until, began + longest) - now) <= 0:
                return
            self._wait(min(seconds, LOOK))

    def give(self, name: str, data: bytes) -> None:
        """Send an announced file to every connected site."""
        with self._arrived:
            for seat in self._nodes:
                if seat.stream is not None:
                    seat.stream.queue += (Note(file=name).frame, Envelope("", (data,)))
                    self._ready.add(seat.stream)
        self.on_ready()

    def tell_of_certificate(self, text: str) -> None:
        """Report the renewal, failure or end of the server's certificate."""
        (self._told or log.info)(text)

    def close(self, failure: str | None = "") -> None:
        """Send all sites the end of the work, or its failure, and wait for their streams' ends; once.

        `failure`: empty: success. None: the streams are cut without a note or a wait, so that the sites reconnect to a
        restarted server.
        """
        with self._arrived:
            if self._over:
                return
            self._over = True
            self._forget_run()
            for seat in self._nodes:
                if seat.stream is not None and failure is None:
                    self._cut(seat.stream)
                elif seat.stream is not None:
                    seat.stream.queue.append(Note(end=failure or "").frame)
                    seat.stream.finish()
                    self._ready.add(seat.stream)
                if seat.next is not None:
                    self._cut(seat.next, RefusedError("UNAVAILABLE", "the server is about to end"))
            self.on_ready()
            streams = [seat.stream for seat in self._nodes if seat.stream is not None]
            self._see_off(streams, FAREWELL if failure is None else LONGEST_FAREWELL)
