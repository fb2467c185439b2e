"""A table as a site's file has it: cells may be missing, and columns may be of text. What it becomes: see `Prepare`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fedkernel.ground import AnyArray, FloatArray, InputError, Positions, row_of_file, some

Texts = npt.NDArray[Any]
"""Objects: texts, and None where one is missing."""


@dataclass(frozen=True)
class RawTable:
    """Named columns of one length, before anything is done about what is missing or no number.

    - `columns` (n,): in the file's order: float64, with NaN where a cell is missing, or objects: texts, and None where
      one is.
    - `what`: how error texts call it.
    - `ids`: what each row is known by.
    - `labels` (n,): columns that are kept out of the table, as texts or None.
    - `places` (n,): where a file with names has each row, 0 being the first below them; None: the table is of no such
      file.
    - `header`: the row of such a file that has the names, as a spreadsheet counts.
    """

    columns: Mapping[str, AnyArray]
    what: str = "the table"
    ids: tuple[str, ...] | None = None
    labels: Mapping[str, Texts] = field(default_factory=dict)
    places: Positions | None = None
    header: int = 1

    @classmethod
    def of_array(cls, X: FloatArray, names: Sequence[str] = (), what: str = "the table") -> Self:
        """Return the columns of an array (n, d), NaN where a cell is missing; without names they are "0", "1", ..."""
        numbers = np.asarray(X, dtype=np.float64)
        known = names or [str(place) for place in range(numbers.shape[1])]
        return cls(dict(zip(known, numbers.T, strict=True)), what)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.columns)

    @property
    def rows(self) -> int:
        """How many rows there are, n."""
        return len(next(iter(self.columns.values())))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.rows, len(self.columns)

    def take(self, positions: AnyArray) -> Self:
        """Return the rows at these positions, or where a mask (n,) is true, in that order."""
        places = np.flatnonzero(positions) if positions.dtype == bool else positions
        return replace(
            self,
            columns={name: column[places] for name, column in self.columns.items()},
            ids=None if self.ids is None else tuple(self.ids[place] for place in places),
            labels={name: column[places] for name, column in self.labels.items()},
            places=None if self.places is None else self.places[places],
        )

    def row(self, position: int) -> str:
        """Return what texts call a row: of a file as a spreadsheet does."""
        if self.places is None:
            return f"row {position} (counted from 0)"
        return row_of_file(int(self.places[position]), self.header)

    def select(self, names: Sequence[str]) -> Self:
        """Return the columns of these names, in this order; others are left out.

        Raises InputError if one is missing; the text says which.
        """
        if missing := [name for name in names if name not in self.columns]:
            raise InputError(f"{self.what} has no column {missing[0]!r}; there are: {some(self.names)}")
        return replace(self, columns={name: self.columns[name] for name in names})


def is_text(column: AnyArray) -> bool:
    """Whether a column of a `RawTable` is of text."""
    return column.dtype.kind == "O"


def missing_in(column: AnyArray) -> npt.NDArray[np.bool_]:
    """Return a mask of the cells that are missing."""
    if is_text(column):
        return np.array([cell is None for cell in column], dtype=bool)
    return np.isnan(column)
