"""What a site does, and all that can leave it, in VFedPCA and VFedAKPCA without a server.

Source: Cheung, Jiang, Yu, Lou: Vertical Federated Principal Component Analysis and Its Kernel Extension on
Feature-wise Distributed Data, arXiv 2203.01752: algorithm 5.
"""

from dataclasses import dataclass
from typing import Annotated, Generic, Literal

import numpy as np

from clients.vfedpca import Finish, LocalIterations, LocalTable, VFedPCAClient, merged, merging_weights
from fedkernel.arrays import FloatArray
from fedkernel.numerics import Eigenpairs
from fedkernel.peers import CarriesLetters, Letter, Letters, PeerClient, PublishKeys, TakeKeys
from fedkernel.protocol import Receipt, ReplyT, Shape, State


class PeerVectors(Letter):
    """Approximate leading eigenpairs of the sender's matrix: k (N + 1) floats.

    Reveals the directions over the rows along which the sender's columns vary most, and how much they do; of a sender
    with no more than k columns, who knows k + 1 rows of its table has the others.
    """

    vectors: Annotated[FloatArray, Shape("N", "k")]
    values: Annotated[FloatArray, Shape("k")]


class Merging(CarriesLetters, LocalTable[ReplyT], Generic[ReplyT]):
    """How a site merges what its neighbours wrote with its own; in the first round nothing was written."""

    rule: Literal["eigenvalue", "average"]
    weight_scaling: bool


class IterateAmongPeers(Merging[Letters], LocalIterations[Letters]):
    """Delivers the neighbours' vectors; asks to merge them, update by the merged ones, and iterate."""

    first: bool


class FinishAmongPeers(Merging[Receipt]):
    """Delivers the neighbours' last vectors; asks to merge them and keep the result."""


@dataclass(frozen=True)
class OwnVectors(State):
    """What the site wrote last, in the form of `PeerVectors`."""

    vectors: FloatArray
    values: FloatArray


@dataclass(frozen=True)
class MergedVectors(State):
    """What was merged in each of T rounds so far, (T, N, k)."""

    vectors: FloatArray


class PeerVFedPCAClient(VFedPCAClient, PeerClient):
    """Merges its neighbours' vectors with its own, by its own weights.

    Memory between rounds: besides what it has with a server, its last vectors and those merged in each round.
    """

    answers = (PublishKeys, TakeKeys, IterateAmongPeers, FinishAmongPeers)

    def iterate_among_peers(self, ask: IterateAmongPeers) -> Letters:
        """Merge, update the local matrix by equation 14, iterate, and write the result to the neighbours."""
        pairs = self._iterated(ask, None if ask.first else self._merged(ask))
        OwnVectors(pairs.vectors, pairs.values).save(self.memory)
        self.mail.write_to_all(PeerVectors(vectors=pairs.vectors, values=pairs.values))
        return Letters()

    def finish_among_peers(self, ask: FinishAmongPeers) -> Receipt:
        """Merge once more; keep the directions, those of every round, and the projected features."""
        directions = self._merged(ask)
        self.outputs["iterates"] = MergedVectors.load(self.memory).vectors
        return self.finish(Finish(kernel=ask.kernel, center=ask.center, directions=directions))

    def _merged(self, ask: Merging[ReplyT]) -> FloatArray:
        last = OwnVectors.load(self.memory)
        N, k = last.vectors.shape
        eigenpairs = {
            peer: Eigenpairs(letter.values, letter.vectors)
            for peer, letter in self.mail.read(ask, PeerVectors, N=N, k=k)
        }
        eigenpairs[self.client] = Eigenpairs(last.values, last.vectors)
        pairs = [eigenpairs[peer] for peer in sorted(eigenpairs)]
        weights = merging_weights(np.array([pair.values for pair in pairs]), ask.rule, ask.weight_scaling)
        directions = merged(pairs, weights)
        if self.guards is not None:  # what neighbours wrote is no field of the request
            self.guards.check_probes("what its neighbours wrote", directions, self.memory)
        known = MergedVectors.known(self.memory)
        before = MergedVectors.load(self.memory).vectors if known else np.empty((0, N, k))
        MergedVectors(np.concatenate([before, directions[None]])).save(self.memory)
        return directions
