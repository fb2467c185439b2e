"""Flower Grid of the coordinator, whose nodes are the processes connected under sites' names."""

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

from flwr.app import Error, Message, MessageType

from fedkernel.engines.grpc import frames
from fedkernel.engines.grpc.connections import MOST_IDLE
from fedkernel.engines.grpc.defaults import MAX_MESSAGE_BYTES, SERVER_PATIENCE
from fedkernel.engines.grpc.frames import Envelope, FrameDecoder, FrameError, Note, Welcome
from fedkernel.engines.grpc.reports import Report, ReportRateLimit, ignore_print_errors
from fedkernel.engines.grpc.request_spool import Spool
from fedkernel.engines.grpc.streams import Caller, RefusedError, SiteSlot, Stream, check_caller
from fedkernel.ground import EngineError, InputError, ProtocolError, printable
from fedkernel.run import CHECK_SECONDS, EventName, MessageGrid, Serialise, log_event
from fedkernel.wire import DISCONNECTED, ENGINE_CODES, INVALID_REPLY, flower_internals

log = logging.getLogger(__name__)

ANSWER_SECONDS = 3.0  # seconds within which a process must answer a heartbeat when a second one claims its slot
MOST_STREAMS = 8  # most streams of a site, ended ones that gRPC still holds included
END_SECONDS = 5.0  # longest wait for streams to end once nothing is in flight, in seconds
STALLED_SECONDS = 60.0  # longest wait for a frame in flight at the end, in seconds: 1 MiB (`frames.CHUNK`) at 17 kB/s
LONGEST_END_SECONDS = 3600.0  # longest wait for streams to end while data move, in seconds


class StreamGrid(MessageGrid):
    """Flower Grid over streams of frames. Each site's name has a slot, which one connected process at a time holds.

    - `names`: the sites, in the order of the clients' numbers.
    - `job`: JSON of the job as sites may know it, for Flower's run configuration of every app.
    - `patience`: seconds of absence after which a site's pending requests fail. `limit`: bytes of a message.
    - `report`: called with a sentence whenever a site comes, goes or is refused; by default these are logged.
    - `files`: names of all files that `send_file` may send. `clock`: returns seconds.
    - `is_revoked`, set by the carrier of the streams: decides whether a certificate (PEM) is revoked.
    - `on_ready`, set by the carrier: called, in any thread, when `ready` has streams to return.

    The grid knows no transport, starts no thread and sleeps only where the engine waits. The carrier
    (`fedkernel.engines.grpc.serving`, or a test's simulated network) admits each stream (`admit`). Whenever `ready`
    returns a stream, it sends the frames of `next_frame`, one after the other. It passes on received frames
    (`receive_frame`), ends a stream that is `over`, reports ended ones (`leave`), and calls `replace_silent` a few
    times a second.

    A site that reconnects with requests pending is sent these again if its process is the same, since the reply may
    have been lost. A restarted process is sent all of the run's requests, which restores its memory.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        job: str = "",
        patience: float = SERVER_PATIENCE,
        limit: int = MAX_MESSAGE_BYTES,
        report: Report | None = None,
        files: Sequence[frames.FileName] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._slots = {name: SiteSlot(name, node) for node, name in enumerate(names, start=1)}
        self._nodes = list(self._slots.values())
        self._job = job
        self._patience = patience
        self._limit = limit
        self._print = None if report is None else ignore_print_errors(report)
        self._files = list(files)
        self._clock = clock
        self.is_revoked: Callable[[bytes], bool] = lambda certificate: False
        self.on_ready: Callable[[], object] = lambda: None
        self._ready: set[Stream] = set()
        self._spool = Spool()
        self._under_way = False
        self._over = False
        self._refusals: dict[str, ReportRateLimit] = {}  # by certificates' names
        self._closings = ReportRateLimit(clock)
        self._faults: list[str] = []  # to be reported once the lock is free
        if (size := len(self._welcome(0).frame)) > frames.MAX_NOTE_BYTES:
            raise InputError(
                f"the study (runs, plans, signatures) takes {size:,} bytes when sent to sites; allowed: "
                f"{frames.MAX_NOTE_BYTES:,}. Put fewer runs in one study"
            )

    # Flower's Grid.

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of nodes connected now or within the patience. An id is the client's number plus 1."""
        with self._arrived:
            return [slot.node for slot in self._nodes if slot.instance and not self._is_gone(slot)]

    def absent(self) -> list[int]:
        """Return the ids of all disconnected nodes."""
        with self._arrived:
            return [slot.node for slot in self._nodes if slot.stream is None]

    def node_name(self, node: int) -> str:
        """Return a node's site name for texts."""
        return f"site {self._nodes[node - 1].name!r}"

    def _post(self, message: Message, message_id: str, serialise: Serialise) -> None:
        slot, envelope = self._nodes[message.metadata.dst_node_id - 1], Envelope(message_id, serialise())
        if envelope.size > self._limit:
            raise EngineError(
                f"a message to {slot.name} has {envelope.size:,} bytes, but {self._limit:,} are allowed (--max-message)"
            )
        with self._arrived:
            self._spool_request(slot, message, envelope)
            slot.waiting[message_id] = message, envelope
            if slot.stream is not None:
                slot.stream.queue.append(envelope)
                self._ready.add(slot.stream)
        self._report_faults()

    def _posted(self) -> None:
        self.on_ready()  # once per round

    def _spool_request(self, slot: SiteSlot, message: Message, envelope: Envelope) -> None:
        if message.metadata.message_type == MessageType.QUERY:  # a run begins
            if self._under_way:
                self._forget_run()
            slot.begin_run()
        else:
            self._under_way = True
        try:
            if slot.complete:
                slot.last = self._spool.keep(slot.last, envelope)
        except OSError as error:
            self._stop_spooling(slot, "written", error)

    def _stop_spooling(self, slot: SiteSlot, what: str, error: OSError) -> None:
        if all(other.complete for other in self._nodes):  # else it was reported before
            text = f"requests cannot be {what} ({printable(str(error))}); this run can no longer survive a site restart"
            self._faults.append(text)
        slot.last, slot.complete, slot.behind = None, False, False

    def _forget_run(self) -> None:
        """Discard all requests of the previous run, sent or not."""
        self._under_way = False
        for slot in self._nodes:
            slot.forget_run()
        self._spool.clear()

    def _forget(self, ids: Set[str]) -> None:
        for slot in self._nodes:
            for message_id in ids & slot.waiting.keys():
                del slot.waiting[message_id]

    def prepare_resume(self, run: str, answered: Mapping[int, int], checkpoints: Iterable[bytes]) -> None:
        """Mark sites that missed journaled requests as `behind`."""
        # a site may have answered one request more, whose reply was not recorded: it sends that answer again
        self.behind = frozenset(
            slot.node
            for slot in self._nodes
            if (count := answered.get(slot.node, 0))
            and slot.journal_position not in (f"{run} {count}", f"{run} {count + 1}")
        )

    def restore_requests(self, messages: Iterable[Message]) -> None:
        """Spool messages of the run that were answered before this process started."""
        contents: dict[int, list[bytes]] = {}
        for message in messages:
            if (content := id(message.content)) not in contents:
                contents[content] = flower_internals.content_to_parts(message.content)
            envelope = Envelope(flower_internals.stamp(message), flower_internals.to_parts(message, contents[content]))
            with self._arrived:
                self._spool_request(self._nodes[message.metadata.dst_node_id - 1], message, envelope)
        self._report_faults()

    def _is_gone(self, slot: SiteSlot) -> bool:
        return slot.stream is None and self._clock() - slot.since > self._patience

    def _check_connections(self) -> None:
        for slot in self._nodes:
            if slot.waiting and self._is_gone(slot):
                reason = f"site {slot.name!r} is no longer connected (waited {self._patience:g} s)"
                for message_id, (message, _) in list(slot.waiting.items()):
                    self._resolve(slot, message_id, Message(Error(DISCONNECTED, reason), reply_to=message))

    # Called by the carrier of the streams, in any thread.

    def admit(self, caller: Caller) -> Stream:
        """Give a new stream its site's slot, or let it wait until the holder has been tested. Raises RefusedError."""
        name = caller.metadata.get(frames.NAME, "")
        try:
            if self._over:
                raise RefusedError("UNAVAILABLE", "the server is ending")
            check_caller(name, caller, self._slots, self.is_revoked)
            with self._arrived:
                stream, text = self._assign_slot(self._slots[name], caller)
        except RefusedError as refusal:
            rate_limit = self._refusals.setdefault(" ".join(caller.names), ReportRateLimit(self._clock))
            if not self._over:
                cause = refusal.code.lower().replace("_", " ")
                text = f"refused {printable(name)!r} from {caller.peer}: {refusal}"
                self._report("refused", text, rate_limit, cause=cause)
            raise
        self._report("site here", text, site=name)
        self.on_ready()
        return stream

    def report_closed(self, connections: int) -> None:
        """Report closed idle connections."""
        text = f"closed {connections} idle connections; allowed: {MOST_IDLE} at a time"
        self._report("refused", text, self._closings, cause="idle")

    def _assign_slot(self, slot: SiteSlot, caller: Caller) -> tuple[Stream, str]:
        instance = caller.metadata[frames.INSTANCE]
        if slot.open >= MOST_STREAMS:
            raise RefusedError("RESOURCE_EXHAUSTED", f"site {slot.name!r} has {MOST_STREAMS} streams, the most allowed")
        holder, waiter = slot.stream, slot.next
        if holder is not None and holder.instance != instance and waiter is not None and waiter.instance != instance:
            raise RefusedError("UNAVAILABLE", f"a second process is waiting for the slot of site {slot.name!r}")
        metadata, decoder = caller.metadata, FrameDecoder(self._limit, is_awaited=slot.waiting.__contains__)
        journal_position, last_request = metadata.get(frames.POSITION, ""), metadata.get(frames.LAST_REQUEST, "")
        stream = Stream(slot.name, instance, caller.peer, journal_position, last_request, decoder, self._clock())
        text = ""
        if holder is None or holder.instance == instance:
            text = self._occupy(slot, stream)  # a process may notice its broken stream before the grid does
        else:
            if waiter is not None:
                self._cut(waiter)
            slot.next, slot.asked_at = stream, self._clock()
            holder.asked = True
            self._ready.add(holder)
        slot.open += 1  # only for returned streams, which `leave` ends
        return stream, text

    def _occupy(self, slot: SiteSlot, stream: Stream) -> str:
        """Give a stream its slot and the pending requests, and return the text to report."""
        if slot.stream is not None:
            self._cut(slot.stream)
        restarted, again = slot.instance not in ("", stream.instance), slot.instance == stream.instance
        stream.queue.append(self._welcome(slot.node - 1).frame)
        slot.behind = slot.complete and (restarted or slot.behind)
        last_request = stream.last_request if again else ""
        try:
            requests = list(slot.asked_again(self._spool, last_request))
        except OSError as error:
            self._stop_spooling(slot, "read", error)
            requests = list(slot.asked_again(self._spool, last_request))
        stream.queue.extend(requests)
        slot.stream, slot.next = stream, None
        slot.instance, slot.journal_position = stream.instance, stream.journal_position
        self._ready.add(stream)
        self._arrived.notify_all()
        how = "is back" if again else "is back, restarted" if restarted else "is here"
        return f"{slot.name} {how}, from {stream.peer} ({self.present} of {len(self._nodes)})"

    def _welcome(self, client: int) -> Note:
        sites = len(self._nodes)
        return Note(welcome=Welcome(client=client, clients=sites, job=self._job, limit=self._limit, files=self._files))

    def _cut(self, stream: Stream, refusal: RefusedError | None = None) -> None:
        stream.cut(refusal)
        self._ready.add(stream)

    def ready(self) -> set[Stream]:
        """Return the streams that have new frames, or have ended, since the last call."""
        with self._arrived:
            streams, self._ready = self._ready, set()
        return streams

    def next_frame(self, stream: Stream) -> bytes | None:
        """Return a stream's next frame; None if there is none now, or the stream is over."""
        with self._arrived:
            try:
                return stream.next_frame(self._clock())
            except OSError as error:
                self._stop_spooling(self._slots[stream.site], "read", error)
                # it reconnects, and is sent the pending requests
                self._cut(stream, RefusedError("UNAVAILABLE", "the server cannot read pending requests from disk"))
        self._report_faults()
        return None

    def receive_frame(self, stream: Stream, frame: bytes) -> None:
        """Process a frame that a site sent over a stream; an invalid frame ends the stream."""
        slot = self._slots[stream.site]
        if slot.stream is not stream:
            return  # the stream waits for the slot, or has lost it
        stream.heard = self._clock()
        try:
            item = stream.decoder.decode(frame)
        except Exception as error:
            why = printable(str(error) if isinstance(error, FrameError) else f"{type(error).__name__}: {error}")
            self._report("refused", f"{slot.name} is disconnected: {why}", site=slot.name, cause="frames")
            with self._arrived:
                self._cut(stream, RefusedError("ABORTED", why))
                text = self._release(slot, stream)
            self._report_change(slot, text)
            return
        if isinstance(item, Envelope):
            self._resolve(slot, item.id, item)
        elif item == frames.HEARTBEAT:
            with self._arrived:
                stream.unanswered = max(0, stream.unanswered - 1)
                if slot.next is None:
                    return
                other, slot.next = slot.next, None
                reason = f"site {slot.name!r} is already connected, from {stream.peer}"
                self._cut(other, RefusedError("ALREADY_EXISTS", reason))
            self._report("refused", f"refused {slot.name!r} from {other.peer}: {reason}", cause="already exists")
            self.on_ready()

    def leave(self, stream: Stream) -> None:
        """Register the end of a stream, and free its slot."""
        slot = self._slots[stream.site]
        with self._arrived:
            stream.cut(stream.refusal)
            slot.open -= 1
            text = self._release(slot, stream)
        self._report_change(slot, text)

    def _release(self, slot: SiteSlot, stream: Stream) -> str:
        """Free a stream's slot for a waiting stream, if any, and return the text to report."""
        if slot.next is stream:
            slot.next = None
        if slot.stream is not stream:
            return ""
        slot.stream, slot.since = None, self._clock()
        self._arrived.notify_all()
        if slot.next is not None:
            return self._occupy(slot, slot.next)
        return "" if self._over else f"{slot.name} is gone ({self.present} of {len(self._nodes)})"

    def replace_silent(self) -> None:
        """Give the slots of processes that do not answer a heartbeat to waiting ones. Called several times a second."""
        now, changes = self._clock(), []
        with self._arrived:
            for slot in self._nodes:
                holder, waiter = slot.stream, slot.next
                if holder is None or waiter is None:
                    continue
                # while frames arrive, the answer may follow them
                if now - max(slot.asked_at, min(holder.heard, slot.asked_at + SERVER_PATIENCE)) >= ANSWER_SECONDS:
                    text = f"{slot.name} from {holder.peer} does not answer, and loses its slot"
                    changes.append((slot, text, self._occupy(slot, waiter)))
        for slot, gone, here in changes:
            self._report("site gone", gone, site=slot.name)
            self._report("site here", here, site=slot.name)
        if changes:
            self.on_ready()

    def _resolve(self, slot: SiteSlot, message_id: str, reply: Envelope | Message) -> None:
        with self._arrived:
            if message_id not in slot.waiting:
                return
            request, _ = slot.waiting.pop(message_id)
            slot.behind = False
        self._deliver(slot.node, message_id, (slot, request, reply) if isinstance(reply, Envelope) else reply)

    def _open(self, reply: tuple[SiteSlot, Message, Envelope] | Message) -> Message:
        """Decode a delivered reply; one that does not match its request becomes an error reply."""
        if isinstance(reply, Message):
            return reply
        slot, request, envelope = reply
        try:
            message = flower_internals.from_bytes(*envelope.parts)
            fault = flower_internals.mismatch(request, message)
            if fault is None and message.has_error() and message.error.code in ENGINE_CODES:
                fault = f"error {message.error.code} is reserved for the server"
        except ProtocolError as error:
            fault = str(error)
        if fault is None:
            return message
        reason = f"site {slot.name!r} sent an invalid reply: {fault}"
        return Message(Error(INVALID_REPLY, reason), reply_to=request)

    def _report_change(self, slot: SiteSlot, text: str) -> None:
        """Report a text, if any, on a slot that was freed and perhaps taken again. Then wake the streams' carrier."""
        self._report("site gone" if slot.stream is None else "site here", text, site=slot.name)
        self.on_ready()

    def _report(self, happened: EventName, text: str, rate_limit: ReportRateLimit | None = None, **known: Any) -> None:
        """Report an event to the print callback or else the log, and to observers."""
        self._report_faults()
        if not text:
            return
        suffix = "" if rate_limit is None else rate_limit.suffix()
        if self._print is not None and suffix is not None:
            self._print(text + suffix)
        level = logging.DEBUG if self._print is not None or suffix is None else logging.INFO
        log_event(happened, "%s", text, level=level, **known)

    def _report_faults(self) -> None:
        with self._arrived:
            faults, self._faults = self._faults, []
        for text in faults:
            (self._print or log.warning)(text)

    # Called by the engine.

    @property
    def present(self) -> int:
        """Number of connected sites."""
        return sum(slot.stream is not None for slot in self._nodes)

    @property
    def missing(self) -> list[str]:
        """Names of all disconnected sites."""
        return [slot.name for slot in self._nodes if slot.stream is None]

    @property
    def lost(self) -> list[str]:
        """Names of the sites disconnected for longer than the patience."""
        return [slot.name for slot in self._nodes if self._is_gone(slot)]

    @property
    def instances(self) -> dict[str, str]:
        """Ids of the sites' present or last processes, by the sites' names."""
        return {slot.name: slot.instance for slot in self._nodes}

    def names_of(self, nodes: Iterable[int]) -> list[str]:
        """Return the site names of nodes by their ids."""
        return [self._nodes[node - 1].name for node in nodes]

    def wait_for_all(self, check: Callable[[], object] = lambda: None, seconds: float = math.inf) -> bool:
        """Wait, some seconds at most, until every site is connected, and return whether all are. `check`: may raise."""
        give_up = time.monotonic() + seconds
        with self._arrived:
            while self.missing and time.monotonic() < give_up:
                check()
                self._arrived.wait(0.25)
            return not self.missing

    def dismiss(self, name: str, reason: str) -> None:
        """End a site's process with a reason, and free the slot for its successor."""
        slot, text = self._slots[name], ""
        with self._arrived:
            stream = slot.stream
            slot.last, slot.complete, slot.behind, slot.instance = None, True, False, ""
            if stream is not None:
                stream.queue.append(Note(end=reason).frame)
                stream.finish()
                self._ready.add(stream)
                self.on_ready()
                self._await_ends([stream], END_SECONDS)
                if slot.stream is stream:
                    self._cut(stream, RefusedError("FAILED_PRECONDITION", reason))
                    text = self._release(slot, stream)
        self._report_change(slot, text)

    def _await_ends(self, streams: Iterable[Stream], longest: float) -> None:
        """Wait until streams have ended, as long as their data move. The caller holds the lock of `_arrived`."""
        began = self._clock()
        while unended := [stream for stream in streams if self._slots[stream.site].stream is stream]:
            now = self._clock()
            until = max(
                max(stream.moved, stream.heard, 0.0 if stream.in_flight else began)
                + (STALLED_SECONDS if stream.in_flight else END_SECONDS)
                for stream in unended
            )
            if (seconds := min(until, began + longest) - now) <= 0:
                return
            self._wait(min(seconds, CHECK_SECONDS))

    def send_file(self, name: str, data: bytes) -> None:
        """Send an announced file to every connected site."""
        with self._arrived:
            for slot in self._nodes:
                if slot.stream is not None:
                    slot.stream.queue += (Note(file=name).frame, Envelope("", (data,)))
                    self._ready.add(slot.stream)
        self.on_ready()

    def report_certificate(self, text: str) -> None:
        """Report an event of the server's certificate, such as its renewal."""
        (self._print or log.info)(text)

    def close(self, failure: str | None = "") -> None:
        """Notify all sites of the end of the work, and wait until their streams end; later calls do nothing.

        `failure`: empty: success. None: the streams are cut without a note or a wait, so that the sites reconnect to a
        restarted server.
        """
        with self._arrived:
            if self._over:
                return
            self._over = True
            self._forget_run()
            for slot in self._nodes:
                if slot.stream is not None and failure is None:
                    self._cut(slot.stream)
                elif slot.stream is not None:
                    slot.stream.queue.append(Note(end=failure or "").frame)
                    slot.stream.finish()
                    self._ready.add(slot.stream)
                if slot.next is not None:
                    self._cut(slot.next, RefusedError("UNAVAILABLE", "the server is ending"))
            self.on_ready()
            streams = [slot.stream for slot in self._nodes if slot.stream is not None]
            self._await_ends(streams, END_SECONDS if failure is None else LONGEST_END_SECONDS)
