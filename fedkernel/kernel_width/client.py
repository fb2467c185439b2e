"""Client, requests and replies to compute kernel widths by rules, before a strategy's own protocol.

This client answers for any method: a run's plan has its requests first, and a site checks them against that plan, its
policy and its guards like all others. Each is answered once in a run. Its draws depend on the size of the
table only, and not on the run's seed: a coordinator could try seeds, and each of a study's runs would draw other rows.
"""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedkernel.data import Table, TableLike, as_table
from fedkernel.ground import EPS, FloatArray, ProtocolError, Rows, ShareableError, generator, row_blocks
from fedkernel.numerics import Moments, deviations, moments_of_blocks, row_groups
from fedkernel.protocol import MAX_ENTRY, Answers, KernelClient, Reply, Request, Shape, Summed, Within

MOST_PAIRS = 5000  # most pairs of rows whose distances are measured
LEAST_GROUP_ROWS = 10  # fewest rows of a group

MOST_GROUPED_ROWS, MOST_GROUPED_ENTRIES = 2000, 20_000_000  # most rows that are put into groups, and their entries


class ColumnSums(Summed):
    """Sum of the site's rows: d floats. Reveals the site's mean row."""

    sums: Annotated[FloatArray, Shape("d"), Within(-MAX_ENTRY, MAX_ENTRY)]


class SumColumns(Request[ColumnSums]):
    """Request for the sum of a site's rows, to compute the mean of all rows."""

    once: ClassVar = True


Power = Literal[1, 2]
"""Power of the summed differences: 1, absolute values, for a Laplacian kernel; 2, squared distances."""


class RowSquares(Summed):
    """Sum of the rows' squared distances, or of their absolute differences, from a point: 1 float.

    Reveals how far apart the rows are, all together.
    """

    squares: Annotated[float, Shape(), Within()]


class MeasureSquares(Request[RowSquares]):
    """Request for the sum of rows' squared differences from `mean`, by default the site's own. `power` 1: absolute."""

    once: ClassVar = True
    mean: Annotated[FloatArray | None, Shape("d")] = None
    power: Power = 2


class EntrySum(Summed):
    """Sum of all entries of the site's table: 1 float. Reveals the mean of the entries."""

    total: Annotated[float, Shape(), Within(-MAX_ENTRY, MAX_ENTRY)]


class SumEntries(Request[EntrySum]):
    """Request for the sum of a site's entries, to compute the mean of all entries."""

    once: ClassVar = True


class EntrySquares(Summed):
    """Sum of squared differences between all table entries and a given mean: 1 float. Reveals the entries' size."""

    squares: Annotated[float, Shape(), Within()]


class MeasureEntries(Request[EntrySquares]):
    """Request for the sum of squared differences between all table entries and `mean`."""

    once: ClassVar = True
    mean: Annotated[float, Shape()]


class PairSquares(Summed):
    """Squared distances of P pairs of rows, on the site's columns: P floats, at most n / 2 and 5000.

    Reveals of each row, which is in one pair at most, how far it is from one other. The sum over the sites covers all
    columns together, but a coordinator that reads a site's own reply sees its part: of a site with one column, the
    entry of a known row gives another's, but for a sign. No row is in two pairs, since from all distances the table
    itself would follow, up to a rotation. If rows are aligned by ids, their order and so the pairs differ from run to
    run, and each run shows one distance more of each row.
    """

    squares: Annotated[FloatArray, Shape("P"), Within()]


class MeasurePairs(Request[PairSquares]):
    """Request for the squared distances of pairs of rows. The pairs are the same at all sites and in all runs."""

    once: ClassVar = True
    largest: ClassVar = {"P": "pairs"}
    pairs: Annotated[int, Field(ge=1, le=MOST_PAIRS)]

    def known_dimensions(self) -> dict[str, int]:
        """Return the number P of pairs of rows."""
        return {"P": self.pairs}


class RowGroups(Reply):
    """Means and variances of groups of 10 to 19 neighbouring rows: 2 G d floats, and G sizes.

    Reveals where the site's rows are, ten at a time, and how far they spread there. The groups are the site's own
    choice, and the same at every request about the same table. If tables are prepared, groups follow from the
    coordinator's scales: each run with other scales shows means of other groups.
    """

    means: Annotated[FloatArray, Shape("G_m", "d"), Within(-MAX_ENTRY, MAX_ENTRY)]
    variances: Annotated[FloatArray, Shape("G_m", "d"), Within()]
    sizes: Annotated[npt.NDArray[np.int64], Shape("G_m", dtype="int64"), Within(1)]


class DescribeGroups(Request[RowGroups]):
    """Request for groups of rows, to estimate the median distance between the rows of all sites."""

    once: ClassVar = True
    largest: ClassVar = {"G_m": "groups"}
    groups: Literal[128] = 128  # the most groups of so many rows, for readers of a plan

    def check_reply(self, reply: RowGroups) -> None:
        """Check also that at most the requested groups are sent."""
        super().check_reply(reply)
        if len(reply.sizes) > self.groups:
            raise ValueError(f"{len(reply.sizes)} groups, but must be at most {self.groups}")


class WidthClient(KernelClient):
    """Client that answers the requests for rule-based kernel widths (`fedkernel.kernel_width.width_rounds`)."""

    X: Table
    answers: ClassVar[Answers] = (SumColumns, MeasureSquares, SumEntries, MeasureEntries, MeasurePairs, DescribeGroups)

    @staticmethod
    def table(X: TableLike, what: str) -> Table:
        """Convert the rows to a table that is read block by block."""
        return as_table(X, what)

    def _blocks(self) -> Iterator[Rows]:
        return (self.X.block(rows.start, rows.stop) for rows in row_blocks(self.X.shape[0]))

    def _moments(self) -> Moments:
        return moments_of_blocks(self._blocks(), self.X.shape[1])

    def sum_columns(self, ask: SumColumns) -> ColumnSums:
        """Sum the rows of the table."""
        rows, mean, _ = self._moments()
        return ColumnSums(sums=rows * mean)

    def measure_squares(self, ask: MeasureSquares) -> RowSquares:
        """Sum the rows' squared distances or absolute differences; identical rows give exactly 0."""
        rows, mean, scatter = self._moments()
        if ask.mean is not None and len(ask.mean) != len(mean):
            raise ProtocolError(f"mean has {len(ask.mean)} entries, but the site has {len(mean)} columns")
        if ask.mean is None and not scatter > rows * (100 * EPS) ** 2 * float(np.square(mean).sum()):
            return RowSquares(squares=0.0)
        if ask.power == 1:
            point = mean if ask.mean is None else ask.mean
            return RowSquares(squares=sum(deviations(block, point) for block in self._blocks()))
        if ask.mean is None:
            return RowSquares(squares=scatter)
        return RowSquares(squares=scatter + rows * float(np.square(mean - ask.mean).sum()))

    def sum_entries(self, ask: SumEntries) -> EntrySum:
        """Sum the entries of the table."""
        rows, mean, _ = self._moments()
        return EntrySum(total=rows * float(mean.sum()))

    def measure_entries(self, ask: MeasureEntries) -> EntrySquares:
        """Sum the squared differences of the table's entries from a mean."""
        rows, mean, scatter = self._moments()
        return EntrySquares(squares=scatter + rows * float(np.square(mean - ask.mean).sum()))

    def measure_pairs(self, ask: MeasurePairs) -> PairSquares:
        """Measure the squared distances of random pairs of rows, with no row in two pairs."""
        n = self.X.shape[0]
        if ask.pairs > n // 2:
            raise ShareableError(f"pairs = {ask.pairs}, but must be at most {n // 2} for {n} rows, each in one pair")
        first, second = generator("pairs of rows", n).permutation(n)[: 2 * ask.pairs].reshape(2, -1)
        differences: Any = self.X.take(first) - self.X.take(second)
        squares = differences**2 if isinstance(differences, np.ndarray) else differences.multiply(differences)
        return PairSquares(squares=np.asarray(squares.sum(axis=1), dtype=np.float64).ravel())

    def describe_groups(self, ask: DescribeGroups) -> RowGroups:
        """Group neighbouring rows (a sample, if there are many), and return the groups' means and variances."""
        n, d = self.X.shape
        if self.guards is not None and n < LEAST_GROUP_ROWS:
            least = f"groups have at least {LEAST_GROUP_ROWS} (guard: groups)"
            raise ShareableError(f"client {self.client} has {n} rows, but {least}")
        some = grouped_rows(n, d)
        if some < n:
            positions = generator("rows in groups", n).choice(n, some, replace=False)
            rows: Any = self.X.take(np.sort(positions))
        else:
            rows = self.X.block(0, n)
        X = rows if isinstance(rows, np.ndarray) else rows.toarray()
        groups = row_groups(X, LEAST_GROUP_ROWS)
        means = np.vstack([X[group].mean(axis=0) for group in groups])
        variances = np.vstack([X[group].var(axis=0) for group in groups])
        variances[variances <= np.square(100 * EPS * means)] = 0.0  # rounding of equal rows
        return RowGroups(means=means, variances=variances, sizes=np.array([len(group) for group in groups]))


def grouped_rows(n: int, d: int) -> int:
    """Return the number of rows that are put into groups, of n rows with d columns."""
    return min(n, MOST_GROUPED_ROWS, max(2 * LEAST_GROUP_ROWS, MOST_GROUPED_ENTRIES // d))


def count_groups(n: int) -> int:
    """Return the number of groups of `LEAST_GROUP_ROWS` or more that `row_groups` makes of n rows."""
    return 1 if n < 2 * LEAST_GROUP_ROWS else count_groups(n // 2) + count_groups(n - n // 2)
