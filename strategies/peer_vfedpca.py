"""VFedPCA and VFedAKPCA without a server: clients merge what their neighbours on a graph send them.

Source: Cheung, Jiang, Yu, Lou: Vertical Federated Principal Component Analysis and Its Kernel Extension on
Feature-wise Distributed Data, arXiv 2203.01752: algorithm 5, figure 13; signs, norms and centring as in `VFedPCA`. Of
the exact merge: Ye, Zhang: DeEPCA: Decentralized Exact PCA with Linear Convergence Rate, JMLR 22, 2021, algorithm 1.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import numpy as np
from pydantic import Field

from clients.peer_vfedpca import (
    FinishAmongPeers,
    FinishTracking,
    ForwardVectors,
    IterateAmongPeers,
    MeasureOwn,
    MixWithPeers,
    PeerVectors,
    PeerVFedPCAClient,
    RelayedVectors,
    TrackProducts,
)
from fedkernel.arrays import FloatArray
from fedkernel.errors import InputError
from fedkernel.models import KernelPCA, PeerComponents, compare_kernel_pca, compare_vectors, kept_variance, over_clients
from fedkernel.numerics import Kernel, Linear, saturates
from fedkernel.peers import (
    Graph,
    Mail,
    Neighbours,
    Topology,
    agree_keys,
    distances,
    gossip_rate,
    key_agreement,
    keys_plan,
    neighbours,
)
from fedkernel.protocol import (
    FLOAT,
    Computing,
    Forecast,
    Iterations,
    Member,
    Plan,
    Protocol,
    Run,
    Work,
    ask,
    letter,
    once,
    orthonormalised,
    repeated,
    to_sum,
)
from fedkernel.run import Result
from fedkernel.strategy import KernelStrategy
from fedkernel.validation import check_at_most, value_object
from strategies.choosing_components import AMONG_PEERS, no_choice
from strategies.vfedpca import DEFAULT_ROUNDS, VFedAKPCA, VFedPCA, local_memory, mean_of_clients, merging_computing

MIXED = 0.2
"""What gossip leaves of the differences between estimates. With 0.29 of them, as after 3 steps on a ring of 10, an
iteration may not converge; a tenth takes a third more letters."""

Asked: TypeAlias = tuple[type[Any], Mapping[str, Any]]
"""A request: its class, and its fields."""


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
    merge : {"eigenvalue", "average", "exact"}
        "eigenvalue", "average": as for `VFedPCA`. "exact": T power steps on the sum of all clients' matrices, of whose
        product with the last vectors each client has an estimate: it adds what its own product has changed, and mixes
        with its neighbours. On any connected graph all clients come to the pooled PCA's subspace, with a kernel to that
        of the sum of their kernels, as fast as power iteration does; local iterations, updates, warm starts and weights
        have no meaning then.
    relay : bool
        Neighbours write each other also what others wrote to them, until every client has the vectors of all: the
        result is the full graph's, bit by bit. Keys are agreed on with neighbours only, and each of these passes on
        what it can read, which is what it merges itself. Not with "exact".
    gossip_steps : int, optional
        With "exact": how often estimates are mixed in a power step. By default so often that at most a fifth of their
        differences is left, by the second eigenvalue of the graph; with fewer, the iteration may not converge.

    Notes
    -----
    Costs: 2 rounds for the keys and T + 1 more; k (N + 1) floats over every edge, each way, in each of T rounds. The
    coordinator forwards every letter: up once, down once; with an RBF, Laplacian or sigmoid kernel each client sends it
    1 float in the end, by which the result says whether the width fits. Memory: a client O(N (d_m + k T)).

    With `relay` each of the T rounds becomes as many as edges lie between the clients farthest apart, and the vectors
    of each of M clients cross at least one edge for each other: M (M - 1) (k (N + 1) + 1) floats in a merge, and more
    where two ways are equally long. Memory: a client O(N (d_m + k T + k M)).

    "exact", with K gossip steps: 2 rounds for the keys and T K + 1 more; k N floats over every edge, each way, T K
    times. K is 1 on a full graph, 2 and 4 on rings of 5 and 10, 3 and 4 on stars of these.
    """

    n_components: Annotated[int, Field(ge=1), no_choice(AMONG_PEERS)] = 1
    graph: Graph = Topology("full")
    kernel: Kernel | None = None
    merge: Literal["eigenvalue", "average", "exact"] = "eigenvalue"
    local_iterations: Iterations = 10
    rounds: Annotated[int, Field(ge=1)] = DEFAULT_ROUNDS
    update: Literal["inplace", "original"] = "inplace"
    warm_start: bool = False
    weight_scaling: bool = False
    center: Literal["columns", "rows", "none"] = "columns"
    relay: bool = False
    gossip_steps: Annotated[int, Field(ge=1)] | None = None

    client: ClassVar = PeerVFedPCAClient
    needs_all: ClassVar[str] = "peers merge what their neighbours write, along a graph that a lost one would cut"
    partition: ClassVar[Literal["vertical"]] = "vertical"
    central_fields: ClassVar[tuple[str, ...]] = ("n_components", "center", "kernel")
    tags: ClassVar = dataclasses.replace(VFedPCA.tags, components="eigenvectors", peers=True)

    def __post_init__(self) -> None:
        """Refuse what has no meaning with this merge."""
        if self.merge == "exact" and self.relay:
            raise InputError('relay = true has no meaning with merge = "exact", whose estimates are of all clients')
        if self.merge != "exact" and self.gossip_steps is not None:
            raise InputError(f'gossip_steps = {self.gossip_steps} has a meaning only with merge = "exact"')

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
        if self.merge == "exact":
            floats = self._hops(graph) * sum(map(len, graph)) * k * N
        elif self.relay:
            floats, known = self._crossings(graph) * (k * (N + 1) + 1), len(cohort)
        memory = local_memory(cohort, k, self.local_iterations, self.kernel) + FLOAT * N * k * (T + 3 * known)
        computing = merging_computing(cohort, k, T, self.local_iterations, self.kernel)
        # What the coordinator does there each node does for itself and its neighbours
        merge = Work(passes=8.0 * FLOAT * N * k * (known + 1)) + orthonormalised(N, k)
        own = (merge + letter(floats / sum(map(len, graph))) * max(map(len, graph))) * T if known else Work()
        computing = Computing.of([computing.site + own] * len(cohort))
        rounds = T * self._hops(graph) + 1
        means = len(cohort) if saturates(self.kernel) else 0
        return key_agreement(graph) + Forecast(rounds, T * floats + means, T * floats, memory, computing=computing)

    def _hops(self, graph: Neighbours) -> int:
        """Return how many rounds the letters of one merge take: with the exact one, those of its gossip."""
        if self.merge != "exact":
            return max(1, int(distances(graph).max())) if self.relay else 1
        _, second = gossip_rate(graph)
        if self.gossip_steps or second <= MIXED:
            return self.gossip_steps or 1
        # After K steps 1 / cosh(K arcosh(1 / second)) is left of differences
        return math.ceil(math.acosh(1 / MIXED) / math.acosh(1 / second))

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

    def _requests(self, graph: Neighbours) -> tuple[Asked, Asked, Asked, int]:
        """Return what is asked: to iterate, to pass letters on, and to finish; and how many rounds letters take.

        Each is a class and its fields; to iterate, but for ``first``.
        """
        table = {"kernel": self.kernel, "center": self.center}
        if self.merge == "exact":
            gossip = dict(zip(("step", "second"), gossip_rate(graph), strict=True))
            track = {**table, **gossip, "n_components": self.n_components}
            return (TrackProducts, track), (MixWithPeers, gossip), (FinishTracking, table | gossip), self._hops(graph)
        relayed = {"relayed": len(graph) if self.relay else None}
        merging = {**table, **relayed, "rule": self.merge, "weight_scaling": self.weight_scaling}
        iterate = (IterateAmongPeers, merging | self._local_fields())
        return iterate, (ForwardVectors, {}), (FinishAmongPeers, merging), self._hops(graph)

    def plan(self, clients: int, seed: int) -> Plan:
        """Return the keys, T iterations, of which only the first reads nothing, each with its letters, and the end."""
        graph = self.peers(clients)
        (iterate, fields), (pass_on, passing), (finish, last), hops = self._requests(graph)
        posts = (RelayedVectors if self.relay else PeerVectors,) if iterate is IterateAmongPeers else iterate.posts
        again = ask(iterate, posts=posts, first=False, **fields)
        steps = [once(iterate, posts=posts, first=True, **fields)]
        if hops > 1:
            between = repeated(hops - 1, ask(pass_on, **passing))
            steps += [between, *[repeated(1, again), between] * (self.rounds - 1)]
        elif self.rounds > 1:
            steps.append(repeated(self.rounds - 1, again))
        return (*keys_plan(graph), *steps, once(finish, **last))

    def protocol(self, run: Run) -> Protocol[PeerComponents]:
        """Algorithm 5, or DeEPCA."""
        mail, graph = Mail(len(run.members)), self.peers(len(run.members))
        yield from agree_keys(graph)
        (iterate, fields), (pass_on, passing), (finish, last), hops = self._requests(graph)
        # t is that of the vectors that are sent, and of their merge, which the next round's begins with
        for t in range(self.rounds):
            yield from mail.to_all(iterate(first=t == 0, **fields), t=t)
            for _ in range(hops - 1):
                yield from mail.to_all(pass_on(**passing), t=t)
        replies = yield from mail.to_all(finish(**last))
        return PeerComponents(self.kernel or Linear(), self.n_components, kernel_mean_=mean_of_clients(replies))

    def _local_fields(self) -> dict[str, Any]:
        local = {"n_components": self.n_components, "iterations": self.local_iterations}
        return {**local, "update": self.update, "warm_start": self.warm_start}

    def evaluation(self, run: Run, model: PeerComponents) -> Protocol[dict[str, float]]:
        """Return how much of its own columns' variance what each client has ended with keeps, of all together.

        One round: k + 1 floats from each client, which are summed, none down. Where all end with the same vectors it is
        the measure of `VFedPCA`.
        """
        variance = yield from to_sum(MeasureOwn(**self._measured_fields()))
        return kept_variance(float(variance.captured.sum()), variance.total, run.members[0].rows)

    def evaluation_plan(self) -> Plan:
        """Return the request for the variance."""
        return (once(MeasureOwn, **self._measured_fields()),)

    def projection(self, run: Run, model: PeerComponents, *, to_sites: bool = False) -> Protocol[FloatArray]:
        """Refuse: the vectors are at the clients, and a later run knows nothing of what an earlier one left there."""
        raise InputError(
            f"{type(self).__name__} cannot project new rows: each client keeps directions of its own, which no "
            "coordinator has; allowed: VFedPCA and VFedAKPCA, with one"
        )

    def _measured_fields(self) -> dict[str, Any]:
        return {"kernel": self.kernel, "center": self.center, "n_components": self.n_components}

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
