"""What a site's process sends of itself: where it stands as it comes, and its replies over one stream."""

import queue
from collections.abc import Iterator
from dataclasses import dataclass

from fedkernel.engines.grpc.frames import BEAT, Envelope, frames


@dataclass(frozen=True)
class Standing:
    """Which run a node remembers, by its key, and how many of its requests it has answered."""

    run: str = ""
    taken: int = 0

    @property
    def text(self) -> str:
        """As a server is told."""
        return f"{self.run} {self.taken}" if self.run else ""


class Outgoing:
    """What one stream is to send: replies, and between their frames the answer to whether this end is there."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Envelope | bytes | None] = queue.SimpleQueue()
        self._asked = False

    def put(self, envelope: Envelope | None) -> None:
        """Send a reply; None: nothing comes any more."""
        self._queue.put(envelope)

    def answer(self) -> None:
        """Say that this end is there, before the rest of what is being sent."""
        self._asked = True
        self._queue.put(BEAT)  # wakes up who waits for something to send

    def frames(self) -> Iterator[bytes]:
        """Yield what is to be sent, until nothing comes any more."""
        while (item := self._queue.get()) is not None:
            for frame in frames(item) if isinstance(item, Envelope) else ():
                yield frame
                yield from self._answers()
            yield from self._answers()

    def _answers(self) -> Iterator[bytes]:
        if self._asked:
            self._asked = False
            yield BEAT
