"""Attacks by letters: of a peer that a coordinator invents, or of one that takes part, and by rows that are claimed."""

from typing import Any

import numpy as np

from attacks.algebra import relative, rows_of_features, unknown_error
from attacks.coordinator import KNOWN, leading_components
from attacks.target import IDS, KEY, Target
from fedkernel import RBF
from fedkernel.clients.admm_kpca import Features, OwnRows, ShareRows
from fedkernel.clients.peer_vfedpca import AddProducts, IterateAmongPeers, PeerVectors, SubtreeProduct
from fedkernel.numerics import SubspaceEmbedding
from fedkernel.peers import KeyPair, PublishKeys, TakeKeys
from fedkernel.peers.letters import letter_from_bytes
from fedkernel.peers.sealing import PublishedKeys, letter_keys, unseal
from fedkernel.run import common_rows
from fedkernel.wire import HashIds, TakeRows, hash_ids

NOISE, RUNS = 0.5, 25


class Peer:
    """Client 1, whoever that is: it has keys of its own, and the target takes it for a neighbour."""

    def __init__(self, target: Target) -> None:
        own = target.ask(PublishKeys())
        identity, ephemeral = KeyPair.new(), KeyPair.new()
        keys = [np.frombuffer(pair.public, np.uint8)[None] for pair in (identity, ephemeral)]
        target.ask(TakeKeys(peers=np.array([1]), identities=keys[0], ephemerals=keys[1]))
        shown = PublishedKeys(0, own.identity.tobytes(), own.ephemeral.tobytes())
        self._key = letter_keys(target.run, 1, identity, ephemeral, shown)[1]
        self._run = target.run

    def read(self, reply: Any, kind: Any) -> Any:
        """Open the letter that a reply carries."""
        (sealed,) = reply.sealed
        return letter_from_bytes(kind, unseal(self._key, self._run, sealed.letter))


def rows_to_a_peer(target: Target) -> float:
    """Read the rows in a letter. Exact."""
    return relative(Peer(target).read(target.ask(ShareRows(features=None, noise=0.0)), OwnRows).rows, target.X)


def averaged_noise(target: Target) -> float:
    """Have rows written with noise, in a run that is begun again 25 times; take the mean: 0.5 / sqrt(25) = 0.1.

    Within a run the noise is drawn once, and from the operating system: it cannot be computed and subtracted.
    """
    tables = []
    for _ in range(RUNS):
        target.restart()
        tables.append(Peer(target).read(target.ask(ShareRows(features=None, noise=NOISE)), OwnRows).rows)
    return relative(np.mean(tables, axis=0), target.X)


def inverted_features(target: Target) -> float:
    """Invert the 2000 features that are sent of a row by default, of the first 40 rows. Exact but for rounding."""
    d = target.X.shape[1]
    features = SubspaceEmbedding(RBF(1 / d), None, 2000)
    values = Peer(target).read(target.ask(ShareRows(features=features, noise=0.0)), Features).rows
    return relative(rows_of_features(values[:40], features.map(d), d, 1 / d), target.X[:40])


def _vectors(target: Target, components: int) -> Any:
    ask = IterateAmongPeers(
        rule="eigenvalue", weight_scaling=False, n_components=components, iterations=10, first=True, center="none"
    )
    return Peer(target).read(target.ask(ask), PeerVectors).vectors


def letters_of_all_vectors(target: Target) -> float:
    """Ask for as many vectors as there are columns, and read them as a peer, knowing d + 1 rows. Exact."""
    d = target.X.shape[1]
    return unknown_error(_vectors(target, d), target.X, d + 1)


def letters_of_leading_vectors(target: Target) -> float:
    """Read the vectors of a site's `leading_components`, knowing twice as many rows as it has columns."""
    d = target.X.shape[1]
    return unknown_error(_vectors(target, leading_components(d)), target.X, 2 * d)


def products_of_a_leaf(target: Target) -> float:
    """Read, as its parent, a leaf's product with 5 vectors, which its 4 columns span, knowing 8 of its rows. Exact."""
    ask = AddProducts(parent=1, n_components=5, block="first", tol=1e-8, most=1, center="none")
    return unknown_error(Peer(target).read(target.ask(ask), SubtreeProduct).product, target.X, KNOWN)


def claimed_ids(target: Target) -> float:
    """Claim a thousand likely ids and be told which rows are common; a peer has the key. Exact: who is in the table."""
    claimed = sorted(IDS)
    hashes = hash_ids(claimed, KEY, target.run, target.seed)
    common = common_rows({"north": target.ask(HashIds()).hashes, "east": hashes}, "drop", target.run)
    target.ask(TakeRows(hashes=common))
    taken = {row.tobytes() for row in common}
    inside = np.array([row.tobytes() in taken for row in hashes], float)
    members = set(IDS[: target.rows])
    return relative(inside, np.array([candidate in members for candidate in claimed], float))
