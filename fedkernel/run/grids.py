"""What grids have in common over which runs are resumed, and those of our own, whose messages leave as bytes."""

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import Any, TypeAlias

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedkernel.run.events import log_event
from fedkernel.run.journal import Exchange
from fedkernel.wire import flower

LOOK = 0.25
"""Seconds between two looks at the nodes while replies are waited for."""


Serialise: TypeAlias = Callable[[], tuple[bytes, ...]]
"""Returns the parts of a message, serialised."""


class ResumableGrid(Grid):
    """Base of Flower Grids over which a run goes on where its journal ends, see `fedkernel.run.journal`.

    `write_every`: seconds from one writing of a run's journal to the next. 0, as where nodes outlive this process: each
    exchange is written before the next request goes out.
    """

    write_every = 0.0

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Create a message to a node."""
        return Message(content, dst_node_id, message_type, group_id=group_id, ttl=ttl)

    def called(self, node: int) -> str:
        """Return what texts call a node before it has said which client it is."""
        return f"node {node}"

    def checkpoint(self) -> bytes:
        """Return what has changed in the memory of nodes that end with this process, since the last time."""
        return b""

    @abstractmethod
    def come_back(self, run: str, answered: Mapping[int, int], checkpoints: Iterable[bytes]) -> str:
        """Make ready to go on with a run, and return why that cannot be; empty: it can.

        `run`: what `fedkernel.wire.RunSpec.key` is of it. `answered`: how many requests each node has answered.
        `checkpoints`: what `checkpoint` returned, in order.
        """

    @abstractmethod
    def replay(self, messages: Sequence[Message], exchange: Exchange, deadline: float) -> bool:
        """Take note of messages that were answered before this process began, and of what to.

        Returns whether nodes are asked these again, since they do not stand where the journal ends, as after a restart.
        Raises StrayError if one does not reply what is recorded.
        """

    def catch_up(self, deadline: float) -> None:
        """Have all nodes stand where the journal ends: all that is in it was replayed; raises as `replay`."""


class MessageGrid(ResumableGrid):
    """Base of Flower Grids that carry the messages themselves; a subclass sends bytes and delivers replies.

    `behind`: nodes that do not stand where the journal of a run ends, as after a restart: they are asked again what is
    in it.
    """

    behind: frozenset[int] = frozenset()

    def __init__(self) -> None:
        flower.ensure_task_identity()
        self._run = flower.empty_run()
        self._arrived = threading.Condition()
        self._clock: Callable[[], float] = time.monotonic
        self._replies: dict[str, Any] = {}
        self._awaited: set[str] = set()
        self._asked: set[str] = set()  # of all that was sent, what a reply is still taken to

    @abstractmethod
    def _post(self, message: Message, message_id: str, serialise: Serialise) -> None:
        """Send a message to its node, which may want its parts; whenever the reply comes, `_deliver` is called."""

    def _posted(self) -> None:
        """Have the messages that were posted go on their way."""

    def come_back(self, run: str, answered: Mapping[int, int], checkpoints: Iterable[bytes]) -> str:
        """Have the nodes stand where they stood in a run, all but those that are `behind`."""
        return "its sites remember nothing"

    def replay(self, messages: Sequence[Message], exchange: Exchange, deadline: float) -> bool:
        """Take note of messages that were answered before this process began; ask nodes again that are `behind`."""
        self.recall(message for message in messages if message.metadata.dst_node_id not in self.behind)
        forgetful = self.behind.intersection(exchange.nodes)
        again = [message for message in messages if message.metadata.dst_node_id in forgetful]
        if not again:
            return False
        reply_of = {reply.metadata.src_node_id: reply for reply in self.send_and_receive(again, timeout=deadline)}
        for node in (message.metadata.dst_node_id for message in again):
            exchange.check_again(node, self.called(node), reply_of.get(node))
        return True

    def recall(self, messages: Iterable[Message]) -> None:
        """Take note of messages of the run that were answered before this process began."""

    def absent(self) -> list[int]:
        """Return the nodes that are not connected, where it is known which there should be."""
        return []

    def _deliver(self, node: int, message_id: str, reply: Any) -> None:
        """Keep a node's reply to a message, or that of which `_open` makes one, until it is asked for.

        One that comes late, or again, is dropped.
        """
        with self._arrived:
            if message_id not in self._asked:
                return
            self._asked.discard(message_id)
            self._replies[message_id] = reply
            self._awaited.discard(message_id)
            if not self._awaited:  # waking up for each would only keep the others waiting
                self._arrived.notify_all()
        log_event("reply came", "a reply has come", node=node)  # not under the lock: it may end on a slow terminal

    def _open(self, reply: Any) -> Message:
        """Return a reply that was delivered, in the thread that asks for it."""
        message: Message = reply
        return message

    def _wait(self, seconds: float) -> None:
        """Wait until all replies have come that are waited for, or so long; with the lock of `_arrived`."""
        self._arrived.wait(seconds)

    def _forget(self, ids: Set[str]) -> None:
        """Take note that nobody waits any more for the replies to these messages."""

    def _look_after(self) -> None:
        """Look whether all nodes that replies are waited for are still there."""

    def set_run(self, run: flower.Run) -> None:
        """Set the run this grid belongs to."""
        self._run = run

    @property
    def run(self) -> flower.Run:
        """The run this grid belongs to."""
        return self._run

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send the messages to their nodes."""
        ids = []
        # most rounds ask everybody the same: that is serialised once
        contents: dict[int, list[bytes]] = {}

        def serialise(message: Message) -> tuple[bytes, ...]:
            if (known := id(message.content)) not in contents:
                contents[known] = flower.content_to_parts(message.content)
            return flower.to_parts(message, contents[known])

        for message in messages:
            ids.append(flower.stamp(message))
            with self._arrived:
                self._asked.add(ids[-1])
            self._post(message, ids[-1], partial(serialise, message))
        self._posted()
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that have come to these messages; each is returned once."""
        with self._arrived:
            replies = [self._replies.pop(message_id) for message_id in message_ids if message_id in self._replies]
        return [self._open(reply) for reply in replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages and wait for the replies, or for those that come before the timeout."""
        ids = list(self.push_messages(messages))
        give_up = None if timeout is None else self._clock() + timeout
        with self._arrived:
            self._awaited = set(ids) - self._replies.keys()
            while self._awaited:
                left = LOOK if give_up is None else give_up - self._clock()
                if left <= 0:
                    break
                self._wait(min(left, LOOK))
                self._look_after()
            self._asked.difference_update(ids)  # nobody waits for these any more
            self._forget(self._awaited)
        return self.pull_messages(ids)
