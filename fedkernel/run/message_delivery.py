"""Delivery of messages over any Flower Grid, with their replies recorded in or replayed from a journal."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedkernel.ground import ProtocolError
from fedkernel.run.flower_grids import ResumableGrid
from fedkernel.run.journal import Exchange, Journal, content_to_bytes, requests_hash
from fedkernel.wire import flower_internals

POLL_SECONDS = 0.2  # seconds between two polls of a SuperLink for replies


def node_name(grid: Grid, node: int) -> str:
    """Return the name of a grid's node for texts, before its client has joined."""
    return grid.node_name(node) if isinstance(grid, ResumableGrid) else f"node {node}"


def recorded_replies(
    journal: Journal | None, grid: Grid, messages: Sequence[Message], where: str, deadline: float
) -> Exchange | None:
    """Return the journal's replies to messages of the round `where`, or None if the messages must be sent.

    A resumable grid brings nodes that lost their state to the journal's end. Raises RecordMismatchError if the record
    has other requests, or a node's new reply differs from it.
    """
    if journal is None:
        return None
    if (record := journal.next(requests_hash(messages))) is not None:
        if isinstance(grid, ResumableGrid):
            journal.asked_again += grid.replay(messages, record, deadline)
    elif journal.replays:
        if isinstance(grid, ResumableGrid):
            grid.catch_up(deadline)
        journal.log_resumption(where)
    return record


def record_replies(
    journal: Journal,
    grid: Grid,
    nodes: Sequence[int],
    contents: Sequence[RecordDict],
    account: Mapping[str, Any] | None = None,
) -> None:
    """Append answers to the last looked-up requests to the journal: the nodes, and their replies or the sum."""
    exchange = Exchange(journal.pending, list(nodes), dict(account or {}), [*map(content_to_bytes, contents)])
    journal.add(exchange, grid.checkpoint if isinstance(grid, ResumableGrid) else bytes)


def replies_by_node(replies: Iterable[Message], nodes: Collection[int]) -> dict[int, Message]:
    """Return replies by node. Raises ProtocolError if a node replies that got no request, or replies twice."""
    reply_of: dict[int, Message] = {}
    for reply in replies:
        node = reply.metadata.src_node_id
        if node not in nodes:
            raise ProtocolError(f"a reply came from node {node}, which got no request")
        if node in reply_of:
            raise ProtocolError(f"node {node} has replied twice; allowed: one reply per request")
        reply_of[node] = reply
    return reply_of


def send_and_receive(grid: Grid, messages: Sequence[Message], timeout: float) -> list[Message]:
    """Send messages and return the replies before the timeout. A SuperLink is polled more often than by Flower."""
    if not flower_internals.polls_slowly(grid):
        return list(grid.send_and_receive(messages, timeout=timeout))
    give_up = time.monotonic() + timeout
    waiting, replies = set(grid.push_messages(messages)), list[Message]()
    while True:
        arrived = list(grid.pull_messages(waiting))
        replies += arrived
        waiting -= {reply.metadata.reply_to_message_id for reply in arrived}
        left = give_up - time.monotonic()
        if not waiting or left <= 0:
            return replies
        time.sleep(min(POLL_SECONDS, left))
