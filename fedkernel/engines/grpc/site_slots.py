"""Slot of a site at the coordinator: its process, stream and unanswered requests."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from flwr.app import Message

from fedkernel.engines.grpc.frames import Envelope
from fedkernel.engines.grpc.request_spool import Spool
from fedkernel.engines.grpc.streams import Stream


@dataclass
class SiteSlot:
    """Slot of a site at the coordinator: its process, its stream, and the requests to send again.

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
        if self.stream is not None:
            self.stream.keep_only(lambda item: not callable(item) and not (isinstance(item, Envelope) and item.id))

    def asked_again(self, spool: Spool, last_request: str) -> Iterator[Envelope | Callable[[], Envelope]]:
        """Yield the requests for a process that gets the slot: unanswered ones, or the whole run's if `behind`.

        `last_request`: id of the last request that it received; empty: none.
        """
        waiting = {message_id: envelope for message_id, (_, envelope) in self.waiting.items()}
        if not self.behind:
            yield from waiting.values()
            return
        places = {spool.id_at(place): place for place in spool.places(self.last)}
        is_new = last_request not in places
        for message_id, place in places.items():
            if message_id in waiting:
                yield waiting[message_id]
            elif is_new:
                yield partial(spool.at, place)
            is_new |= message_id == last_request
