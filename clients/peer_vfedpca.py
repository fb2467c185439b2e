"""Client of VFedPCA and VFedAKPCA without a server, with all requests, replies and letters between peers.

Source: the paper of `fedkernel.strategies.vfedpca`, algorithm 5. The exact merge is block Lanczos on sums along a tree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Generic, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedkernel.clients.eigenvector_merging import is_moved, merge_eigenpairs, merging_weights
from fedkernel.clients.vfedpca import (
    CapturedVariance,
    Finish,
    Finished,
    LocalIterations,
    LocalTableRequest,
    Multiply,
    Product,
    VarianceRequest,
    VFedPCAClient,
)
from fedkernel.ground import FloatArray, check_at_most, generator, sum_in_order
from fedkernel.numerics import Eigenpairs, Unconverged, block_krylov, orthonormal_basis
from fedkernel.peers import CarriesLetters, Letter, Letters, PeerClient, PublishKeys, TakeKeys
from fedkernel.protocol import Count, Iterations, Orthonormal, ReplyT, Request, Shape, State, Within


class PeerVectors(Letter):
    """Approximate leading eigenpairs of the sender's matrix: k (N + 1) floats.

    Reveals the directions over the rows along which the sender's columns vary most, and how much they do. If the sender
    has no more than k columns, a reader with k + 1 rows of its table has the others.
    """

    vectors: Annotated[FloatArray, Shape("N", "k"), Orthonormal()]
    values: Annotated[FloatArray, Shape("k")]


class RelayedVectors(Letter):
    """Leading eigenpairs of s clients, the sender's own or relayed ones: s (k (N + 1) + 1) floats.

    Reveals of each client with vectors in the letter the directions over the rows along which its columns vary most,
    and how much they do. If one has no more than k columns, a reader with k + 1 rows of its table has the others. A
    relaying client reads them, since every client gets those of all; a second way shows a change on the first.
    """

    clients: Annotated[FloatArray, Shape("s_m", empty=True), Within(whole=True)]
    vectors: Annotated[FloatArray, Shape("s_m", "N", "k", empty=True), Orthonormal()]
    values: Annotated[FloatArray, Shape("s_m", "k", empty=True)]


class MergeRequest(CarriesLetters, LocalTableRequest[ReplyT], Generic[ReplyT]):
    """Base of requests to merge the neighbours' vectors with the site's own. In the first round, none have come yet.

    `relayed`: number of all clients, if neighbours write all vectors that they have; None: their own alone.
    """

    rule: Literal["eigenvalue", "average"]
    weight_scaling: bool
    relayed: Count | None = None


class IterateAmongPeers(MergeRequest[Letters], LocalIterations[Letters]):
    """Request to merge the delivered vectors with the site's own, update the local matrix, and iterate."""

    posts: ClassVar = (PeerVectors, RelayedVectors)
    first: bool


class ForwardVectors(CarriesLetters, Request[Letters]):
    """Request to forward newly delivered vectors to the neighbours that lack them."""

    posts: ClassVar = (RelayedVectors,)


class FinishAmongPeers(MergeRequest[Finished]):
    """Request to merge the delivered vectors once more, and store the result at the site."""


class SubtreeProduct(Letter):
    """Sum of the sites' matrices in the sender's subtree, times a block of b vectors: N b floats.

    Reveals of a leaf its own matrix times the block, so combinations of its columns, summed over them. As many
    independent vectors as it has columns (N, if the kernel is not linear) give the whole matrix, and with it a reader
    with d_m + 1 rows of the table has the others. Of another sender it reveals the same of the sum over its subtree; a
    client below can subtract its own part.
    """

    product: Annotated[FloatArray, Shape("N", "b")]


class NextBlock(Letter):
    """Next block of vectors for all sites to multiply, or at the end the result: N b floats.

    Reveals directions over the rows that powers of the pooled matrix span, in the end those along which all sites'
    columns vary most, and not how much they do.
    """

    block: Annotated[FloatArray, Shape("N", "b"), Orthonormal()]


class SearchState(CarriesLetters, Finished):
    """Letters, and the state of the root's search. With the first product also the mean kernel value, as in `Finished`.

    Reveals when the search ended, and whether it had converged, and how alike the site's rows are, all together.
    `state`: "unconverged": its products were used up. Of other sites "searching".
    """

    state: Literal["searching", "converged", "unconverged"] = "searching"


class TreeRequest(CarriesLetters, LocalTableRequest[ReplyT], Generic[ReplyT]):
    """Base of requests with a site's parent and children in the spanning tree; the root's ``parent`` is None."""

    n_components: Count
    parent: Annotated[int, Field(ge=0)] | None = None
    children: tuple[Annotated[int, Field(ge=0)], ...] = ()


class AddProducts(TreeRequest[SearchState]):
    """Request to add the site's product to the children's delivered sums, and write the sum to the parent.

    The root takes a step of the search, and writes the next block, or the result, to the children. `block`: "first":
    the random one that all sites draw alike; "delivered": the parent's letter comes in place of sums. `tol`, `most`:
    the search's, as in `block_krylov`; ``most`` products.
    """

    posts: ClassVar = (SubtreeProduct, NextBlock)
    seeded: ClassVar = True
    block: Literal["first", "kept", "delivered"]
    tol: Annotated[float, Field(gt=0, lt=1)]
    most: Iterations


class TakeBlock(TreeRequest[Letters]):
    """Request to store the block from the parent's letter, and forward it to the children. ``last``: as the result."""

    posts: ClassVar = (NextBlock,)
    last: bool


class MeasureOwn(VarianceRequest):
    """Request for the site's variance along its final directions. The directions stay at the site."""

    n_components: Count

    def known_dimensions(self) -> dict[str, int]:
        """Return the number of directions k."""
        return {"k": self.n_components}


@dataclass(frozen=True)
class KnownVectors(State):
    """The site's own vectors, and later those of other clients, in the form of `RelayedVectors`."""

    clients: FloatArray
    vectors: FloatArray
    values: FloatArray

    def letter(self, places: Sequence[int] = (0,)) -> RelayedVectors:
        """Return the vectors at some positions, by default the site's own, as a letter."""
        chosen = list(places)
        return RelayedVectors(clients=self.clients[chosen], vectors=self.vectors[chosen], values=self.values[chosen])


@dataclass(frozen=True)
class MergedVectors(State):
    """Merged vectors of each of T rounds so far, (T, N, k)."""

    vectors: FloatArray


@dataclass(frozen=True)
class Block(State):
    """Block of vectors that all sites multiply next, (N, b)."""

    block: FloatArray


@dataclass(frozen=True)
class Searched(State):
    """History of the root's search: blocks and their products, side by side in (N, m) each, and the blocks' widths."""

    blocks: FloatArray
    products: FloatArray
    widths: npt.NDArray[np.int64]


class PeerVFedPCAClient(VFedPCAClient, PeerClient):
    """Client of PeerVFedPCA. It merges its neighbours' vectors with its own, or adds products up along a tree.

    Memory between rounds: besides that of `VFedPCAClient`, the delivered vectors, and those merged in each round; or a
    block, and at the root all blocks and products of its search.
    """

    answers = (
        *(PublishKeys, TakeKeys, IterateAmongPeers, ForwardVectors, FinishAmongPeers),
        *(AddProducts, TakeBlock, MeasureOwn),
    )

    def iterate_among_peers(self, ask: IterateAmongPeers) -> Letters:
        """Merge, update the local matrix by equation 14, iterate, and write the result to the neighbours."""
        pairs = self._local_eigenpairs(ask, None if ask.first else self._merge(ask))
        own = KnownVectors(np.array([float(self.client)]), pairs.vectors[None], pairs.values[None]).save(self.memory)
        relayed = ask.relayed is not None
        self.mail.write_to_all(own.letter() if relayed else PeerVectors(vectors=pairs.vectors, values=pairs.values))
        return Letters()

    def forward_vectors(self, ask: ForwardVectors) -> Letters:
        """Write each neighbour the new vectors that it lacks."""
        senders = self._store_received(ask, RelayedVectors)
        known = KnownVectors.load(self.memory)
        for peer in self.mail.neighbours:
            new = [place for place, client in enumerate(known.clients) if peer not in senders.get(client, [peer])]
            self.mail.write(peer, known.letter(new))
        return Letters()

    def finish_among_peers(self, ask: FinishAmongPeers) -> Finished:
        """Merge once more; store the directions of every round, and the projected features."""
        directions = self._merge(ask)
        self.outputs["iterates"] = MergedVectors.load(self.memory).vectors
        return self.finish(Finish(kernel=ask.kernel, center=ask.center, directions=directions))

    def add_products(self, ask: AddProducts) -> SearchState:
        """Multiply the block, and add the children's sums; at the root take a step of block Lanczos."""
        block = self._next_block(ask)
        total = self._subtree_product(ask, block)
        mean = self._kernel_mean(ask) if ask.block == "first" else None
        if ask.parent is not None:
            self.mail.write(ask.parent, total)
            return SearchState(kernel_mean=mean)
        blocks, products, widths = block, total.product, np.array([block.shape[1]])
        if ask.block != "first":
            before = Searched.load(self.memory)
            blocks, products = np.hstack([before.blocks, blocks]), np.hstack([before.products, products])
            widths = np.concatenate([before.widths, widths])
        Searched(blocks, products, widths).save(self.memory)
        # always C order in memory: another order gives other last bits
        parts = ([*map(np.ascontiguousarray, np.split(X, np.cumsum(widths)[:-1], axis=1))] for X in (blocks, products))
        seen = list(zip(*parts, strict=True))
        try:
            block = next(block_krylov(seen[0][0], ask.n_components, tol=ask.tol, max_steps=ask.most, seen=seen))
        except StopIteration as stop:
            self._send_to_children(ask, stop.value.vectors, last=True)
            state: Literal["converged", "unconverged"]
            state = "unconverged" if isinstance(stop.value, Unconverged) else "converged"
            return SearchState(state=state, kernel_mean=mean)
        self._send_to_children(ask, block)
        return SearchState(kernel_mean=mean)

    def take_block(self, ask: TakeBlock) -> Letters:
        """Store the parent's block, and forward it to the children."""
        self._send_to_children(ask, self._parents_block(ask), last=ask.last)
        return Letters()

    def measure_own(self, ask: MeasureOwn) -> CapturedVariance:
        """Measure the site's variance along the last directions."""
        directions = MergedVectors.load(self.memory).vectors[-1]
        self._check_guards(directions)
        return self._variance_along(ask, directions)

    def _send_to_children(self, ask: TreeRequest[ReplyT], block: FloatArray, *, last: bool = False) -> None:
        """Write a block to the children, and store it. The last block is stored as the result."""
        for child in ask.children:
            self.mail.write(child, NextBlock(block=block))
        if last:
            MergedVectors(block[None]).save(self.memory)
            self.finish(Finish(kernel=ask.kernel, center=ask.center, directions=block))
        else:
            self._check_guards(block)
            Block(block).save(self.memory)

    def _next_block(self, ask: AddProducts) -> FloatArray:
        N, k = self.X.shape[0], ask.n_components
        if ask.block == "kept":
            return Block.load(self.memory).block
        if ask.block == "first":
            check_at_most("n_components", k, N)
            block = orthonormal_basis(generator("common start", self.seed).standard_normal((N, k)))
        else:
            block = self._parents_block(ask)
        self._check_guards(block)
        return Block(block).save(self.memory).block

    def _parents_block(self, ask: TreeRequest[ReplyT]) -> FloatArray:
        if ask.parent is None:
            raise self.mail.error("the root has no parent that could send a letter")
        ((parent, letter),) = self.mail.read(ask, NextBlock, [ask.parent], N=self.X.shape[0])
        if (b := letter.block.shape[1]) > ask.n_components:
            raise self.mail.refusal(parent, f"its block has {b} columns; allowed: at most {ask.n_components}")
        return letter.block

    def _subtree_product(self, ask: TreeRequest[ReplyT], block: FloatArray) -> SubtreeProduct:
        """Return the products' sum over the subtree, after checking that each child's part fits a site's matrix."""
        multiply = Multiply(kernel=ask.kernel, center=ask.center, block=block)
        own, (N, b) = self.multiply(multiply), block.shape
        letters = self.mail.read(ask, SubtreeProduct, ask.children, N=N, b=b) if ask.children else []
        for child, letter in letters:
            try:
                multiply.check_reply(Product(product=letter.product))
            except ValueError as error:
                raise self.mail.refusal(child, str(error)) from None
        return SubtreeProduct(product=sum_in_order([own.product, *(letter.product for _, letter in letters)]))

    def _merge(self, ask: MergeRequest[ReplyT]) -> FloatArray:
        """Merge the delivered vectors with the site's own; check, store and return the result."""
        self._store_received(ask, PeerVectors if ask.relayed is None else RelayedVectors)
        known = KnownVectors.load(self.memory)
        if ask.relayed is not None and not np.array_equal(np.sort(known.clients), np.arange(ask.relayed)):
            clients = ", ".join(f"{client:g}" for client in np.sort(known.clients))
            lacking = np.setdiff1d(np.arange(ask.relayed), known.clients)
            which = f"those of client {lacking[0]} are missing: " if len(lacking) else ""
            raise self.mail.error(
                f"{which}vectors of the clients {clients} came, but must come of {ask.relayed} clients"
            )
        pairs = [Eigenpairs(known.values[place], known.vectors[place]) for place in np.argsort(known.clients)]
        weights = merging_weights(np.array([pair.values for pair in pairs]), ask.rule, ask.weight_scaling)
        vectors = merge_eigenpairs(pairs, weights).vectors
        before = [MergedVectors.load(self.memory).vectors] if MergedVectors.known(self.memory) else []
        if before and not is_moved(vectors, before[0][-1]):
            vectors = before[0][-1]
        self._check_guards(vectors)
        MergedVectors(np.concatenate([*before, vectors[None]])).save(self.memory)
        return vectors

    def _check_guards(self, vectors: FloatArray) -> None:
        """Check delivered vectors against the site's guards, since letters are no fields of the request."""
        if self.guards is not None:
            self.guards.check_probes("a neighbour's letter", vectors, self.memory)

    def _store_received(
        self, ask: CarriesLetters, kind: type[PeerVectors] | type[RelayedVectors]
    ) -> Mapping[float, Sequence[int]]:
        """Store the neighbours' vectors, and return the neighbours that sent each client's new vectors."""
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
                    raise self.mail.error(
                        f"client {peer} sent vectors of client {client:g} that differ from those before"
                    )
                if client not in known.clients:
                    senders.setdefault(client, []).append(peer)
        vectors, values = zip(*of_client.values(), strict=True)
        KnownVectors(np.array(list(of_client)), np.array(vectors), np.array(values)).save(self.memory)
        return senders
