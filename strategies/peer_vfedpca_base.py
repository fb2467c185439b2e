"""Routes of letters between the peers of PeerVFedPCA, cost forecasts, and quality measures of the results."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedkernel.clients.peer_vfedpca import MeasureOwn
from fedkernel.models import PeerComponents, compare_vectors, kept_variance, mean_over_clients
from fedkernel.peers import (
    Graph,
    Neighbours,
    central_node,
    distances,
    key_agreement_forecast,
    neighbours,
    spanning_tree,
)
from fedkernel.protocol import FLOAT, Forecast, Member, Plan, Protocol, Run, once, to_sum
from fedkernel.run import Result
from fedkernel.strategies.vfedpca_base import LocalMatrixStrategy
from fedkernel.strategy import Measures


class PeerVFedPCABase(LocalMatrixStrategy[PeerComponents]):
    """Base of `PeerVFedPCA`: letter routes along its graph, cost forecasts, and measures of the clients' vectors."""

    n_components: int
    graph: Graph
    relay: bool

    @property
    def most_components(self) -> int:
        """Number of components k."""
        return self.n_components

    def peers(self, clients: int) -> list[tuple[int, ...]]:
        """Return each client's neighbours, for this number of clients."""
        return neighbours(self.graph, clients)

    def forecast(self, cohort: Sequence[Member]) -> Forecast:
        """Return the costs. "exact" takes at most ``rounds`` products, or if unset about 3 for 2 digits of ``tol``."""
        graph = self.peers(len(cohort))
        takes = self._forecast_search if self.merge == "exact" else self._forecast_merges
        return key_agreement_forecast(graph) + takes(cohort, graph) + Forecast(0, self._kernel_mean_floats(cohort))

    def _forecast_search(self, cohort: Sequence[Member], graph: Neighbours) -> Forecast:
        N, k, height = cohort[0].rows, self.n_components, len(self._tree(graph)[0]) - 1
        # Multiplied vectors are independent: the first block, and the span of all columns
        most = N if self.rounds or self.kernel else min(N, k + sum(member.columns for member in cohort))
        products = min(self.rounds or math.ceil(-1.5 * math.log10(self.tol)), -(-most // k))
        floats = 2 * (len(cohort) - 1) * N * k * products
        memory = self._local_memory(cohort) + FLOAT * N * k * (4 * products + 6)
        rounds = 2 * height * products + 1 if height else products
        return Forecast(rounds, floats, floats, memory, "at most" if self.rounds else "about")

    def _forecast_merges(self, cohort: Sequence[Member], graph: Neighbours) -> Forecast:
        N, k, T = cohort[0].rows, self.n_components, self.most_rounds
        floats, vectors_held = sum(map(len, graph)) * k * (N + 1), max(map(len, graph))
        if self.relay:
            floats, vectors_held = self._crossings(graph) * (k * (N + 1) + 1), len(cohort)
        memory = self._local_memory(cohort) + FLOAT * N * k * (T + 3 * vectors_held)
        return Forecast(T * self._hops(graph) + 1, T * floats, T * floats, memory)

    def _tree(self, graph: Neighbours) -> tuple[list[list[int]], dict[int, dict[str, Any]]]:
        """Return the clients grouped by distance from the tree's root, and the common request fields of each."""
        levels, place = [[central_node(graph)]], {client: self._measured_fields() for client in range(len(graph))}
        for edges in spanning_tree(graph, root=levels[0][0]):
            levels.append([child for _, child in edges])
            for parent, child in edges:
                place[child]["parent"] = parent
                place[parent]["children"] = (*place[parent].get("children", ()), child)
        return levels, place

    def _hops(self, graph: Neighbours) -> int:
        """Return the number of rounds that the letters of one merge take."""
        return max(1, int(distances(graph).max())) if self.relay else 1

    def _crossings(self, graph: Neighbours) -> int:
        """Count the edges that clients' vectors cross in one merge with relays. None returns to where it came from."""
        edges, hops = distances(graph), self._hops(graph)
        return sum(
            int(np.count_nonzero((edges[node] < hops) & (edges[other] >= edges[node])))
            for node, others in enumerate(graph)
            for other in others
        )

    def _measured_fields(self) -> dict[str, Any]:
        return {**self._table_fields(), "n_components": self.n_components}

    @property
    def _agrees(self) -> bool:
        """True if all clients end with the same vectors, whatever the number of clients."""
        return self.merge == "exact" or self.relay or self.graph.kind == "full"

    def evaluation(self, run: Run, model: PeerComponents) -> Protocol[dict[str, float]]:
        """Measure the share of all columns' variance that the clients' common vectors keep.

        One round: k + 1 floats from each client, which are summed, none down. If clients end with different vectors
        nothing is measured: their shares would add up to more than any one set of vectors keeps.
        """
        if not self._agrees:
            why = f"merge = {self.merge!r} on a graph that is not full leaves clients with different vectors"
            mend = 'allowed: merge = "exact", or relay = true'
            return Measures({}, warnings=[f"the variance is not measured, since {why}; {mend}"])
        variance = yield from to_sum(MeasureOwn(**self._measured_fields()))
        return kept_variance(float(variance.captured.sum()), variance.total, run.members[0].rows)

    def evaluation_plan(self) -> Plan:
        """Return the plan of `evaluation`, empty if the clients' vectors differ."""
        return (once(MeasureOwn, **self._measured_fields()),) if self._agrees else ()

    def judge(self, result: Result[Any], shards: Sequence[Any], reference: Any = None) -> dict[str, float]:
        """Return the worst error, and the mean errors and distances, of clients' vectors against the reference's."""
        if reference is None:
            return {}
        vectors = [result.outputs[client]["eigenvectors"] for client in range(len(shards))]
        return mean_over_clients([compare_vectors(V, reference) for V in vectors])

    def judge_alone(self, models: Sequence[Any], shards: Sequence[Any], reference: Any = None) -> dict[str, float]:
        """Return errors and distances of the vectors that the clients find alone."""
        if reference is None:
            return {}
        return mean_over_clients([compare_vectors(own.eigenvectors_, reference) for own in models])

    def judge_steps(self, result: Result[Any], shards: Sequence[Any], reference: Any) -> dict[str, list[float]]:
        """Return the mean distance of clients' vectors from the reference's, after each merge of the paper's method."""
        if self.merge == "exact":
            return {}
        merges = np.array([result.outputs[client]["iterates"] for client in range(len(shards))]).swapaxes(0, 1)
        distances = [[compare_vectors(V, reference)["distance"] for V in clients] for clients in merges]
        return {"distance": [float(np.mean(merge)) for merge in distances]}
