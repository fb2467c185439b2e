"""State of a site's stream at the coordinator, independent of the transport."""

from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from flwr.app import Message

from fedkernel.engines.grpc.frames import HEARTBEAT, INSTANCE, TRANSPORT, VERSION, Envelope, FrameDecoder, frames
from fedkernel.engines.grpc.request_spool import Spool
from fedkernel.ground import InputError, printable


@dataclass(frozen=True)
class Caller:
    """Process that opens a stream, with metadata as sent. `peer`: its address. `names`: of its certificates (PEM)."""

    metadata: Mapping[str, str]
    peer: str
    names: Sequence[str] = ()
    certificates: Sequence[bytes] = ()


class RefusedError(Exception):
    """Refusal or forced end of a stream; `code`: name of gRPC's status code."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(eq=False)
class Stream:
    """Stream of a site, with its queue of messages to send; only the `StreamGrid` calls its methods.

    - `site`, `instance`, `peer`: name of the site, id of its process, address.
    - `journal_position`, `last_request`: the run that the process remembers, and the last request that it received.
    - `heard`, `moved`: when the last frame arrived, and when the carrier last took one or finished sending it.
    - `over`: nothing more is sent, and frames that arrive are ignored. `refusal`: status for the caller at the end.
    - `finished`: the last item, after a file, is sent; the other end closes the stream once it has read all.
    - `queue`: messages to be sent, whole until the carrier asks for a frame. `asked`: a heartbeat is sent before.
    - `unanswered`: heartbeats without an answer, which says that the other end has read all that was sent before.
    """

    site: str
    instance: str
    peer: str
    journal_position: str
    last_request: str
    decoder: FrameDecoder
    heard: float
    over: bool = False
    refusal: RefusedError | None = None
    moved: float = 0.0
    finished: bool = False
    queue: "deque[bytes | Envelope | Callable[[], Envelope] | None]" = field(default_factory=deque)
    _frames: Iterator[bytes] = field(default_factory=lambda: iter(()))
    asked: bool = False
    _is_taken: bool = False
    unanswered: int = 0
    _is_file: bool = False
    _had_file: bool = False

    @property
    def in_flight(self) -> bool:
        """True while a frame is being sent or a heartbeat is unanswered. A heartbeat follows each frame of a file."""
        return self._is_taken or self.unanswered > 0

    def finish(self) -> None:
        """End the stream once the whole queue is sent."""
        self.queue.append(None)

    def cut(self, refusal: RefusedError | None = None) -> None:
        """End the stream at once, and drop its queue."""
        self.over, self.refusal, self.finished = True, refusal, False
        self.queue.clear()
        self._frames = iter(())

    def next_frame(self, now: float) -> bytes | None:
        """Return the next frame; None if there is none, or the stream is over."""
        frame = self._next_frame()
        if frame is not None or self._is_taken:
            self.moved = now
        self._is_taken = frame is not None
        return frame

    def _next_frame(self) -> bytes | None:
        if self.asked and not self.over:
            self.asked = False
            self.unanswered += 1
            return HEARTBEAT
        while not self.over:
            if (frame := next(self._frames, None)) is not None:
                self.asked |= self._is_file  # a file has no reply, and may arrive long after the carrier took it
                return frame
            if not self.queue:
                break
            item = self.queue.popleft()
            if item is None:
                self.cut()
                self.finished = self._had_file
            elif isinstance(item, bytes):
                return item
            else:
                envelope = item if isinstance(item, Envelope) else item()
                self._frames, self._is_file = frames(envelope), not envelope.id
                self._had_file |= self._is_file
        return None


def check_caller(name: str, caller: Caller, names: Container[str], is_revoked: Callable[[bytes], bool]) -> None:
    """Raise RefusedError unless a process may connect as site `name`, one of `names`, with no certificate revoked."""
    if (spoken := caller.metadata.get(TRANSPORT)) != str(VERSION):
        text = f"it has transport version {printable(spoken or '')}, the server {VERSION}"
        raise RefusedError("FAILED_PRECONDITION", text)
    if caller.names and list(caller.names) != [name]:
        raise RefusedError("PERMISSION_DENIED", f"its certificate names {printable(', '.join(caller.names))!r}")
    for certificate in caller.certificates:
        try:
            revoked = is_revoked(certificate)
        except InputError as error:  # fail closed
            raise RefusedError("UNAVAILABLE", f"the list of revoked certificates cannot be read: {error}") from None
        if revoked:
            raise RefusedError("PERMISSION_DENIED", "its certificate is revoked")
    if name not in names or not caller.metadata.get(INSTANCE):
        raise RefusedError("PERMISSION_DENIED", f"no site of this run is called {printable(name)!r}")


@dataclass
class SiteSlot:
    """Slot of a site at the coordinator: the site's process and stream, and the requests to send again.

    - `stream`, `next`: the holder's stream, and that of a second process, which takes over if the holder does not
      answer the heartbeat sent at the time `asked_at`.
    - `open`: number of streams that have not ended, though they may be over.
    - `instance`, `since`: the last process that had the slot, and the time when it left.
    - `last`: position in the spool of the run's last request. `complete`: the spool has all of the run's requests.
    - `behind`: the site's process was restarted and has not answered a pending request yet.
    - `journal_position`: the run that the process remembered when it connected, with its number of answered requests.
    - `waiting`: unanswered requests by id.
    """

    name: str
    node: int
    stream: Stream | None = None
    next: Stream | None = None
    asked_at: float = 0.0
    open: int = 0
    instance: str = ""
    journal_position: str = ""
    since: float = 0.0
    last: int | None = None
    complete: bool = True
    behind: bool = False
    waiting: dict[str, tuple[Message, Envelope]] = field(default_factory=dict)

    def begin_run(self) -> None:
        """Discard the spooled requests and the state of an earlier run."""
        self.last, self.complete, self.behind, self.journal_position = None, True, False, ""

    def forget_run(self) -> None:
        """Discard a run's state and all its requests, unsent and unanswered ones included."""
        self.begin_run()
        self.waiting.clear()
        if (stream := self.stream) is not None:  # whose message in progress goes on
            queue = (item for item in stream.queue if not callable(item))
            stream.queue = deque(item for item in queue if not (isinstance(item, Envelope) and item.id))

    def asked_again(self, spool: Spool, last_request: str) -> Iterator[Envelope | Callable[[], Envelope]]:
        """Yield the unanswered requests. If the site is `behind`, add the run's others after `last_request`."""
        waiting = {message_id: envelope for message_id, (_, envelope) in self.waiting.items()}
        if not self.behind:
            yield from waiting.values()
            return
        places = spool.places(self.last)
        is_new = last_request not in places
        for message_id, place in places.items():
            if message_id in waiting:
                yield waiting[message_id]
            elif is_new:
                yield partial(spool.at, place)
            is_new |= message_id == last_request
