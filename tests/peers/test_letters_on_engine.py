"""Letters on the engine: the numbers of raw clients, refusals by name, and every letter in the ledger."""

from typing import ClassVar

import numpy as np
import pytest
from flwr.app import ArrayRecord
from gossip import AT, KEYS, RING, TABLES, Begin, Coordinator, D, GossipClient, N, Told, by_hand, gossiping, relabelled

from fedkernel import KernelStrategy, ProtocolError
from fedkernel.engines.local import LocalGrid
from fedkernel.peers import KeyPair, PublishKeys, TakeKeys, Topology, neighbours
from fedkernel.peers.letters import OVERHEAD, unpack
from fedkernel.run.ledger import LetterEntry
from fedkernel.site import Site
from fedkernel.site.client_app import client_app


class GossipMean(KernelStrategy):
    client = GossipClient
    partition: ClassVar = "horizontal"
    steps = 3

    def protocol(self, run):
        yield from gossiping(neighbours(Topology("ring"), len(run.members)), self.steps)
        return 0.0


class Hostile(LocalGrid):
    """Keeps what goes by, and meddles with the letters of a round's requests."""

    def __init__(self, app, *, clients, number=0, change=None):
        super().__init__(app, clients=clients)
        self.number, self.change, self.exchanges = number, change, []

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        for message in messages:
            if message.content["config"].get("round") == self.number and message.metadata.dst_node_id == 2:
                message.content["arrays"] = ArrayRecord([self.change(message.content["arrays"].to_numpy_ndarrays()[0])])
        replies = list(super().send_and_receive(messages, timeout=timeout))
        self.exchanges.append((messages, replies))
        return replies


def on_engine(*, site=lambda number: {}, **hostile):
    outputs = {number: {} for number in range(N)}

    def find_site(context, config):
        number = int(context.node_config["partition-id"])
        return Site(number, TABLES[number], None, outputs[number].update, **site(number))

    with Hostile(client_app({"GossipClient": GossipClient}, find_site), clients=N, **hostile) as grid:
        return GossipMean().run(grid), outputs, grid


def test_the_engine_gives_the_same_numbers_as_raw_clients_and_every_time():
    result, outputs, _ = on_engine()
    coordinator = Coordinator()
    coordinator.go_on(gossiping())
    for number in range(N):
        assert outputs[number]["mean"].tobytes() == coordinator.clients[number].outputs["mean"].tobytes()
    assert on_engine()[0].ledger == result.ledger


def flipped(letters):
    letters = letters.copy()
    letters[-1] ^= 1
    return letters


def test_the_engine_says_which_letter_was_refused():
    with pytest.raises(ProtocolError) as caught:
        on_engine(number=AT, change=flipped)
    assert str(caught.value).startswith(f"GossipMean, round {AT} (Gossip), client 1: ")
    assert f"the letter of client 2 is refused: {KEYS}" in str(caught.value)
    assert caught.value.nodes == (), "who refuses it did not write it, and who did is only what that one says"


def test_pins_and_identity_are_the_sites_own():
    identities = [KeyPair.new() for _ in range(N)]
    pins = {number: identities[number].fingerprint for number in range(N)}
    _, outputs, _ = on_engine(site=lambda number: {"identity": identities[number], "pins": pins})
    np.testing.assert_allclose([outputs[j]["mean"] for j in range(N)], by_hand(RING, 4), rtol=1e-12)
    with pytest.raises(ProtocolError, match=r"GossipMean, round 2 \(TakeKeys\), client 0: .* is pinned"):
        on_engine(site=lambda number: {"pins": pins})


class Impostor(GossipClient):
    """Client 1 posts a letter in the name of another, or of another round."""

    answers = (PublishKeys, TakeKeys, Begin)
    fields: ClassVar = {"sender": 0}

    def begin(self, ask: Begin) -> Told:
        reply = super().begin(ask)
        if self.client == 1:
            self.mail._written = {k: relabelled(v, **self.fields) for k, v in self.mail._written.items()}
        return reply


def test_a_client_that_posts_in_the_name_of_another_is_refused_by_the_coordinator(monkeypatch):
    class Strategy(GossipMean):
        client = Impostor

    for fields, says in (({"sender": 0}, "of client 0, round 3"), ({"round": 9}, "of client 1, round 9")):
        monkeypatch.setattr(Impostor, "fields", fields)
        with pytest.raises(ProtocolError, match=rf"^Strategy, round 3 \(Begin\), client 1: it sends a letter {says}$"):
            Strategy().fit(TABLES)


def test_the_ledger_has_every_letter_once():
    result, _, grid = on_engine()
    counted = []
    for messages, replies in grid.exchanges:
        for message in messages:
            if "round" not in message.content["config"]:
                continue
            [reply] = [r for r in replies if r.metadata.src_node_id == message.metadata.dst_node_id]
            for array in reply.content["arrays"].to_numpy_ndarrays():
                if reply.content["config"]["arrays"] == "letters":
                    counted += [LetterEntry(s.header[2], *s.header[:2], D, OVERHEAD + 8 * D) for s in unpack(array)]
    assert result.ledger.letters == counted
    assert len(counted) == 4 * 2 * N, "every node, in four rounds, to both neighbours"
