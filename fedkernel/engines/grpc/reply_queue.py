"""Sending side of a site's process: its resume state, and its queue of replies."""

import queue
from collections.abc import Iterator
from dataclasses import dataclass

from fedkernel.engines.grpc.frames import HEARTBEAT, Envelope, frames


@dataclass(frozen=True)
class ResumeState:
    """Resume state of a node: key of the run that it remembers, and number of answered requests."""

    run: str = ""
    answered: int = 0

    @property
    def text(self) -> str:
        """Value of the call metadata `POSITION`; empty if no run is remembered."""
        return f"{self.run} {self.answered}" if self.run else ""


class ReplyQueue:
    """Queue of a stream's replies, sent as frames and interleaved with heartbeat answers."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Envelope | bytes | None] = queue.SimpleQueue()
        self._asked = False

    def put(self, envelope: Envelope | None) -> None:
        """Queue a reply; None ends the stream."""
        self._queue.put(envelope)

    def answer(self) -> None:
        """Send a heartbeat back before the next frame."""
        self._asked = True
        self._queue.put(HEARTBEAT)  # wakes a `frames` that waits

    def frames(self) -> Iterator[bytes]:
        """Yield frames until the queue is closed."""
        while (item := self._queue.get()) is not None:
            for frame in frames(item) if isinstance(item, Envelope) else ():
                yield frame
                yield from self._answers()
            yield from self._answers()

    def _answers(self) -> Iterator[bytes]:
        if self._asked:
            self._asked = False
            yield HEARTBEAT
