"""The keys of letters are new in every run, and pins notice a coordinator that hands out its own."""

import numpy as np
import pytest
from gossip import FIRST_STEP, KEYS, RING, TABLES, Coordinator, Estimate, GossipClient, N, by_hand, gossiping, refused

from fedkernel.ground import InputError, OwnFileError
from fedkernel.peers import KeyPair, PublishKeys, RunKeyFile, TakeKeys, remove_key_files, sealed_in
from fedkernel.peers.agreed_keys import PublicKeys
from fedkernel.peers.letters import letter_from_bytes, pack
from fedkernel.peers.run_key_file import KEY_FOLDER
from fedkernel.peers.sealing import PublishedKeys, letter_keys, seal, unseal


def taken(keys, peers):
    return TakeKeys(
        peers=np.array(peers),
        identities=np.array([keys[peer].identity for peer in peers]),
        ephemerals=np.array([keys[peer].ephemeral for peer in peers]),
    )


def published(coordinator):
    coordinator.number = 1
    return {client: coordinator.ask(client, PublishKeys()) for client in range(len(coordinator.clients))}


def test_keys_are_taken_once_so_that_no_number_seals_two_letters():
    coordinator = Coordinator()
    keys = published(coordinator)
    unasked = "keys of peers came, but the site's own were not requested"
    assert unasked in refused(Coordinator().ask, 0, taken(keys, [1]))
    coordinator.ask(0, taken(keys, [1, 3]))
    assert unasked in refused(coordinator.ask, 0, taken(keys, [1, 3]))
    again = coordinator.ask(0, PublishKeys())
    assert again.ephemeral.tobytes() != keys[0].ephemeral.tobytes()
    assert coordinator.clients[0].mail.neighbours == ()


def test_every_run_has_its_own_keys_whatever_its_seed_and_a_site_keeps_its_identity():
    identity = KeyPair.new()
    clients = [GossipClient(TABLES[0], client=0, identity=identity), GossipClient(TABLES[1], client=1, seed=7)]
    coordinator, other = Coordinator(clients), Coordinator([GossipClient(TABLES[1], client=1, seed=7)])
    first, second = published(coordinator), published(coordinator)
    other.number = 1
    third = {1: other.ask(0, PublishKeys())}
    assert first[0].identity.tobytes() == second[0].identity.tobytes() == identity.public
    assert len({keys[1].identity.tobytes() for keys in (first, second, third)}) == 3
    shown = [keys.ephemeral.tobytes() for run in (first, second, third) for keys in run.values()]
    assert len(set(shown)) == 5


def test_peers_must_be_other_clients_each_of_them_once_with_keys():
    coordinator = Coordinator()
    keys = published(coordinator)
    keys[-1] = keys[2**32] = keys[2]
    for peers in ([0, 1], [1, 1], [-1], [2**32]):
        assert f"peers = {peers}, but must be numbers of" in refused(coordinator.ask, 0, taken(keys, peers))
    for length in (32, 31):
        nothing = np.zeros((1, length), np.uint8)
        text = refused(coordinator.ask, 0, TakeKeys(peers=np.array([1]), identities=nothing, ephemerals=nothing))
        assert "the keys of client 1 are no X25519 public keys" in text
    short = PublicKeys(identity=np.zeros(31, np.uint8), ephemeral=np.zeros(31, np.uint8))
    with pytest.raises(ValueError, match="identity has 31 entries along axis 0, but key = 32"):
        PublishKeys().check_reply(short)


class InTheMiddle:
    """Makes a key pair of its own for each client, hands these out, and opens and seals anew whatever goes by."""

    def __init__(self):
        self.own = {client: (KeyPair.new(), KeyPair.new()) for client in range(N)}
        self.true, self.read = {}, []

    def keys(self, as_client, to):
        return letter_keys("run", as_client, *self.own[as_client], self.true[to])

    def __call__(self, number, client, ask):
        if isinstance(ask, TakeKeys):
            if not self.true:
                # what the clients published cannot be asked for again: the coordinator has it from their replies
                true = {j: (k.identity.tobytes(), k.ephemeral.tobytes()) for j, k in self.told.items()}
                self.true = {j: PublishedKeys(j, *keys) for j, keys in true.items()}
            own = [self.own[peer] for peer in ask.peers.tolist()]
            forged = {"identities": [pair[0].public for pair in own], "ephemerals": [pair[1].public for pair in own]}
            keys = {name: np.array([np.frombuffer(k, np.uint8) for k in own]) for name, own in forged.items()}
            return ask.model_copy(update=keys)
        if sealed_in(ask):
            return ask.model_copy(update={"letters": pack([self.again(sealed) for sealed in ask.sealed])})
        return ask

    def again(self, sealed):
        header = sealed.header
        content = unseal(self.keys(header.receiver, header.sender)[1], "run", sealed.letter)
        self.read.append(letter_from_bytes(Estimate, content).values)
        return seal(self.keys(header.sender, header.receiver)[0], "run", header, content)


def in_the_middle(clients):
    middle = InTheMiddle()
    coordinator = Coordinator(clients, meddle=middle)
    ask = coordinator.ask
    middle.told = {}

    def listening(client, request, number=None):
        reply = ask(client, request, number)
        if isinstance(reply, PublicKeys):
            middle.told[client] = reply
        return reply

    coordinator.ask = listening
    return coordinator, middle


def sites(pins_of):
    identities = [KeyPair.new() for _ in range(N)]
    pins = {j: identities[j].fingerprint for j in range(N)}
    return [GossipClient(TABLES[j], client=j, identity=identities[j], pins=pins_of(j, pins)) for j in range(N)]


def test_a_coordinator_that_hands_out_its_own_keys_reads_everything_without_pins_and_is_noticed_with_them():
    """What the documentation admits; and so the next tests are not about a coordinator that could not do it."""
    coordinator, middle = in_the_middle(sites(lambda j, pins: None))
    coordinator.go_on(gossiping())
    assert len(middle.read) == 4 * 2 * N
    np.testing.assert_array_equal(middle.read[:2], [TABLES[1].mean(axis=0), TABLES[3].mean(axis=0)])
    coordinator, middle = in_the_middle(sites(lambda j, pins: pins))
    text = refused(coordinator.go_on, gossiping())
    assert text.startswith("GossipClient, round 2, client 0: the key of client 1 has fingerprint ")
    assert f"{middle.own[1][0].fingerprint}, but {coordinator.clients[1].identity.fingerprint} is pinned" in text
    assert middle.read == []


def test_with_pins_true_identities_beside_ephemeral_keys_of_its_own_do_not_help_a_coordinator():
    coordinator, middle = in_the_middle(sites(lambda j, pins: pins))

    def meddle(number, client, ask):
        if not isinstance(ask, TakeKeys):
            return ask
        return middle(number, client, ask).model_copy(update={"identities": ask.identities})

    coordinator.meddle = meddle
    text = refused(coordinator.go_on, gossiping())
    assert f"round {FIRST_STEP}, client 0: the letter of client 1 is refused: {KEYS}" in text
    for (_, sender, receiver), letter in coordinator.letters.items():
        assert KEYS in refused(unseal, middle.keys(receiver, sender)[1], "run", letter)


def test_pins_decide_which_peers_are_met():
    coordinator = Coordinator(sites(lambda j, pins: pins))
    coordinator.go_on(gossiping())
    np.testing.assert_allclose([c.outputs["mean"] for c in coordinator.clients], by_hand(RING, 4), rtol=1e-12)
    clients = sites(lambda j, pins: {1: pins[1]} if j == 0 else {})
    text = refused(Coordinator(clients).go_on, gossiping())
    assert text == "GossipClient, round 2, client 0: client 3 is not among the peers that this site has pinned"
    clients = sites(lambda j, pins: pins)
    clients[2].identity = None  # it lost it
    text = refused(Coordinator(clients).go_on, gossiping())
    assert text.startswith("GossipClient, round 2, client 1: the key of client 2 has fingerprint ")
    with pytest.raises(InputError, match="the pin of client 3 is 'abc'"):
        GossipClient(TABLES[0], pins={3: "abc"})


def test_pins_of_another_deployment_are_refused_before_any_letter_by_the_names_of_both_sites():
    clients, names = sites(lambda j, pins: pins), ("north", "east", "south", "west")
    stale, own = KeyPair.new().fingerprint, clients[2]
    clients[2] = GossipClient(TABLES[2], client=2, identity=own.identity, pins={**own.pins, 3: stale}, names=names)
    coordinator = Coordinator(clients)
    text = refused(coordinator.go_on, gossiping())
    shown = clients[3].identity.fingerprint
    whose = f"the key of client 3 (site 'west') has fingerprint {shown}, but {stale} is pinned: the pin may be of "
    assert text.startswith(f"GossipClient, round 2, client 2: {whose}another deployment")
    assert coordinator.letters == {}


# Keys that a site keeps for a process that is started again

RUN_KEY = "0" * 64


def restarted(site):
    """Return the site as its next process has it: its files, and no memory."""
    own = {"client": site.client, "identity": site.identity, "pins": site.pins, "key_file": site.key_file}
    return GossipClient(TABLES[site.client], **own)


@pytest.mark.parametrize("identified", [True, False])
@pytest.mark.parametrize("until", [2, FIRST_STEP, FIRST_STEP + 2])
def test_a_site_that_is_started_again_opens_the_letters_of_its_peers(tmp_path, until, identified):
    """It is asked again for all of the run, as the hub does; and writes the same letters, to the byte."""
    own = RunKeyFile(tmp_path, RUN_KEY, b"secret")
    clients = sites(lambda j, pins: pins if identified else {})
    identity = clients[1].identity if identified else None
    clients[1] = GossipClient(TABLES[1], client=1, key_file=own, identity=identity, pins=clients[1].pins)
    asked, replies = [], []

    def meddle(number, client, ask):
        if client == 1:
            asked.append((number, ask))
        if (number, client) == (until, 1):
            coordinator.clients[1] = restarted(clients[1])
            for earlier, again in asked[:-1]:
                replies.append(coordinator.ask(1, again, earlier))
        return ask

    coordinator = Coordinator(clients, meddle=meddle)
    coordinator.go_on(gossiping())
    assert len(replies) == until - 1
    for reply in replies:
        for sealed in sealed_in(reply):
            where = sealed.header.round, sealed.header.sender, sealed.header.receiver
            assert coordinator.letters[where] == sealed.letter
    np.testing.assert_allclose([c.outputs["mean"] for c in coordinator.clients], by_hand(RING, 4), rtol=1e-12)


def test_kept_keys_are_the_owner_s_sealed_and_of_one_beginning(tmp_path):
    own, secret = RunKeyFile(tmp_path, RUN_KEY, b"secret"), KeyPair.new()
    assert own.load() == []
    own.keep([secret])
    path = tmp_path / KEY_FOLDER / RUN_KEY
    assert path.stat().st_mode & 0o777 == 0o600
    assert secret.private not in path.read_bytes()
    own.begin(restarted=True)
    assert own.load() == [secret]
    for other in (RunKeyFile(tmp_path, RUN_KEY, b"another"), RunKeyFile(tmp_path, "1" * 64, b"secret")):
        (tmp_path / KEY_FOLDER / other.run).write_bytes(path.read_bytes())
        with pytest.raises(OwnFileError, match="sealed with a different identity, or is damaged") as caught:
            other.load()
        assert str(tmp_path) not in caught.value.outline
    own.begin(restarted=True)
    assert [file.name for file in (tmp_path / KEY_FOLDER).iterdir()] == [RUN_KEY], "those of other runs go"
    own.begin(restarted=False)
    assert own.load() == [], "a run that begins again where its site lives has others"
    own.keep([secret])
    remove_key_files(tmp_path)
    assert own.load() == []


def test_keys_are_not_taken_twice_by_one_process(tmp_path):
    """Or a coordinator that asks for them again could have letters repeated."""
    client = GossipClient(TABLES[0], client=0, key_file=RunKeyFile(tmp_path, RUN_KEY, b"secret"))
    coordinator = Coordinator([client])
    shown = [coordinator.ask(0, PublishKeys(), 1).ephemeral.tobytes() for _ in range(2)]
    coordinator.clients[0] = restarted(client)
    shown.append(coordinator.ask(0, PublishKeys(), 1).ephemeral.tobytes())
    assert shown[0] != shown[1] == shown[2]
