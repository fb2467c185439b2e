"""Letters between clients: a toy pair on raw clients and on the engine, and many a hostile coordinator.

The toy is gossip: each client repeats replacing its estimate by the mean over itself and its neighbours.
"""

import struct
from typing import Annotated, ClassVar

import numpy as np
import pytest
from flwr.app import ArrayRecord
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedkernel.arrays import FloatArray
from fedkernel.engines import _flower
from fedkernel.engines.local import LocalGrid
from fedkernel.errors import InputError, ProtocolError
from fedkernel.graph import Topology, neighbours
from fedkernel.job import Job, RunSpec
from fedkernel.ledger import Ledger, Load, Posted
from fedkernel.letters import (
    AXES,
    OVERHEAD,
    CarriesLetters,
    Letter,
    letter_from_bytes,
    letter_to_bytes,
    pack,
    sealed_in,
    sort_mail,
    unpack,
)
from fedkernel.messages import Done, Reply, Request, Shape, decode, encode
from fedkernel.peers import PeerClient, PublicKeys, PublishKeys, TakeKeys, agree_keys
from fedkernel.protocol import to_all, to_each
from fedkernel.result import Result
from fedkernel.sealing import HEADER, TAG, Header, KeyPair, Published, agree, seal, unseal
from fedkernel.site import Site, client_app, site_of_job
from fedkernel.strategy import KernelStrategy

N, D = 4, 3
RING = neighbours(Topology("ring"), N)
TABLES = [np.random.default_rng(client).standard_normal((5, D)) + client for client in range(N)]


class Estimate(Letter):
    """The estimate of a node: reveals the mean of its rows, then of its neighbourhood."""

    values: Annotated[FloatArray, Shape("d")]


class Other(Letter):
    values: Annotated[FloatArray, Shape("d")]


class Told(CarriesLetters, Reply):
    """Nothing but letters."""


class Begin(Request[Told]):
    """Asks to tell the neighbours the own mean."""


class Gossip(CarriesLetters, Request[Told]):
    """Asks to average with what the neighbours told, and to tell them; ``trouble``: what a client does wrong."""

    senders: dict[int, list[int]] | None = None
    size: int | None = None
    told_size: int | None = None
    trouble: str = ""

    def known_dimensions(self) -> dict[str, int]:
        return super().known_dimensions() | ({} if self.told_size is None else {"d": self.told_size})


class Finish(CarriesLetters, Request[Done]):
    """Asks to read the last letters."""

    trouble: str = ""


class GossipClient(PeerClient):
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
        own = self.remembered("estimate")
        return (own + sum(letter.values for _, letter in letters)) / (len(letters) + 1)

    def _tell(self, values: FloatArray) -> Told:
        self.memory["estimate"] = values
        for peer in self.mail.neighbours:
            self.mail.write(peer, Estimate(values=values))
        return Told()


def gossiping(adjacent=RING, steps=3, last=Finish):
    yield from agree_keys(adjacent)
    replies = yield from to_all(Begin())
    for _ in range(steps):
        mail = sort_mail(replies)
        replies = yield from to_each({node: Gossip(letters=mail.get(node)) for node in range(len(adjacent))})
    mail = sort_mail(replies)
    yield from to_each({node: last(letters=mail.get(node)) for node in range(len(adjacent))})


FIRST_STEP = 4
"""The number of the round that asks to gossip first: two rounds make keys, one begins."""


def by_hand(adjacent, steps):
    values = np.array([table.mean(axis=0) for table in TABLES[: len(adjacent)]])
    for _ in range(steps):
        values = np.array([values[[node, *others]].mean(axis=0) for node, others in enumerate(adjacent)])
    return values


class Coordinator:
    """Runs a protocol over raw clients, sees what a coordinator sees, and meddles.

    ``meddle(number, client, ask)`` returns what is asked in place of ``ask``; None: the client is not asked at all.
    """

    def __init__(self, clients=None, *, run="run", meddle=None):
        self.clients = clients or [GossipClient(table, client=number) for number, table in enumerate(TABLES)]
        self.run, self.meddle, self.number = run, meddle or (lambda number, client, ask: ask), 0
        self.seen, self.letters = [], {}

    def ask(self, client, ask, number=None):
        """One request to one client, as NumPyClient has it."""
        told = {"run": self.run, "round": self.number if number is None else number}
        positional, scalars = encode(ask)
        replied, _, answered = self.clients[client].fit(positional, {**scalars, **told})
        self.seen += [part.tobytes() for part in (*positional, *replied)] + [repr((scalars, answered)).encode()]
        return decode(ask.reply_type, replied, answered)

    def go_on(self, protocol, until=None):
        """Run to the end, or return the round of that number as it is about to be asked."""
        try:
            asked = next(protocol)
            while True:
                self.number += 1
                if self.number == until:
                    return asked
                replies = []
                for client in range(len(self.clients)):
                    ask = self.meddle(self.number, client, asked.of_client(client))
                    if ask is not None:
                        replies.append(self.ask(client, ask))
                        self.note(replies[-1])
                asked = protocol.send(replies)
        except StopIteration as stop:
            return stop.value

    def note(self, reply):
        for sealed in sealed_in(reply):
            header = sealed.header
            self.letters[header.round, header.sender, header.receiver] = sealed.letter


def refused(act, *args, **kwargs):
    with pytest.raises(ProtocolError) as caught:
        act(*args, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# The toy itself


@pytest.mark.parametrize(
    "adjacent", [RING, *(neighbours(Topology(kind), N) for kind in ("star", "full", "grid"))], ids=str
)
def test_letters_reach_the_neighbours_they_are_for(adjacent):
    one = Coordinator()
    one.go_on(gossiping(adjacent, 3))
    got = np.array([client.outputs["mean"] for client in one.clients])
    np.testing.assert_allclose(got, by_hand(adjacent, 4), rtol=1e-12)


def test_one_node_needs_no_keys_and_no_rounds_for_them():
    one = Coordinator([GossipClient(TABLES[0])])
    one.go_on(gossiping([()], 2))
    assert one.number == 4, "one to begin, two steps, one to finish"
    np.testing.assert_array_equal(one.clients[0].outputs["mean"], TABLES[0].mean(axis=0))


def test_letters_come_in_the_order_of_the_senders_whatever_the_order_on_the_way():
    one = Coordinator()
    asked = one.go_on(gossiping(), until=FIRST_STEP)
    ask = asked.of_client(1)
    letters = [sealed.letter for sealed in ask.sealed]
    order = []
    one.clients[1]._merged = lambda letters: order.extend(peer for peer, _ in letters) or np.ones(D)
    one.ask(1, ask.model_copy(update={"letters": pack(letters[::-1])}))
    assert order == [0, 2]


def test_only_those_that_a_letter_is_expected_from_need_to_write():
    """Along a tree, a node reads its parent's letter only; that of nobody is also an answer."""
    one = Coordinator()
    ask = one.go_on(gossiping(), until=FIRST_STEP).of_client(1)
    [letter] = [sealed.letter for sealed in ask.sealed if sealed.header.sender == 2]
    from_2 = {"senders": {1: [2]}}
    assert "client 0 is refused: none is expected from it" in refused(one.ask, 1, ask.model_copy(update=from_2))
    one.ask(1, ask.model_copy(update={**from_2, "letters": pack([letter])}))
    one.ask(2, Gossip(senders={2: []}))


# What a letter may be


class Full(Letter):
    a: Annotated[FloatArray, Shape("n", "k")]
    b: Annotated[FloatArray | None, Shape("k", "m_m")] = None
    c: Annotated[FloatArray, Shape("n", "p", "q")]


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(st.data())
def test_a_letter_survives_its_form_bit_by_bit(data):
    n, k, m, p, q = data.draw(st.tuples(*[st.integers(0, 4)] * 5))
    shapes = {"a": (n, k), "c": (n, p, q)} | ({"b": (k, m)} if data.draw(st.booleans()) else {})
    fields = {name: data.draw(arrays(np.float64, shape, elements=finite)) for name, shape in shapes.items()}
    letter = Full(**{name: np.asfortranarray(array) for name, array in fields.items()})
    content = letter_to_bytes(letter)
    assert len(content) + 4 + HEADER + TAG == OVERHEAD + 8 * letter.floats
    again = letter_from_bytes(Full, content)
    assert set(again.arrays()) == set(fields)
    for name, array in fields.items():
        got = getattr(again, name)
        assert (got.shape, got.dtype, got.tobytes()) == (array.shape, array.dtype, array.tobytes())
        got += 1  # a client may work in place


def test_the_overhead_is_below_100_bytes_and_nearly_all_there_is():
    assert OVERHEAD < 100
    one = Coordinator()
    one.go_on(gossiping())
    assert {len(letter) for letter in one.letters.values()} == {OVERHEAD - 4 + 8 * D}
    assert pack([]) is None
    packed = pack([next(iter(one.letters.values()))] * 5)
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
    assert AXES == 10


def sizes(*given_):
    return struct.pack("<10I", *given_, *[0] * (AXES - len(given_)))


ESTIMATE = letter_to_bytes(Estimate(values=np.array([1.0, 2.0])))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (letter_to_bytes(Other(values=np.ones(2))), "it is no Estimate"),
        (b"", "it is no Estimate"),
        (ESTIMATE[:43], "it is no Estimate"),
        (ESTIMATE[:-8], "as a Estimate it should have 2 floats, but has 8 bytes"),
        (ESTIMATE + bytes(8), "as a Estimate it should have 2 floats, but has 24 bytes"),
        (ESTIMATE[:4] + sizes(2**32 - 1) + ESTIMATE[44:], "should have 0 floats"),
        (ESTIMATE[:4] + sizes(2**32 - 1), "Estimate: values is required"),
        (ESTIMATE[:4] + sizes(2**32 - 2), "should have 4294967294 floats"),
        (ESTIMATE[:4] + sizes(2) + np.array([np.nan, 1]).tobytes(), "Estimate: values: must be a finite float64 array"),
    ],
)
def test_a_peer_that_writes_nonsense_is_refused(content, told):
    assert told in refused(letter_from_bytes, Estimate, content)


def test_arrays_of_a_letter_must_agree_in_shape():
    content = letter_to_bytes(Full(a=np.ones((2, 1)), c=np.ones((2, 1, 1))))
    wrong = content[:4] + sizes(1, 2, *[2**32 - 1] * 2, 2, 1, 1) + content[44:]
    assert "c has 2 entries along axis 0, but n = 1" in refused(letter_from_bytes, Full, wrong)


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
        Told(letters=packed)
    good = struct.pack("<I", OVERHEAD - 4) + bytes(OVERHEAD - 4)
    assert [sealed.floats for sealed in unpack(np.frombuffer(good * 2, np.uint8))] == [0, 0]


# What pairs may do wrong


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"trouble": "unread"}, "letters came with Gossip, but were not read"),
        ({"trouble": "twice"}, "a second letter to client 0 in one round"),
        ({"trouble": "stranger"}, "no keys were agreed on with client 3"),
        ({"trouble": "other"}, "the letter of client 0 is refused: it is no Other"),
        ({"size": 2}, "the letter of client 0 is refused: values has 3 entries along axis 0, but d = 2"),
        ({"told_size": 2}, "the letter of client 0 is refused: values has 3 entries along axis 0, but d = 2"),
    ],
)
def test_a_pair_that_uses_its_mailbox_wrongly_is_told(change, told):
    one = Coordinator()
    ask = one.go_on(gossiping(), until=FIRST_STEP).of_client(1)
    text = refused(one.ask, 1, ask.model_copy(update=change))
    assert text.startswith(f"GossipClient, round {FIRST_STEP}, client 1: ")
    assert told in text
    one.ask(1, ask)  # a request that fails leaves the mailbox as it was


def test_letters_need_a_reply_that_carries_them():
    def finish(letters=None):
        return Finish(letters=letters, trouble="writes")

    assert "letters were written, but a Done carries none" in refused(Coordinator().go_on, gossiping(last=finish))


def test_letters_need_to_know_the_round():
    positional, scalars = encode(Begin())
    client = GossipClient(TABLES[0])
    for told in ({}, {"round": "3"}):
        assert "the round must be told" in refused(client.fit, positional, {**scalars, **told})


def test_letters_of_two_sizes_are_refused():
    clients = [GossipClient(np.ones((4, D + (number == 2))), client=number) for number in range(N)]
    one = Coordinator(clients)
    ask = one.go_on(gossiping(), until=FIRST_STEP).of_client(1)
    text = refused(one.ask, 1, ask)
    assert "the letter of client 2 is refused: values has 4 entries along axis 0, but d = 3" in text


# A coordinator that changes what it forwards. Client 1 has the neighbours 0 and 2; 3 is none.

AT = FIRST_STEP + 1


def relabelled(letter, **fields):
    return Header.of(letter)._replace(**fields).pack() + letter[HEADER:]


def at(one, sender, receiver=1, before=1):
    return one.letters[AT - before, sender, receiver]


KEYS = "it was altered, or sealed with other keys or in another run"
ATTACKS = {
    "altered": (lambda one: [at(one, 0)[:-1] + bytes([at(one, 0)[-1] ^ 1]), at(one, 2)], 0, KEYS),
    "dropped": (lambda one: [at(one, 2)], None, "no letter came from client 0, from which one is expected"),
    "all dropped": (lambda one: [], None, "no letter came from client 0"),
    "replayed": (
        lambda one: [at(one, 0, before=2), at(one, 2)],
        0,
        f"its letter 0, of round {AT - 2}, was read before",
    ),
    "replayed as new": (lambda one: [relabelled(at(one, 0, before=2), round=AT - 1, sequence=1), at(one, 2)], 0, KEYS),
    "replayed beside": (lambda one: [at(one, 0), at(one, 0, before=2), at(one, 2)], 0, "another came with it"),
    "doubled": (lambda one: [at(one, 0), at(one, 0), at(one, 2)], 0, "another came with it"),
    "another receiver's": (lambda one: [at(one, 0, 3), at(one, 2)], 0, "it is for client 3"),
    "another receiver's, readdressed": (lambda one: [relabelled(at(one, 0, 3), receiver=1), at(one, 2)], 0, KEYS),
    "another sender's": (lambda one: [relabelled(at(one, 2), sender=0), at(one, 2)], 0, KEYS),
    "senders swapped": (
        lambda one: [relabelled(at(one, 2), sender=0), relabelled(at(one, 0), sender=2)],
        0,
        KEYS,
    ),
    "no neighbour's": (
        lambda one: [at(one, 0), relabelled(at(one, 0, 3), sender=3, receiver=1), at(one, 2)],
        3,
        "none is expected from it",
    ),
    "its own, reflected": (lambda one: [relabelled(at(one, 1, 0), sender=0, receiver=1), at(one, 2)], 0, KEYS),
    "another round": (
        lambda one: [relabelled(at(one, 0), round=AT), at(one, 2)],
        0,
        f"it was written in round {AT}, but letters of round {AT - 1} are due",
    ),
    "made up": (
        lambda one: [seal(bytes(32), "run", Header(0, 1, AT - 1, 1), ESTIMATE), at(one, 2)],
        0,
        KEYS,
    ),
}


@pytest.mark.parametrize(("forged", "sender", "told"), ATTACKS.values(), ids=ATTACKS)
def test_whatever_a_coordinator_does_to_letters_is_refused_and_named(forged, sender, told):
    one = Coordinator()
    ask = one.go_on(gossiping(), until=AT).of_client(1)
    assert {sealed.header.sender for sealed in ask.sealed} == {0, 2}
    text = refused(one.ask, 1, ask.model_copy(update={"letters": pack(forged(one))}))
    assert text.startswith(f"GossipClient, round {AT}, client 1: ")
    assert told in text
    if sender is not None:
        assert f"the letter of client {sender} is refused: " in text
    one.ask(1, ask)  # what was refused has changed nothing


def test_no_byte_of_a_letter_can_be_changed():
    one = Coordinator()
    ask = one.go_on(gossiping(), until=AT).of_client(1)
    for place in range(len(ask.letters)):
        letters = ask.letters.copy()
        letters[place] ^= 1
        with pytest.raises((ProtocolError, ValueError), match=r"refused|no letter came|one after the other"):
            one.ask(1, ask.model_copy(update={"letters": letters}))
    one.ask(1, ask)


def test_a_letter_that_was_held_back_is_refused():
    """Client 1 is not asked in one round; in the next it gets the letters that it should have got in that."""
    one = Coordinator()
    ask = one.go_on(gossiping(), until=FIRST_STEP).of_client(1)
    text = refused(one.ask, 1, ask, FIRST_STEP + 1)
    assert f"it was written in round {FIRST_STEP - 1}, but letters of round {FIRST_STEP} are due" in text


def test_letters_in_another_order_than_they_were_written_are_refused():
    one = Coordinator()
    held = one.go_on(gossiping(), until=FIRST_STEP)
    replies = [one.ask(client, held.of_client(client)) for client in (0, 2)]  # 1 is not asked, so it has not read
    one.number += 1
    later = sort_mail(replies)[1]
    text = refused(one.ask, 1, Gossip(letters=later))
    assert "the letter of client 0 is refused: it is letter 1, but letter 0 is due and was dropped or held back" in text


@pytest.mark.parametrize("name", ["run", "another"])
def test_a_letter_of_another_run_is_refused_whatever_that_was_called(name):
    """All the same but the keys, which are new in every run, and perhaps the name: with the same identities even."""
    identities = [KeyPair.new() for _ in range(N)]

    def clients():
        return [GossipClient(TABLES[j], client=j, identity=identities[j]) for j in range(N)]

    one, earlier = Coordinator(clients()), Coordinator(clients(), run=name)
    ask, old = [each.go_on(gossiping(), until=AT).of_client(1) for each in (one, earlier)]
    assert f"the letter of client 0 is refused: {KEYS}" in refused(one.ask, 1, ask.model_copy(update=dict(old)))
    one.run = "renamed"
    assert KEYS in refused(one.ask, 1, ask)


def test_letters_are_not_opened_after_keys_were_made_anew():
    one = Coordinator()
    ask = one.go_on(gossiping(), until=AT).of_client(1)
    one.ask(1, PublishKeys())
    assert "no keys were agreed on with client 0" in refused(
        one.ask, 1, ask.model_copy(update={"senders": {1: [0, 2]}})
    )


# A coordinator that looks on


def patterns(values):
    return [value.tobytes() for value in values]


def test_nothing_readable_goes_through_the_coordinator():
    one = Coordinator()
    told = []
    for client in one.clients:
        write = client._tell
        client._tell = lambda values, write=write: told.extend(patterns(values)) or write(values)
    one.go_on(gossiping())
    assert len(told) == 4 * N * D, "of the beginning and three steps"
    seen = b"".join(one.seen)
    assert not [value for value in told if value in seen]
    assert len(one.letters) == 4 * 2 * N
    assert all(letter in seen for letter in one.letters.values())
    # private keys and what was made of them
    for client in one.clients:
        secret = [client.memory["mail.identity"].tobytes(), *(k.tobytes() for k in client.memory["mail.keys"][:, 0])]
        assert len(secret) == 3
        assert not [key for key in secret if key in seen]


def test_the_test_above_would_see_what_is_readable():
    class Careless(GossipClient):
        def _tell(self, values):
            told = super()._tell(values)
            letter = pack([bytes(HEADER) + letter_to_bytes(Estimate(values=values)) + bytes(TAG)])
            self.mail._written = {9: letter.tobytes()[4:]}
            return told

    one = Coordinator([Careless(table, client=number) for number, table in enumerate(TABLES)])
    one.go_on(gossiping(), until=FIRST_STEP)
    assert all(value in b"".join(one.seen) for value in patterns(TABLES[0].mean(axis=0)))


def test_the_same_content_looks_different_each_time():
    """All tables alike: every client tells every neighbour the same in every round."""
    clients = [GossipClient(np.ones((4, 200)), client=number) for number in range(N)]
    one = Coordinator(clients)
    one.go_on(gossiping())
    contents = [letter[HEADER:] for letter in one.letters.values()]
    words = [content[place : place + 8] for content in contents for place in range(0, len(content), 8)]
    assert len(set(words)) == len(words), "not eight bytes are alike, within a letter or between letters"


def test_the_key_of_a_run_is_forgotten_once_keys_are_agreed_on():
    one = Coordinator()
    one.go_on(gossiping(), until=3)
    assert all("mail.ephemeral" not in client.memory for client in one.clients)
    assert all({"mail.keys", "mail.peers", "mail.counts"} <= set(client.memory) for client in one.clients)


# Keys, and a coordinator that hands out its own


def taken(keys, peers):
    return TakeKeys(
        peers=np.array(peers),
        identities=np.array([keys[peer].identity for peer in peers]),
        ephemerals=np.array([keys[peer].ephemeral for peer in peers]),
    )


def published(one):
    one.number = 1
    return {client: one.ask(client, PublishKeys()) for client in range(len(one.clients))}


def test_keys_are_taken_once_so_that_no_number_seals_two_letters():
    one = Coordinator()
    keys = published(one)
    unasked = "keys of peers came, but its own were not asked for"
    assert unasked in refused(Coordinator().ask, 0, taken(keys, [1]))
    one.ask(0, taken(keys, [1, 3]))
    assert unasked in refused(one.ask, 0, taken(keys, [1, 3]))
    again = one.ask(0, PublishKeys())
    assert again.ephemeral.tobytes() != keys[0].ephemeral.tobytes()
    assert one.clients[0].mail.neighbours == ()


def test_every_run_has_its_own_keys_and_a_site_keeps_its_identity():
    identity = KeyPair.new()
    one = Coordinator([GossipClient(TABLES[0], client=0, identity=identity), GossipClient(TABLES[1], client=1)])
    first, second = published(one), published(one)
    assert first[0].identity.tobytes() == second[0].identity.tobytes() == identity.public
    assert first[1].identity.tobytes() != second[1].identity.tobytes()
    shown = [keys.ephemeral.tobytes() for run in (first, second) for keys in run.values()]
    assert len(set(shown)) == 4


def test_the_seed_does_not_decide_the_keys():
    same = [Coordinator([GossipClient(TABLES[0], client=0, seed=7)]) for _ in range(2)]
    first, second = (published(one)[0] for one in same)
    assert first.identity.tobytes() != second.identity.tobytes()
    assert first.ephemeral.tobytes() != second.ephemeral.tobytes()


@pytest.mark.parametrize("peers", [[0, 1], [1, 1], [-1], [2**32]])
def test_peers_must_be_other_clients_each_of_them_once(peers):
    one = Coordinator()
    keys = published(one)
    keys[-1] = keys[2**32] = keys[2]
    assert f"the peers {peers} are not numbers of other clients" in refused(one.ask, 0, taken(keys, peers))


@pytest.mark.parametrize("length", [32, 31])
def test_keys_that_are_none_are_refused(length):
    one = Coordinator()
    published(one)
    nothing = np.zeros((1, length), np.uint8)
    text = refused(one.ask, 0, TakeKeys(peers=np.array([1]), identities=nothing, ephemerals=nothing))
    assert "what came as the keys of client 1 are no X25519 public keys" in text


def test_a_reply_with_keys_of_another_length_is_refused():
    short = PublicKeys(identity=np.zeros(31, np.uint8), ephemeral=np.zeros(31, np.uint8))
    with pytest.raises(ValueError, match="identity has 31 entries along axis 0, but key = 32"):
        PublishKeys().check_reply(short)


class InTheMiddle:
    """Makes a key pair of its own for each client, hands these out, and opens and seals anew whatever goes by."""

    def __init__(self):
        self.own = {client: (KeyPair.new(), KeyPair.new()) for client in range(N)}
        self.true, self.read = {}, []

    def keys(self, as_client, to):
        return agree("run", as_client, *self.own[as_client], self.true[to])

    def __call__(self, number, client, ask):
        if isinstance(ask, TakeKeys):
            if not self.true:
                # what the clients published cannot be asked for again: the coordinator has it from their replies
                self.true = {j: Published(j, k.identity.tobytes(), k.ephemeral.tobytes()) for j, k in self.told.items()}
            own = [self.own[peer] for peer in ask.peers.tolist()]
            forged = {"identities": [pair[0].public for pair in own], "ephemerals": [pair[1].public for pair in own]}
            keys = {name: np.array([np.frombuffer(k, np.uint8) for k in found]) for name, found in forged.items()}
            return ask.model_copy(update=keys)
        if sealed_in(ask):
            return ask.model_copy(update={"letters": pack([self.again(sealed) for sealed in ask.sealed])})
        return ask

    def again(self, sealed):
        header = sealed.header
        content = unseal(self.keys(header.receiver, header.sender).reading, "run", sealed.letter)
        self.read.append(letter_from_bytes(Estimate, content).values)
        return seal(self.keys(header.sender, header.receiver).writing, "run", header, content)


def in_the_middle(clients):
    middle = InTheMiddle()
    one = Coordinator(clients, meddle=middle)
    ask = one.ask
    middle.told = {}

    def listening(client, request, number=None):
        reply = ask(client, request, number)
        if isinstance(reply, PublicKeys):
            middle.told[client] = reply
        return reply

    one.ask = listening
    return one, middle


def sites(pins_of):
    identities = [KeyPair.new() for _ in range(N)]
    pins = {j: identities[j].fingerprint for j in range(N)}
    return [GossipClient(TABLES[j], client=j, identity=identities[j], pins=pins_of(j, pins)) for j in range(N)]


def test_without_pins_a_coordinator_that_hands_out_its_own_keys_reads_everything():
    """What the documentation admits; and so the next tests are not about a coordinator that could not do it."""
    one, middle = in_the_middle(sites(lambda j, pins: None))
    one.go_on(gossiping())
    assert len(middle.read) == 4 * 2 * N
    np.testing.assert_array_equal(middle.read[:2], [TABLES[1].mean(axis=0), TABLES[3].mean(axis=0)])


def test_with_pins_a_coordinator_that_hands_out_its_own_keys_is_noticed():
    one, middle = in_the_middle(sites(lambda j, pins: pins))
    text = refused(one.go_on, gossiping())
    assert text.startswith("GossipClient, round 2, client 0: the key of client 1 has fingerprint ")
    assert f"{middle.own[1][0].fingerprint}, but {one.clients[1].identity.fingerprint} is pinned" in text
    assert middle.read == []


def test_with_pins_true_identities_beside_ephemeral_keys_of_its_own_do_not_help_a_coordinator():
    one, middle = in_the_middle(sites(lambda j, pins: pins))

    def meddle(number, client, ask):
        if not isinstance(ask, TakeKeys):
            return ask
        return middle(number, client, ask).model_copy(update={"identities": ask.identities})

    one.meddle = meddle
    text = refused(one.go_on, gossiping())
    assert f"round {FIRST_STEP}, client 0: the letter of client 1 is refused: {KEYS}" in text
    for (_, sender, receiver), letter in one.letters.items():
        assert KEYS in refused(unseal, middle.keys(receiver, sender).reading, "run", letter)


def test_pins_that_are_right_let_the_run_pass():
    one = Coordinator(sites(lambda j, pins: pins))
    one.go_on(gossiping())
    np.testing.assert_allclose([c.outputs["mean"] for c in one.clients], by_hand(RING, 4), rtol=1e-12)


def test_a_site_that_pins_some_refuses_the_others():
    clients = sites(lambda j, pins: {1: pins[1]} if j == 0 else {})
    text = refused(Coordinator(clients).go_on, gossiping())
    assert text == "GossipClient, round 2, client 0: client 3 is not among the peers that this site has pinned"


def test_a_site_that_lost_its_identity_is_refused_by_those_that_pinned_it():
    clients = sites(lambda j, pins: pins)
    clients[2].identity = None
    text = refused(Coordinator(clients).go_on, gossiping())
    assert text.startswith("GossipClient, round 2, client 1: the key of client 2 has fingerprint ")


def test_pins_must_be_fingerprints():
    with pytest.raises(InputError, match="the pin of client 3 is 'abc'"):
        GossipClient(TABLES[0], pins={3: "abc"})


# On an engine


class GossipMean(KernelStrategy):
    client = GossipClient
    partition: ClassVar = "horizontal"
    steps = 3

    def protocol(self):
        yield from gossiping(neighbours(Topology("ring"), len(self._cohort)), self.steps)
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


def on_engine(*, site=lambda number: {}, runs=1, **hostile):
    kept = {number: {} for number in range(N)}

    def find_site(context, config):
        number = int(context.node_config["partition-id"])
        return Site(number, TABLES[number], None, kept[number].update, **site(number))

    with Hostile(client_app({"GossipClient": GossipClient}, find_site), clients=N, **hostile) as grid:
        results = [GossipMean().run(grid) for _ in range(runs)]
    return results[-1], kept, grid


def test_the_engine_gives_the_same_numbers_as_raw_clients_and_every_time():
    result, kept, _ = on_engine()
    one = Coordinator()
    one.go_on(gossiping())
    for number in range(N):
        assert kept[number]["mean"].tobytes() == one.clients[number].outputs["mean"].tobytes()
    assert on_engine()[0].ledger == result.ledger


def test_a_run_clears_the_keys_of_the_run_before_it():
    _, kept, grid = on_engine(runs=2)
    np.testing.assert_allclose([kept[j]["mean"] for j in range(N)], by_hand(RING, 4), rtol=1e-12)
    shown = [
        reply.content["arrays"].to_numpy_ndarrays()[0].tobytes()
        for messages, replies in grid.exchanges
        for message, reply in zip(messages, replies, strict=True)
        if message.content["config"].get("message") == "PublishKeys"
    ]
    assert len(set(shown)) == 2 * N


def flipped(letters):
    letters = letters.copy()
    letters[-1] ^= 1
    return letters


def test_the_engine_says_which_letter_was_refused():
    with pytest.raises(ProtocolError) as caught:
        on_engine(number=AT, change=flipped)
    assert str(caught.value).startswith(f"GossipMean, round {AT} (Gossip), client 1: ")
    assert f"the letter of client 2 is refused: {KEYS}" in str(caught.value)


def test_pins_and_identity_are_the_sites_own():
    identities = [KeyPair.new() for _ in range(N)]
    pins = {number: identities[number].fingerprint for number in range(N)}
    _, kept, _ = on_engine(site=lambda number: {"identity": identities[number], "pins": pins})
    np.testing.assert_allclose([kept[j]["mean"] for j in range(N)], by_hand(RING, 4), rtol=1e-12)
    with pytest.raises(ProtocolError, match=r"GossipMean, round 2 \(TakeKeys\), client 0: .* is pinned"):
        on_engine(site=lambda number: {"pins": pins})


def test_a_node_s_configuration_names_its_identity_and_pins(tmp_path):
    np.save(tmp_path / "X.npy", TABLES[0])
    run = RunSpec(id="run", strategy="DKPCA", shards=[str(tmp_path / "X.npy")], clients=1)
    job, own, peer = Job(runs=[run]).model_dump_json(), KeyPair.new(), KeyPair.new()
    own.write(tmp_path / "own.pem")
    (tmp_path / "peers.toml").write_text(f'7 = "{peer.fingerprint}"')
    node = {"partition-id": 0, "num-partitions": 1}
    files = {"identity": str(tmp_path / "own.pem"), "pins": str(tmp_path / "peers.toml")}
    site = site_of_job(_flower.new_context(1, node | files, {"job": job}), {"run": "run"})
    assert (site.identity, site.pins) == (own, {7: peer.fingerprint})
    site = site_of_job(_flower.new_context(1, node, {"job": job}), {"run": "run"})
    assert (site.identity, site.pins) == (None, None)
    with pytest.raises(InputError, match="there is no identity file"):
        site_of_job(_flower.new_context(1, node | {"identity": "none.pem"}, {"job": job}), {"run": "run"})


class Impostor(GossipClient):
    """Client 1 posts a letter in the name of another, or of another round."""

    fields: ClassVar = {"sender": 0}

    def begin(self, ask: Begin) -> Told:
        told = super().begin(ask)
        if self.client == 1:
            self.mail._written = {k: relabelled(v, **self.fields) for k, v in self.mail._written.items()}
        return told


@pytest.mark.parametrize(
    ("fields", "told"), [({"sender": 0}, "of client 0, round 3"), ({"round": 9}, "of client 1, round 9")]
)
def test_a_client_that_posts_in_the_name_of_another_is_refused_by_the_coordinator(fields, told, monkeypatch):
    class Strategy(GossipMean):
        client = Impostor

    monkeypatch.setattr(Impostor, "fields", fields)
    with pytest.raises(ProtocolError, match=rf"^Strategy, round 3 \(Begin\), client 1: it posts a letter {told}$"):
        Strategy().fit(TABLES)


# The ledger


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
                    counted += [Posted(s.header[2], *s.header[:2], D, OVERHEAD + 8 * D) for s in unpack(array)]
    assert result.ledger.letters == counted
    assert len(counted) == 4 * 2 * N, "every node, in four rounds, to both neighbours"


def test_the_ledger_sums_up_by_edge_and_sets_the_two_networks_side_by_side():
    ledger = on_engine()[0].ledger
    assert ledger.edges == {
        (a, b): Load(4, 4 * D, 4 * (OVERHEAD + 8 * D)) for a, others in enumerate(RING) for b in others
    }
    assert ledger.peer_to_peer == Load(32, 32 * D, 32 * (OVERHEAD + 8 * D))
    # sealed letters count as the floats that they hold: once up, once down, keys not at all
    assert ledger.floats_up == ledger.floats_down == 32 * D
    assert ledger.star == Load(2 * N * (1 + ledger.rounds), 2 * 32 * D, ledger.bytes_up + ledger.bytes_down)
    assert ledger.bytes_up > ledger.peer_to_peer.bytes < ledger.bytes_down


def test_letters_are_in_the_parts_of_the_ledger_that_they_belong_to():
    ledger = on_engine()[0].ledger
    assert sum((ledger.of_client(j).peer_to_peer for j in range(N)), Load()) == ledger.peer_to_peer
    assert {letter.sender for letter in ledger.of_client(2).letters} == {2}
    assert ledger.of_round(2).letters == []
    assert len(ledger.of_round(3).letters) == 2 * N


def test_letters_survive_the_ledger_s_table_and_the_result_s_file(tmp_path):
    result = on_engine()[0]
    table = result.ledger.to_table()
    assert Ledger.from_table(table) == result.ledger
    old = [row for row in table if "sender" not in row]
    assert Ledger.from_table(old) == Ledger(result.ledger.entries, [])
    copy = Result(None, result.ledger, result.history)
    copy.save(tmp_path)
    assert '"sender": 0' in (tmp_path / "result.json").read_text()
