"""Agreement of neighbouring clients on keys for their letters, and the keys in a client's memory."""

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from fedkernel.ground import ProtocolError, client_label
from fedkernel.peers.graph import Neighbours
from fedkernel.peers.letters import Bytes
from fedkernel.peers.run_key_file import RunKeyFile
from fedkernel.peers.sealing import KEY_BYTES, SEALING_BYTES, KeyPair, PublishedKeys, fingerprint, letter_keys
from fedkernel.protocol import Done, Forecast, Plan, Protocol, Reply, Request, Shape, State, once, to_each

Numbers = npt.NDArray[np.int64]
ClientMemory = MutableMapping[str, npt.NDArray[Any]]


class PublicKeys(Reply):
    """The site's public keys, which reveal only its identity, if it keeps one from run to run.

    `identity`, `ephemeral` (32,): X25519 keys, the site's own and one for this run.
    """

    identity: Annotated[Bytes, Shape("key", dtype="uint8")]
    ephemeral: Annotated[Bytes, Shape("key", dtype="uint8")]


class PublishKeys(Request[PublicKeys]):
    """Request for a site's public keys; the site discards keys shared before."""

    def known_dimensions(self) -> dict[str, int]:
        """Return the sizes that the request fixes for its reply, with the length of a key."""
        return super().known_dimensions() | {"key": KEY_BYTES}


class TakeKeys(Request[Done]):
    """Request to compute the keys shared with each neighbour, from the neighbours' public keys.

    `peers` (p,): the neighbours' numbers. `identities`, `ephemerals` (p, 32).
    """

    peers: Annotated[Numbers, Shape("p_m", dtype="int64", empty=True)]
    identities: Annotated[Bytes, Shape("p_m", "key", dtype="uint8", empty=True)]
    ephemerals: Annotated[Bytes, Shape("p_m", "key", dtype="uint8", empty=True)]


def agree_keys(neighbours: Neighbours) -> Protocol[list[str]]:
    """Let every two neighbours agree on keys for their letters, in two rounds. Without neighbours there is no round.

    Returns the fingerprints of the clients' identities, in their order, as they sent them to the coordinator.
    """
    if not any(neighbours):
        return []
    published = yield from to_each({client: PublishKeys() for client in range(len(neighbours))})
    identities = np.array([keys.identity for keys in published])
    ephemerals = np.array([keys.ephemeral for keys in published])
    handed = {}
    for client, others in enumerate(neighbours):
        peers = np.array(others, dtype=np.int64)
        handed[client] = TakeKeys(peers=peers, identities=identities[peers], ephemerals=ephemerals[peers])
    yield from to_each(handed)
    return [fingerprint(identity.tobytes()) for identity in identities]


def key_agreement_forecast(neighbours: Neighbours) -> Forecast:
    """Return the forecast of `agree_keys`, two rounds without floats."""
    return Forecast(2 if any(neighbours) else 0)


def keys_plan(neighbours: Neighbours) -> Plan:
    """Return the plan of `agree_keys`, for a strategy's own plan."""
    return (once(PublishKeys), once(TakeKeys, {"p_m": max(map(len, neighbours))})) if any(neighbours) else ()


@dataclass(frozen=True)
class OwnIdentity(State):
    """Private key (32,) of the site's identity for this run only, if it has no permanent one."""

    private: Bytes


@dataclass(frozen=True)
class OwnEphemeral(State):
    """Private key (32,) of the site for this run, until the peers' public keys have arrived."""

    private: Bytes


@dataclass(frozen=True)
class SharedKeys(State):
    """Keys shared with each peer, sorted by the peers' numbers.

    `peers` (p,). `keys` (p, 2, 64): for the letters to each peer (`WRITTEN`) and from it (`READ`). `counts` (p, 2):
    numbers of letters.
    """

    peers: Numbers
    keys: Bytes
    counts: Numbers


WRITTEN, READ = 0, 1  # columns of `SharedKeys`


def make_keys(memory: ClientMemory, identity: KeyPair | None, kept: RunKeyFile | None = None) -> PublicKeys:
    """Make a site's key pairs for this run, or read them from `kept` after a restart. Older shared keys are lost."""
    count = 1 if identity else 2
    again = OwnEphemeral.known(memory) or SharedKeys.known(memory)  # reused keys would allow replayed letters
    pairs = [] if kept is None or again else kept.load()
    if len(pairs) != count:
        pairs = [KeyPair.new() for _ in range(count)]
        if kept is not None:
            kept.keep(pairs)
    SharedKeys.forget(memory)
    ephemeral = pairs[0]
    OwnEphemeral(_numbers(ephemeral.private)).save(memory)
    if identity is None:
        identity = pairs[1]
        OwnIdentity(_numbers(identity.private)).save(memory)
    return PublicKeys(identity=_numbers(identity.public), ephemeral=_numbers(ephemeral.public))


def make_shared_keys(ask: TakeKeys, memory: ClientMemory, *, run: str, client: int, identity: KeyPair | None) -> None:
    """Save the keys that the site shares with each peer; ProtocolError without own keys, or for invalid peers."""
    if not OwnEphemeral.known(memory):
        # Each pair of keys is used once: with it again, letters would repeat numbers and keys.
        raise ProtocolError("keys of peers came, but the site's own were not requested before")
    order = np.argsort(ask.peers)
    peers: list[int] = ask.peers[order].tolist()
    if len(set(peers)) < len(peers) or not all(0 <= peer < 2**32 and peer != client for peer in peers):
        raise ProtocolError(f"peers = {peers}, but must be numbers of other clients, each once")
    ephemeral = KeyPair(OwnEphemeral.load(memory).private.tobytes())
    own = identity or KeyPair(OwnIdentity.load(memory).private.tobytes())
    keys = np.zeros((len(peers), 2, SEALING_BYTES), np.uint8)
    for place, (peer, row) in enumerate(zip(peers, order, strict=True)):
        shown = PublishedKeys(peer, ask.identities[row].tobytes(), ask.ephemerals[row].tobytes())
        keys[place] = [_numbers(key) for key in letter_keys(run, client, own, ephemeral, shown)]
    OwnEphemeral.forget(memory)  # without it and the key file, nobody can open this run's letters later
    SharedKeys(np.array(peers, dtype=np.int64), keys, np.zeros((len(peers), 2), np.int64)).save(memory)


def check_pinned(identities: Mapping[int, bytes], pins: Mapping[int, str], names: Sequence[str] = ()) -> None:
    """Raise ProtocolError unless each peer's key has its pinned fingerprint, if there are pins. `names`: the sites'."""
    for peer, identity in sorted(identities.items()) if pins else ():
        who = client_label(peer, names[peer] if 0 <= peer < len(names) else None)
        if peer not in pins:
            raise ProtocolError(f"{who} is not among the peers that this site has pinned")
        if (digest := fingerprint(identity)) != pins[peer]:
            raise ProtocolError(
                f"the key of {who} has fingerprint {digest}, but {pins[peer]} is pinned: the pin may be of another "
                "deployment or older than the key, or somebody may stand in between; pin the fingerprint that its "
                "operator gets from `fedkernel identity`"
            )


def _numbers(data: bytes) -> Bytes:
    return np.frombuffer(data, np.uint8)
