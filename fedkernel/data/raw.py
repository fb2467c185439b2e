"""Raw table of a site: cells may be missing and columns may be text, until `Prepare` prepares them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fedkernel.ground import AnyArray, FloatArray, InputError, Positions, listed, row_of_file

Texts = npt.NDArray[Any]
"""Column of text: objects, None for a missing cell."""


@dataclass(frozen=True)
class RawTable:
    """Raw table: named columns of one length, before any preparation.

    - `columns` (n,): in the file's order: float64 with NaN, or texts with None, for missing cells.
    - `title`: the table's name in error texts.
    - `ids`: one per row.
    - `labels` (n,): columns kept out of the table, as texts or None.
    - `places` (n,): each row's position in a file with names, 0 for the first row below them; None without such a file.
    - `header`: the file's row with the names, as a spreadsheet counts.
    """

    columns: Mapping[str, AnyArray]
    title: str = "the table"
    ids: tuple[str, ...] | None = None
    labels: Mapping[str, Texts] = field(default_factory=dict)
    places: Positions | None = None
    header: int = 1

    @classmethod
    def of_array(cls, X: FloatArray, names: Sequence[str] = (), title: str = "the table") -> Self:
        """Build a raw table from an array (n, d), with NaN for missing cells; default names are "0", "1", ..."""
        numbers = np.asarray(X, dtype=np.float64)
        known = names or [str(place) for place in range(numbers.shape[1])]
        return cls(dict(zip(known, numbers.T, strict=True)), title)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.columns)

    @property
    def rows(self) -> int:
        """Number of rows, n."""
        return len(next(iter(self.columns.values())))

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self.rows, len(self.columns)

    def take(self, positions: AnyArray) -> Self:
        """Return a table of the rows at given positions, in order, or of a mask (n,)."""
        places = np.flatnonzero(positions) if positions.dtype == bool else positions
        return replace(
            self,
            columns={name: column[places] for name, column in self.columns.items()},
            ids=None if self.ids is None else tuple(self.ids[place] for place in places),
            labels={name: column[places] for name, column in self.labels.items()},
            places=None if self.places is None else self.places[places],
        )

    def row(self, position: int) -> str:
        """Return a row's number in error texts, for a file as a spreadsheet counts."""
        if self.places is None:
            return f"row {position} (counted from 0)"
        return row_of_file(int(self.places[position]), self.header)

    def select(self, names: Sequence[str]) -> Self:
        """Return a table of the named columns, in this order; InputError if one is missing."""
        if missing := [name for name in names if name not in self.columns]:
            raise InputError(f"{self.title} has no column {missing[0]!r}; there are: {listed(self.names)}")
        return replace(self, columns={name: self.columns[name] for name in names})


def is_text(column: AnyArray) -> bool:
    """Return whether a column of a `RawTable` is text."""
    return column.dtype.kind == "O"


def missing_cells(column: AnyArray) -> npt.NDArray[np.bool_]:
    """Return a mask of a column's missing cells."""
    if is_text(column):
        return np.array([cell is None for cell in column], dtype=bool)
    return np.isnan(column)
