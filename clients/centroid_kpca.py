"""Client of centroid kernel PCA: sums of a site's rows by their nearest centres, with its requests and replies.

Source: Zhang, Kwok: Clustered Nystroem method for large scale manifold learning and dimension reduction, IEEE
Transactions on Neural Networks 2010 (ICML 2008: Improved Nystroem low-rank approximation and error analysis).

Departure from Lloyd's algorithm: a site's rows move from centre to centre in groups of neighbours, each of at least
`least` rows, which depend on its table alone. Sums by cells of single rows would show a row by two rounds between which
just that row changes its cell, also to a coordinator that only reads. With groups whatever leaves follows from their
means, in every round and run, for any centres.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedkernel.clients.landmark_base import LandmarkClient, MeasureCaptured, MultiplyKernel, TakeComponents
from fedkernel.ground import (
    FloatArray,
    ProtocolError,
    Rows,
    ShareableError,
    generator,
    row_blocks,
    stack_rows,
    sum_in_order,
)
from fedkernel.numerics import MOST_LEAST, grouped_together, k_means, microaggregate
from fedkernel.protocol import MAX_ENTRY, Answers, Count, Reply, Request, Shape, Summed, Within

LEAST_ROWS = 5
"""Default of the fewest rows in a group, the rule of most owners of data about people."""

Least = Annotated[int, Field(ge=1, le=MOST_LEAST)]
"""Fewest rows of a group."""


class ColumnMoments(Summed):
    """Sums of each column's entries and of their squares over the site's rows: 2 d floats.

    Reveals the mean and the variance of each of the site's columns.
    """

    sums: Annotated[FloatArray, Shape("d"), Within(-MAX_ENTRY, MAX_ENTRY)]
    squares: Annotated[FloatArray, Shape("d"), Within()]


class SumMoments(Request[ColumnMoments]):
    """Request for the sums of the columns' entries and of their squares."""

    once: ClassVar = True

    def sensitivity(self, radius: float) -> Mapping[str, float]:
        """Return the bounds of a row's entries, and of their squares: |x * x| <= |x|^2."""
        return {"sums": radius, "squares": radius**2}

    def check_table(self, reply: ColumnMoments, sizes: Mapping[str, int]) -> None:
        """Check also that the squares are possible for these sums: (sum x)^2 <= n sum x^2."""
        super().check_table(reply, sizes)
        if np.any(np.square(reply.sums) > (1 + reply.rounding) * sizes["n_m"] * reply.squares):
            raise ValueError(f"sums are too large for {sizes['n_m']} entries with these squares")


class CellSums(Summed):
    """Sums, numbers and squared distances of the site's rows by their nearest centre: c (d + 2) floats.

    Reveals where the site's rows lie: sums of means of groups of `least` rows or more, and at most these means. The
    groups are the site's own, the same for all centres, rounds and runs, or unions of these, so that neither
    differences between requests nor chosen centres show less than a group. If tables are prepared, groups follow from
    the coordinator's scales: each run with other scales shows means of other groups.
    """

    sums: Annotated[FloatArray, Shape("c", "d"), Within(-MAX_ENTRY, MAX_ENTRY)]
    counts: Annotated[FloatArray, Shape("c"), Within(whole=True)]
    costs: Annotated[FloatArray, Shape("c"), Within()]


class SumCells(Request[CellSums]):
    """Request for the sums of the rows that are nearest to each centre, in groups of at least `least`."""

    centers: Annotated[FloatArray, Shape("c", "d"), Within(-MAX_ENTRY, MAX_ENTRY)]
    least: Least = LEAST_ROWS

    def sensitivity(self, radius: float) -> Mapping[str, float]:
        """Return the bounds of a row, which is in one cell; costs are left out: their bound is large."""
        return {"sums": radius, "counts": 1.0, "costs": 0.0}

    def check_reply(self, reply: CellSums) -> None:
        """Check also that no cell has fewer rows than a group, and that empty cells have no sum or cost."""
        super().check_reply(reply)
        if np.any((reply.counts > 0) & (reply.counts < self.least)):
            raise ValueError(f"counts must be 0 or at least {self.least}, the rows of a group")
        if np.any(reply.sums[reply.counts == 0]) or np.any(reply.costs[reply.counts == 0]):
            raise ValueError("sums and costs must be 0 where counts are")

    def check_table(self, reply: CellSums, sizes: Mapping[str, int]) -> None:
        """Check also that the cells have all rows of the table, or none if it is smaller than a group."""
        super().check_table(reply, sizes)
        if (total := float(reply.counts.sum())) not in (0, sizes["n_m"]):
            raise ValueError(f"counts sum to {total:g}, but must sum to {sizes['n_m']}, the number of rows, or to 0")


class LocalCenters(Reply):
    """The site's own centres: at most c d floats, with their numbers of rows c (d + 1).

    Reveals where the site's rows lie: each centre is a mean of at least `least` of its rows. `counts`: rows of each,
    rounded down to whole steps of `least`; the exact ones follow from the mean of all rows, if there are fewer centres
    than columns.
    """

    centers: Annotated[FloatArray, Shape("c_m", "d"), Within(-MAX_ENTRY, MAX_ENTRY)]
    counts: Annotated[FloatArray | None, Shape("c_m"), Within(1, whole=True)] = None


class FindLocalCenters(Request[LocalCenters]):
    """Request for centres of the site's own rows, each the mean of groups of at least `least` rows.

    Optionally also for their numbers of rows.
    """

    once: ClassVar = True
    largest: ClassVar = {"c_m": "n_centers"}
    n_centers: Count
    least: Least = LEAST_ROWS
    counts: bool = False

    def check_reply(self, reply: LocalCenters) -> None:
        """Check also that there are at most as many centres as requested, with numbers of rows if requested."""
        super().check_reply(reply)
        if len(reply.centers) > self.n_centers:
            raise ValueError(f"the reply has {len(reply.centers)} centres, but must have at most {self.n_centers}")
        if self.counts != (reply.counts is not None):
            raise ValueError(f"counts must be {'sent, as' if self.counts else 'absent unless'} requested")
        if reply.counts is not None and np.any(reply.counts < self.least):
            raise ValueError(f"counts must be at least {self.least}, the rows of a group")

    def check_table(self, reply: LocalCenters, sizes: Mapping[str, int]) -> None:
        """Check also that the counts sum to at most the number of rows, and to more than half of it."""
        super().check_table(reply, sizes)
        if reply.counts is not None and not sizes["n_m"] < 2 * reply.counts.sum() <= 2 * sizes["n_m"]:
            allowed = f"at most {sizes['n_m']}, the number of rows, and more than half of it"
            raise ValueError(f"counts sum to {reply.counts.sum():g}, but must sum to {allowed}")


class CentroidKPCAClient(LandmarkClient):
    """Client of centroid kernel PCA, for a table of any kind, a block at a time.

    Memory between rounds: the landmarks. Cached, and computed again if lost: the groups' means, some n_m d / 7 floats.
    """

    answers: ClassVar[Answers] = (
        *(SumMoments, SumCells, FindLocalCenters, MultiplyKernel, TakeComponents, MeasureCaptured),
    )

    def sum_moments(self, ask: SumMoments) -> ColumnMoments:
        """Sum the columns' entries, and their squares."""
        sums, squares = [], []
        for block in self._bounded_blocks():
            sums.append(np.asarray(block.sum(axis=0), dtype=np.float64).ravel())
            square = block * block if isinstance(block, np.ndarray) else block.multiply(block)
            squares.append(np.asarray(square.sum(axis=0), dtype=np.float64).ravel())
        return ColumnMoments(sums=sum_in_order(sums), squares=sum_in_order(squares))

    def sum_cells(self, ask: SumCells) -> CellSums:
        """Assign the groups of rows to the centres, and sum the rows of each centre."""
        if ask.centers.shape[1] != (columns := self.X.shape[1]):
            raise ProtocolError(f"centers have {ask.centers.shape[1]} columns, but the site's table has {columns}")
        if self.privacy is not None:
            return self._sum_single_rows(ask)
        means, sizes = self._groups(ask.least)
        sums, counts, costs = np.zeros_like(ask.centers), np.zeros(len(ask.centers)), np.zeros(len(ask.centers))
        for part in row_blocks(len(sizes)):
            points, rows = _dense(means[part]), sizes[part].astype(np.float64)
            labels = _nearest(points, ask.centers)
            np.add.at(sums, labels, rows[:, np.newaxis] * points)
            counts += np.bincount(labels, rows, minlength=len(counts))
            costs += np.bincount(
                labels, rows * np.square(points - ask.centers[labels]).sum(axis=1), minlength=len(counts)
            )
        return CellSums(sums=sums, counts=counts, costs=costs)

    def _sum_single_rows(self, ask: SumCells) -> CellSums:
        """Sum the rows of each centre, which has no part of another row, as groups have; costs are 0."""
        sums, counts = np.zeros_like(ask.centers), np.zeros(len(ask.centers))
        for block in self._bounded_blocks():
            labels = _nearest(points := _dense(block), ask.centers, alone=True)
            np.add.at(sums, labels, points)
            counts += np.bincount(labels, minlength=len(counts))
        return CellSums(sums=sums, counts=counts, costs=np.zeros(len(counts)))

    def find_local_centers(self, ask: FindLocalCenters) -> LocalCenters:
        """Find centres of the groups' means by k-means, each group weighed by its rows."""
        means, sizes = self._groups(ask.least)
        if len(sizes) == 0:
            text = f"client {self.client} has {len(self.X)} rows, fewer than a centre must stand for"
            raise ShareableError(f"{text}; allowed: at least {self._least(ask.least)} (guard: groups)")
        points = _dense(means)
        # the same starts whatever the run's seed, of which a coordinator could try many
        rng = generator("local centres", len(self.X))
        centers = k_means(points, min(ask.n_centers, len(points)), rng, weights=sizes.astype(np.float64))
        if not ask.counts:
            return LocalCenters(centers=centers)
        counts, step = np.bincount(_nearest(points, centers), sizes, minlength=len(centers)), self._least(ask.least)
        return LocalCenters(centers=centers, counts=np.maximum(counts - counts % step, step))

    def _least(self, least: int) -> int:
        """Return the fewest rows of a group: those asked for, or the site's own limit if that is higher."""
        return least if self.guards is None else max(least, self.guards.cell_rows)

    def _groups(self, least: int) -> tuple[Rows, npt.NDArray[np.int64]]:
        """Return the means of groups of the rows, and the groups' numbers of rows."""
        least = self._least(least)

        def make() -> tuple[Rows, npt.NDArray[np.int64]]:
            parts = [
                microaggregate(self.X.block(rows.start, rows.stop), least)
                for rows in grouped_together(*self.X.shape, least)
            ]
            return stack_rows([means for means, _ in parts]), np.concatenate([sizes for _, sizes in parts])

        return self.cached(f"groups of {least} rows", make)


def _dense(rows: Rows) -> FloatArray:
    return rows if isinstance(rows, np.ndarray) else np.asarray(rows.toarray())


def _nearest(points: FloatArray, centers: FloatArray, *, alone: bool = False) -> npt.NDArray[np.int64]:
    """Return the number of each point's nearest centre, (g,); `alone`: to the last bit, whatever the other points."""
    # or distances that are small beside the points' own lengths would be lost to rounding
    C = centers - (middle := centers.mean(axis=0))
    away = points - middle
    products = np.matmul(away[:, np.newaxis], C.T)[:, 0] if alone else away @ C.T
    return np.asarray(np.argmin(np.square(C).sum(axis=1) / 2 - products, axis=1))
