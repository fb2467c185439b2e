"""What a site does, and all that can leave it, where a kernel's width is settled by rule before a run's own protocol.

Whatever the pair, this client answers: a run's plan has its requests first, and a site holds them to that plan, to its
policy and to its guards as it holds all others. Each is answered once in a run. What is drawn here depends on the size
of the table only, and not on the run's seed, which a coordinator could try, and which would have other rows drawn in
each of a study's runs.
"""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedkernel.data import Table, TableLike, as_table
from fedkernel.ground import EPS, FloatArray, ProtocolError, Rows, TellableError, generator, row_blocks
from fedkernel.numerics import Moments, deviations, moments_of_blocks
from fedkernel.protocol import ENTRY, Answers, KernelClient, Reply, Request, Shape, Summed, Within

PAIRS = 5000
"""Pairs of rows whose distances are measured, at most."""

GROUP = 10
"""Rows that a group has at least."""

GROUPED, ENTRIES = 2000, 20_000_000
"""Rows that are put into groups, at most, and their entries."""


class ColumnSums(Summed):
    """The sum of the site's rows: d floats. Reveals the site's mean row."""

    sums: Annotated[FloatArray, Shape("d"), Within(-ENTRY, ENTRY)]


class SumColumns(Request[ColumnSums]):
    """Asks for what the mean of all rows follows from."""

    once: ClassVar = True


Power = Literal[1, 2]
"""Of the differences that are summed: 1, sums of differences, as a Laplacian has them; 2, squared distances."""


class Squares(Summed):
    """The sum of the rows' squared distances to a point, or of their sums of differences from it: 1 float.

    Reveals how far apart they are, all together.
    """

    squares: Annotated[float, Shape(), Within()]


class MeasureSquares(Request[Squares]):
    """Asks for the squared distances to the mean of all rows or, without one, to the site's own of its columns.

    Or for sums of differences from it, where `power` is 1.
    """

    once: ClassVar = True
    mean: Annotated[FloatArray | None, Shape("d")] = None
    power: Power = 2


class EntrySum(Summed):
    """The sum of all entries of the site's table: 1 float. Reveals their mean."""

    total: Annotated[float, Shape(), Within(-ENTRY, ENTRY)]


class SumEntries(Request[EntrySum]):
    """Asks for what the mean of all entries follows from."""

    once: ClassVar = True


class EntrySquares(Summed):
    """The sum of all entries' squared distances to a number: 1 float. Reveals how large they are, all together."""

    squares: Annotated[float, Shape(), Within()]


class MeasureEntries(Request[EntrySquares]):
    """Asks for the squared distances of all entries to their mean."""

    once: ClassVar = True
    mean: Annotated[float, Shape()]


class PairSquares(Summed):
    """The squared distances, on the site's columns, of P pairs of rows: P floats, n / 2 or 5000 at most.

    Reveals of each row, which is in one pair at most, how far it is from one other; in the sum over the sites on all
    columns together, but a coordinator that looks at a site's own reply sees it there: of a site with one column, the
    entry of a row that it knows gives another's, but for a sign. No row is in two pairs, since from all distances the
    table itself would follow, up to a rotation; but where rows are aligned by ids, whose order is another in each run,
    so are the pairs, and each run shows one distance more of each row.
    """

    squares: Annotated[FloatArray, Shape("P"), Within()]


class MeasurePairs(Request[PairSquares]):
    """Asks for the partial squared distances of so many pairs of rows, the same at all sites and in all runs."""

    once: ClassVar = True
    largest: ClassVar = {"P": "pairs"}
    pairs: Annotated[int, Field(ge=1, le=PAIRS)]

    def known_dimensions(self) -> dict[str, int]:
        """Settle the number of pairs."""
        return {"P": self.pairs}


class RowGroups(Reply):
    """Means and variances of groups of 10 to 19 rows that lie together: 2 G d floats, and G sizes.

    Reveals where the site's rows are, ten at a time, and how far they spread there; the groups are the site's own
    choice, and the same whenever it is asked about the same table. Where tables are prepared, groups follow from the
    scales, which a coordinator tells: each run with other ones shows means of other groups.
    """

    means: Annotated[FloatArray, Shape("G_m", "d"), Within(-ENTRY, ENTRY)]
    variances: Annotated[FloatArray, Shape("G_m", "d"), Within()]
    sizes: Annotated[npt.NDArray[np.int64], Shape("G_m", dtype="int64"), Within(1)]


class DescribeGroups(Request[RowGroups]):
    """Asks for groups of rows, from which the distances between the rows of all sites are estimated."""

    once: ClassVar = True
    largest: ClassVar = {"G_m": "groups"}
    groups: Literal[128] = 128  # at most, since of so many rows there are no more: said for who reads a plan

    def check_reply(self, reply: RowGroups) -> None:
        """Check also that there are no more than asked."""
        super().check_reply(reply)
        if len(reply.sizes) > self.groups:
            raise ValueError(f"there are {len(reply.sizes)} groups, but {self.groups} at most were asked")


class WidthClient(KernelClient):
    """Answers what the rules of `fedkernel.kernel_width.widths` ask."""

    X: Table
    answers: ClassVar[Answers] = (
        SumColumns,
        MeasureSquares,
        SumEntries,
        MeasureEntries,
        MeasurePairs,
        DescribeGroups,
    )

    @staticmethod
    def table(X: TableLike, what: str) -> Table:
        """Return the rows as a table, which is read block by block."""
        return as_table(X, what)

    def _blocks(self) -> Iterator[Rows]:
        return (self.X.block(rows.start, rows.stop) for rows in row_blocks(self.X.shape[0]))

    def _moments(self) -> Moments:
        return moments_of_blocks(self._blocks(), self.X.shape[1])

    def sum_columns(self, ask: SumColumns) -> ColumnSums:
        """Add the rows up."""
        rows, mean, _ = self._moments()
        return ColumnSums(sums=rows * mean)

    def measure_squares(self, ask: MeasureSquares) -> Squares:
        """Add squared distances up; what rounding leaves of rows that are the same is none."""
        rows, mean, scatter = self._moments()
        if ask.mean is not None and len(ask.mean) != len(mean):
            raise ProtocolError(f"a mean of {len(ask.mean)} entries does not fit the site's {len(mean)} columns")
        if ask.mean is None and not scatter > rows * (100 * EPS) ** 2 * float(np.square(mean).sum()):
            return Squares(squares=0.0)
        if ask.power == 1:
            point = mean if ask.mean is None else ask.mean
            return Squares(squares=sum(deviations(block, point) for block in self._blocks()))
        if ask.mean is None:
            return Squares(squares=scatter)
        return Squares(squares=scatter + rows * float(np.square(mean - ask.mean).sum()))

    def sum_entries(self, ask: SumEntries) -> EntrySum:
        """Add the entries up."""
        rows, mean, _ = self._moments()
        return EntrySum(total=rows * float(mean.sum()))

    def measure_entries(self, ask: MeasureEntries) -> EntrySquares:
        """Add the entries' squared distances up."""
        rows, mean, scatter = self._moments()
        return EntrySquares(squares=scatter + rows * float(np.square(mean - ask.mean).sum()))

    def measure_pairs(self, ask: MeasurePairs) -> PairSquares:
        """Measure pairs without a row in common."""
        n = self.X.shape[0]
        if ask.pairs > n // 2:
            raise TellableError(
                f"{ask.pairs} pairs of {n} rows, but must be at most {n // 2}, with no row in two of them"
            )
        first, second = generator("pairs of rows", n).permutation(n)[: 2 * ask.pairs].reshape(2, -1)
        differences: Any = self.X.take(first) - self.X.take(second)
        squares = differences**2 if isinstance(differences, np.ndarray) else differences.multiply(differences)
        return PairSquares(squares=np.asarray(squares.sum(axis=1), dtype=np.float64).ravel())

    def describe_groups(self, ask: DescribeGroups) -> RowGroups:
        """Cut the rows into groups, or some of them where they are many."""
        n, d = self.X.shape
        if self.guards is not None and n < GROUP:
            raise TellableError(f"client {self.client} has {n} rows, but groups have at least {GROUP} (guard: groups)")
        some = grouped_rows(n, d)
        if some < n:
            positions = generator("rows in groups", n).choice(n, some, replace=False)
            rows: Any = self.X.take(np.sort(positions))
        else:
            rows = self.X.block(0, n)
        X = rows if isinstance(rows, np.ndarray) else rows.toarray()
        groups = row_groups(X)
        means = np.vstack([X[group].mean(axis=0) for group in groups])
        variances = np.vstack([X[group].var(axis=0) for group in groups])
        variances[variances <= np.square(100 * EPS * means)] = 0.0  # rounding of rows that are the same
        return RowGroups(means=means, variances=variances, sizes=np.array([len(group) for group in groups]))


def grouped_rows(n: int, d: int) -> int:
    """Return how many of n rows with d columns are put into groups."""
    return min(n, GROUPED, max(2 * GROUP, ENTRIES // d))


def count_groups(n: int) -> int:
    """Return how many groups there are of n rows."""
    return 1 if n < 2 * GROUP else count_groups(n // 2) + count_groups(n - n // 2)


def row_groups(X: FloatArray) -> list[npt.NDArray[np.int64]]:
    """Cut rows X (n, d) into groups of 10 to 19 that lie together; fewer than 10 rows are one group.

    Again and again into halves, by the direction in which they spread the most.

    Returns the rows' positions.
    """
    pending, groups = [np.arange(len(X))], []
    while pending:
        rows = pending.pop()
        if len(rows) < 2 * GROUP:
            groups.append(rows)
            continue
        Z = X[rows] - X[rows].mean(axis=0)
        Z /= float(np.abs(Z).max()) or 1.0  # whose squares are in range
        direction = Z[np.argmax(np.square(Z).sum(axis=1))]
        for _ in range(10):  # of the power method: about the leading direction is enough
            direction = Z.T @ (Z @ (direction / max(np.linalg.norm(direction), np.finfo(np.float64).tiny)))
        ordered = rows[np.argsort(Z @ direction, kind="stable")]
        pending += [ordered[len(rows) // 2 :], ordered[: len(rows) // 2]]
    return groups
