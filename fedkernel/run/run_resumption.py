"""Resumption of a run on restarted Flower nodes, which have new ids and no memory of it.

The nodes introduce themselves again, and then answer all recorded requests at once: in two rounds, however many were
recorded, each site repeats its computations. It sends only a hash of each answer, which must match the recorded one's.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedkernel.run.flower_grids import ResumableGrid
from fedkernel.run.journal import Exchange, RecordMismatchError
from fedkernel.run.message_delivery import send_and_receive
from fedkernel.wire import ANSWERS, REPEAT_ACTION, answer_hash, bundle_requests, flower_internals

MOST_BYTES = 1 << 26  # most bytes of the requests in one bundle, unless a single request is larger


class _Answered(NamedTuple):
    """Recorded request with its answer's hash (`fedkernel.run.journal.Exchange.answer_of`)."""

    kind: str
    content: RecordDict
    answer: str


class ResumingGrid(ResumableGrid):
    """Wrapper of a Flower Grid that numbers the nodes from 1 and keeps the numbers when node ids change."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._ids: list[int] = []  # of node 1, 2, and so on
        self._settled = False
        self._replayed: list[tuple[Sequence[Message], Exchange]] = []

    def get_node_ids(self) -> Iterable[int]:
        """Return the connected nodes' numbers, which stay fixed after the first message."""
        ids = set(self._grid.get_node_ids())
        if not self._settled:
            self._ids = sorted(ids)
        return [number for number, node in enumerate(self._ids, start=1) if node in ids]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages to their nodes, and return the messages' ids."""
        self._settled = True
        return self._grid.push_messages([self._to_node(message) for message in messages])

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the arrived replies to messages, by the messages' ids."""
        return [self._from_node(reply) for reply in self._grid.pull_messages(message_ids)]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages and return the replies that arrive before the timeout."""
        self._settled = True
        addressed = [self._to_node(message) for message in messages]
        replies = send_and_receive(self._grid, addressed, math.inf if timeout is None else timeout)
        return [self._from_node(reply) for reply in replies]

    def _to_node(self, message: Message) -> Message:
        about, node = message.metadata, self._ids[message.metadata.dst_node_id - 1]
        return self.create_message(message.content, about.message_type, node, about.group_id, about.ttl)

    def _from_node(self, reply: Message) -> Message:
        if (node := reply.metadata.src_node_id) in self._ids:
            flower_internals.set_source(reply, self._ids.index(node) + 1)
        return reply

    def set_run(self, run: flower_internals.Run) -> None:
        """Set Flower's record of the grid's run."""
        self._grid.set_run(run)

    @property
    def run(self) -> flower_internals.Run:
        """Flower's record of the grid's run."""
        return self._grid.run

    def replay(self, messages: Sequence[Message], exchange: Exchange, deadline: float) -> bool:
        """Store a replayed round's messages and replies for `catch_up`."""
        self._replayed.append((messages, exchange))
        return True

    def catch_up(self, deadline: float) -> None:
        """Recognise the restarted nodes, and have them repeat all answers, within the recorded time plus deadline."""
        (introductions, exchange), *rest = self._replayed
        self._replayed = []
        self._recognise(introductions, exchange, deadline)
        requests: dict[int, list[_Answered]] = defaultdict(list)
        for messages, exchange in rest:
            deadline += exchange.account.get("seconds", 0.0)
            for message in messages:
                if (node := message.metadata.dst_node_id) in exchange.nodes:
                    answer = exchange.answer_of(node)
                    requests[node].append(_Answered(message.metadata.message_type, message.content, answer))
        bundles = {node: list(_bundles(answered)) for node, answered in requests.items()}
        for place in range(max(map(len, bundles.values()), default=0)):
            self._ask_again({node: parts[place] for node, parts in bundles.items() if place < len(parts)}, deadline)

    def _recognise(self, messages: Sequence[Message], exchange: Exchange, deadline: float) -> None:
        """Match new node ids to node numbers by the introductions, which must be those recorded."""
        replies = self.send_and_receive(messages, timeout=deadline)
        id_of = {
            answer_hash(reply.content): self._ids[reply.metadata.src_node_id - 1]
            for reply in replies
            if not reply.has_error()
        }
        answers = {number: exchange.answer_of(number) for number in exchange.nodes}
        for number, answer in answers.items():
            if answer not in id_of:
                raise RecordMismatchError(f"{self.node_name(number)} does not repeat its recorded introduction")
        # only now, since one unknown node makes the run start anew with the present ids
        for number, answer in answers.items():
            self._ids[number - 1] = id_of[answer]

    def _ask_again(self, bundles: Mapping[int, Sequence[_Answered]], deadline: float) -> None:
        messages = list[Message]()
        for node, requests in bundles.items():
            content = bundle_requests([(request.kind, request.content) for request in requests])
            messages.append(Message(content, node, f"{MessageType.QUERY}.{REPEAT_ACTION}", group_id="0"))
        reply_of = {reply.metadata.src_node_id: reply for reply in self.send_and_receive(messages, timeout=deadline)}
        for node, requests in bundles.items():
            reply = reply_of.get(node)
            if reply is None or reply.has_error():
                raise RecordMismatchError(f"{self.node_name(node)} does not repeat its recorded answers")
            answers = reply.content.config_records.get("config", ConfigRecord()).get(ANSWERS)
            if not isinstance(answers, list) or len(answers) != len(requests):
                raise RecordMismatchError(f"{self.node_name(node)} does not repeat all its recorded answers")
            if any(request.answer not in ("", answer) for request, answer in zip(requests, answers, strict=True)):
                raise RecordMismatchError(f"an answer of {self.node_name(node)} differs from the recorded one")


def _bundles(requests: Sequence[_Answered]) -> Iterator[list[_Answered]]:
    """Yield requests in bundles of at most `MOST_BYTES` each."""
    bundle, size = list[_Answered](), 0
    for request in requests:
        length = flower_internals.content_bytes(request.content)
        if bundle and size + length > MOST_BYTES:
            yield bundle
            bundle, size = [], 0
        bundle.append(request)
        size += length
    if bundle:
        yield bundle
