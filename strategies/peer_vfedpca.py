"""VFedPCA and VFedAKPCA without a server: clients merge what their neighbours on a graph send them.

Source: Cheung, Jiang, Yu, Lou: Vertical Federated Principal Component Analysis and Its Kernel Extension on
Feature-wise Distributed Data, arXiv 2203.01752: algorithm 5, figure 13; signs, norms and centring as in `VFedPCA`.
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from clients.peer_vfedpca import FinishAmongPeers, IterateAmongPeers, PeerVFedPCAClient
from fedkernel.models import KernelPCA, PeerComponents, compare_kernel_pca, compare_vectors, over_clients
from fedkernel.numerics import Kernel, Linear
from fedkernel.peers import Graph, Mail, Topology, agree_keys, key_agreement, keys_plan, neighbours
from fedkernel.protocol import FLOAT, Forecast, Iterations, Member, Plan, Protocol, Run, ask, once, repeated
from fedkernel.run import Result
from fedkernel.strategy import KernelStrategy
from fedkernel.validation import check_at_most, value_object
from strategies.vfedpca import DEFAULT_ROUNDS, VFedAKPCA, VFedPCA, local_memory


@value_object()
class PeerVFedPCA(KernelStrategy[PeerComponents]):
    """Clients send local leading vectors to their neighbours, and merge what they get with their own, T times.

    On a graph that is not full, clients end with different vectors: what is more than T edges away is not in them.

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

    Notes
    -----
    Costs: 2 rounds for the keys and T + 1 more; k (N + 1) floats over every edge, each way, in each of T rounds. The
    coordinator forwards every letter: up once, down once. Memory: a client O(N (d_m + k T)).
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
        floats = T * sum(map(len, graph)) * k * (N + 1)
        memory = local_memory(cohort, k, self.kernel) + FLOAT * N * k * (T + 3 * max(map(len, graph)))
        return key_agreement(graph) + Forecast(T + 1, floats, floats, memory)

    def plan(self, clients: int, seed: int) -> Plan:
        """Return the keys, T iterations, of which only the first merges nothing, and the last merge."""
        merging, local = self._merging_fields(), self._local_fields()
        iterations = [once(IterateAmongPeers, first=True, **merging, **local)]
        if self.rounds > 1:
            iterations.append(repeated(self.rounds - 1, ask(IterateAmongPeers, first=False, **merging, **local)))
        return (*keys_plan(self.peers(clients)), *iterations, once(FinishAmongPeers, **merging))

    def protocol(self, run: Run) -> Protocol[PeerComponents]:
        """Algorithm 5."""
        mail = Mail(len(run.members))
        yield from agree_keys(self.peers(len(run.members)))
        merging, local = self._merging_fields(), self._local_fields()
        for t in range(self.rounds):
            yield from mail.to_all(IterateAmongPeers(first=t == 0, **merging, **local))
        yield from mail.to_all(FinishAmongPeers(**merging))
        return PeerComponents(self.kernel or Linear(), self.n_components)

    def _merging_fields(self) -> dict[str, Any]:
        table = {"kernel": self.kernel, "center": self.center}
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
