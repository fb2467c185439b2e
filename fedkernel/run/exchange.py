"""Sending messages over whatever grid there is, and waiting for the replies."""

import time
from collections.abc import Sequence

from flwr.app import Message
from flwr.serverapp import Grid

from fedkernel.run import flower
from fedkernel.run.grid import MessageGrid

POLL = 0.2
"""Seconds between two questions for replies."""


def node_called(grid: Grid, node: int) -> str:
    """Return what texts call a node before it has said which client it is."""
    return grid.called(node) if isinstance(grid, MessageGrid) else f"node {node}"


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
