"""Gossip: a toy pair that writes letters, its coordinator, and what the tests of letters share.

Each client repeats replacing its estimate by the mean over itself and its neighbours.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pytest

from fedkernel import FloatArray, ProtocolError, peers
from fedkernel.peers.letters import letter_to_bytes
from fedkernel.peers.sealing import HEADER_BYTES, Header
from fedkernel.protocol import Done, Reply, Request, Shape, State, decode, encode

N, D = 4, 3
RING = peers.neighbours(peers.Topology("ring"), N)
TABLES = [np.random.default_rng(client).standard_normal((5, D)) + client for client in range(N)]


class Estimate(peers.Letter):
    """The estimate of a node: reveals the mean of its rows, then of its neighbourhood."""

    values: Annotated[FloatArray, Shape("d")]


class Other(peers.Letter):
    values: Annotated[FloatArray, Shape("d")]


class Told(peers.CarriesLetters, Reply):
    """Nothing but letters."""


class Begin(Request[Told]):
    """Asks to tell the neighbours the own mean."""


class Gossip(peers.CarriesLetters, Request[Told]):
    """Asks to average with what the neighbours told, and to tell them; ``trouble``: what a client does wrong."""

    senders: dict[int, list[int]] | None = None
    size: int | None = None
    told_size: int | None = None
    trouble: str = ""

    def known_dimensions(self) -> dict[str, int]:
        return super().known_dimensions() | ({} if self.told_size is None else {"d": self.told_size})


class Finish(peers.CarriesLetters, Request[Done]):
    """Asks to read the last letters."""

    trouble: str = ""


@dataclass(frozen=True)
class OwnEstimate(State):
    values: FloatArray


class GossipClient(peers.PeerClient):
    answers = (peers.PublishKeys, peers.TakeKeys, Begin, Gossip, Finish)

    def begin(self, ask: Begin) -> Told:
        return self._tell(self.X.mean(axis=0))

    def gossip(self, ask: Gossip) -> Told:
        if ask.trouble == "unread":
            return Told()
        senders = None if ask.senders is None else ask.senders[self.client]
        sizes = {} if ask.size is None else {"d": ask.size}
        letters = self.mail.read(ask, Other if ask.trouble == "other" else Estimate, senders, **sizes)
        if ask.trouble == "twice":
            self.mail.write(letters[0][0], Estimate(values=np.ones(D)))
        if ask.trouble == "stranger":
            self.mail.write((self.client + 2) % N, Estimate(values=np.ones(D)))
        return self._tell(self._merged(letters))

    def finish(self, ask: Finish) -> Done:
        self.outputs["mean"] = self._merged(self.mail.read(ask, Estimate))
        if ask.trouble:
            self.mail.write(self.mail.neighbours[0], Estimate(values=np.ones(D)))
        return Done()

    def _merged(self, letters) -> FloatArray:
        own = OwnEstimate.load(self.memory).values
        return (own + sum(letter.values for _, letter in letters)) / (len(letters) + 1)

    def _tell(self, values: FloatArray) -> Told:
        OwnEstimate(values).save(self.memory)
        self.mail.write_to_all(Estimate(values=values))
        return Told()


def gossiping(adjacent=RING, steps=3, last=Finish):
    mail = peers.Mail(len(adjacent))
    yield from peers.agree_keys(adjacent)
    yield from mail.to_all(Begin())
    for _ in range(steps):
        yield from mail.to_all(Gossip())
    yield from mail.to_all(last())


FIRST_STEP = 4
"""The number of the round that asks to gossip first: two rounds make keys, one begins."""


def by_hand(adjacent, steps):
    values = np.array([table.mean(axis=0) for table in TABLES[: len(adjacent)]])
    for _ in range(steps):
        values = np.array([values[[node, *others]].mean(axis=0) for node, others in enumerate(adjacent)])
    return values


class Coordinator:
    """Runs a protocol over raw clients and meddles: asks what ``meddle(number, client, ask)`` returns, or nothing."""

    def __init__(self, clients=None, *, run="run", meddle=None):
        self.clients = clients or [GossipClient(table, client=number) for number, table in enumerate(TABLES)]
        self.run, self.meddle, self.number = run, meddle or (lambda number, client, ask: ask), 0
        self.seen, self.letters = [], {}

    def ask(self, client, ask, number=None):
        """One request to one client, as NumPyClient has it."""
        header = {"run": self.run, "round": self.number if number is None else number}
        positional, scalars = encode(ask)
        replied, _, answered = self.clients[client].fit(positional, {**scalars, **header})
        self.seen += [part.tobytes() for part in (*positional, *replied)] + [repr((scalars, answered)).encode()]
        return decode(ask.reply_type, replied, answered)

    def go_on(self, protocol, until=None):
        """Run to the end, or return the round of that number as it is about to be asked."""
        try:
            pending = next(protocol)
            while True:
                self.number += 1
                if self.number == until:
                    return pending
                replies = []
                for client in range(len(self.clients)):
                    ask = self.meddle(self.number, client, pending.of_client(client))
                    if ask is not None:
                        replies.append(self.ask(client, ask))
                        self.note(replies[-1])
                pending = protocol.send(replies)
        except StopIteration as stop:
            return stop.value

    def note(self, reply):
        for sealed in peers.sealed_in(reply):
            header = sealed.header
            self.letters[header.round, header.sender, header.receiver] = bytes(sealed.letter)


def refused(act, *args, **kwargs):
    with pytest.raises(ProtocolError) as caught:
        act(*args, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


ESTIMATE = letter_to_bytes(Estimate(values=np.array([1.0, 2.0])))

AT = FIRST_STEP + 1


def relabelled(letter, **fields):
    return Header.of(letter)._replace(**fields).pack() + letter[HEADER_BYTES:]


KEYS = "it was altered, or sealed with other keys or in a different run"
