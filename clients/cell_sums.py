"""Sums over the rows, or embedded rows, of a site that are nearest to each centre, with requests and replies.

Departure from Lloyd's algorithm: a site's rows move from centre to centre in groups of neighbours, each of at least
`least` rows, which depend on its table alone. Sums by cells of single rows would show a row by two rounds between which
just that row changes its cell, also to a coordinator that only reads. With groups whatever leaves follows from their
means, in every round and run, for any centres.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Generic, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field
from scipy import sparse

from fedkernel.data import Table
from fedkernel.ground import FloatArray, ProtocolError, Rows, row_blocks, stack_rows
from fedkernel.numerics import MOST_LEAST, group_averages, grouped_together
from fedkernel.protocol import MAX_ENTRY, TABLE_SHARE, KernelClient, Request, Shape, Summed, Within

LEAST_ROWS = 5
"""Default of the fewest rows in a group, the rule of most owners of data about people."""

Least = Annotated[int, Field(ge=1, le=MOST_LEAST)]
"""Fewest rows of a group."""


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


class EmbeddedCellSums(CellSums):
    """Sums, numbers and squared distances of the site's embedded rows by their nearest centre: c (s + 2) floats.

    Reveals where the site's embedded rows lie: sums of the coordinates' means over groups of `least` rows or more that
    are neighbours in the site's table, and at most these means. The groups are those of `CellSums`, whatever the
    embedding, or unions: a few rows would follow from means of many smooth functions of them, so that a group has so
    many rows that the means are at most half as many numbers as these rows have entries.
    """

    sums: Annotated[FloatArray, Shape("c", "s"), Within(-MAX_ENTRY, MAX_ENTRY)]


CellsT = TypeVar("CellsT", bound=CellSums)


class CellRequest(Request[CellsT], Generic[CellsT]):
    """Base of requests for sums over the rows nearest to each centre. Groups of at least `least` rows stay together."""

    centers: Annotated[FloatArray, Shape("c", "d"), Within(-MAX_ENTRY, MAX_ENTRY)]
    least: Least = LEAST_ROWS

    def sensitivity(self, radius: float) -> Mapping[str, float]:
        """Return bounds of one row's contribution to the sums. Costs are left out, since their bound is large."""
        return {"sums": radius, "counts": 1.0, "costs": 0.0}

    def check_reply(self, reply: CellsT) -> None:
        """Check also that no cell has fewer rows than a group, and empty cells no sum or cost."""
        super().check_reply(reply)
        if np.any((reply.counts > 0) & (reply.counts < self.least)):
            raise ValueError(f"counts must be 0 or at least {self.least}, the rows of a group")
        if np.any(reply.sums[reply.counts == 0]) or np.any(reply.costs[reply.counts == 0]):
            raise ValueError("sums and costs must be 0 where counts are")

    def check_table(self, reply: CellsT, sizes: Mapping[str, int]) -> None:
        """Check also that the cells have all rows, or none of a table smaller than a group."""
        super().check_table(reply, sizes)
        if (total := float(reply.counts.sum())) not in (0, sizes["n_m"]):
            raise ValueError(f"counts sum to {total:g}, but must sum to {sizes['n_m']}, the number of rows, or to 0")


class SumCells(CellRequest[CellSums]):
    """Request for the sums of the rows nearest to each centre. Groups of at least `least` rows stay together."""


class SumEmbeddedCells(CellRequest[EmbeddedCellSums]):
    """Request for the sums of the embedded rows nearest to each centre. Groups of at least `least` stay together."""

    centers: Annotated[FloatArray, Shape("c", "s"), Within(-MAX_ENTRY, MAX_ENTRY)]

    def sensitivity(self, radius: float) -> Mapping[str, float]:
        """Return bounds of one embedded row's contribution. It is shortened to length 1, whatever `radius` is."""
        return super().sensitivity(1.0)


class CellClient(KernelClient):
    """Base of clients that sum rows by nearest centre. Groups, some 2 n_m floats, are cached, and made anew if lost."""

    def _least_embedded(self, least: int, dimensions: int) -> int:
        """Return the group size, `least` or more, with twice as many entries as the group's mean has coordinates."""
        return max(least, math.ceil(dimensions * len(self.X) / (TABLE_SHARE * self.own_entries())))

    def _least_rows(self, least: int) -> int:
        """Return the smallest group size: the requested one, or the site's own limit if that is higher."""
        return least if self.guards is None else max(least, self.guards.cell_rows)

    def _group_means(self, least: int, rows_of: Callable[[slice], Rows]) -> tuple[Rows, npt.NDArray[np.int64]]:
        """Return each group's mean of rows, or of embedded rows, and each group's number of rows."""
        least = self._least_rows(least)

        def make() -> list[tuple[slice, sparse.csr_array]]:
            n, d = self.X.shape
            parts = grouped_together(n, d, least)
            return [(part, group_averages(self._own_rows(part), least)) for part in parts]

        groups = self.cached(f"groups of {least} rows", make)
        means = stack_rows([averages @ rows_of(part) for part, averages in groups])
        return means, np.concatenate([np.diff(averages.indptr) for _, averages in groups])

    def _own_rows(self, part: slice) -> Rows:
        rows: Rows = self.X.block(part.start, part.stop) if isinstance(self.X, Table) else self.X[part]
        return rows


def sum_groups(centers: FloatArray, means: Rows, sizes: npt.NDArray[np.int64]) -> dict[str, FloatArray]:
    """Return the fields of `CellSums` for groups of rows, each assigned to a centre by its mean."""
    sums, counts, costs = np.zeros_like(centers), np.zeros(len(centers)), np.zeros(len(centers))
    for part in row_blocks(len(sizes)):
        points, rows = dense(means[part]), sizes[part].astype(np.float64)
        labels = nearest(points, centers)
        np.add.at(sums, labels, rows[:, np.newaxis] * points)
        counts += np.bincount(labels, rows, minlength=len(counts))
        costs += np.bincount(labels, rows * np.square(points - centers[labels]).sum(axis=1), minlength=len(counts))
    return {"sums": sums, "counts": counts, "costs": costs}


def sum_single_rows(centers: FloatArray, blocks: Iterable[Rows]) -> dict[str, FloatArray]:
    """Return the fields of `CellSums` with each row assigned alone. No row affects another's part; costs are 0."""
    sums, counts = np.zeros_like(centers), np.zeros(len(centers))
    for block in blocks:
        labels = nearest(points := dense(block), centers, alone=True)
        np.add.at(sums, labels, points)
        counts += np.bincount(labels, minlength=len(counts))
    return {"sums": sums, "counts": counts, "costs": np.zeros(len(counts))}


def check_columns(centers: FloatArray, columns: int) -> None:
    """Raise ProtocolError unless the centres have as many columns as the rows to be assigned."""
    if centers.shape[1] != columns:
        raise ProtocolError(f"centers have {centers.shape[1]} columns, but the site's rows have {columns}")


def dense(rows: Rows) -> FloatArray:
    """Return rows as a dense array."""
    return rows if isinstance(rows, np.ndarray) else np.asarray(rows.toarray())


def nearest(points: FloatArray, centers: FloatArray, *, alone: bool = False) -> npt.NDArray[np.int64]:
    """Return the index of each point's nearest centre, (g,). `alone`: other points do not change even a last bit."""
    # or distances that are small beside the points' own lengths would be lost to rounding
    C = centers - (middle := centers.mean(axis=0))
    away = points - middle
    products = np.matmul(away[:, np.newaxis], C.T)[:, 0] if alone else away @ C.T
    return np.asarray(np.argmin(np.square(C).sum(axis=1) / 2 - products, axis=1))
