"""Histories of a network that goes wrong: the same numbers, or one failure with a name, by the deadline."""

from collections import Counter

import pytest
from lives import history
from lost_clients import PAIRS as REGISTERED
from sites import app_over

from fedkernel.engines.grpc.frames import Envelope, Welcome
from fedkernel.engines.grpc.node import Node
from fedkernel.run import MessageGrid, RunSettings
from fedkernel.testing import arrays_of, bits_of
from fedkernel.wire import flower_internals


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.drill) for part in (1, 2, 3))])
def test_75_histories_end_with_the_same_numbers_or_one_failure_with_a_name(part):
    """Of a network that goes wrong, and of servers that die and are started again; more: benchmarks/faults.py."""
    endings, faults = Counter(), Counter()
    for seed in range(75 * part, 75 * (part + 1)):
        try:
            _, ending, met = history(seed)
        except BaseException as error:
            error.add_note(f"benchmarks/faults.py --seed {seed}")
            raise
        endings[ending] += 1
        faults.update(met)
    assert len(faults) == 10, "every fault came"
    assert endings["identical"] > 25
    assert endings["identical, resumed"] > 2
    assert {"named: no longer connected", "named: no answer within"} & endings.keys()


class Repeating(MessageGrid):
    """A grid whose nodes get every request three times: also again, and as a server that was restarted sends it."""

    def __init__(self, app, clients):
        super().__init__()
        self.nodes = {}
        for number in range(clients):
            self.nodes[number + 1] = node = Node(app, f"site-{number}", {}, lambda text: None)
            node._adopt_welcome(Welcome(client=number, clients=clients, job="", limit=1 << 30, files=[]))
        self.repeated = 0

    def get_node_ids(self):
        return list(self.nodes)

    def _post(self, message, message_id, serialise):
        node, context_of = self.nodes[message.metadata.dst_node_id], lambda node: node._context
        request = Envelope(message_id, (b"".join(serialise()),))
        node._queue_request(request, "")
        node._queue_request(request, "")
        assert node._tasks.qsize() == 1, "a request that is known is not computed again"
        node._tasks.get()
        reply = node._last_reply = node._reply(request, context_of(node))
        if message.metadata.message_type != "query":
            state = [dict(record) for record in context_of(node).state.values()]
            again = node._reply(Envelope("again", request.parts), context_of(node))
            assert again.parts[1:] == reply.parts[1:], "the same bytes"
            assert state == [dict(record) for record in context_of(node).state.values()]
            self.repeated += 1
        answer = flower_internals.from_bytes(b"".join(reply.parts))
        for _ in range(2):  # the second one comes late
            self._deliver(message.metadata.dst_node_id, message_id, answer)


@pytest.mark.parametrize("name", REGISTERED)
def test_a_request_that_comes_again_is_answered_with_the_same_bytes_and_changes_nothing(name):
    pair = REGISTERED[name]
    grid = Repeating(app_over(pair.strategy.client, pair.tables, share_rows=True), len(pair.tables))
    result = pair.strategy.run(grid, RunSettings())
    assert bits_of(arrays_of(result.model)) == bits_of(arrays_of(pair.recording.result.model))
    assert result.ledger == pair.recording.result.ledger
    assert grid.repeated >= len(pair.tables)
    assert not grid._replies
