"""A site's raw table in a run that prepares it: what of it is used, and what it becomes."""

import json
from typing import NamedTuple

import numpy as np

from fedkernel.data import Preparation, Prepare, RawTable, is_text
from fedkernel.ground import AnyArray, FloatArray, InputError


class _Ready(NamedTuple):
    key: tuple[str, bytes | None]
    X: FloatArray


class TableToPrepare:
    """A raw table, the rows that can be used of it, and the prepared table that was made of it last.

    Beside the raw table there is one prepared one in memory, which is made anew when another run prepares otherwise.

    `new`: rows that came after training. `raw`: without the rows that are dropped. `kept` (n,): positions of its rows;
    None: all. Raises InputError: an empty cell that may not be, a number that is not finite, no row that can be used;
    see `Prepare`.
    """

    def __init__(self, raw: RawTable, prepare: Prepare, new: RawTable | None = None) -> None:
        for table in (raw, new):
            if table is not None:
                _check_finite(table)
        whole = prepare.whole_rows(raw)
        if not whole.any():
            raise InputError(f"{raw.what} has no row without an empty cell; allowed: at least one")
        self.prepare, self.new = prepare, new
        self.kept: AnyArray | None = None if whole.all() else np.flatnonzero(whole)
        self.raw = raw if self.kept is None else raw.take(self.kept)
        self._ready: _Ready | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the raw table."""
        return self.raw.shape

    @property
    def what(self) -> str:
        """How error texts call it."""
        return self.raw.what

    def rows(self, positions: AnyArray | None) -> RawTable:
        """Return the raw rows at these positions of those that are used; all with None."""
        return self.raw if positions is None else self.raw.take(positions)

    def prepared(self, preparation: str, positions: AnyArray | None = None) -> FloatArray:
        """Return what a method gets of the rows at these positions, by a `Preparation` as `to_text` wrote it."""
        key = preparation, None if positions is None else positions.tobytes()
        ready = self._ready
        if ready is None or ready.key != key:
            self._ready = ready = _Ready(key, from_text(preparation).apply(self.rows(positions))[0])
        return ready.X

    def prepared_new(self, preparation: str) -> FloatArray | None:
        """Return what a method gets of the new rows, of which none is dropped; None where there are none."""
        if self.new is None:
            return None
        X, positions = from_text(preparation).apply(self.new)
        if len(positions) < self.new.rows:
            raise InputError(
                f"{self.new.what} has {self.new.rows - len(positions)} rows with empty cells; allowed: none"
            )
        return X


def to_text(preparation: Preparation) -> str:
    """Return a preparation as JSON, which has every bit of its numbers; `from_text` reads it."""
    return json.dumps(preparation.to_table())


def from_text(text: str) -> Preparation:
    """Read what `to_text` wrote."""
    return Preparation.from_table(json.loads(text))


def _check_finite(raw: RawTable) -> None:
    for name, column in raw.columns.items():
        if not is_text(column) and (infinite := np.isinf(column)).any():
            raise InputError(
                f"{raw.what}: {raw.row(int(np.argmax(infinite)))}, column {name!r} is not finite; allowed: "
                "finite numbers and empty cells"
            )
