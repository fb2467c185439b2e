"""Requests and replies of the joint preparation of raw tables.

All are about the p numeric columns, in the agreed order, after clipping and logarithms: `Prepare` names these columns,
and the site knows it from the run, not from a message.
"""

from collections.abc import Mapping
from typing import Annotated

import numpy as np
import numpy.typing as npt
import pydantic
from pydantic import Field

from fedkernel.ground import FloatArray
from fedkernel.protocol import MAX_ENTRY, MAX_NUMBER, SEMIDEFINITE, Count, Reply, Request, Shape, Size, Summed, Within

Positions = npt.NDArray[np.int32]

BINS = 32  # number of bins of a histogram

EDGES = BINS + 1


class Cells(Summed):
    """Number and sum of each numeric column's values.

    Reveals, of each column of numbers, how many cells of all sites hold a value, and these values' sum: 2 p floats. A
    reader of each site's own numbers has the value itself if a column has one there, so a site's guards refuse columns
    with some values, but fewer than 5. `counts`, `sums` (p,).
    """

    counts: Annotated[FloatArray, Shape("p", empty=True), Within(whole=True)]
    sums: Annotated[FloatArray, Shape("p", empty=True), Within(-MAX_ENTRY, MAX_ENTRY)]


class CountCells(Request[Cells]):
    """Request for the counts and sums of the numeric columns, in the order of `names`."""

    once = True

    names: tuple[str, ...]

    def known_dimensions(self) -> dict[str, int]:
        """Return the number p of numeric columns."""
        return {"p": len(self.names)}

    def check_table(self, reply: Cells, sizes: Mapping[str, int]) -> None:
        """Check also that no column has more values than the table has rows."""
        super().check_table(reply, sizes)
        check_counts(reply.counts, sizes["n_m"])


def check_counts(counts: FloatArray, rows: int) -> None:
    """Raise ValueError if a column's count exceeds the number of rows."""
    if (most := float(counts.max(initial=0.0))) > rows:
        raise ValueError(f"counts = {most:.6g} in a column, but must be at most {rows}, the number of rows")


class Squares(Summed):
    """Sums of each numeric column's deviations from a center, and of their squares.

    Reveals, of each column of numbers, the sums of all sites' distances from a center and of their squares: 2 p floats.
    With the counts they give mean and standard deviation. The first sum is about 0: it corrects the rounding of the
    mean. `deviations`, `squares` (p,).
    """

    deviations: Annotated[FloatArray, Shape("p", empty=True), Within(-MAX_ENTRY, MAX_ENTRY)]
    squares: Annotated[FloatArray, Shape("p", empty=True), Within(0.0, MAX_ENTRY**2)]


class SumSquares(Request[Squares]):
    """Request for each column's sums of deviations and squares about `center` (p,), the mean over all sites."""

    once = True

    names: tuple[str, ...]
    center: Annotated[FloatArray, Shape("p", empty=True)]

    def check_table(self, reply: Squares, sizes: Mapping[str, int]) -> None:
        """Check also that (sum x)^2 <= n sum x^2."""
        super().check_table(reply, sizes)
        rows, least = sizes["n_m"], float(np.finfo(np.float64).tiny) ** 0.5  # squares of smaller numbers are lost
        most = np.sqrt(rows * reply.squares) + rows * least
        if (over := np.abs(reply.deviations) > (1 + SEMIDEFINITE) * most).any():
            position = int(over.argmax())
            raise ValueError(
                f"deviations = {reply.deviations[position]:.6g}, but must be at most {most[position]:.6g} for {rows} "
                f"rows with squares = {reply.squares[position]:.6g}"
            )


class Differences(Reply):
    """Columns of a site that differ from all other sites' by more than chance explains, with three ratios each.

    Reveals which columns differ from all other sites' by more than chance explains, and of each of these three ratios:
    3 floats, of two digits each. A site whose columns are like the others' sends none. `columns` (f_m,): their places.
    `means`, `spreads` (f_m,): mean and standard deviation here, divided by the others'. `gains` (f_m,): nats for each
    cell by which two normal distributions, one for this site, fit better than one for all.
    """

    columns: Annotated[Positions, Shape("f_m", dtype="int32", empty=True)]
    means: Annotated[FloatArray, Shape("f_m", empty=True)]
    spreads: Annotated[FloatArray, Shape("f_m", empty=True)]
    gains: Annotated[FloatArray, Shape("f_m", empty=True)]


class CompareColumns(Request[Differences]):
    """Request to compare a site's columns with all other sites', by all sites' counts and sums (p,) about a center."""

    once = True

    names: tuple[str, ...]
    sites: Count
    center: Annotated[FloatArray, Shape("p", empty=True)]
    counts: Annotated[FloatArray, Shape("p", empty=True)]
    deviations: Annotated[FloatArray, Shape("p", empty=True)]
    squares: Annotated[FloatArray, Shape("p", empty=True), Within()]

    def check_reply(self, reply: Differences) -> None:
        """Check also that the columns are distinct positions below p."""
        super().check_reply(reply)
        positions, p = reply.columns.tolist(), len(self.names)
        if len(set(positions)) < len(positions) or not all(0 <= position < p for position in positions):
            raise ValueError(f"columns = {positions}, but must be distinct positions below {p}")


class CellsBelow(Summed):
    """Number of each numeric column's values that are at most each of its thresholds.

    Reveals, of each column of numbers, how many values of all sites are at most each of some thresholds: p b floats. A
    reader who chooses the thresholds, and sees each site's counts, learns the places of a column's values: all of them
    as exactly as the first thresholds divide its range, and those in one bin for each quantile as exactly as 32^9 parts
    of it do. A site's guards let each request divide, for each quantile, one bin of the last. `counts` (p, b).
    """

    counts: Annotated[FloatArray, Shape("p", "b", empty=True), Within(whole=True)]


class CountBelow(Request[CellsBelow]):
    """Request for the number of each column's values that are at most each of its `thresholds` (p, b)."""

    names: tuple[str, ...]
    thresholds: Annotated[FloatArray, Shape("p", "b", empty=True)]

    @pydantic.model_validator(mode="after")
    def _has_thresholds_for_each_column(self) -> "CountBelow":
        if len(self.thresholds) != len(self.names):
            raise ValueError(f"thresholds has {len(self.thresholds)} rows, but there are {len(self.names)} names")
        return self

    def check_reply(self, reply: CellsBelow) -> None:
        """Check also that counts do not fall as thresholds rise."""
        super().check_reply(reply)
        order = np.argsort(self.thresholds, axis=1)
        if (np.diff(np.take_along_axis(reply.counts, order, axis=1), axis=1) < 0).any():
            raise ValueError("counts must not fall as the thresholds rise")

    def check_table(self, reply: CellsBelow, sizes: Mapping[str, int]) -> None:
        """Check also that no column has more values than the table has rows."""
        super().check_table(reply, sizes)
        check_counts(reply.counts, sizes["n_m"])


class Extremes(Reply):
    """Least and greatest value of each numeric column.

    Reveals the least and the greatest value of each column of numbers at the site, each that of a row: 2 p floats.
    `least`, `greatest` (p,): the largest number of a message and its negative if the site has no value.
    """

    least: Annotated[FloatArray, Shape("p", empty=True)]
    greatest: Annotated[FloatArray, Shape("p", empty=True)]


class FindExtremes(Request[Extremes]):
    """Request for the least and the greatest value of each numeric column."""

    once = True

    names: tuple[str, ...]

    def known_dimensions(self) -> dict[str, int]:
        """Return the number p of numeric columns."""
        return {"p": len(self.names)}

    def check_reply(self, reply: Extremes) -> None:
        """Check also that no least value is above the greatest."""
        super().check_reply(reply)
        no_value = (reply.least == MAX_NUMBER) & (reply.greatest == -MAX_NUMBER)
        if (over := (reply.least > reply.greatest) & ~no_value).any():
            position = int(over.argmax())
            least, greatest = reply.least[position], reply.greatest[position]
            raise ValueError(f"least = {least:.6g}, but must be at most greatest = {greatest:.6g}")


class Prepared(Reply):
    """Size of the prepared table. Reveals its numbers of rows and columns, and nothing else."""

    rows: Size
    columns: Annotated[Size, Field(ge=1)]


class TakePreparation(Request[Prepared]):
    """Request to prepare the raw table by the joint preparation.

    A site cannot check that center and scale follow from all sites' sums, unless the options state them. A coordinator
    that chooses the scales can make one column count alone, and learns of that column what the method reveals of a
    table with no other. One that chooses other fills in two runs learns from their difference of the filled rows alone,
    if sums of products leave. `names`: of all columns, in their order. `flagged`: the columns that get an indicator
    column. `fill`, `center`, `scale` (p,): see `fedkernel.data.Preparation`.
    """

    once = True

    names: Annotated[tuple[str, ...], Field(min_length=1)]
    flagged: tuple[str, ...] = ()
    fill: Annotated[FloatArray, Shape("p", empty=True)]
    center: Annotated[FloatArray, Shape("p", empty=True)]
    scale: Annotated[FloatArray, Shape("p", empty=True)]

    @pydantic.model_validator(mode="after")
    def _has_positive_scale(self) -> "TakePreparation":
        if not (self.scale > 0).all():
            raise ValueError("scale must be greater than 0")
        return self

    def sensitivity(self, radius: float) -> Mapping[str, float]:
        """Return no array, since the reply needs no noise. It depends on rows only by their number, which is public."""
        return {}


class PrepareOwn(Request[Prepared]):
    """Request to a site with columns of its own to prepare them by its own statistics."""

    once = True
