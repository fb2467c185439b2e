"""What is asked of a site's raw table before a method sees it, and what leaves the site then.

All of it is about the columns of numbers, p of them, in the order that is agreed on, once clipped and their logarithms
taken: `Prepare` says of what, and the site knows that from the run that it takes part in, not from a message.
"""

from collections.abc import Mapping
from typing import Annotated

import numpy as np
import numpy.typing as npt
import pydantic
from pydantic import Field

from fedkernel.ground import FloatArray
from fedkernel.protocol import ENTRY, LARGEST, SEMIDEFINITE, Count, Reply, Request, Shape, Size, Summed, Within

Places = npt.NDArray[np.int32]

BINS = 32
"""Of a histogram: into how many parts one bin of the last is divided."""

EDGES = BINS + 1


class Cells(Summed):
    """Reveals, of each column of numbers, how many cells of all sites hold a value, and these values' sum: 2 p floats.

    Who sees each site's own has the value itself where a column has one there, so a site's guards refuse columns with
    some values, but fewer than 5.

    `counts`, `sums` (p,).
    """

    counts: Annotated[FloatArray, Shape("p", empty=True), Within(whole=True)]
    sums: Annotated[FloatArray, Shape("p", empty=True), Within(-ENTRY, ENTRY)]


class CountCells(Request[Cells]):
    """Asks for counts and sums of the columns of numbers, by their names and in this order."""

    once = True

    names: tuple[str, ...]

    def known_dimensions(self) -> dict[str, int]:
        """Return how many columns there are."""
        return {"p": len(self.names)}

    def check_table(self, reply: Cells, sizes: Mapping[str, int]) -> None:
        """Check also that no column has more values than the table has rows."""
        super().check_table(reply, sizes)
        check_counts(reply.counts, sizes["n_m"])


def check_counts(counts: FloatArray, rows: int) -> None:
    """Raise ValueError if more cells were counted in a column than there are rows."""
    if (most := float(counts.max(initial=0.0))) > rows:
        raise ValueError(f"counts has {most:.6g} cells in a column, but there are {rows} rows")


class Squares(Summed):
    """Reveals, of each column of numbers, the sums of all sites' distances from a center and of their squares.

    With the counts these tell mean and standard deviation: 2 p floats. The first sum is about 0: it puts right what
    rounding has done to the mean.

    `deviations`, `squares` (p,).
    """

    deviations: Annotated[FloatArray, Shape("p", empty=True), Within(-ENTRY, ENTRY)]
    squares: Annotated[FloatArray, Shape("p", empty=True), Within(0.0, ENTRY**2)]


class SumSquares(Request[Squares]):
    """Asks for the sums of squares about a center (p,), the mean over all sites."""

    once = True

    names: tuple[str, ...]
    center: Annotated[FloatArray, Shape("p", empty=True)]

    def check_table(self, reply: Squares, sizes: Mapping[str, int]) -> None:
        """Check also that the distances of so many rows have such squares: (sum x)^2 <= n sum x^2."""
        super().check_table(reply, sizes)
        rows, least = sizes["n_m"], float(np.finfo(np.float64).tiny) ** 0.5  # of smaller numbers, squares are lost
        most = np.sqrt(rows * reply.squares) + rows * least
        if (over := np.abs(reply.deviations) > (1 + SEMIDEFINITE) * most).any():
            place = int(over.argmax())
            raise ValueError(
                f"deviations of {rows} rows with squares of {reply.squares[place]:.6g} are {most[place]:.6g} "
                f"at most, not {reply.deviations[place]:.6g}"
            )


class Differences(Reply):
    """Reveals which columns differ from all other sites' by more than chance explains, and of these three ratios.

    A site whose columns are like the others' sends nothing; else 3 floats for each that is not, of two digits each.

    `columns` (f_m,): their places. `means`, `spreads` (f_m,): mean and standard deviation here, divided by the others'.
    `gains` (f_m,): how much better two normal distributions fit, one for this site, than one for all: in nats for each
    cell.
    """

    columns: Annotated[Places, Shape("f_m", dtype="int32", empty=True)]
    means: Annotated[FloatArray, Shape("f_m", empty=True)]
    spreads: Annotated[FloatArray, Shape("f_m", empty=True)]
    gains: Annotated[FloatArray, Shape("f_m", empty=True)]


class CompareColumns(Request[Differences]):
    """Tells the sums of all sites, about a center, so that each compares its own columns with those of the others.

    `center`, `counts`, `deviations`, `squares` (p,).
    """

    once = True

    names: tuple[str, ...]
    sites: Count
    center: Annotated[FloatArray, Shape("p", empty=True)]
    counts: Annotated[FloatArray, Shape("p", empty=True)]
    deviations: Annotated[FloatArray, Shape("p", empty=True)]
    squares: Annotated[FloatArray, Shape("p", empty=True), Within()]

    def check_reply(self, reply: Differences) -> None:
        """Check also that the columns are of the table, and no two of them the same."""
        super().check_reply(reply)
        places = reply.columns
        if len(set(places.tolist())) < len(places) or (places < 0).any() or (places >= len(self.names)).any():
            raise ValueError(f"columns = {places.tolist()}, but must be different ones of {len(self.names)}")


class CellsBelow(Summed):
    """Reveals, of each column of numbers, how many values of all sites are at most each of some thresholds: p b floats.

    Who chooses the thresholds, and sees each site's counts, learns where the column's values are as exactly as the
    first of them divide its range, and as exactly as 32^9 parts of it do the values in one bin for each quantile: a
    site's guards let each request divide, for each quantile, one bin of the last.

    `counts` (p, b).
    """

    counts: Annotated[FloatArray, Shape("p", "b", empty=True), Within(whole=True)]


class CountBelow(Request[CellsBelow]):
    """Asks how many values of each column are at most each of its thresholds (p, b)."""

    names: tuple[str, ...]
    thresholds: Annotated[FloatArray, Shape("p", "b", empty=True)]

    def check_reply(self, reply: CellsBelow) -> None:
        """Check also that no fewer values are below a larger threshold."""
        super().check_reply(reply)
        order = np.argsort(self.thresholds, axis=1)
        if (np.diff(np.take_along_axis(reply.counts, order, axis=1), axis=1) < 0).any():
            raise ValueError("counts must not fall where the thresholds rise")

    def check_table(self, reply: CellsBelow, sizes: Mapping[str, int]) -> None:
        """Check also that no column has more values than the table has rows."""
        super().check_table(reply, sizes)
        check_counts(reply.counts, sizes["n_m"])


class Extremes(Reply):
    """Reveals the least and the greatest value of each column of numbers at the site, each that of a row: 2 p floats.

    `least`, `greatest` (p,): the largest number of a message and its negative where the site has no value.
    """

    least: Annotated[FloatArray, Shape("p", empty=True)]
    greatest: Annotated[FloatArray, Shape("p", empty=True)]


class FindExtremes(Request[Extremes]):
    """Asks for the least and the greatest value of each column."""

    once = True

    names: tuple[str, ...]

    def known_dimensions(self) -> dict[str, int]:
        """Return how many columns there are."""
        return {"p": len(self.names)}

    def check_reply(self, reply: Extremes) -> None:
        """Check also that no least value is above the greatest."""
        super().check_reply(reply)
        no_value = (reply.least == LARGEST) & (reply.greatest == -LARGEST)
        if (over := (reply.least > reply.greatest) & ~no_value).any():
            place = int(over.argmax())
            least, greatest = reply.least[place], reply.greatest[place]
            raise ValueError(f"least must be at most greatest, but are {least:.6g} and {greatest:.6g}")


class Prepared(Reply):
    """How many rows and columns a site works with from now on: reveals nothing else."""

    rows: Size
    columns: Annotated[Size, Field(ge=1)]


class TakePreparation(Request[Prepared]):
    """Tells what the raw table becomes from now on.

    A site cannot see whether center and scale are what all sites' sums come to: who chooses the scales on purpose makes
    one column count and the others not, and learns of that column what the method tells of a table with no other.

    `names`: of all columns, in their order. `flagged`: those that an indicator stands beside. `fill`, `center`, `scale`
    (p,): see `fedkernel.data.Preparation`.
    """

    once = True

    names: Annotated[tuple[str, ...], Field(min_length=1)]
    flagged: tuple[str, ...] = ()
    fill: Annotated[FloatArray, Shape("p", empty=True)]
    center: Annotated[FloatArray, Shape("p", empty=True)]
    scale: Annotated[FloatArray, Shape("p", empty=True)]

    @pydantic.model_validator(mode="after")
    def _divides(self) -> "TakePreparation":
        if not (self.scale > 0).all():
            raise ValueError("scale must be greater than 0")
        return self


class PrepareOwn(Request[Prepared]):
    """Asks a site that has columns of its own to prepare them by itself."""

    once = True
