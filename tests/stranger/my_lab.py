"""A pair of somebody else's: the means of columns whose rows are divided among the sites.

Nothing of fedkernel's names this module. `.ci/installed` copies the folder to where there is no checkout and runs it
with the wheel.
"""

from typing import Annotated

from fedkernel import FloatArray, KernelClient, KernelStrategy, Reply, Request, Shape, to_all


class Sums(Reply):
    """Reveals the sums of the site's columns and how many rows it has: d + 1 floats."""

    values: Annotated[FloatArray, Shape("d")]
    rows: float


class SumColumns(Request[Sums]):
    """Asks for the sums of the site's columns."""


class ColumnSumsClient(KernelClient):
    """Adds the site's rows up."""

    def sum_columns(self, ask: SumColumns) -> Sums:
        """Return the sums of the columns."""
        return Sums(values=self.X.sum(axis=0), rows=float(len(self.X)))


class ColumnMeans(KernelStrategy[FloatArray]):
    """Divides the sum of the sites' sums by the number of all rows: one round."""

    client, partition = ColumnSumsClient, "horizontal"

    def protocol(self, run):
        """One round."""
        replies = yield from to_all(SumColumns())
        return sum(reply.values for reply in replies) / sum(reply.rows for reply in replies)
