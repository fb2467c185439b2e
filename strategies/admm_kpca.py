"""Decentralised kernel PCA by ADMM: nodes of a graph exchange letters with their neighbours only.

Source: He, Yang, Shi, Huang: A Decentralized Framework for Kernel PCA with Projection Consensus Constraints, 2022:
algorithm 1, assumption 2, theorem 2.

Departures from the paper:

* The start is the local solution, with signs that agree along the graph; from a random start the method fails.
* The penalty rho is constant, assumption 2's bound, the largest over the nodes; ``schedule="paper"`` is the paper's.
* If the directions do not settle, the multipliers are left out from then on, which the model records.
* Theorem 2, that the augmented Lagrangian decreases, is false as stated, also uncentred and far above assumption 2's
  bound (docs/explanation/theorems.md): the Lagrangian is recorded, not relied on.
* More components follow by deflation. ``exchange="features"`` sends random features in place of rows.
* The coordinator, which Flower has, forwards sealed letters. It sees the figures in replies: each node's bound on rho,
  how far its neighbours' means lie apart, its start's cosines with its neighbours', its part of the augmented
  Lagrangian and the angle it turned by.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedkernel.clients.admm_kpca import (
    ADMMKPCAClient,
    CompareStarts,
    Features,
    KeepComponents,
    OwnRows,
    ShareDirection,
    ShareRows,
    StartLocally,
    StartNextComponent,
    UpdateConsensus,
    UpdateDirection,
)
from fedkernel.ground import FloatArray, InputError, check_at_most, value_object
from fedkernel.models import PeerComponents
from fedkernel.numerics import RBF, Embeddable, Frequencies, Linear, SubspaceEmbedding, is_bounded
from fedkernel.peers import Graph, Mail, Topology, agree_keys, key_agreement_forecast, keys_plan, neighbours
from fedkernel.protocol import FLOAT, Forecast, Member, Plan, Protocol, Run, any_width, ask, once, repeated, to_all
from fedkernel.strategies.admm_kpca_base import ADMMKPCABase, agreed_signs
from fedkernel.strategies.component_count import NO_AUTO_AMONG_PEERS, refuse_auto
from fedkernel.strategy import Tags

UNSETTLED_ITERATIONS, UNSETTLED_ANGLE = 3, 0.02
"""Multipliers are left out after so many iterations whose turns do not shrink and exceed so many radians."""

LARGE_ANGLE = 0.2
"""Turn in radians at which the last `UNSETTLED_ITERATIONS` iterations, too, are without multipliers."""

MOST_LEFT = 0.1
"""Turn in radians still to come, by extrapolation, above which a component has a finding."""

MOST_BETWEEN = 0.5
"""Variance between neighbours' means above which the result has a finding, as a multiple of the first component's."""


@value_object()
class ADMMKPCA(ADMMKPCABase):
    """Kernel PCA at the nodes of a graph: each has the leading components as combinations of its own rows.

    In an iteration each node sends its direction to its neighbours, forms with theirs an estimate z of the common one,
    sends them z's projections on their rows, and moves its direction towards all estimates that it receives.

    - `n_components`: k; one after the other, by deflation.
    - `kernel`: normalised, so that k(x, x) = 1.
    - `graph`: a kind or a table, see `fedkernel.peers.graph`.
    - `neighbors`: number of neighbours of every node of a ring; by default 4, or as many as there are.
    - `rho`: the penalty; by default assumption 2's bound, the largest over the nodes.
    - `schedule`: "paper": 100 for a node's own estimate; 10, 50 and 100 for its neighbours', a third of the time each.
    - `iterations`: largest number for each component.
    - `tol`: angle in radians; a component ends once no direction turns by more.
    - `exchange`: data that neighbours hold of each other: rows, for which `share_rows` must be true, or `n_features`
      random features of them, for an RBF kernel by `frequencies` (see `FKKMeans`).
    - `noise`: standard deviation of normal noise on the exchanged data. A site with data of its own draws it from a
      secret, the same in all runs on the same rows; a simulated one anew in each run (`fedkernel.ground.noise_on`).
    - `center`: centre every kernel block by its own means, as the paper does, which takes away how nodes' means differ.
    - `share_rows`: nodes may send their rows to their neighbours.
    - `record`: nodes keep their direction of every iteration of the first component.

    Costs: 2 rounds for the keys, 3 to start, 2 per iteration, 1 at the end; each further component 3 more and its
    iterations. To each neighbour l, a node j sends n_j d floats to start (or n_j n_features) and n_j more, and in an
    iteration 2 n_j + n_l, however large the network is. The coordinator forwards every letter: up once, down once. With
    an RBF or Laplacian kernel each node sends it 1 float, for the finding on the width, and with `center` 1 for that on
    nodes that differ. Memory: a cell's rows squared.

    The history has component and t, and of the iteration before lagrangian (the nodes' sum) and turned (the largest
    angle).
    """

    n_components: Annotated[int, Field(ge=1), refuse_auto(NO_AUTO_AMONG_PEERS)] = 1
    kernel: Embeddable = RBF()
    graph: Graph = Topology("ring")
    neighbors: Annotated[int, Field(ge=2, multiple_of=2)] | None = None
    rho: Annotated[float, Field(gt=0)] | None = None
    schedule: Literal["constant", "paper"] = "constant"
    iterations: Annotated[int, Field(ge=1)] = 20
    tol: Annotated[float, Field(ge=0)] = 1e-6
    exchange: Literal["rows", "features"] = "rows"
    n_features: Annotated[int, Field(ge=1)] = 2000
    frequencies: Frequencies = "independent"
    noise: Annotated[float, Field(ge=0)] = 0.0
    center: bool = True
    share_rows: bool = False
    record: bool = False

    client: ClassVar = ADMMKPCAClient
    partition: ClassVar[Literal["horizontal"]] = "horizontal"
    central_fields: ClassVar[tuple[str, ...]] = ("n_components", "kernel", "center")
    counterparts: ClassVar[Mapping[str, Mapping[str, Any]]] = {"network KPCA": {"share_rows": True}}
    places: ClassVar[tuple[str, ...]] = ("central", "isolated", "pooled")
    tags: ClassVar = Tags(
        "alpha",
        order=False,  # a client's number decides its neighbours
        pooled=False,
        signs=True,
        rotations=True,
        peers=True,
        alone=True,
        error="similarity",
        best=1.0,
    )

    def __post_init__(self) -> None:
        if self.exchange == "features" and isinstance(self.kernel, Linear):
            raise InputError("exchange = 'features' has no meaning with a linear kernel, whose features are the rows")
        if self.rho is not None and self.schedule == "paper":
            raise InputError(f'rho = {self.rho:g} has a meaning only with schedule = "constant"')
        if self.neighbors is not None and (self.graph.kind != "ring" or self.graph.neighbors is not None):
            raise InputError(f"neighbors = {self.neighbors} has a meaning only with graph = 'ring'")

    def peers(self, clients: int) -> list[tuple[int, ...]]:
        """Return each node's neighbours, for this number of nodes."""
        if self.graph.kind != "ring" or self.graph.neighbors is not None:
            return neighbours(self.graph, clients)
        most = max(2, (clients - 1) // 2 * 2)
        if clients == 2 and self.neighbors is None:
            return neighbours(Topology("full"), clients)
        return neighbours(Topology("ring", neighbors=self.neighbors or min(4, most)), clients)

    def check_cohort(self, cohort: Sequence[Member]) -> None:
        """Check also that the graph fits the number of nodes, and that rows may be sent."""
        super().check_cohort(cohort)
        self.peers(len(cohort))
        for member in cohort:
            most = f"the number of rows of each client; {member.label} has "
            check_at_most("n_components", self.n_components, member.rows, most)
        if self.exchange == "rows" and not self.share_rows and len(cohort) > 1:
            raise InputError(
                "share_rows = false, but ADMMKPCA sends raw data: all rows of a client go to its neighbours; "
                'share_rows = true allows that, exchange = "features" sends random features instead'
            )

    def _features(self, kernel: Embeddable, seed: int) -> SubspaceEmbedding | None:
        if self.exchange == "rows":
            return None
        return SubspaceEmbedding(kernel, None, self.n_features, seed, self.frequencies)

    def _local_start_fields(self) -> dict[str, Any]:
        return {"noise": self.noise, "center": self.center, "record": self.record}

    def forecast(self, cohort: Sequence[Member]) -> Forecast:
        """Return costs for the largest number of iterations; ``tol`` may end a component early."""
        M, T, more = len(cohort), self.iterations, self.n_components - 1
        peers, n = self.peers(M), [member.rows for member in cohort]
        width = cohort[0].columns if self.exchange == "rows" else self.n_features
        edges = sum(map(len, peers))
        # one number per row on every edge
        on_edges = sum(len(others) * rows for others, rows in zip(peers, n, strict=True))
        up = on_edges * width + (more + 1) * (on_edges + M + edges + T * (3 * on_edges + 2 * M)) + more * on_edges
        down = on_edges * width + (more + 1) * (on_edges + M + edges + (3 * T - 2) * on_edges) + more * 3 * on_edges
        cell = max(rows + sum(n[peer] for peer in others) for others, rows in zip(peers, n, strict=True))
        memory = FLOAT * cell * ((4 if more else 3) * cell + 2 * width)
        up += M * (is_bounded(self.kernel) + self.center)
        rounds = (more + 1) * (3 + 2 * T) + 1
        return key_agreement_forecast(peers) + Forecast(rounds, up, down, memory, "at most")

    def plan(self, clients: int, seed: int) -> Plan:
        """Return the plan: keys, rows or features, and for each component the start, signs and iterations."""
        peers, kernel = self.peers(clients), any_width(self.kernel)
        features = None if self.exchange == "rows" else any_width(self.kernel, lambda own: self._features(own, seed))
        cell = {"cell_m": 1 + max(map(len, peers))}
        iterations = []
        for (own, others), alike in itertools.groupby(self._penalties(0.0)):
            rho: dict[str, Any] = {"rho_self": own, "rho_peers": others} if own else {}  # else from the data
            update = ask(UpdateConsensus, cell, **rho), ask(UpdateDirection, **rho)
            iterations.append(repeated(len(list(alike)), *update))
        start = once(StartLocally, features=features, kernel=kernel, **self._local_start_fields())
        posts = (OwnRows if features is None else Features,)
        sharing = once(ShareRows, posts=posts, features=features, noise=self.noise)
        component = (once(CompareStarts), *iterations)
        further = (once(ShareDirection), once(StartNextComponent), *component)
        last = once(KeepComponents)
        return *keys_plan(peers), sharing, start, *component, *further * (self.n_components - 1), last

    def protocol(self, run: Run) -> Protocol[PeerComponents]:
        """Run algorithm 1 for one component after the other."""
        peers, kernel = self.peers(len(run.members)), self.kernel.settled(run.columns)
        features, mail = self._features(kernel, run.seed), Mail(len(peers))
        yield from agree_keys(peers)
        # Neighbours get each other's rows, and start from their local solutions
        yield from mail.to_all(ShareRows(features=features, noise=self.noise))
        start = StartLocally(features=features, kernel=kernel, **self._local_start_fields())
        started = yield from mail.to_all(start)
        means = [reply.kernel_mean for reply in started if reply.kernel_mean is not None]
        courses, findings = [], list(_lost_between([reply.between for reply in started if reply.between is not None]))
        for component in range(1, self.n_components + 1):
            if component > 1:
                # The last component is taken off, and the local solutions of the rest are the start
                yield from mail.to_all(ShareDirection())
                started = yield from mail.to_all(StartNextComponent())
            penalties = self._penalties(max(reply.bound for reply in started))
            signs = yield from agreed_signs(mail, peers)
            lagrangian, without_from, turns = yield from self._iterate(mail, penalties, signs, component)
            courses.append((lagrangian, without_from))
            if (left := _turn_left(turns)) > MOST_LEFT:
                turned = f"component {component}'s directions turned by {turns[-1]:.2g} rad in iteration {len(turns)}"
                findings.append(f"{turned}, the last, and have about {left:.1g} rad to go: raise iterations")
        yield from to_all(KeepComponents())
        longest = max(len(values) for values, _ in courses)
        lagrangians = [np.pad(values, (0, longest - len(values)), mode="edge") for values, _ in courses]
        without = np.array([iteration for _, iteration in courses], dtype=np.float64)
        kernel_mean = float(np.mean(means)) if means else None
        fields = (self.n_components, penalties[0][0], np.array(lagrangians), without)
        return PeerComponents(kernel, *fields, kernel_mean_=kernel_mean, findings_=tuple(findings))

    def _penalties(self, bound: float) -> list[tuple[float, float]]:
        """Return the penalties rho of every iteration: of a node's own constraint, and of its neighbours'."""
        if self.schedule == "constant":
            rho = bound if self.rho is None else self.rho
            return [(rho, rho)] * self.iterations
        return [(100.0, (10.0, 50.0, 100.0)[3 * t // self.iterations]) for t in range(self.iterations)]

    def _iterate(
        self, mail: Mail, penalties: Sequence[tuple[float, float]], signs: Sequence[FloatArray], component: int
    ) -> Protocol[tuple[list[float], int, list[float]]]:
        """Iterate to the end of one component. Each cell begins with its starts times `signs`.

        Return the augmented Lagrangian before each update, the first iteration without multipliers (0: none), and the
        largest turn of a direction in each iteration, in radians.
        """
        lagrangians, turns, without = list[float](), list[float](), 0
        for t, (own, others) in enumerate(penalties, start=1):
            rho = {"rho_self": own, "rho_peers": others}
            values: dict[str, float] = {"component": component, "t": t}
            # Equations 10 and 11; the first iteration has starts, whose signs are made to agree
            if t == 1:
                requests = {j: UpdateConsensus(signs=own_signs, **rho) for j, own_signs in enumerate(signs)}
                yield from mail.to_each(requests, **values)
            else:
                yield from mail.to_all(UpdateConsensus(**rho), **values)
                values |= {"lagrangian": lagrangians[-1], "turned": turns[-1]}
            # Equations 12 and 13
            replies = yield from mail.to_all(UpdateDirection(dual=not without, **rho), **values)
            lagrangians.append(float(sum(reply.lagrangian for reply in replies)))
            turns.append(float(max(reply.turned for reply in replies)))
            if turns[-1] <= self.tol:
                break
            if not without and _unsettled(turns, self.iterations - t):
                without = t + 1
        return lagrangians, without, turns


def _lost_between(ratios: Sequence[float]) -> Iterator[str]:
    """Yield a finding if the variance between nodes' means, lost by centring, is large beside the first component's."""
    if ratios and (ratio := float(np.mean(ratios))) > MOST_BETWEEN:
        yield (
            f"the variance between neighbours' means is {ratio:.2g} times that along the first component, and "
            "center = true takes it away: components may be far from those of all rows; center = false keeps it"
        )


def _turn_left(turns: Sequence[float]) -> float:
    """Estimate the turn still to come, if turns keep shrinking as in the last `UNSETTLED_ITERATIONS` iterations."""
    last = turns[-UNSETTLED_ITERATIONS - 1 :]
    if len(last) < 2 or last[-1] == 0:
        return turns[-1]
    shrinking = (last[-1] / last[0]) ** (1 / (len(last) - 1))
    return last[-1] * shrinking / (1 - shrinking) if shrinking < 1 else math.pi / 2


def _unsettled(turns: Sequence[float], left: int) -> bool:
    """Return whether the directions fail to settle. The remaining iterations then go without multipliers."""
    if 0 < left <= UNSETTLED_ITERATIONS and turns[-1] > LARGE_ANGLE:
        return True
    last = turns[-UNSETTLED_ITERATIONS - 1 :]
    if not left or len(last) <= UNSETTLED_ITERATIONS or last[-1] <= UNSETTLED_ANGLE:
        return False
    return all(later >= earlier for earlier, later in itertools.pairwise(last))
