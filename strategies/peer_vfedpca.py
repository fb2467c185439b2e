"""VFedPCA and VFedAKPCA without a server: sums along a tree, or merges of the neighbours' vectors.

Source: Cheung, Jiang, Yu, Lou: Vertical Federated Principal Component Analysis and Its Kernel Extension on
Feature-wise Distributed Data, arXiv 2203.01752: algorithm 5, figure 13; signs, norms and centring as in `VFedPCA`. The
exact merge is that of `VFedPCA`, block Lanczos, with sums along a spanning tree.
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from fedkernel.clients.peer_vfedpca import (
    AddProducts,
    FinishAmongPeers,
    ForwardVectors,
    IterateAmongPeers,
    PeerVectors,
    PeerVFedPCAClient,
    RelayedVectors,
    SearchState,
    TakeBlock,
)
from fedkernel.ground import FloatArray, InputError, ProtocolError, check_at_most, value_object
from fedkernel.models import PeerComponents
from fedkernel.numerics import Kernel, Linear
from fedkernel.peers import Graph, Mail, Neighbours, Topology, agree_keys, keys_plan
from fedkernel.protocol import Iterations, Member, Plan, Protocol, Run, ask, once, repeated
from fedkernel.strategies.component_count import NO_AUTO_AMONG_PEERS, refuse_auto
from fedkernel.strategies.peer_vfedpca_base import PeerVFedPCABase
from fedkernel.strategies.vfedpca import VFedPCA
from fedkernel.strategies.vfedpca_base import pooled_kernel_mean


@value_object()
class PeerVFedPCA(PeerVFedPCABase):
    """PCA without a server: clients sum products along a tree, or merge vectors with their neighbours' T times.

    - `graph`: a kind or a table, see `fedkernel.peers.graph`.
    - `kernel`: of each client's columns, for VFedAKPCA; by default VFedPCA.
    - `n_components`, `local_iterations`, `rounds`, `update`, `warm_start`, `weight_scaling`, `center`, `tol`: as for
      `VFedPCA`; with "exact" local iterations, updates, warm starts and weights have no meaning.
    - `merge`: "exact": block Lanczos on the sum of all clients' matrices, whose products with a block of vectors are
      summed along a spanning tree. On any connected graph all clients end with the same bits, those of the pooled PCA's
      subspace (with a kernel: of the sum of their kernels). "eigenvalue", "average": algorithm 5 with the merges of
      `VFedPCA`: each client merges its neighbours' vectors with its own. On a graph that is not full clients end with
      different vectors, farther from the pooled PCA's than on a full one, however large T is.
    - `relay`: with the paper's merges, neighbours forward also the vectors of others, until every client has those of
      all, as in section 3.9: the result is the full graph's, bit by bit. Keys are agreed on with neighbours only, who
      can read the vectors that they forward, and merge themselves.

    "exact", with M clients and P products: 2 (M - 1) N k floats in each. Sums go up the shallowest tree to its root, at
    the graph's centre, which takes the search's step and sends the next block down, in the end the result. With a tree
    of depth h 2 rounds for the keys, then 2 h P + 1 (one client: P). Memory: a client O(N (d_m + k)), the root O(N (d_m
    + k P)). A leaf's parent sees the leaf's own products, other parents those of a subtree's sum; all see the blocks,
    and only the root the pooled products. The coordinator sees no letter, but sets each client's place in the tree; it
    learns the number of products and whether the search converged.

    The paper's merges: 2 rounds for the keys and T + 1 more; k (N + 1) floats over every edge, each way, in each of T
    rounds. The coordinator forwards every letter: up once, down once. Memory: a client O(N (d_m + k T)). With `relay`
    each of the T rounds becomes as many as there are edges between the clients farthest apart, and a merge takes M (M -
    1) (k (N + 1) + 1) floats, more if two ways are equally long; a client O(N (d_m + k T + k M)).

    With an RBF, Laplacian or sigmoid kernel each client sends the coordinator 1 float, for the finding on the width.
    """

    n_components: Annotated[int, Field(ge=1), refuse_auto(NO_AUTO_AMONG_PEERS)] = 1
    graph: Graph = Topology("full")
    kernel: Kernel | None = None
    merge: Literal["exact", "eigenvalue", "average"] = "exact"
    local_iterations: Iterations = 10
    rounds: Annotated[int, Field(ge=1)] | None = None
    update: Literal["original", "inplace"] = "original"
    warm_start: bool = False
    weight_scaling: bool = False
    center: Literal["columns", "rows", "none"] = "columns"
    relay: bool = False
    tol: Annotated[float, Field(gt=0, lt=1)] = 1e-8

    client: ClassVar = PeerVFedPCAClient
    central_fields: ClassVar[tuple[str, ...]] = ("n_components", "center", "kernel")
    tags: ClassVar = dataclasses.replace(VFedPCA.tags, components="eigenvectors", peers=True)

    def __post_init__(self) -> None:
        if self.merge == "exact" and self.relay:
            raise InputError('relay = true has no meaning with merge = "exact", whose sums are of all clients')

    def check_cohort(self, cohort: Sequence[Member]) -> None:
        """Check also that there are enough rows, and that the graph fits the number of clients."""
        super().check_cohort(cohort)
        check_at_most("n_components", self.n_components, cohort[0].rows)
        self.peers(len(cohort))

    def _requests(self, graph: Neighbours) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the fields of the paper's two requests: to iterate (all but ``first``), and to finish."""
        merging: dict[str, Any] = {**self._table_fields(), "rule": self.merge}
        merging |= {"weight_scaling": self.weight_scaling, "relayed": len(graph) if self.relay else None}
        return {**merging, **self._iteration_fields()}, merging

    def plan(self, clients: int, seed: int) -> Plan:
        """Return the plan of keys, products or T iterations, and the end. The first iteration reads no letters."""
        graph = self.peers(clients)
        if self.merge == "exact":
            place = self._measured_fields()
            add = ask(AddProducts, **place, tol=self.tol, most=self.most_rounds)
            last = once(TakeBlock, **place, last=True)
            return (*keys_plan(graph), repeated(self.most_rounds, add, ask(TakeBlock, **place, last=False)), last)
        (iterate, finish), hops = self._requests(graph), self._hops(graph)
        posts = (RelayedVectors if self.relay else PeerVectors,)
        again = ask(IterateAmongPeers, posts=posts, first=False, **iterate)
        steps = [once(IterateAmongPeers, posts=posts, first=True, **iterate)]
        if hops > 1:
            between = repeated(hops - 1, ask(ForwardVectors))
            steps += [between, *[repeated(1, again), between] * (self.most_rounds - 1)]
        elif self.most_rounds > 1:
            steps.append(repeated(self.most_rounds - 1, again))
        return (*keys_plan(graph), *steps, once(FinishAmongPeers, **finish))

    def protocol(self, run: Run) -> Protocol[PeerComponents]:
        """Run algorithm 5, or block Lanczos on sums along a tree."""
        mail, graph = Mail(len(run.members)), self.peers(len(run.members))
        yield from agree_keys(graph)
        if self.merge == "exact":
            return (yield from self._search(mail, graph))
        iterate, finish = self._requests(graph)
        # t numbers the vectors sent, and their merge, which begins the next round
        for t in range(self.most_rounds):
            yield from mail.to_all(IterateAmongPeers(first=t == 0, **iterate), t=t)
            for _ in range(self._hops(graph) - 1):
                yield from mail.to_all(ForwardVectors(), t=t)
        replies = yield from mail.to_all(FinishAmongPeers(**finish))
        return PeerComponents(self.kernel or Linear(), self.n_components, kernel_mean_=pooled_kernel_mean(replies))

    def _search(self, mail: Mail, graph: Neighbours) -> Protocol[PeerComponents]:
        levels, place = self._tree(graph)

        def of_level(level: list[int], kind: type[Any], **more: Any) -> Protocol[list[Any]]:
            return mail.to_each({client: kind(**place[client], **more) for client in level})

        state, means = "searching", list[SearchState]()
        for product in range(self.most_rounds):
            # The block goes down; the lowest level takes it with its next request
            for level in levels[1:-1] if product else ():
                yield from of_level(level, TakeBlock, last=False)
            # Sums go up, to the root
            for depth, level in reversed([*enumerate(levels)]):
                block = "first" if product == 0 else "delivered" if 0 < depth == len(levels) - 1 else "kept"
                replies = yield from of_level(level, AddProducts, block=block, tol=self.tol, most=self.most_rounds)
                means += replies if product == 0 else ()
            if (state := replies[0].state) != "searching":
                break
        if state == "searching":
            root, most = levels[0][0], f"{self.most_rounds} products, the largest number"
            raise ProtocolError(f"client {root} has not ended the search after {most}")
        for level in levels[1:]:
            yield from of_level(level, TakeBlock, last=True)
        findings = (self._unconverged(self.tol),) if state == "unconverged" else ()
        mean = pooled_kernel_mean(means)
        return PeerComponents(self.kernel or Linear(), self.n_components, findings_=findings, kernel_mean_=mean)

    def projection(self, run: Run, model: PeerComponents, *, to_sites: bool = False) -> Protocol[FloatArray]:
        """Raise InputError. The clients hold the vectors, and a later run cannot read those of an earlier one."""
        raise InputError(
            f"{type(self).__name__} cannot project new rows: each client keeps directions of its own, which no "
            "coordinator has; allowed: VFedPCA and VFedAKPCA, with one"
        )
