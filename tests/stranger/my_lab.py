"""A pair of somebody else's: the means of columns whose rows are divided among the sites.

Nothing of fedkernel's names this module. `.ci/installed` copies the folder to where there is no checkout and runs it
with the wheel.
"""

from typing import Annotated

from fedkernel import FloatArray, KernelClient, KernelStrategy, Request, Shape, Summed, to_sum


class Sums(Summed):
    """Reveals the sums of the site's columns: d floats."""

    values: Annotated[FloatArray, Shape("d")]


class SumColumns(Request[Sums]):
    """Asks for the sums of the site's columns."""


class ColumnSumsClient(KernelClient):
    """Adds the site's rows up."""

    answers = (SumColumns,)

    def sum_columns(self, ask: SumColumns) -> Sums:
        """Return the sums of the columns."""
        return Sums(values=self.X.sum(axis=0))


class ColumnMeans(KernelStrategy[FloatArray]):
    """Divides the sum of the sites' sums by the number of all rows: one round."""

    client, partition = ColumnSumsClient, "horizontal"

    def protocol(self, run):
        """One round."""
        total = yield from to_sum(SumColumns())
        return total.values / run.rows
