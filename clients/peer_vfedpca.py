"""What a site does, and all that can leave it, in VFedPCA and VFedAKPCA without a server.

Source: Cheung, Jiang, Yu, Lou: Vertical Federated Principal Component Analysis and Its Kernel Extension on
Feature-wise Distributed Data, arXiv 2203.01752: algorithm 5. Of the exact merge: Ye, Zhang: DeEPCA: Decentralized Exact
PCA with Linear Convergence Rate, JMLR 22, 2021, algorithm 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Generic, Literal

import numpy as np
from pydantic import Field

from clients.merging import merged, merging_weights
from clients.vfedpca import (
    CapturedVariance,
    Finish,
    Finished,
    LocalIterations,
    LocalTable,
    VarianceRequest,
    VFedPCAClient,
)
from fedkernel.arrays import FloatArray, sum_in_order
from fedkernel.numerics import Eigenpairs, fix_signs, orthonormal_basis
from fedkernel.peers import CarriesLetters, Letter, Letters, PeerClient, PublishKeys, TakeKeys
from fedkernel.protocol import Count, Orthonormal, ReplyT, Request, Shape, State, Within
from fedkernel.seeds import generator
from fedkernel.validation import check_at_most

FIRST_WEIGHT = 2.0
"""From which the weights of Chebyshev's recurrence follow: w <- 1 / (1 - second^2 w / 4)."""


class PeerVectors(Letter):
    """Approximate leading eigenpairs of the sender's matrix: k (N + 1) floats.

    Reveals the directions over the rows along which the sender's columns vary most, and how much they do; of a sender
    with no more than k columns, who knows k + 1 rows of its table has the others.
    """

    vectors: Annotated[FloatArray, Shape("N", "k"), Orthonormal()]
    values: Annotated[FloatArray, Shape("k")]


class RelayedVectors(Letter):
    """Such eigenpairs of several clients, the sender's or what others wrote to it: s (k (N + 1) + 1) floats.

    Reveals of each of these clients the directions over the rows along which its columns vary most, and how much they
    do; of one with no more than k columns, who knows k + 1 rows of its table has the others. They are not sealed from
    who passes them on, since every client is to get those of all; whether they were changed on the way is seen where
    they come on two ways.
    """

    clients: Annotated[FloatArray, Shape("s_m", empty=True), Within(whole=True)]
    vectors: Annotated[FloatArray, Shape("s_m", "N", "k", empty=True), Orthonormal()]
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

    posts: ClassVar = (PeerVectors, RelayedVectors)
    first: bool


class ForwardVectors(CarriesLetters, Request[Letters]):
    """Delivers what neighbours passed on; asks to pass on what is new of it to all but those who have written it."""

    posts: ClassVar = (RelayedVectors,)


class FinishAmongPeers(Merging[Finished]):
    """Delivers the neighbours' last vectors; asks to merge them and keep the result."""


class TrackedProducts(Letter):
    """The sender's estimate of the mean of all clients' matrices times k vectors, before or after mixing: k N floats.

    Reveals in the first round the sender's own matrix times k random vectors that every client knows, and, as its
    neighbours may subtract what they wrote, what that matrix adds in later ones: combinations of the sender's columns,
    summed over them, as `Product` does with a server.
    """

    estimate: Annotated[FloatArray, Shape("N", "k")]


class Gossip(CarriesLetters):
    """How a site mixes its neighbours' estimates with its own, by Chebyshev's polynomials.

    Attributes
    ----------
    step : float
        How far it moves towards each of them.
    second : float
        The second eigenvalue of such a step on this graph: what it leaves of differences, at least.
    """

    step: Annotated[float, Field(ge=0, le=1)]
    second: Annotated[float, Field(ge=0, lt=1)]


class TrackProducts(Gossip, LocalTable[Letters]):
    """Delivers mixed estimates; asks for a power step from them, and for the estimate that follows.

    Attributes
    ----------
    first : bool
        Nothing was written yet: all sites start at the same random vectors.
    """

    posts: ClassVar = (TrackedProducts,)
    seeded: ClassVar = True
    n_components: Count
    first: bool


class MixWithPeers(Gossip, Request[Letters]):
    """Delivers the neighbours' estimates; asks to mix them with the site's own, and to write the result to them."""

    posts: ClassVar = (TrackedProducts,)


class FinishTracking(Gossip, LocalTable[Finished]):
    """Delivers the last estimates; asks to mix them, and to keep an orthonormal basis of the result."""


class MeasureOwn(VarianceRequest):
    """Asks how much of the site's variance the directions that it has ended with keep: they stay there."""

    n_components: Count

    def known_dimensions(self) -> dict[str, int]:
        """Settle how many shares there are."""
        return {"k": self.n_components}


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


@dataclass(frozen=True)
class LastProduct(State):
    """The site's matrix times its last vectors, (N, k)."""

    product: FloatArray


@dataclass(frozen=True)
class Estimate(State):
    """What is being mixed.

    Attributes
    ----------
    now : ndarray of shape (N, k)
        The site's estimate.
    weight : ndarray of shape (1,)
        Of the last mixing.
    before : ndarray of shape (N, k) or None
        The estimate of one mixing earlier, if there was one.
    """

    now: FloatArray
    weight: FloatArray
    before: FloatArray | None = None


class PeerVFedPCAClient(VFedPCAClient, PeerClient):
    """Merges its neighbours' vectors with its own, by its own weights; or mixes estimates of all clients' products.

    Memory between rounds: besides what it has with a server, the vectors that have come, or four (N, k) arrays of
    estimates and products, and the vectors merged in each round.
    """

    answers = (
        PublishKeys,
        TakeKeys,
        IterateAmongPeers,
        ForwardVectors,
        FinishAmongPeers,
        TrackProducts,
        MixWithPeers,
        FinishTracking,
        MeasureOwn,
    )

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

    def finish_among_peers(self, ask: FinishAmongPeers) -> Finished:
        """Merge once more; keep the directions, those of every round, and the projected features."""
        return self._keep(ask, self._merged(ask))

    def track_products(self, ask: TrackProducts) -> Letters:
        """Take a power step from the mixed estimate; the new one adds how much the site's own product has changed."""
        if ask.first:
            check_at_most("n_components", ask.n_components, self.X.shape[0])
            start = generator("common start", self.seed).standard_normal((self.X.shape[0], ask.n_components))
            estimate = product = self._local(ask)(orthonormal_basis(start))
        else:
            mixed, last = self._mixed(ask), LastProduct.load(self.memory).product
            product = self._local(ask)(self._noted(orthonormal_basis(mixed)))
            estimate = mixed + product - last
        LastProduct(product).save(self.memory)
        Estimate(estimate, np.array([FIRST_WEIGHT])).save(self.memory)
        self.mail.write_to_all(TrackedProducts(estimate=estimate))
        return Letters()

    def mix_with_peers(self, ask: MixWithPeers) -> Letters:
        """Mix once more."""
        self.mail.write_to_all(TrackedProducts(estimate=self._mixed(ask)))
        return Letters()

    def finish_tracking(self, ask: FinishTracking) -> Finished:
        """Take the last power step; keep the directions, those of every step, and the projected features."""
        return self._keep(ask, self._noted(fix_signs(orthonormal_basis(self._mixed(ask)))))

    def measure_own(self, ask: MeasureOwn) -> CapturedVariance:
        """Measure the last of its directions."""
        return self._captured(ask, MergedVectors.load(self.memory).vectors[-1])

    def _keep(self, ask: LocalTable[ReplyT], directions: FloatArray) -> Finished:
        self.outputs["iterates"] = MergedVectors.load(self.memory).vectors
        return self.finish(Finish(kernel=ask.kernel, center=ask.center, directions=directions))

    def _mixed(self, ask: Gossip) -> FloatArray:
        """Return the estimate after one more mixing: all of them so far are a Chebyshev polynomial of the averaging."""
        estimate = Estimate.load(self.memory)
        N, k = estimate.now.shape
        letters = self.mail.read(ask, TrackedProducts, N=N, k=k)
        mixed = sum_in_order([estimate.now, *(ask.step * (letter.estimate - estimate.now) for _, letter in letters)])
        weight = estimate.weight
        if estimate.before is not None:
            # the polynomials' three-term recurrence, scaled to be 1 where there is consensus
            weight = 1 / (1 - ask.second**2 * weight / 4)
            mixed = estimate.before + weight * (mixed - estimate.before)
        Estimate(mixed, weight, before=estimate.now).save(self.memory)
        return mixed

    def _merged(self, ask: Merging[ReplyT]) -> FloatArray:
        self._learn(ask, PeerVectors if ask.relayed is None else RelayedVectors)
        known = KnownVectors.load(self.memory)
        if ask.relayed is not None and not np.array_equal(np.sort(known.clients), np.arange(ask.relayed)):
            clients = ", ".join(f"{client:g}" for client in np.sort(known.clients))
            lacking = np.setdiff1d(np.arange(ask.relayed), known.clients)
            which = f"none of client {lacking[0]}: " if len(lacking) else ""
            raise self.mail.error(f"{which}vectors came of the clients {clients}, but must of {ask.relayed}")
        pairs = [Eigenpairs(known.values[place], known.vectors[place]) for place in np.argsort(known.clients)]
        weights = merging_weights(np.array([pair.values for pair in pairs]), ask.rule, ask.weight_scaling)
        return self._noted(merged(pairs, weights))

    def _noted(self, directions: FloatArray) -> FloatArray:
        """Return what the site goes on with, if its guards let it; add it to the outcomes so far."""
        if self.guards is not None:  # what neighbours wrote is no field of the request
            self.guards.check_probes("what its neighbours wrote", directions, self.memory)
        before = [MergedVectors.load(self.memory).vectors] if MergedVectors.known(self.memory) else []
        MergedVectors(np.concatenate([*before, directions[None]])).save(self.memory)
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
            pairs = [(float(peer), letter.vectors, letter.values)]
            if isinstance(letter, RelayedVectors):
                pairs = list(zip(letter.clients.tolist(), letter.vectors, letter.values, strict=True))
            for client, V, eigenvalues in pairs:
                before = of_client.setdefault(client, (V, eigenvalues))
                if not all(map(np.array_equal, before, (V, eigenvalues))):
                    raise self.mail.error(f"client {peer} wrote other vectors of client {client:g} than came before")
                if client not in known.clients:
                    senders.setdefault(client, []).append(peer)
        vectors, values = zip(*of_client.values(), strict=True)
        KnownVectors(np.array(list(of_client)), np.array(vectors), np.array(values)).save(self.memory)
        return senders
