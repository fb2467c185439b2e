"""A coordinator that changes the letters it forwards is refused, and one that looks on reads nothing."""

import gossip
import pytest
from gossip import AT, ESTIMATE, FIRST_STEP, KEYS, TABLES, Coordinator, GossipClient, N, gossiping, refused, relabelled

from fedkernel.peers import KeyPair, PublishKeys, sort_mail
from fedkernel.peers.agreed_keys import OwnEphemeral, OwnIdentity, SharedKeys
from fedkernel.peers.letters import pack
from fedkernel.peers.sealing import Header, seal


def at(run, sender, receiver=1, before=1):
    return run.letters[AT - before, sender, receiver]


# Client 1 has the neighbours 0 and 2; 3 is none.
ATTACKS = {
    "altered": (lambda run: [at(run, 0)[:-1] + bytes([at(run, 0)[-1] ^ 1]), at(run, 2)], 0, KEYS),
    "dropped": (lambda run: [at(run, 2)], None, "the expected letter from client 0 is missing"),
    "all dropped": (lambda run: [], None, "the expected letter from client 0 is missing"),
    "replayed": (lambda run: [at(run, 0, before=2), at(run, 2)], 0, f"its letter 0, of round {AT - 2}, was read"),
    "replayed as new": (lambda run: [relabelled(at(run, 0, before=2), round=AT - 1, sequence=1), at(run, 2)], 0, KEYS),
    "replayed beside": (lambda run: [at(run, 0), at(run, 0, before=2), at(run, 2)], 0, "a second one came with it"),
    "doubled": (lambda run: [at(run, 0), at(run, 0), at(run, 2)], 0, "a second one came with it"),
    "another receiver's": (lambda run: [at(run, 0, 3), at(run, 2)], 0, "it is for client 3"),
    "another receiver's, readdressed": (lambda run: [relabelled(at(run, 0, 3), receiver=1), at(run, 2)], 0, KEYS),
    "another sender's": (lambda run: [relabelled(at(run, 2), sender=0), at(run, 2)], 0, KEYS),
    "senders swapped": (lambda run: [relabelled(at(run, 2), sender=0), relabelled(at(run, 0), sender=2)], 0, KEYS),
    "no neighbour's": (
        lambda run: [at(run, 0), relabelled(at(run, 0, 3), sender=3, receiver=1), at(run, 2)],
        3,
        "no letter is expected from it",
    ),
    "its own, reflected": (lambda run: [relabelled(at(run, 1, 0), sender=0, receiver=1), at(run, 2)], 0, KEYS),
    "another round": (
        lambda run: [relabelled(at(run, 0), round=AT), at(run, 2)],
        0,
        f"it is of round {AT}, but letters of round {AT - 1} are due",
    ),
    "made up": (lambda run: [seal(bytes(64), "run", Header(0, 1, AT - 1, 1), ESTIMATE), at(run, 2)], 0, KEYS),
}


@pytest.mark.parametrize(("forged", "sender", "sentence"), ATTACKS.values(), ids=ATTACKS)
def test_whatever_a_coordinator_does_to_letters_is_refused_and_named(forged, sender, sentence):
    coordinator = Coordinator()
    ask = coordinator.go_on(gossiping(), until=AT).of_client(1)
    assert {sealed.header.sender for sealed in ask.sealed} == {0, 2}
    text = refused(coordinator.ask, 1, ask.model_copy(update={"letters": pack(forged(coordinator))}))
    assert text.startswith(f"GossipClient, round {AT}, client 1: ")
    assert sentence in text
    if sender is not None:
        assert f"the letter of client {sender} is refused: " in text
    coordinator.ask(1, ask)  # what was refused has changed nothing


def test_letters_in_another_order_than_they_were_written_are_refused():
    coordinator = Coordinator()
    held = coordinator.go_on(gossiping(), until=FIRST_STEP)
    # 1 is not asked, so it has not read
    replies = [coordinator.ask(client, held.of_client(client)) for client in (0, 2)]
    coordinator.number += 1
    later = sort_mail(replies)[1]
    text = refused(coordinator.ask, 1, gossip.Gossip(letters=later))
    assert "the letter of client 0 is refused: it is letter 1, but letter 0 is due: that one was dropped or" in text


@pytest.mark.parametrize("name", ["run", "another"])
def test_a_letter_of_another_run_is_refused_whatever_that_was_called(name):
    """All the same but the keys, which are new in every run, and perhaps the name: with the same identities even."""
    identities = [KeyPair.new() for _ in range(N)]

    def clients():
        return [GossipClient(TABLES[j], client=j, identity=identities[j]) for j in range(N)]

    coordinator, earlier = Coordinator(clients()), Coordinator(clients(), run=name)
    ask, old = [each.go_on(gossiping(), until=AT).of_client(1) for each in (coordinator, earlier)]
    assert f"the letter of client 0 is refused: {KEYS}" in refused(coordinator.ask, 1, ask.model_copy(update=dict(old)))
    coordinator.run = "renamed"
    assert KEYS in refused(coordinator.ask, 1, ask)
    coordinator.run = "run"
    coordinator.ask(1, PublishKeys())  # keys are made anew
    twisted = ask.model_copy(update={"senders": {1: [0, 2]}})
    assert "no keys were agreed on with client 0" in refused(coordinator.ask, 1, twisted)


def patterns(values):
    return [value.tobytes() for value in values]


def test_nothing_readable_goes_through_the_coordinator():
    coordinator = Coordinator()
    written = []
    for client in coordinator.clients:
        write = client._tell
        client._tell = lambda values, write=write: written.extend(patterns(values)) or write(values)
    coordinator.go_on(gossiping())

    assert len(written) == 4 * N * gossip.D, "of the beginning and three steps"
    seen = b"".join(coordinator.seen)
    assert not [value for value in written if value in seen]
    assert len(coordinator.letters) == 4 * 2 * N
    assert all(letter in seen for letter in coordinator.letters.values())
    # private keys and what was made of them
    for client in coordinator.clients:
        shared = SharedKeys.load(client.memory).keys
        secret = [OwnIdentity.load(client.memory).private.tobytes(), *(key.tobytes() for key in shared[:, 0])]
        assert len(secret) == 3
        assert not [key for key in secret if key in seen]


def test_the_key_of_a_run_is_forgotten_once_keys_are_agreed_on():
    coordinator = Coordinator()
    coordinator.go_on(gossiping(), until=3)
    assert all(SharedKeys.known(client.memory) for client in coordinator.clients)
    assert not any(OwnEphemeral.known(client.memory) for client in coordinator.clients)
