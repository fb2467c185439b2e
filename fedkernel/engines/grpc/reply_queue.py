"""Sending side of a site's process: its resume state and its queue of replies."""

import queue
from collections.abc import Iterator
from dataclasses import dataclass

from fedkernel.engines.grpc.frames import BEAT, Envelope, frames


@dataclass(frozen=True)
class Standing:
    """Resume state of a node: key of the run that it remembers, and number of requests answered."""

    run: str = ""
    taken: int = 0

    @property
    def text(self) -> str:
        """Value of a call's metadata `STANDS`."""
        return f"{self.run} {self.taken}" if self.run else ""


class Outgoing:
    """Queue of one stream's frames: replies, interleaved with heartbeat answers."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Envelope | bytes | None] = queue.SimpleQueue()
        self._asked = False

    def put(self, envelope: Envelope | None) -> None:
        """Queue a reply; None ends the stream."""
        self._queue.put(envelope)

    def answer(self) -> None:
        """Answer a heartbeat before the next frame."""
        self._asked = True
        self._queue.put(BEAT)  # wakes a `frames` that waits

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
            yield BEAT
