"""Base classes of Flower Grids that resume a stopped run, and that carry serialised messages."""

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
from fedkernel.wire import flower_internals

CHECK_SECONDS = 0.25
"""Seconds between two checks of the nodes' connections during a wait for replies."""


Serialise: TypeAlias = Callable[[], tuple[bytes, ...]]
"""Function that returns the serialised parts of one message."""


class ResumableGrid(Grid):
    """Base class of Flower Grids that resume a run from its journal (`fedkernel.run.journal`).

    `write_every`: seconds between two writes of the journal. With 0, as where nodes outlive this process, each exchange
    is written before the next request is sent.
    """

    write_every = 0.0

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Create a message to a node, as Flower's Grid requires."""
        return Message(content, dst_node_id, message_type, group_id=group_id, ttl=ttl)

    def node_name(self, node: int) -> str:
        """Return a node's name for texts, before its client has joined."""
        return f"node {node}"

    def checkpoint(self) -> bytes:
        """Return the changes, since the last call, in the memory of nodes within this process."""
        return b""

    def prepare_resume(self, run: str, answered: Mapping[int, int], checkpoints: Iterable[bytes]) -> None:
        """Prepare the nodes for resuming a run.

        `run`: `fedkernel.wire.RunSpec.key`. `answered`: number of requests that each node has answered. `checkpoints`:
        results of `checkpoint`, in order.
        """

    @abstractmethod
    def replay(self, messages: Sequence[Message], exchange: Exchange, deadline: float) -> bool:
        """Register a replayed round; return whether nodes repeat it. Raises RecordMismatchError if a reply differs."""

    def catch_up(self, deadline: float) -> None:
        """Bring all nodes to the journal's end after the last replayed round. May raise RecordMismatchError."""


class MessageGrid(ResumableGrid):
    """Base class of Grids that carry messages. `behind`: nodes whose state is older than the journal's end."""

    behind: frozenset[int] = frozenset()

    def __init__(self) -> None:
        flower_internals.ensure_task_identity()
        self._run = flower_internals.empty_run()
        self._arrived = threading.Condition()
        self._clock: Callable[[], float] = time.monotonic
        self._replies: dict[str, Any] = {}
        self._awaited: set[str] = set()
        self._asked: set[str] = set()  # messages whose replies are still accepted

    @abstractmethod
    def _post(self, message: Message, message_id: str, serialise: Serialise) -> None:
        """Send a message, serialised if needed, to its node; `_deliver` gets the reply."""

    def _posted(self) -> None:
        """Flush the messages that `_post` has queued."""

    def replay(self, messages: Sequence[Message], exchange: Exchange, deadline: float) -> bool:
        """Register a replayed round's messages; nodes that are `behind` answer again, and the replies must match."""
        self.restore_requests(message for message in messages if message.metadata.dst_node_id not in self.behind)
        forgetful = self.behind.intersection(exchange.nodes)
        again = [message for message in messages if message.metadata.dst_node_id in forgetful]
        if not again:
            return False
        reply_of = {reply.metadata.src_node_id: reply for reply in self.send_and_receive(again, timeout=deadline)}
        for node in (message.metadata.dst_node_id for message in again):
            exchange.check_again(node, self.node_name(node), reply_of.get(node))
        return True

    def restore_requests(self, messages: Iterable[Message]) -> None:
        """Register messages of the run that were answered before this process started."""

    def absent(self) -> list[int]:
        """Return the ids of disconnected nodes, if the grid knows all its nodes."""
        return []

    def _deliver(self, node: int, message_id: str, reply: Any) -> None:
        """Store a node's reply for `_open` to decode; late and repeated replies are dropped."""
        with self._arrived:
            if message_id not in self._asked:
                return
            self._asked.discard(message_id)
            self._replies[message_id] = reply
            self._awaited.discard(message_id)
            if not self._awaited:  # a wake-up for each reply would only delay the others
                self._arrived.notify_all()
        log_event("reply came", "a reply has come", node=node)  # not under the lock: it may end on a slow terminal

    def _open(self, reply: Any) -> Message:
        """Decode a delivered reply, in the thread that pulls it."""
        message: Message = reply
        return message

    def _wait(self, seconds: float) -> None:
        """Wait for all awaited replies, at most some seconds. The caller holds the lock of `_arrived`."""
        self._arrived.wait(seconds)

    def _forget(self, ids: Set[str]) -> None:
        """Discard messages, by their ids, whose replies are no longer awaited."""

    def _check_connections(self) -> None:
        """Check the connections of nodes whose replies are awaited."""

    def set_run(self, run: flower_internals.Run) -> None:
        """Set Flower's record of the grid's run."""
        self._run = run

    @property
    def run(self) -> flower_internals.Run:
        """Flower's record of the grid's run."""
        return self._run

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages to their nodes, and return the messages' ids."""
        ids = []
        # most rounds send all nodes the same content: it is serialised once
        contents: dict[int, list[bytes]] = {}

        def serialise(message: Message) -> tuple[bytes, ...]:
            if (known := id(message.content)) not in contents:
                contents[known] = flower_internals.content_to_parts(message.content)
            return flower_internals.to_parts(message, contents[known])

        for message in messages:
            ids.append(flower_internals.stamp(message))
            with self._arrived:
                self._asked.add(ids[-1])
            self._post(message, ids[-1], partial(serialise, message))
        self._posted()
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the arrived replies to messages, by the messages' ids; each reply is returned once."""
        with self._arrived:
            replies = [self._replies.pop(message_id) for message_id in message_ids if message_id in self._replies]
        return [self._open(reply) for reply in replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages and return the replies that arrive before the timeout."""
        ids = list(self.push_messages(messages))
        give_up = None if timeout is None else self._clock() + timeout
        with self._arrived:
            self._awaited = set(ids) - self._replies.keys()
            while self._awaited:
                left = CHECK_SECONDS if give_up is None else give_up - self._clock()
                if left <= 0:
                    break
                self._wait(min(left, CHECK_SECONDS))
                self._check_connections()
            self._asked.difference_update(ids)
            self._forget(self._awaited)
        return self.pull_messages(ids)
