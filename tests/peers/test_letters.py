"""Letters between clients: whom they reach, what they may be, and what a pair may do wrong."""

import struct
from typing import Annotated

import gossip
import numpy as np
import pytest
from gossip import ESTIMATE, FIRST_STEP, TABLES, Coordinator, D, Estimate, Gossip, GossipClient, N, gossiping, refused
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedkernel.ground import FloatArray
from fedkernel.peers import Letter, Mail, Topology, neighbours, sealed_in
from fedkernel.peers.letters import MOST_AXES, OVERHEAD, letter_from_bytes, letter_to_bytes, pack, unpack
from fedkernel.peers.sealing import HEADER_BYTES, TAG_BYTES, Header
from fedkernel.protocol import MAX_NUMBER, Shape, encode


@pytest.mark.parametrize(
    "adjacent", [gossip.RING, *(neighbours(Topology(kind), N) for kind in ("star", "full", "grid"))], ids=str
)
def test_letters_reach_the_neighbours_they_are_for(adjacent):
    coordinator = Coordinator()
    coordinator.go_on(gossiping(adjacent, 3))
    got = np.array([client.outputs["mean"] for client in coordinator.clients])
    np.testing.assert_allclose(got, gossip.by_hand(adjacent, 4), rtol=1e-12)
    alone = Coordinator([GossipClient(TABLES[0])])
    alone.go_on(gossiping([()], 2))
    assert alone.number == 4, "one to begin, two steps, one to finish, and none for keys"
    np.testing.assert_array_equal(alone.clients[0].outputs["mean"], TABLES[0].mean(axis=0))


def test_letters_come_in_the_order_of_the_senders_whatever_the_order_on_the_way():
    coordinator = Coordinator()
    pending = coordinator.go_on(gossiping(), until=FIRST_STEP)
    ask = pending.of_client(1)
    letters = [sealed.letter for sealed in ask.sealed]
    order = []
    coordinator.clients[1]._merged = lambda letters: order.extend(peer for peer, _ in letters) or np.ones(D)
    coordinator.ask(1, ask.model_copy(update={"letters": pack(letters[::-1])}))
    assert order == [0, 2]


def test_mail_is_delivered_in_its_next_round_or_not_at_all():
    def protocol(mail):
        yield from mail.to_all(gossip.Begin())
        yield from mail.to_all(Gossip())
        yield from mail.to_each({2: Gossip(), 0: Gossip()})
        yield from mail.to_all(gossip.Begin())  # carries no letters
        yield from mail.to_all(Gossip())

    # whatever is asked, client 0 writes to client 1 and client 2 to client 0, and nobody else writes
    empty = bytes(OVERHEAD - 4 - HEADER_BYTES)
    written = {sender: pack([Header(sender, to, 1, 0).pack() + empty]) for sender, to in ((0, 1), (2, 0))}
    rounds, replies, came = protocol(Mail(3)), None, []
    for _ in range(5):
        pending = rounds.send(replies)
        asks = {client: pending.of_client(client) for client in range(3)}
        came.append({client: [s.header.sender for s in sealed_in(ask)] for client, ask in asks.items() if ask})
        replies = [gossip.Told(letters=written.get(client)) for client in came[-1]]
    everything = {0: [2], 1: [0], 2: []}
    assert came == [{0: [], 1: [], 2: []}, everything, {0: [2], 2: []}, {0: [], 1: [], 2: []}, everything]


def test_only_those_that_a_letter_is_expected_from_need_to_write():
    """Along a tree, a node reads its parent's letter only; that of nobody is also an answer."""
    coordinator = Coordinator()
    ask = coordinator.go_on(gossiping(), until=FIRST_STEP).of_client(1)
    [letter] = [sealed.letter for sealed in ask.sealed if sealed.header.sender == 2]
    from_2 = {"senders": {1: [2]}}
    assert "client 0 is refused: no letter is" in refused(coordinator.ask, 1, ask.model_copy(update=from_2))
    coordinator.ask(1, ask.model_copy(update={**from_2, "letters": pack([letter])}))
    coordinator.ask(2, Gossip(senders={2: []}))


class Full(Letter):
    a: Annotated[FloatArray, Shape("n", "k")]
    b: Annotated[FloatArray | None, Shape("k", "m_m")] = None
    c: Annotated[FloatArray, Shape("n", "p", "q")]


finite = st.floats(-MAX_NUMBER, MAX_NUMBER)


@given(st.data())
def test_a_letter_survives_its_form_bit_by_bit(data):
    n, k, m, p, q = data.draw(st.tuples(*[st.integers(1, 4)] * 5))
    shapes = {"a": (n, k), "c": (n, p, q)} | ({"b": (k, m)} if data.draw(st.booleans()) else {})
    fields = {name: data.draw(arrays(np.float64, shape, elements=finite)) for name, shape in shapes.items()}
    letter = Full(**{name: np.asfortranarray(array) for name, array in fields.items()})
    content = letter_to_bytes(letter)
    assert len(content) + 4 + HEADER_BYTES + TAG_BYTES == OVERHEAD + 8 * letter.floats
    again = letter_from_bytes(Full, content)
    assert set(again.arrays()) == set(fields)
    for name, array in fields.items():
        got = getattr(again, name)
        assert (got.shape, got.dtype, got.tobytes()) == (array.shape, array.dtype, array.tobytes())
        got += 1  # a client may work in place


def test_the_overhead_is_below_100_bytes_and_nearly_all_there_is():
    assert OVERHEAD < 100
    coordinator = Coordinator()
    coordinator.go_on(gossiping())
    assert {len(letter) for letter in coordinator.letters.values()} == {OVERHEAD - 4 + 8 * D}
    assert pack([]) is None
    packed = pack([next(iter(coordinator.letters.values()))] * 5)
    assert packed.nbytes == 5 * (OVERHEAD + 8 * D)


def test_what_is_no_letter_is_not_declared():
    for annotation in (
        Annotated[np.ndarray, Shape("n", dtype="float32")],
        int,
        Annotated[np.ndarray, Shape()],
        Annotated[np.ndarray, Shape(*"abcdefghijk")],
    ):
        with pytest.raises(TypeError, match=r"Bad: the (fields|arrays) of a letter"):
            type("Bad", (Letter,), {"__annotations__": {"x": annotation}, "__module__": __name__})
    assert type("Good", (Letter,), {"__annotations__": {"x": Annotated[np.ndarray, Shape(*"abcdefghij")]}})
    assert MOST_AXES == 10


def sizes(*given_):
    return struct.pack("<10I", *given_, *[0] * (MOST_AXES - len(given_)))


FULL = letter_to_bytes(Full(a=np.ones((2, 1)), c=np.ones((2, 1, 1))))


@pytest.mark.parametrize(
    ("kind", "content", "sentence"),
    [
        (Estimate, letter_to_bytes(gossip.Other(values=np.ones(2))), "it is no Estimate"),
        (Estimate, b"", "it is no Estimate"),
        (Estimate, ESTIMATE[:43], "it is no Estimate"),
        (Estimate, ESTIMATE[:-8], "as a Estimate it needs 2 floats, but has 8 bytes"),
        (Estimate, ESTIMATE + bytes(8), "as a Estimate it needs 2 floats, but has 24 bytes"),
        (Estimate, ESTIMATE[:4] + sizes(2**32 - 1) + ESTIMATE[44:], "needs 0 floats"),
        (Estimate, ESTIMATE[:4] + sizes(2**32 - 1), "Estimate: values is required"),
        (Estimate, ESTIMATE[:4] + sizes(2**32 - 2), "needs 4294967294 floats"),
        (Estimate, ESTIMATE[:4] + sizes(2) + np.array([np.nan, 1]).tobytes(), "values: must be a finite float64 array"),
        (Full, FULL[:4] + sizes(1, 2, *[2**32 - 1] * 2, 2, 1, 1) + FULL[44:], "c has 2 entries along axis 0, but n ="),
        # no array can have such a shape, though it has no entries
        (Full, FULL[:4] + sizes(0, 1, *[2**32 - 1] * 2, 0, *[2**32 - 2] * 2), "invalid array shape"),
    ],
)
def test_a_peer_that_writes_nonsense_is_refused(kind, content, sentence):
    assert sentence in refused(letter_from_bytes, kind, content)


@pytest.mark.parametrize(
    "packed",
    [
        np.zeros(3, np.uint8),
        np.zeros(200, np.uint8),
        np.full(OVERHEAD, 255, np.uint8),
        np.frombuffer(struct.pack("<I", OVERHEAD - 5) + bytes(OVERHEAD - 5), np.uint8),
        np.frombuffer(struct.pack("<I", OVERHEAD - 3) + bytes(OVERHEAD - 3), np.uint8),
        np.frombuffer(struct.pack("<I", OVERHEAD - 4) + bytes(OVERHEAD - 5), np.uint8),
    ],
)
def test_what_is_not_letters_one_after_the_other_is_refused(packed):
    with pytest.raises(ValueError, match="must be sealed letters one after the other"):
        gossip.Told(letters=packed)
    good = struct.pack("<I", OVERHEAD - 4) + bytes(OVERHEAD - 4)
    assert [sealed.floats for sealed in unpack(np.frombuffer(good * 2, np.uint8))] == [0, 0]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"trouble": "unread"}, "letters came with Gossip, but were not read"),
        ({"trouble": "twice"}, "a second letter to client 0 in one round"),
        ({"trouble": "stranger"}, "no keys were agreed on with client 3"),
        ({"trouble": "other"}, "the letter of client 0 is refused: it is no Other"),
        ({"size": 2}, "the letter of client 0 is refused: values has 3 entries along axis 0, but d = 2"),
        ({"told_size": 2}, "the letter of client 0 is refused: values has 3 entries along axis 0, but d = 2"),
    ],
)
def test_a_pair_that_uses_its_mailbox_wrongly_is_told(change, sentence):
    coordinator = Coordinator()
    ask = coordinator.go_on(gossiping(), until=FIRST_STEP).of_client(1)
    text = refused(coordinator.ask, 1, ask.model_copy(update=change))
    assert text.startswith(f"GossipClient, round {FIRST_STEP}, client 1: ")
    assert sentence in text
    coordinator.ask(1, ask)  # a request that fails leaves the mailbox as it was


def test_letters_need_their_round_one_size_and_a_reply_that_carries_them():
    def finish(letters=None):
        return gossip.Finish(letters=letters, trouble="writes")

    assert "letters were written, but a Done cannot carry" in refused(Coordinator().go_on, gossiping(last=finish))
    positional, scalars = encode(gossip.Begin())
    for header in ({}, {"round": "3"}):
        assert "round is required" in refused(GossipClient(TABLES[0]).fit, positional, {**scalars, **header})
    clients = [GossipClient(np.ones((4, D + (number == 2))), client=number) for number in range(N)]
    coordinator = Coordinator(clients)
    text = refused(coordinator.ask, 1, coordinator.go_on(gossiping(), until=FIRST_STEP).of_client(1))
    assert "the letter of client 2 is refused: values has 4 entries along axis 0, but d = 3" in text
