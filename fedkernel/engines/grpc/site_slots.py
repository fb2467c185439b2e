"""Slot of a site at the hub: its process and unanswered requests."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from flwr.app import Message

from fedkernel.engines.grpc.frames import Envelope
from fedkernel.engines.grpc.request_spool import Spool
from fedkernel.engines.grpc.streams import Stream


@dataclass
class Seat:
    """Slot of a site: its stream, its process, and the requests for a process that reconnects.

    - `stream`, `next`: the holder's stream; that of another process that takes over if the holder does not answer the
      heartbeat sent at the time `asked_at`.
    - `open`: number of streams that have not ended, though they may be over.
    - `instance`, `since`: the last process that had the slot, and the time when it left.
    - `last`: place in the spool of the run's last request, if the spool has all of them: it is `complete`.
    - `behind`: the site's process was restarted and has not answered a pending request yet.
    - `stands`: the run that the process remembered when it connected, with its number of answered requests.
    - `waiting`: unanswered requests by id.
    """

    name: str
    node: int
    stream: Stream | None = None
    next: Stream | None = None
    asked_at: float = 0.0
    open: int = 0
    instance: str = ""
    stands: str = ""
    since: float = 0.0
    last: int | None = None
    complete: bool = True
    behind: bool = False
    waiting: dict[str, tuple[Message, Envelope]] = field(default_factory=dict)

    def begin_run(self) -> None:
        """Discard the earlier run's spooled requests and state."""
        self.last, self.complete, self.behind, self.stands = None, True, False, ""

    def forget_run(self) -> None:
        """Discard a run's unsent and unanswered requests, too."""
        self.begin_run()
        self.waiting.clear()
        if self.stream is not None:
            self.stream.keep_only(lambda item: not callable(item) and not (isinstance(item, Envelope) and item.id))

    def asked_again(self, spool: Spool, taken: str) -> Iterator[Envelope | Callable[[], Envelope]]:
        """Yield the requests for a process that takes the slot: unanswered ones, or the whole run's if `behind`.

        `taken`: id of the last request that it received; empty: none.
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
