"""A site's stream as the hub sees it, without a word of how it is carried: who calls, what to send, what has come."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fedkernel.engines.grpc.frames import BEAT, Envelope, Inbox, frames


@dataclass(frozen=True)
class Caller:
    """Who opens a stream.

    - `metadata`: as the caller sent it.
    - `peer`: its address, for texts.
    - `names`: common names of its certificate; none: it showed no certificate.
    - `certificates`: PEM.
    """

    metadata: Mapping[str, str]
    peer: str
    names: Sequence[str] = ()
    certificates: Sequence[bytes] = ()


class RefusedError(Exception):
    """A stream that is not attended to, or no longer; `code` is the name of gRPC's status code."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(eq=False)
class Stream:
    """One stream of a site; only its hub calls the methods.

    What is to be sent stays in `queue` as messages, which the hub holds anyway, until the carrier asks for a frame.

    - `site`, `instance`, `peer`, `stands`, `taken`: whose it is, of which process, from where, and what that process
      says that it remembers and took last.
    - `heard`: when the last frame came.
    - `over`: nothing more is to be sent, and nothing that comes is looked at.
    - `refusal`: what the caller is to be told at the end.
    - `moved`: when the carrier last took a frame, or was done with one.
    - `finished`: whether it is over since all is sent, a file among that: the other end ends it once it has read that.
    """

    site: str
    instance: str
    peer: str
    stands: str
    taken: str
    inbox: Inbox
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
        """Whether a frame is on its way: the carrier is about it, or it is of a file, which the other end tells of."""
        return self._is_taken or self._unanswered > 0

    def note_beat(self) -> None:
        """Take note that the other end is there, and has read all up to a question."""
        self._unanswered = max(0, self._unanswered - 1)

    def ask(self) -> None:
        """Ask the other end whether it is there, before anything else that is to be sent."""
        self._asked = True

    def finish(self) -> None:
        """End the stream once what is in the queue is sent."""
        self.queue.append(None)

    def cut(self, refusal: RefusedError | None = None) -> None:
        """End the stream now."""
        self.over, self.refusal, self.finished = True, refusal, False
        self.queue.clear()
        self._frames = iter(())

    def keep_only(self, is_kept: Callable[[object], bool]) -> None:
        """Drop what is not to be sent any more, and was not begun."""
        self.queue = deque(filter(is_kept, self.queue))

    def next_frame(self, now: float) -> bytes | None:
        """Return what is to be sent now; None: nothing, or the stream is over."""
        frame = self._next_frame()
        if frame is not None or self._is_taken:
            self.moved = now
        self._is_taken = frame is not None
        return frame

    def _next_frame(self) -> bytes | None:
        if self._asked and not self.over:
            self._asked = False
            self._unanswered += 1
            return BEAT
        while not self.over:
            if (frame := next(self._frames, None)) is not None:
                self._asked |= self._is_file  # no reply says that it has come, which may take long after it was taken
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
