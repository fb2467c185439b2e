"""VFedPCA and VFedAKPCA without a server: clients merge what their neighbours on a graph send them.

Source: Cheung, Jiang, Yu, Lou: Vertical Federated Principal Component Analysis and Its Kernel Extension on
Feature-wise Distributed Data, arXiv 2203.01752: algorithm 5, figure 13; signs, norms and centring as in `VFedPCA`.
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from clients.peer_vfedpca import FinishAmongPeers, ForwardVectors, IterateAmongPeers, PeerVFedPCAClient
from fedkernel.models import KernelPCA, PeerComponents, compare_kernel_pca, compare_vectors, over_clients
from fedkernel.numerics import Kernel, Linear
from fedkernel.peers import (
    Graph,
    Mail,
    Neighbours,
    Topology,
    agree_keys,
    distances,
    key_agreement,
    keys_plan,
    neighbours,
)
from fedkernel.protocol import FLOAT, Forecast, Iterations, Member, Plan, Protocol, Run, ask, once, repeated
from fedkernel.run import Result
from fedkernel.strategy import KernelStrategy
from fedkernel.validation import check_at_most, value_object
from strategies.vfedpca import DEFAULT_ROUNDS, VFedAKPCA, VFedPCA, local_memory


@value_object()
class PeerVFedPCA(KernelStrategy[PeerComponents]):
    """Clients send local leading vectors to their neighbours, and merge what they get with their own, T times.

    On a graph that is not full, clients end with different vectors, farther from the pooled PCA's than on a full one,
    however large T is. Where neighbours forward what they get (`relay`), each merge is of all clients' vectors, as
    section 3.9 has it.

    Parameters
    ----------
    graph : str or table
        See `fedkernel.peers.graph`.
    kernel : Kernel, optional
        Of each client's columns, which makes it VFedAKPCA; by default VFedPCA.
    n_components, local_iterations, rounds, update, warm_start, weight_scaling, center
        As for `VFedPCA`.
    merge : {"eigenvalue", "average"}
        As for `VFedPCA`.
    relay : bool
        Neighbours write each other also what others wrote to them, until every client has the vectors of all: the
        result is the full graph's, bit by bit. Keys are agreed on with neighbours only, and each of these passes on
        what it can read, which is what it merges itself.

    Notes
    -----
    Costs: 2 rounds for the keys and T + 1 more; k (N + 1) floats over every edge, each way, in each of T rounds. The
    coordinator forwards every letter: up once, down once. Memory: a client O(N (d_m + k T)).

    With `relay` each of the T rounds becomes as many as edges lie between the clients farthest apart, and the vectors
    of each of M clients cross at least one edge for each other: M (M - 1) (k (N + 1) + 1) floats in a merge, and more
    where two ways are equally long. Memory: a client O(N (d_m + k T + k M)).
    """

    n_components: Annotated[int, Field(ge=1)] = 1
    graph: Graph = Topology("full")
    kernel: Kernel | None = None
    merge: Literal["eigenvalue", "average"] = "eigenvalue"
    local_iterations: Iterations = 10
    rounds: Annotated[int, Field(ge=1)] = DEFAULT_ROUNDS
    update: Literal["inplace", "original"] = "inplace"
    warm_start: bool = False
    weight_scaling: bool = False
    center: Literal["columns", "rows", "none"] = "columns"
    relay: bool = False

    client: ClassVar = PeerVFedPCAClient
    partition: ClassVar[Literal["vertical"]] = "vertical"
    central_fields: ClassVar[tuple[str, ...]] = ("n_components", "center", "kernel")
    tags: ClassVar = dataclasses.replace(VFedPCA.tags, components="eigenvectors", peers=True)

    def check_cohort(self, cohort: Sequence[Member]) -> None:
        """Check also that there are enough rows, and that the graph is one of these clients."""
        super().check_cohort(cohort)
        check_at_most("n_components", self.n_components, cohort[0].rows)
        self.peers(len(cohort))

    def forecast(self, cohort: Sequence[Member]) -> Forecast:
        """Return the costs above."""
        N, k, T = cohort[0].rows, self.n_components, self.rounds
        graph = self.peers(len(cohort))
        floats, known = sum(map(len, graph)) * k * (N + 1), max(map(len, graph))
        if self.relay:
            floats, known = self._crossings(graph) * (k * (N + 1) + 1), len(cohort)
        memory = local_memory(cohort, k, self.kernel) + FLOAT * N * k * (T + 3 * known)
        return key_agreement(graph) + Forecast(T * self._hops(graph) + 1, T * floats, T * floats, memory)

    def _hops(self, graph: Neighbours) -> int:
        """Return how many rounds the letters of one merge take."""
        return max(1, int(distances(graph).max())) if self.relay else 1

    def _crossings(self, graph: Neighbours) -> int:
        """Return how often a client's vectors cross an edge in one merge with relays.

        Each client writes to a neighbour the vectors from a distance in the round after they came, unless that
        neighbour has written them: it is nearer to where they are from.
        """
        edges, hops = distances(graph), self._hops(graph)
        return sum(
            int(np.count_nonzero((edges[node] < hops) & (edges[other] >= edges[node])))
            for node, others in enumerate(graph)
            for other in others
        )

    def plan(self, clients: int, seed: int) -> Plan:
        """Return the keys, T iterations, of which only the first merges nothing, each with its relays, and the end."""
        graph, merging, local = self.peers(clients), self._merging_fields(clients), self._local_fields()
        first, again = (ask(IterateAmongPeers, first=first, **merging, **local) for first in (True, False))
        steps = [repeated(1, first)]
        if (relays := self._hops(graph) - 1) > 0:
            forward = repeated(relays, ask(ForwardVectors))
            steps += [forward, *[repeated(1, again), forward] * (self.rounds - 1)]
        elif self.rounds > 1:
            steps.append(repeated(self.rounds - 1, again))
        return (*keys_plan(graph), *steps, once(FinishAmongPeers, **merging))

    def protocol(self, run: Run) -> Protocol[PeerComponents]:
        """Algorithm 5."""
        clients = len(run.members)
        mail, graph = Mail(clients), self.peers(clients)
        yield from agree_keys(graph)
        merging, local = self._merging_fields(clients), self._local_fields()
        for t in range(self.rounds):
            yield from mail.to_all(IterateAmongPeers(first=t == 0, **merging, **local))
            for _ in range(self._hops(graph) - 1):
                yield from mail.to_all(ForwardVectors())
        yield from mail.to_all(FinishAmongPeers(**merging))
        return PeerComponents(self.kernel or Linear(), self.n_components)

    def _merging_fields(self, clients: int) -> dict[str, Any]:
        table = {"kernel": self.kernel, "center": self.center, "relayed": clients if self.relay else None}
        return {**table, "rule": self.merge, "weight_scaling": self.weight_scaling}

    def _local_fields(self) -> dict[str, Any]:
        local = {"n_components": self.n_components, "iterations": self.local_iterations}
        return {**local, "update": self.update, "warm_start": self.warm_start}

    def central(self, shards: Sequence[Any]) -> KernelPCA:  # type: ignore[override]
        """Return what `VFedPCA` or `VFedAKPCA` would find with all columns in one place."""
        if self.kernel is None:
            return VFedPCA(self.n_components, center=self.center).central(shards)
        return VFedAKPCA(self.n_components, center=self.center, kernel=self.kernel).central(shards)

    def judge(self, result: Result[Any], shards: Sequence[Any], reference: Any = None) -> dict[str, float]:
        """Return errors and distances of the clients' vectors from the reference's: means, and the worst error.

        Needs the simulated clients' outputs.
        """
        if reference is None:
            return {}
        vectors = [result.outputs[client]["eigenvectors"] for client in range(len(shards))]
        return over_clients([compare_vectors(V, reference) for V in vectors])

    def peers(self, clients: int) -> list[tuple[int, ...]]:
        """Return the neighbours of each of so many clients."""
        return neighbours(self.graph, clients)

    def judge_alone(self, models: Sequence[Any], shards: Sequence[Any], reference: Any = None) -> dict[str, float]:
        """Return the same of what the clients find alone."""
        return {} if reference is None else over_clients([compare_kernel_pca(own, reference) for own in models])

    def judge_steps(self, result: Result[Any], shards: Sequence[Any], reference: Any) -> dict[str, list[float]]:
        """Return the clients' mean distance from the reference after each merge."""
        merges = np.array([result.outputs[client]["iterates"] for client in range(len(shards))]).swapaxes(0, 1)
        distances = [[compare_vectors(V, reference)["distance"] for V in clients] for clients in merges]
        return {"distance": [float(np.mean(merge)) for merge in distances]}
