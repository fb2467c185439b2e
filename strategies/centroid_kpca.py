"""Centroid kernel PCA: kernel PCA of horizontally partitioned data in the span of k-means centres.

Source: Zhang, Kwok: Clustered Nystroem method for large scale manifold learning and dimension reduction, IEEE
Transactions on Neural Networks 2010 (ICML 2008: Improved Nystroem low-rank approximation and error analysis), with the
last step of disKPCA (Balcan et al., KDD 2016, algorithm 3) in place of the Nystroem extension, whose components are the
best in the span.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from clients.centroid_kpca import LEAST_ROWS, CentroidKPCAClient, FindLocalCenters, Least
from fedkernel.ground import FloatArray, InputError, Precision, value_object
from fedkernel.models import LandmarkPCA
from fedkernel.numerics import RBF, AnyKernel
from fedkernel.protocol import (
    MAX_COORDINATE,
    AtMost,
    CarriesRows,
    Forecast,
    Member,
    Plan,
    Protocol,
    Run,
    allowed_numbers,
    once,
    to_each,
)
from fedkernel.strategy import Tags
from strategies.component_count import MostComponents, NumberOfComponents
from strategies.landmark_base import LANDMARKS_PER_COMPONENT, LandmarkStrategy
from strategies.shared_centroids import (
    FEWEST_ROUNDS,
    MOST_ROUNDS,
    centroid_floats,
    centroids_plan,
    shared_centroids,
)


@value_object()
class CentroidKPCA(LandmarkStrategy):
    """Kernel PCA, not centred, in the span of k-means centres of all clients' rows, by sums alone.

    No row leaves. To find the centres a site takes part with means of groups of at least ``least`` of its rows, which
    depend on its table alone. The products of kernel values at the end are sums over single rows.

    Parameters
    ----------
    n_components : int or "auto"
        k; "auto": of 1 to ``max_components``, as for `DisKPCA`.
    kernel : Linear, RBF, Laplacian, Polynomial, Sigmoid or ArcCosine
    n_landmarks : int, optional
        |Y|, the most centres; those without rows are left out. By default 10 k, but no more than keep the numbers that
        leave a site at half of its table's entries; at least k + 1. If there are fewer than 10 k, the result's
        ``findings`` say so.
    centroids : {"shared", "local"}
        "shared": of all rows, by sums over all clients. "local": each client finds its own, by its share of the rows,
        and sends them in one round.
    rounds : int, optional
        T, of Lloyd's algorithm for shared centres; by default 3, or 2 if the entries do not allow 2 k centres.
    least : int
        Fewest rows of a group; a client's guards may ask for more.
    dtype, tol, embed
        As for `DisKPCA`.

    Notes
    -----
    Costs, with M clients and rows of d floats: T + 3 rounds, with local centres 3. Floats: up M (2 d + T |Y| (d + 2)),
    with local centres |Y| d, and M |Y| (|Y| + 1) / 2; down M (T + 1) |Y| d and M |Y| k. No cost grows with the number
    of rows.

    Time: a client puts its rows into groups once, some 200 n_m d multiplications, and compares a group with |Y| centres
    T times; then as `DisKPCA` without draws. Memory: a client its groups' means, some n_m d / 7 floats, and a block's
    kernel values; the coordinator |Y|^2 floats.
    """

    n_components: NumberOfComponents = 10
    kernel: AnyKernel = RBF()
    n_landmarks: Annotated[int, Field(ge=1)] | None = None
    centroids: Literal["shared", "local"] = "shared"
    rounds: Annotated[int, Field(ge=1)] | None = None
    least: Least = LEAST_ROWS
    dtype: Precision = "float64"
    tol: Annotated[float, Field(gt=0, lt=1)] | None = None
    embed: bool = True
    max_components: MostComponents = None

    client: ClassVar = CentroidKPCAClient
    landmark_parameter: ClassVar = "n_landmarks"
    needs_all: ClassVar[str] = "sums are of all rows"
    tags: ClassVar = Tags("embedding", pooled=False)

    def __post_init__(self) -> None:
        self.check_components(self.most_landmarks, "the number of landmarks, n_landmarks = ")
        if self.centroids == "local" and self.rounds is not None:
            raise InputError(f'rounds = {self.rounds} has a meaning only with centroids = "shared"')

    @property
    def most_landmarks(self) -> int:
        """Largest number of landmarks |Y|."""
        usual = max(LANDMARKS_PER_COMPONENT * self.most_components, self.fewest_landmarks)
        return usual if self.n_landmarks is None else self.n_landmarks

    @property
    def _most_rounds(self) -> int:
        if self.centroids == "local":
            return 0
        return MOST_ROUNDS if self.rounds is None else self.rounds

    def sizes(self, cohort: Sequence[Member]) -> tuple[int, int, tuple[str, ...]]:
        """Return the number of centres |Y| and of rounds T for these clients, and the findings if they are few.

        Unless set, they keep each client's floats below the default limit of its table (`allowed_numbers`).
        """
        most, rounds = self.most_landmarks, self._most_rounds
        if self.n_landmarks is not None:
            return most, rounds, ()
        smallest = min(cohort, key=lambda member: allowed_numbers(member.entries) - member.left)
        budget = allowed_numbers(smallest.entries) - smallest.left
        fewest, tries = self.fewest_landmarks, ((MOST_ROUNDS, 2 * self.most_components), (FEWEST_ROUNDS, 0))
        for T, enough in tries if self.rounds is None and rounds else ((rounds, 0),):
            number = next((Y for Y in range(most, fewest, -1) if self._floats_up([smallest], Y, T) <= budget), fewest)
            if number >= enough:
                break
        if number == most:
            return most, T, ()
        why = f"more would take over half as many floats as {smallest.label} has entries, {smallest.entries:,}"
        return number, T, (self.few_landmarks(number, why),)

    def _floats_up(self, cohort: Sequence[Member], landmarks: int, rounds: int) -> int:
        local = landmarks * cohort[0].columns
        centers = local if self.centroids == "local" else centroid_floats(cohort, landmarks, rounds)[0]
        return centers + self.values_floats(cohort, landmarks, "exact")

    def check_cohort(self, cohort: Sequence[Member]) -> None:
        """Check also that the rows suffice for the components."""
        super().check_cohort(cohort)
        self.check_components(sum(member.rows for member in cohort))

    def forecast(self, cohort: Sequence[Member]) -> Forecast:
        """Return the costs of finding the centres, and the components in their span; centres may be fewer."""
        Y, T, _ = self.sizes(cohort)
        local = Forecast(1, Y * cohort[0].columns)
        centers = local if self.centroids == "local" else Forecast(1 + T, *centroid_floats(cohort, Y, T))
        landmarks_down = Forecast(0, 0, len(cohort) * Y * cohort[0].columns)
        return centers + landmarks_down + self.components_forecast(cohort, Y, "exact")

    def plan(self, clients: int, seed: int) -> Plan:
        """Return the requests for the centres, and those of the low-rank step."""
        Y, T = self.most_landmarks, self._most_rounds
        local = (once(FindLocalCenters, n_centers=AtMost(Y), least=self.least),)
        centers = local if self.centroids == "local" else centroids_plan(Y, T, self.least)
        return *centers, *self._low_rank_plan(self._step(self.kernel))

    def protocol(self, run: Run) -> Protocol[LandmarkPCA]:
        """Find the centres, then the components in their span."""
        step = self._step(self.kernel.settled(run.columns))
        number, rounds, findings = self.sizes(run.members)
        if self.centroids == "local":
            centers = yield from self._local_centers(run, number)
        else:
            centers = (yield from shared_centroids(run, number, rounds, self.least)).centers
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.abs(step.kernel.diag(centers))
        if not np.all(lengths <= MAX_COORDINATE):
            large = f"a centre of the clients' rows has k(y, y) above {MAX_COORDINATE:g}"
            allowed = "allowed: smaller numbers, as of prepared tables"
            raise InputError(f"{large}, so that products with it would be too large; {allowed}")
        fields: Mapping[str, Any] = {**CarriesRows.of(centers), "before": 0, **vars(step)}
        model = yield from self._low_rank(run, step, centers, dict.fromkeys(run.clients, fields))
        return dataclasses.replace(model, findings_=findings)

    def _local_centers(self, run: Run, number: int) -> Protocol[FloatArray]:
        """Ask each client for its share of the centres, by its rows; one round."""
        counts = {member.client: max(1, number * member.rows // run.rows) for member in run.members}
        replies = yield from to_each(
            {client: FindLocalCenters(n_centers=own, least=self.least) for client, own in counts.items()}
        )
        return np.vstack([reply.centers for reply in replies])
