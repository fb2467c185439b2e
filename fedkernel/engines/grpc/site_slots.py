"""A site's place at the hub: who has it, and what whoever takes it is to be asked."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from flwr.app import Message

from fedkernel.engines.grpc.frames import Envelope
from fedkernel.engines.grpc.request_spool import Spool
from fedkernel.engines.grpc.streams import Stream


@dataclass
class Seat:
    """A site's place: whether it is taken, and what was asked of whoever takes it.

    - `stream`, `next`: of who has the seat; of another process that gets it if the first does not answer, as it was
      `asked` to.
    - `open`: streams that have not ended, though they may be over.
    - `instance`, `since`: which process has had the seat last, and, if it is gone, since when.
    - `last`: place of the last request of the run under way in the spool, if that has all of them: it is `complete`.
    - `behind`: whether the site's process was restarted and has not answered yet what is waited for.
    - `stands`: which run it said that it remembers, when it came, and how much of that.
    - `waiting`: requests that are not answered yet, by id.
    """

    name: str
    node: int
    stream: Stream | None = None
    next: Stream | None = None
    asked: float = 0.0
    open: int = 0
    instance: str = ""
    stands: str = ""
    since: float = 0.0
    last: int | None = None
    complete: bool = True
    behind: bool = False
    waiting: dict[str, tuple[Message, Envelope]] = field(default_factory=dict)

    def begin_run(self) -> None:
        """Have nothing that was asked before asked again; what the site remembers now is of this run."""
        self.last, self.complete, self.behind, self.stands = None, True, False, ""

    def forget_run(self) -> None:
        """Drop what has not been sent or answered of a run, too."""
        self.begin_run()
        self.waiting.clear()
        if self.stream is not None:
            self.stream.keep_only(lambda item: not callable(item) and not (isinstance(item, Envelope) and item.id))

    def asked_again(self, spool: Spool, taken: str) -> Iterator[Envelope | Callable[[], Envelope]]:
        """Yield what the process that takes the seat is to be sent: what waits, or all of the run if it is `behind`.

        `taken`: id of the request up to which it has taken all; empty: none.
        """
        waiting = {message_id: envelope for message_id, (_, envelope) in self.waiting.items()}
        if not self.behind:
            yield from waiting.values()
            return
        places = {spool.id_at(place): place for place in spool.places(self.last)}
        is_new = taken not in places
        for message_id, place in places.items():
            if message_id in waiting:
                yield waiting[message_id]
            elif is_new:
                yield partial(spool.at, place)
            is_new |= message_id == taken
