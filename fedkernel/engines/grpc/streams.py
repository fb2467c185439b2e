"""State of a site's stream at the coordinator, independent of the transport."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fedkernel.engines.grpc.frames import HEARTBEAT, Envelope, FrameDecoder, frames


@dataclass(frozen=True)
class Caller:
    """Process that opens a stream to the coordinator.

    `metadata`: as sent. `peer`: its address, for texts. `names`: common names in its certificate, empty without one.
    `certificates`: PEM.
    """

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

    Messages to be sent stay whole in `queue`, where the grid holds them anyway, until the carrier asks for a frame.

    - `site`, `instance`, `peer`: name of the site, id of its process, address.
    - `journal_position`, `last_request`: the run that the process remembers, and the last request that it received.
    - `heard`: arrival of the last frame.
    - `over`: nothing more is sent, and frames that arrive are ignored.
    - `refusal`: status for the caller at the end.
    - `moved`: time at which the carrier last took a frame or finished sending one.
    - `finished`: the last item, after a file, is sent; the other end closes the stream once it has read all.
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
    _asked: bool = False
    _is_taken: bool = False
    _unanswered: int = 0
    _is_file: bool = False
    _had_file: bool = False

    @property
    def in_flight(self) -> bool:
        """True while a frame is being sent, or a heartbeat, as after a file's frame, is unanswered."""
        return self._is_taken or self._unanswered > 0

    def note_beat(self) -> None:
        """Register a heartbeat's answer: the other end has read everything sent before the heartbeat."""
        self._unanswered = max(0, self._unanswered - 1)

    def ask(self) -> None:
        """Send a heartbeat before anything else in the queue."""
        self._asked = True

    def finish(self) -> None:
        """End the stream once the whole queue is sent."""
        self.queue.append(None)

    def cut(self, refusal: RefusedError | None = None) -> None:
        """End the stream at once, and drop its queue."""
        self.over, self.refusal, self.finished = True, refusal, False
        self.queue.clear()
        self._frames = iter(())

    def keep_only(self, is_kept: Callable[[object], bool]) -> None:
        """Drop queued items that `is_kept` rejects; a message in progress goes on."""
        self.queue = deque(filter(is_kept, self.queue))

    def next_frame(self, now: float) -> bytes | None:
        """Return the next frame; None if there is none, or the stream is over."""
        frame = self._next_frame()
        if frame is not None or self._is_taken:
            self.moved = now
        self._is_taken = frame is not None
        return frame

    def _next_frame(self) -> bytes | None:
        if self._asked and not self.over:
            self._asked = False
            self._unanswered += 1
            return HEARTBEAT
        while not self.over:
            if (frame := next(self._frames, None)) is not None:
                self._asked |= self._is_file  # a file has no reply, and may arrive long after the carrier took it
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
