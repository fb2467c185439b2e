"""What a site does, and all that can leave it, in VFedPCA and VFedAKPCA without a server.

Source: Cheung, Jiang, Yu, Lou: Vertical Federated Principal Component Analysis and Its Kernel Extension on
Feature-wise Distributed Data, arXiv 2203.01752: algorithm 5.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Generic, Literal

import numpy as np

from clients.vfedpca import Finish, LocalIterations, LocalTable, VFedPCAClient, merged, merging_weights
from fedkernel.arrays import FloatArray
from fedkernel.numerics import Eigenpairs
from fedkernel.peers import CarriesLetters, Letter, Letters, PeerClient, PublishKeys, TakeKeys
from fedkernel.protocol import Count, Receipt, ReplyT, Request, Shape, State


class PeerVectors(Letter):
    """Approximate leading eigenpairs of the sender's matrix: k (N + 1) floats.

    Reveals the directions over the rows along which the sender's columns vary most, and how much they do; of a sender
    with no more than k columns, who knows k + 1 rows of its table has the others.
    """

    vectors: Annotated[FloatArray, Shape("N", "k")]
    values: Annotated[FloatArray, Shape("k")]


class RelayedVectors(Letter):
    """Such eigenpairs of several clients, the sender's or what others wrote to it: s (k (N + 1) + 1) floats.

    Reveals of each of these clients what `PeerVectors` does of one. They are not sealed from who passes them on, since
    every client is to get those of all; whether they were changed on the way is seen where they come on two ways.
    """

    clients: Annotated[FloatArray, Shape("s_m", empty=True)]
    vectors: Annotated[FloatArray, Shape("s_m", "N", "k", empty=True)]
    values: Annotated[FloatArray, Shape("s_m", "k", empty=True)]


class Merging(CarriesLetters, LocalTable[ReplyT], Generic[ReplyT]):
    """How a site merges what its neighbours wrote with its own; in the first round nothing was written.

    Attributes
    ----------
    relayed : int or None
        How many clients there are, of which neighbours write all vectors that they have; None: their own alone.
    """

    rule: Literal["eigenvalue", "average"]
    weight_scaling: bool
    relayed: Count | None = None


class IterateAmongPeers(Merging[Letters], LocalIterations[Letters]):
    """Delivers the neighbours' vectors; asks to merge them, update by the merged ones, and iterate."""

    first: bool


class ForwardVectors(CarriesLetters, Request[Letters]):
    """Delivers what neighbours passed on; asks to pass on what is new of it to all but those who have written it."""


class FinishAmongPeers(Merging[Receipt]):
    """Delivers the neighbours' last vectors; asks to merge them and keep the result."""


@dataclass(frozen=True)
class KnownVectors(State):
    """The site's own vectors, and those of others that came since, in the form of `RelayedVectors`."""

    clients: FloatArray
    vectors: FloatArray
    values: FloatArray

    def letter(self, places: Sequence[int] = (0,)) -> RelayedVectors:
        """Return some of them, by default the site's own, as a letter."""
        chosen = list(places)
        return RelayedVectors(clients=self.clients[chosen], vectors=self.vectors[chosen], values=self.values[chosen])


@dataclass(frozen=True)
class MergedVectors(State):
    """What was merged in each of T rounds so far, (T, N, k)."""

    vectors: FloatArray


class PeerVFedPCAClient(VFedPCAClient, PeerClient):
    """Merges its neighbours' vectors with its own, by its own weights.

    Memory between rounds: besides what it has with a server, its last vectors and those merged in each round.
    """

    answers = (PublishKeys, TakeKeys, IterateAmongPeers, ForwardVectors, FinishAmongPeers)

    def iterate_among_peers(self, ask: IterateAmongPeers) -> Letters:
        """Merge, update the local matrix by equation 14, iterate, and write the result to the neighbours."""
        pairs = self._iterated(ask, None if ask.first else self._merged(ask))
        own = KnownVectors(np.array([float(self.client)]), pairs.vectors[None], pairs.values[None]).save(self.memory)
        relayed = ask.relayed is not None
        self.mail.write_to_all(own.letter() if relayed else PeerVectors(vectors=pairs.vectors, values=pairs.values))
        return Letters()

    def forward_vectors(self, ask: ForwardVectors) -> Letters:
        """Pass on what is new."""
        senders = self._learn(ask, RelayedVectors)
        known = KnownVectors.load(self.memory)
        for peer in self.mail.neighbours:
            new = [place for place, client in enumerate(known.clients) if peer not in senders.get(client, [peer])]
            self.mail.write(peer, known.letter(new))
        return Letters()

    def finish_among_peers(self, ask: FinishAmongPeers) -> Receipt:
        """Merge once more; keep the directions, those of every round, and the projected features."""
        directions = self._merged(ask)
        self.outputs["iterates"] = MergedVectors.load(self.memory).vectors
        return self.finish(Finish(kernel=ask.kernel, center=ask.center, directions=directions))

    def _merged(self, ask: Merging[ReplyT]) -> FloatArray:
        self._learn(ask, PeerVectors if ask.relayed is None else RelayedVectors)
        known = KnownVectors.load(self.memory)
        if ask.relayed is not None and not np.array_equal(np.sort(known.clients), np.arange(ask.relayed)):
            came = ", ".join(f"{client:g}" for client in np.sort(known.clients))
            raise self.mail.error(f"vectors came of the clients {came}, but must of {ask.relayed}, each of them")
        _, N, k = known.vectors.shape
        pairs = [Eigenpairs(known.values[place], known.vectors[place]) for place in np.argsort(known.clients)]
        weights = merging_weights(np.array([pair.values for pair in pairs]), ask.rule, ask.weight_scaling)
        directions = merged(pairs, weights)
        if self.guards is not None:  # what neighbours wrote is no field of the request
            self.guards.check_probes("what its neighbours wrote", directions, self.memory)
        before = MergedVectors.load(self.memory).vectors if MergedVectors.known(self.memory) else np.empty((0, N, k))
        MergedVectors(np.concatenate([before, directions[None]])).save(self.memory)
        return directions

    def _learn(
        self, ask: CarriesLetters, kind: type[PeerVectors] | type[RelayedVectors]
    ) -> Mapping[float, Sequence[int]]:
        """Remember the vectors that neighbours wrote; return of which clients they are new, and who wrote them."""
        known = KnownVectors.load(self.memory)
        _, N, k = known.vectors.shape
        of_client = {client: (V, values) for client, V, values in zip(*vars(known).values(), strict=True)}
        senders: dict[float, list[int]] = {}
        for peer, letter in self.mail.read(ask, kind, N=N, k=k):
            came = [(float(peer), letter.vectors, letter.values)]
            if isinstance(letter, RelayedVectors):
                came = list(zip(letter.clients.tolist(), letter.vectors, letter.values, strict=True))
            for client, *pair in came:
                before = of_client.setdefault(client, (pair[0], pair[1]))
                if not all(map(np.array_equal, before, pair)):
                    raise self.mail.error(f"client {peer} wrote other vectors of client {client:g} than came before")
                if client not in known.clients:
                    senders.setdefault(client, []).append(peer)
        vectors, values = zip(*of_client.values(), strict=True)
        KnownVectors(np.array(list(of_client)), np.array(vectors), np.array(values)).save(self.memory)
        return senders
