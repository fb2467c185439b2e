"""Client of centroid kernel PCA: moments of a site's columns and its own centres, with their requests and replies.

Source: Zhang, Kwok: Clustered Nystroem method for large scale manifold learning and dimension reduction, IEEE
Transactions on Neural Networks 2010 (ICML 2008: Improved Nystroem low-rank approximation and error analysis).
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt

from fedkernel.clients.cell_sums import (
    LEAST_ROWS,
    CellClient,
    CellSums,
    Least,
    SumCells,
    check_columns,
    dense,
    nearest,
    sum_groups,
    sum_single_rows,
)
from fedkernel.clients.landmark_base import LandmarkClient, MeasureCaptured, MultiplyKernel, TakeComponents
from fedkernel.ground import FloatArray, Rows, ShareableError, generator, sum_in_order
from fedkernel.numerics import k_means
from fedkernel.protocol import MAX_ENTRY, Answers, Count, Reply, Request, Shape, Summed, Within


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
        """Check also that (sum x)^2 <= n sum x^2."""
        super().check_table(reply, sizes)
        if np.any(np.square(reply.sums) > (1 + reply.rounding) * sizes["n_m"] * reply.squares):
            raise ValueError(f"sums are too large for {sizes['n_m']} entries with these squares")


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
        """Check also that at most the requested centres are sent, with counts if requested."""
        super().check_reply(reply)
        if len(reply.centers) > self.n_centers:
            raise ValueError(f"the reply has {len(reply.centers)} centres, but must have at most {self.n_centers}")
        if self.counts != (reply.counts is not None):
            raise ValueError(f"counts must be {'sent, as' if self.counts else 'absent unless'} requested")
        if reply.counts is not None and np.any(reply.counts < self.least):
            raise ValueError(f"counts must be at least {self.least}, the rows of a group")

    def check_table(self, reply: LocalCenters, sizes: Mapping[str, int]) -> None:
        """Check also that the counts sum to at most the number of rows, and to over half of it."""
        super().check_table(reply, sizes)
        if reply.counts is not None and not sizes["n_m"] < 2 * reply.counts.sum() <= 2 * sizes["n_m"]:
            allowed = f"at most {sizes['n_m']}, the number of rows, and more than half of it"
            raise ValueError(f"counts sum to {reply.counts.sum():g}, but must sum to {allowed}")


class CentroidKPCAClient(LandmarkClient, CellClient):
    """Client of centroid kernel PCA. It reads a table of any kind, a block of rows at a time.

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
        check_columns(ask.centers, self.X.shape[1])
        if self.privacy is not None:
            return CellSums(**sum_single_rows(ask.centers, self._bounded_blocks()))
        return CellSums(**sum_groups(ask.centers, *self._mean_rows(ask.least)))

    def find_local_centers(self, ask: FindLocalCenters) -> LocalCenters:
        """Find centres of the groups' means by k-means, each group weighed by its rows."""
        means, sizes = self._mean_rows(ask.least)
        if len(sizes) == 0:
            text = f"client {self.client} has {len(self.X)} rows, fewer than a centre must stand for"
            raise ShareableError(f"{text}; allowed: at least {self._least_rows(ask.least)} (guard: groups)")
        points = dense(means)
        # the same starts whatever the run's seed, of which a coordinator could try many
        rng = generator("local centres", len(self.X))
        centers = k_means(points, min(ask.n_centers, len(points)), rng, weights=sizes.astype(np.float64))
        if not ask.counts:
            return LocalCenters(centers=centers)
        counts, step = np.bincount(nearest(points, centers), sizes, minlength=len(centers)), self._least_rows(ask.least)
        return LocalCenters(centers=centers, counts=np.maximum(counts - counts % step, step))

    def _mean_rows(self, least: int) -> tuple[Rows, npt.NDArray[np.int64]]:
        """Return the means of the groups of rows, and each group's number of rows, from a cache."""
        name = f"means of groups of {self._least_rows(least)} rows"
        return self.cached(name, lambda: self._group_means(least, self._own_rows))
