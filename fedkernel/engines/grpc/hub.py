"""The coordinator's end: a Flower Grid whose nodes are processes that have connected under their names."""

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

from flwr.app import Error, Message, MessageType

from fedkernel.engines.grpc.admission import check_caller
from fedkernel.engines.grpc.connections import MOST
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
from fedkernel.engines.grpc.notify import Seldom, Tell, heedless
from fedkernel.engines.grpc.request_spool import Spool
from fedkernel.engines.grpc.site_slots import Seat
from fedkernel.engines.grpc.streams import Caller, RefusedError, Stream
from fedkernel.ground import EngineError, InputError, ProtocolError, shown
from fedkernel.run import LOOK, Happened, MessageGrid, Serialise, log_event
from fedkernel.wire import CARRIERS, GONE, UNFIT, flower

log = logging.getLogger(__name__)

ANSWER = 3.0
"""Seconds in which a process must show that it is there when another one wants its seat."""

STREAMS = 8
"""Of a site, most of them over: gRPC ends a stream that reads nothing only with its connection."""

FAREWELL = 5.0
"""Seconds that streams have to end by themselves once nothing moves any more."""

STALLED = 60.0
"""Seconds that a frame may be on its way at the end: 1 MiB (`fedkernel.engines.grpc.frames.CHUNK`) at 17 kB/s."""

LONGEST_FAREWELL = 3600.0
"""Seconds that streams have to end, however well they move."""


class Hub(MessageGrid):
    """A Flower Grid over streams of frames; every site has its seat, by name.

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
    clock : callable
        Seconds since some moment.

    Attributes
    ----------
    is_revoked : callable
        Tells whether a certificate (PEM) is no longer taken; whoever carries the streams sets it.
    on_ready : callable
        Called, in any thread, when `ready` has streams to return; whoever carries the streams sets it.

    Notes
    -----
    It knows no transport, starts no thread and sleeps only where the engine waits. Whoever carries streams, which is
    `fedkernel.engines.grpc.serving` or a test's simulated network, admits each (`admit`), sends what `next_frame`
    returns, one frame after the other and the next one when the stream has taken the last, each time that `ready`
    names the stream; hands over what comes (`take`), ends a stream that is `over`, says when one has ended (`leave`),
    and calls `tend` a few times a second. With `clock` and `_wait`, in which `send_and_receive` spends its time, all
    that happens is in the hands of one thread, and repeats.

    A site that comes back while it is asked something is asked again: the same process, whose reply may have been lost,
    for just that; one that was restarted for everything in the run under way, which brings its memory back.
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
        self._refusals: dict[str, Seldom] = {}  # by what certificates say
        self._closings = Seldom(clock)
        self._faults: list[str] = []  # to be told when the lock is free
        if (size := len(self._welcome(0).frame)) > MOST_NOTE:
            raise InputError(
                f"the work has {size:,} bytes as it is told to sites, its runs, plans and signatures; allowed: "
                f"{MOST_NOTE:,}, so fewer runs in one study"
            )

    # What Flower's Grid does.

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of the nodes that are connected, or were a moment ago: the clients' numbers plus 1."""
        with self._arrived:
            return [seat.node for seat in self._nodes if self._is_there(seat)]

    def absent(self) -> list[int]:
        """Return the ids of the nodes that are not connected now."""
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
        self.on_ready()  # once for all of a round

    def _keep(self, seat: Seat, message: Message, envelope: Envelope) -> None:
        """Keep a request for a process that may be restarted."""
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
        """Keep no requests for a site any more in this run."""
        if all(other.complete for other in self._nodes):  # else it has been told
            text = f"a site that is restarted now fails this run: its requests cannot be {what} ({shown(str(error))})"
            self._faults.append(text)
        seat.last, seat.complete, seat.behind = None, False, False

    def _forget_run(self) -> None:
        """Forget what was asked in the run before, and what has not been sent or answered of that."""
        self._under_way = False
        for seat in self._nodes:
            seat.forget_run()
        self._spool.clear()

    def _forget(self, ids: Set[str]) -> None:
        for seat in self._nodes:
            for message_id in ids & seat.waiting.keys():
                del seat.waiting[message_id]

    def come_back(self, run: str, answered: Mapping[int, int], checkpoints: Iterable[bytes]) -> str:
        """Find the sites that do not remember the run as far as it went: these are asked again what is recorded.

        Each may have answered one request more, whose reply was not recorded any more: its answer comes again.
        """
        self.behind = frozenset(
            seat.node
            for seat in self._nodes
            if (count := answered.get(seat.node, 0)) and seat.stands not in (f"{run} {count}", f"{run} {count + 1}")
        )
        return ""

    def recall(self, messages: Iterable[Message]) -> None:
        """Keep messages that were answered before this process began, as if it had sent them."""
        contents: dict[int, list[bytes]] = {}
        for message in messages:
            if (content := id(message.content)) not in contents:
                contents[content] = flower.content_to_parts(message.content)
            envelope = Envelope(flower.stamp(message), flower.to_parts(message, contents[content]))
            with self._arrived:
                self._keep(self._nodes[message.metadata.dst_node_id - 1], message, envelope)
        self._tell_faults()

    def _is_there(self, seat: Seat) -> bool:
        """Return whether a site is connected, or was a moment ago."""
        return bool(seat.instance) and not self._is_gone(seat)

    def _is_gone(self, seat: Seat) -> bool:
        return seat.stream is None and self._clock() - seat.since > self._patience

    def _look_after(self) -> None:
        for seat in self._nodes:
            if seat.waiting and self._is_gone(seat):
                reason = f"site {seat.name!r} is no longer connected (waited {self._patience:g} s)"
                for message_id, (message, _) in list(seat.waiting.items()):
                    self._settle(seat, message_id, Message(Error(GONE, reason), reply_to=message))

    # What a carrier of streams calls, in any thread.

    def admit(self, caller: Caller) -> Stream:
        """Let a site's stream in: into its seat, or to wait until whoever has that seat shows whether it is there.

        Every stream that is returned must be left with `leave`.

        Raises RefusedError.
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
                self._tell("refused", f"refused {shown(name)!r} from {caller.peer}: {refusal}", seldom, cause=cause)
            raise
        self._tell("site here", text, site=name)
        self.on_ready()
        return stream

    def tell_closed(self, connections: int) -> None:
        """Tell that connections were closed over which nothing was called."""
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
            text = self._sit_down(seat, stream)  # the same process knows of a broken stream before we do
        else:
            if waiter is not None:
                self._cut(waiter)
            seat.next, seat.asked = stream, self._clock()
            holder.ask()
            self._ready.add(holder)
        seat.open += 1  # of what is returned only: that is left
        return stream, text

    def _sit_down(self, seat: Seat, stream: Stream) -> str:
        """Give a stream its seat, and all that was asked of it; returns what is to be told."""
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
        """Return the streams for which there has been something to send, or the end, since the last call."""
        with self._arrived:
            streams, self._ready = self._ready, set()
        return streams

    def next_frame(self, stream: Stream) -> bytes | None:
        """Return what is to be sent over a stream as soon as it takes it; None: nothing now, or it is over."""
        with self._arrived:
            try:
                return stream.next_frame(self._clock())
            except OSError as error:
                self._give_up(self._seats[stream.site], "read", error)
                # it comes back, and is asked what waits
                self._cut(stream, RefusedError("UNAVAILABLE", "what it was asked cannot be read any more"))
        self._tell_faults()
        return None

    def take(self, stream: Stream, frame: bytes) -> None:
        """Take a frame that came over a stream; one that cannot be right ends it."""
        seat = self._seats[stream.site]
        if seat.stream is not stream:
            return  # one that waits has nothing to say, and one that has lost its seat no more
        stream.heard = self._clock()
        try:
            item = stream.inbox.take(frame)
        except Exception as error:
            why = shown(str(error) if isinstance(error, FrameError) else f"{type(error).__name__}: {error}")
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
        """Take note that a stream has ended, by whomever."""
        seat = self._seats[stream.site]
        with self._arrived:
            stream.cut(stream.refusal)
            seat.open -= 1
            text = self._vacate(seat, stream)
        self._tell_change(seat, text)
        self.on_ready()

    def _vacate(self, seat: Seat, stream: Stream) -> str:
        """Have a seat no longer taken by a stream, but by the one that waits for it; returns what is to be told."""
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
        """Give seats whose processes have not shown that they are there to those that wait; to be called all along."""
        now, changes = self._clock(), []
        with self._arrived:
            for seat in self._nodes:
                holder, waiter = seat.stream, seat.next
                if holder is None or waiter is None:
                    continue
                # where frames still come, the answer may be behind them
                if now - max(seat.asked, min(holder.heard, seat.asked + SERVER_PATIENCE)) >= ANSWER:
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
        """Take what a site sent for the reply to a request, if it is one, whatever it says about itself."""
        if isinstance(reply, Message):
            return reply
        seat, request, envelope = reply
        try:
            message = flower.from_bytes(*envelope.parts)
            fault = flower.mismatch(request, message)
            if fault is None and message.has_error() and message.error.code in CARRIERS:
                fault = f"error {message.error.code}, which only the server has"
        except ProtocolError as error:
            fault = str(error)
        if fault is None:
            return message
        reason = f"site {seat.name!r} sent something else than a reply to what it was asked: {fault}"
        return Message(Error(UNFIT, reason), reply_to=request)

    def _tell_change(self, seat: Seat, text: str) -> None:
        """Tell that a seat was left, and perhaps who has it now; nothing where no text says so."""
        self._tell("site gone" if seat.stream is None else "site here", text, site=seat.name)

    def _tell(self, happened: Happened, text: str, seldom: Seldom | None = None, **known: Any) -> None:
        """Tell whoever is to be told, or the log, for people; and those that observe what happens, in any case."""
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

    # What the engine does.

    @property
    def present(self) -> int:
        """How many sites are connected."""
        return sum(seat.stream is not None for seat in self._nodes)

    @property
    def missing(self) -> list[str]:
        """The names of the sites that are not connected."""
        return [seat.name for seat in self._nodes if seat.stream is None]

    @property
    def lost(self) -> list[str]:
        """The names of the sites that have been missing for longer than the patience."""
        return [seat.name for seat in self._nodes if self._is_gone(seat)]

    @property
    def instances(self) -> dict[str, str]:
        """What tells each site's process from those before it, by the sites' names."""
        return {seat.name: seat.instance for seat in self._nodes}

    def names_of(self, nodes: Iterable[int]) -> list[str]:
        """Return the names of sites by their ids."""
        return [self._nodes[node - 1].name for node in nodes]

    def wait_for_all(self, look: Callable[[], object] = lambda: None, seconds: float = math.inf) -> bool:
        """Wait until every site is connected, and return whether they are.

        `look`: called again and again; may raise to end the waiting. `seconds`: to wait at most.
        """
        give_up = time.monotonic() + seconds
        with self._arrived:
            while self.missing and time.monotonic() < give_up:
                look()
                self._arrived.wait(0.25)
            return not self.missing

    def dismiss(self, name: str, reason: str) -> None:
        """Tell a site's process why it is not needed any more, and forget it: another may take its seat."""
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
        """Wait, with the lock, until streams have ended that are to: as long as what they are sent moves."""
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
        """Send a file that was announced to every site that is connected."""
        with self._arrived:
            for seat in self._nodes:
                if seat.stream is not None:
                    seat.stream.queue += (Note(file=name).frame, Envelope("", (data,)))
                    self._ready.add(seat.stream)
        self.on_ready()

    def tell_of_certificate(self, text: str) -> None:
        """Tell what became of the server's own certificate."""
        (self._told or log.info)(text)

    def close(self, failure: str | None = "") -> None:
        """Tell all sites that the work is done, or what it failed with, and wait until their streams have ended; once.

        `failure`: empty: it is done. None: nothing is told, so that the sites look for a server that goes on, and
        nobody waits for what is on its way.
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
