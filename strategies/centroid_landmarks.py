"""Landmarks that are k-means centres of the clients' rows, common or each client's own: number, plan and costs.

Source: the paper of `fedkernel.clients.centroid_kpca`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from fedkernel.clients.centroid_kpca import FindLocalCenters
from fedkernel.ground import FloatArray, InputError
from fedkernel.numerics import AnyKernel, allot_samples
from fedkernel.protocol import (
    MAX_COORDINATE,
    AtMost,
    Forecast,
    Member,
    Plan,
    Privacy,
    Protocol,
    Run,
    allowed_numbers,
    once,
    to_each,
)
from fedkernel.strategies.landmark_base import few_landmarks
from fedkernel.strategies.shared_centroids import (
    FEWEST_ROUNDS,
    MOST_ROUNDS,
    Centroids,
    agreement_lost,
    centroid_floats,
    centroids_plan,
    number_with_noise,
    shared_centroids,
)


class Sizes(NamedTuple):
    """Numbers of centres |Y| and rounds T, with findings if too few. `moved`: a centre's move by noise, per radius."""

    landmarks: int
    rounds: int
    findings: tuple[str, ...] = ()
    moved: float = 0.0


class CentroidLandmarks(ABC):
    """Base of strategies whose landmarks are centres. By default there are several for each component or cluster.

    Unless set, they keep each client's floats below the default limit of its table (`allowed_numbers`).
    """

    n_landmarks: int | None
    centroids: str
    rounds: int | None
    least: int
    counted: ClassVar[bool] = False
    """True if local centres are sent with their numbers of rows."""

    @property
    @abstractmethod
    def wanted(self) -> tuple[int, str]:
        """Number of components or clusters, and their name."""

    @property
    @abstractmethod
    def landmarks_for_each(self) -> int:
        """Usual number of landmarks for each component or cluster."""

    @abstractmethod
    def other_floats(self, cohort: Sequence[Member], landmarks: int) -> int:
        """Return the floats that the clients upload besides those for the centres."""

    @property
    def most_landmarks(self) -> int:
        """Largest number of landmarks |Y|."""
        usual = max(self.landmarks_for_each * self.wanted[0], self._fewest_landmarks)
        return usual if self.n_landmarks is None else self.n_landmarks

    @property
    def _fewest_landmarks(self) -> int:
        return self.wanted[0] + 1

    @property
    def _most_rounds(self) -> int:
        if self.centroids != "shared":
            return 0
        return MOST_ROUNDS if self.rounds is None else self.rounds

    def check_centroids(self) -> None:
        """Raise InputError if rounds are set, but centres are not shared."""
        if self.centroids != "shared" and self.rounds is not None:
            raise InputError(f'rounds = {self.rounds} has a meaning only with centroids = "shared"')

    def sizes(self, cohort: Sequence[Member], privacy: Privacy | None = None) -> Sizes:
        """Return the numbers of centres and rounds for these clients. `privacy`: with noise, centres may be fewer."""
        sizes = self._sizes_by_entries(cohort)
        if privacy is None:
            return sizes
        rows, d, number = sum(member.rows for member in cohort), cohort[0].columns, sizes.landmarks
        fewest = 2 * self.wanted[0] if self.n_landmarks is None else number
        number, share = number_with_noise(privacy, number, fewest, d, rows)
        return Sizes(number, sizes.rounds, moved=share)

    def noise_finding(self, cohort: Sequence[Member], privacy: Privacy) -> str:
        """Return a finding: noise moves a centre by some share of the radius, and agreement with classes is lost."""
        moved = self.sizes(cohort, privacy).moved
        return agreement_lost("a centre", moved, "the radius") if moved else ""

    def _sizes_by_entries(self, cohort: Sequence[Member]) -> Sizes:
        """Return the numbers of centres and rounds, as set, or else such that floats stay below the default limit."""
        most, rounds = self.most_landmarks, self._most_rounds
        if self.n_landmarks is not None:
            return Sizes(most, rounds)
        smallest = min(cohort, key=lambda member: allowed_numbers(member.entries) - member.left)
        budget = allowed_numbers(smallest.entries) - smallest.left
        share = smallest.rows / sum(member.rows for member in cohort)

        def fits(Y: int, T: int) -> bool:
            own = max(1, round(share * Y)) if self.centroids == "local" else Y
            return self._centers_forecast([smallest], own, T).floats_up + self.other_floats([smallest], Y) <= budget

        fewest, tries = self._fewest_landmarks, ((MOST_ROUNDS, 2 * self.wanted[0]), (FEWEST_ROUNDS, 0))
        for T, enough in tries if self.rounds is None and rounds else ((rounds, 0),):
            number = next((Y for Y in range(most, fewest, -1) if fits(Y, T)), fewest)
            if number >= enough:
                break
        if number == most:
            return Sizes(most, T)
        why = f"more would take over half as many floats as {smallest.label} has entries, {smallest.entries:,}"
        return Sizes(number, T, (few_landmarks(number, most, self.wanted, why, "n_landmarks"),))

    def _centers_forecast(self, cohort: Sequence[Member], landmarks: int, rounds: int) -> Forecast:
        """Return the costs of finding the centres. Fewer may be found."""
        if self.centroids == "local":
            return Forecast(1, landmarks * (cohort[0].columns + self.counted))
        return Forecast(1 + rounds, *centroid_floats(cohort, landmarks, rounds))

    def _centers_plan(self) -> Plan:
        Y = self.most_landmarks
        if self.centroids == "local":
            return (once(FindLocalCenters, n_centers=AtMost(Y), least=self.least, counts=self.counted),)
        return centroids_plan(Y, self._most_rounds, self.least)

    def _find_centers(self, run: Run, kernel: AnyKernel, sizes: Sizes) -> Protocol[Centroids]:
        """Find the centres, shared or each client's own; a sub-protocol."""
        if self.centroids == "local":
            centroids = yield from self._local_centers(run, sizes.landmarks)
        else:
            centroids = yield from shared_centroids(run, sizes.landmarks, sizes.rounds, self.least)
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.abs(kernel.diag(centroids.centers))
        if not np.all(lengths <= MAX_COORDINATE):
            large = f"a centre of the clients' rows has k(y, y) above {MAX_COORDINATE:g}"
            allowed = "allowed: smaller numbers, as of prepared tables"
            raise InputError(f"{large}, so that products with it would be too large; {allowed}")
        return centroids

    def _local_centers(self, run: Run, number: int) -> Protocol[Centroids]:
        """Ask each client for some of the centres, in proportion to its rows. It takes one round."""
        shares = allot_samples(np.array([float(member.rows) for member in run.members]), number)
        replies = yield from to_each(
            {
                member.client: FindLocalCenters(n_centers=int(own), least=self.least, counts=self.counted)
                for member, own in zip(run.members, shares, strict=True)
                if own
            }
        )
        counts: list[FloatArray] = [
            np.ones(len(reply.centers)) if reply.counts is None else reply.counts for reply in replies
        ]
        return Centroids(np.vstack([reply.centers for reply in replies]), np.concatenate(counts))
