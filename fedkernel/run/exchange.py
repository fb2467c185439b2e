"""Sending messages over whatever grid there is, and waiting for the replies."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedkernel.ground import ProtocolError
from fedkernel.run.grids import ResumableGrid
from fedkernel.run.journal import Exchange, Journal, content_to_bytes, requests_hash
from fedkernel.wire import flower

__all__ = ["POLL", "by_node", "node_called", "recorded", "send_and_receive", "write_down"]

POLL = 0.2
"""Seconds between two questions for replies."""


def node_called(grid: Grid, node: int) -> str:
    """Return what texts call a node before it has said which client it is."""
    return grid.called(node) if isinstance(grid, ResumableGrid) else f"node {node}"


def recorded(
    journal: Journal | None, grid: Grid, messages: Sequence[Message], where: str, deadline: float
) -> Exchange | None:
    """Return what a journal has of the replies to messages; None: these are to be sent, `where` tells in which round.

    Nodes that do not stand where the journal ends are asked again, and must reply what is recorded: as that is handed
    out, or when nothing is left of it, as the grid has it.

    Raises StrayError if it has replies to something else, or a node replies something else.
    """
    if journal is None:
        return None
    if (record := journal.next(requests_hash(messages))) is not None:
        if isinstance(grid, ResumableGrid):
            journal.asked_again += grid.replay(messages, record, deadline)
    elif journal.replays:
        if isinstance(grid, ResumableGrid):
            grid.catch_up(deadline)
        journal.note_live(where)
    return record


def write_down(
    journal: Journal,
    grid: Grid,
    nodes: Sequence[int],
    contents: Sequence[RecordDict],
    account: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Record the exchange that was looked up last: `nodes` answered, `contents` are their replies or the sum."""
    exchange = Exchange(journal.pending, list(nodes), dict(account), [*map(content_to_bytes, contents)])
    journal.add(exchange, grid.checkpoint if isinstance(grid, ResumableGrid) else bytes)


def by_node(replies: Iterable[Message], nodes: Collection[int]) -> dict[int, Message]:
    """Return replies by the node that each is from.

    Raises ProtocolError if one is from none of the nodes that were asked, or from the same as another.
    """
    reply_of: dict[int, Message] = {}
    for reply in replies:
        node = reply.metadata.src_node_id
        if node not in nodes:
            raise ProtocolError(f"a reply came from node {node}, which was not asked; allowed: one of each that was")
        if node in reply_of:
            raise ProtocolError(f"node {node} has replied twice; allowed: one reply of each that was asked")
        reply_of[node] = reply
    return reply_of


def send_and_receive(grid: Grid, messages: Sequence[Message], timeout: float) -> list[Message]:
    """Send messages and wait for the replies, or for those that come before the timeout.

    A SuperLink's grid would sleep for three seconds between two questions: about one in a round of five is saved.
    """
    if not flower.polls_slowly(grid):
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
        time.sleep(min(POLL, left))
