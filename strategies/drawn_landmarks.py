"""Landmarks that are drawn among the clients' rows, and the base class of strategies that draw them.

Source: the paper of `fedkernel.strategies.diskpca`.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from fedkernel.clients.diskpca import DisKPCAClient, DrawnRows, DrawUniformly
from fedkernel.ground import InputError, Positions, ProtocolError, Rows, stack_rows
from fedkernel.numerics import AnyKernel
from fedkernel.protocol import (
    MAX_COORDINATE,
    MAX_ENTRY_RATIO,
    Forecast,
    Member,
    Protocol,
    lost_to_rounding,
    pooled_floats,
    to_each,
)
from fedkernel.strategies.landmark_base import (
    LANDMARKS_PER_COMPONENT,
    LandmarkStrategy,
    LowRankStep,
    ProjectionSize,
    few_landmarks,
)


@dataclass(frozen=True)
class DrawnLandmarks:
    """Rows that clients disclosed, ordered by client, and how many are from each client."""

    rows: Rows
    counts: tuple[int, ...]

    @classmethod
    def of(cls, replies: Mapping[int, DrawnRows], clients: int, kernel: AnyKernel, like: Rows | None = None) -> Self:
        """Concatenate the rows of some clients' replies; without replies there are no rows, of the kind of `like`.

        Rows are refused if other clients' products with them would be too large to send, or lost to rounding.
        """
        rows = {client: reply.rows for client, reply in replies.items()}
        sizes: dict[int, Any] = {client: abs(own) for client, own in rows.items()}  # absolute entries, dense or sparse
        largest = {client: float(own.max()) for client, own in sizes.items()}
        for client, own in rows.items():
            with np.errstate(over="ignore", invalid="ignore"):
                lengths = abs(kernel.diag(own))
            if not (largest[client] <= MAX_COORDINATE and np.all(lengths <= MAX_COORDINATE)):
                raise ProtocolError(
                    f"client {client} sent a row with an entry or k(x, x) above {MAX_COORDINATE:g}, so that the "
                    "other sites' products would be too large"
                )
            others = max((size for other, size in largest.items() if other != client), default=0.0)
            if lost_to_rounding(kernel, largest[client], others):
                raise ProtocolError(
                    f"client {client} sent a row with an entry more than {MAX_ENTRY_RATIO:g} times as large as "
                    "each of the other clients' rows, whose distances would be lost to rounding"
                )
        counts = tuple(rows[client].shape[0] if client in rows else 0 for client in range(clients))
        none = [] if like is None else [like[:0]]
        return cls(stack_rows([rows[client] for client in sorted(rows)] or none), counts)

    def rows_of_others(self, client: int) -> tuple[Rows, int]:
        """Return the rows of the other clients, and how many of these come before this client's own."""
        first = sum(self.counts[:client])
        last = first + self.counts[client]
        others = np.r_[0:first, last : self.rows.shape[0]]
        return self.rows[others], first

    def handed(self, step: LowRankStep) -> dict[int, dict[str, Any]]:
        """Return for each client the request fields that carry the other clients' rows."""
        others = [self.rows_of_others(client) for client in range(len(self.counts))]
        return {client: step.handed(rows, before) for client, (rows, before) in enumerate(others)}


@dataclass(frozen=True)
class Allotment:
    """Number of landmarks |Y|, each client's largest number of drawn rows (M,), and findings if landmarks are few."""

    number: int
    most: Positions
    findings: tuple[str, ...] = ()


def draw_uniformly(allotment: Allotment, kernel: AnyKernel, rng: np.random.Generator) -> Protocol[DrawnLandmarks]:
    """Draw |Y| of the clients' rows uniformly. One round, |Y| d floats up, or fewer if rows are sparse."""
    samples, most = allotment.number, allotment.most
    counts = most if samples >= most.sum() else rng.multivariate_hypergeometric(most, samples, method="marginals")
    requests = {client: DrawUniformly(samples=int(count)) for client, count in enumerate(counts) if count}
    replies = yield from to_each(requests)
    return DrawnLandmarks.of(dict(zip(requests, replies, strict=True)), len(most), kernel)


class DrawnLandmarkStrategy(LandmarkStrategy):
    """Base of strategies that find components in the span of rows that the clients disclose."""

    client: ClassVar[type[DisKPCAClient]] = DisKPCAClient

    share_rows: bool
    landmark_parameter: ClassVar[str]
    """Parameter that sets the number of landmarks."""

    @property
    @abstractmethod
    def user_landmarks(self) -> int | None:
        """Largest number of rows that the clients will disclose, if the user sets it, or None."""

    @property
    def most_landmarks(self) -> int:
        """Largest number of landmarks |Y|; see `allotment`."""
        named = self.user_landmarks
        return max(LANDMARKS_PER_COMPONENT * self.most_components, self.fewest_landmarks) if named is None else named

    @abstractmethod
    def floats_up_with(self, cohort: Sequence[Member], landmarks: int) -> int:
        """Return a lower bound of the uploaded floats with this number of landmarks."""

    def allotment(self, cohort: Sequence[Member]) -> Allotment:
        """Return the number of landmarks for these clients: the number set by the user, or the default.

        The default is `LANDMARKS_PER_COMPONENT` times the components, but no more than a tenth of each client's rows,
        and not so many that more floats than the whole table go up; and at least `fewest_landmarks`, shared out by the
        clients' rows.
        """
        rows = np.array([member.rows for member in cohort])
        N, named = int(rows.sum()), self.user_landmarks
        if named is not None:
            return Allotment(min(named, N), rows)
        tenth, fewest, usual = rows // 10, min(self.fewest_landmarks, N), min(self.most_landmarks, N)
        budget = self.budget(cohort)
        at_most = range(min(usual, int(tenth.sum())), fewest, -1)
        number = next((Y for Y in at_most if self.floats_up_with(cohort, Y) <= budget), fewest)
        most = tenth if number <= tenth.sum() else -(-number * rows // N)
        if number == usual:
            return Allotment(number, most)
        why = f"sites send at most a tenth of their rows, {tenth.sum()} in all"
        if number < tenth.sum():
            why = "more landmarks would take more floats than the whole table"
        wanted = self.most_components, "components"
        few = few_landmarks(number, self.most_landmarks, wanted, why, self.landmark_parameter)
        return Allotment(number, most, (few,))

    def budget(self, cohort: Sequence[Member]) -> int:
        """Return the most floats to upload: those of the whole table, less those for computing a kernel width."""
        return pooled_floats(cohort, self.partition) - sum(member.columns + 1 for member in cohort)

    def check_cohort(self, cohort: Sequence[Member]) -> None:
        """Check also that `share_rows` is true and that the rows suffice for the components."""
        super().check_cohort(cohort)
        rows, columns = sum(member.rows for member in cohort), cohort[0].columns
        self.check_components(rows)
        if not self.share_rows:
            sent = self.allotment(cohort).number
            raise InputError(
                f"share_rows = false, but {type(self).__name__} sends raw data: up to {sent} of the {rows} rows, all "
                f"{columns} columns of each, go to the coordinator and to every client; share_rows = true allows that"
            )

    def span_floats(self, cohort: Sequence[Member], landmarks: int, columns: ProjectionSize) -> int:
        """Return the uploaded floats of landmarks, and of kernel values sketched to `columns` columns (0: none)."""
        return landmarks * cohort[0].columns + self.values_floats(cohort, landmarks, columns)

    def span_forecast(self, cohort: Sequence[Member], columns: ProjectionSize) -> Forecast:
        """Forecast the costs of sending the landmarks and finding components in their span, without the draws.

        Upper bounds: rows may be sparse, or span fewer dimensions. ``columns``: of the sketch; 0: there is none.
        """
        Y = self.allotment(cohort).number
        rows = Y * cohort[0].columns
        forecast = self.components_forecast(cohort, Y, columns)
        up, down = forecast.floats_up + rows, forecast.floats_down + (len(cohort) - 1) * rows
        return replace(forecast, floats_up=up, floats_down=down)
