"""Client of joint data preparation, which answers with counts and sums of a raw table and then prepares it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedkernel.data import Preparation, Prepare, RawTable, is_text
from fedkernel.ground import EPS, FloatArray, InputError, OwnFileError, ShareableError
from fedkernel.preparing.messages import (
    EDGES,
    Cells,
    CellsBelow,
    CompareColumns,
    CountBelow,
    CountCells,
    Differences,
    Extremes,
    FindExtremes,
    Prepared,
    PrepareOwn,
    Squares,
    SumSquares,
    TakePreparation,
)
from fedkernel.preparing.scaling import QUARTILES, fitted, stated
from fedkernel.preparing.site_differences import differences, site_sentence
from fedkernel.protocol import MAX_NUMBER, KernelClient, State

log = logging.getLogger(__name__)

MOST_RANGES = 10
"""Largest distance of a fill from a column's own values, in ranges of these: sites may differ by some."""


@dataclass(frozen=True)
class MedianBins(State):
    """Last thresholds (p, 1, b) of the search for medians, stored by sites with guards."""

    edges: FloatArray


@dataclass(frozen=True)
class QuartileBins(State):
    """Last thresholds (p, 3, b) of the search for quartiles, stored by sites with guards."""

    edges: FloatArray


class PrepareClient(KernelClient):
    """Client that answers for a raw table and then prepares it. Only sums leave, and replies that the policy allows.

    `prepare`: the run's options, as the site knows them. `min_rows`: fewest rows with which the site answers; with
    guards, also fewest values of a column. `**more`: of `KernelClient`. `preparation`: once it is known.
    """

    answers = (CountCells, SumSquares, CompareColumns, CountBelow, FindExtremes, TakePreparation, PrepareOwn)

    def __init__(self, X: RawTable, *, prepare: Prepare, min_rows: int = 1, **more: Any) -> None:
        super().__init__(X, **more)  # type: ignore[arg-type] # which `table` takes
        self.prepare = prepare
        self.min_rows = min_rows
        self.preparation: Preparation | None = None

    @staticmethod
    def table(X: Any, what: str) -> Any:
        """Return a raw table unchanged."""
        if not isinstance(X, RawTable):
            raise TypeError(f"{what} is a {type(X).__name__}, but must be a RawTable")
        return X

    def count_cells(self, ask: CountCells) -> Cells:
        """Count and sum each column's values; log columns without any value at this site."""
        numbers = self._numbers(ask.names)
        for position in np.flatnonzero(~np.isfinite(numbers).any(axis=0)).tolist() if len(numbers) else ():
            text = "%s: %s has no value; all cells are filled from the other sites' values"
            log.warning(text, ask.names[position], self._here)
        return Cells(counts=_counts(numbers), sums=np.nansum(numbers, axis=0))

    def sum_squares(self, ask: SumSquares) -> Squares:
        """Sum each column's deviations from the center, and their squares."""
        apart = self._numbers(ask.names) - ask.center
        return Squares(deviations=np.nansum(apart, axis=0), squares=np.nansum(apart**2, axis=0))

    def compare_columns(self, ask: CompareColumns) -> Differences:
        """Compare the columns with all other sites'; log columns that differ."""
        reply = differences(self._numbers(ask.names), ask)
        for position, mean, spread in zip(reply.columns, reply.means.tolist(), reply.spreads.tolist(), strict=True):
            log.warning("%s", site_sentence(self._here, ask.names[position], mean, spread))
        return reply

    def count_below(self, ask: CountBelow) -> CellsBelow:
        """Count each column's values that are at most each of its thresholds."""
        if self.guards is not None:
            self._check_refines(ask.thresholds[np.argsort(ask.names)])
        counts = np.empty(ask.thresholds.shape)
        for place, column in enumerate(self._numbers(ask.names).T):
            counts[place] = np.searchsorted(np.sort(column[~np.isnan(column)]), ask.thresholds[place], "right")
        return CellsBelow(counts=counts)

    def find_extremes(self, ask: FindExtremes) -> Extremes:
        """Find the least and the greatest value of each column."""
        numbers, limit = self._numbers(ask.names), MAX_NUMBER
        missing = np.isnan(numbers)
        least = np.where(missing, limit, numbers).min(axis=0)
        return Extremes(least=least, greatest=np.where(missing, -limit, numbers).max(axis=0))

    def take_preparation(self, ask: TakePreparation) -> Prepared:
        """Prepare the table by the joint preparation in the request."""
        numeric = self._check_names(ask.names, self.X.names)
        if strange := sorted(set(ask.flagged) - (set(numeric) if self.prepare.indicator else set())):
            adds = f"the request adds an indicator for column {strange[0]!r}"
            raise ShareableError(f"{adds}, but this run allows none there")
        if len(ask.scale) != len(numeric):
            raise ShareableError(f"scale has {len(ask.scale)} entries, but there are {len(numeric)} columns of numbers")
        joint = Preparation(self.prepare, ask.names, ask.fill, ask.center, ask.scale, ask.flagged)
        measured = {option.partition(" ")[0] for option in self.prepare.measured}
        fill, scaling = stated(self.prepare, numeric)
        own = [] if "scale" in measured else [(ask.center, scaling.center), (ask.scale, scaling.scale)]
        own += [(ask.fill, fill)] if self.prepare.missing == "center" else []
        if not all(np.array_equal(*pair) for pair in own):
            raise ShareableError("fill, center or scale in the request differ from those that prepare states")
        if self.guards is not None and "missing" in measured:
            self._check_fill(numeric, ask.fill)
        with self._row_errors_logged():
            return self._set_preparation(joint)

    def prepare_own(self, ask: PrepareOwn) -> Prepared:
        """Prepare the table by its own statistics, since other sites have other columns."""
        with self._row_errors_logged():
            return self._set_preparation(fitted(self.prepare.within(self.X.names), self.X))

    @property
    def _here(self) -> str:
        """Name of this site for its log, with the table's file or the position among the shards."""
        return f"this site ({Path(self.X.title).name})"

    def _has_larger(self, bound: float) -> bool:
        return any(bool((np.abs(column) > bound).any()) for column in self.X.columns.values() if not is_text(column))

    @contextmanager
    def _row_errors_logged(self) -> Iterator[None]:
        """Log errors that name a row instead of sending them, if the site has guards."""
        try:
            yield
        except InputError as error:
            if self.guards is None:
                raise
            who = f"client {self.client}"
            raise OwnFileError(f"{who} cannot prepare its table", f"{who}: {error}") from None

    def _set_preparation(self, preparation: Preparation) -> Prepared:
        with np.errstate(over="ignore"):
            X, positions = preparation.apply(self.X)
        if not np.isfinite(X).all():
            raise InputError(f"{self.X.title}: some numbers are too large after centring and scaling")
        if X.shape[1] == 0:
            raise InputError(f"{self.X.title} has no columns after preparation, but needs at least one")
        self.preparation = preparation
        return Prepared(rows=len(positions), columns=X.shape[1])

    def _check_fill(self, names: tuple[str, ...], fill: FloatArray) -> None:
        """Raise ShareableError if a fill is far from a column's values. It would single out rows with an empty cell."""
        numbers = self._numbers(names)
        empty = np.isnan(numbers)
        for place in np.flatnonzero(empty.any(axis=0) & ~empty.all(axis=0)).tolist():
            low, high = np.nanmin(numbers[:, place]), np.nanmax(numbers[:, place])
            most = MOST_RANGES * (high - low or max(1.0, abs(high)))
            if not low - most <= fill[place] <= high + most:
                raise ShareableError(
                    f"the fill of column {names[place]!r} is over {MOST_RANGES} times as far from its values at client "
                    f"{self.client} as these are apart, so that rows without one would stand out (guard: cells)"
                )

    def _check_refines(self, thresholds: FloatArray) -> None:
        """Raise ShareableError unless, for each quantile, thresholds evenly divide one bin of the previous thresholds.

        `thresholds` (p, b): columns in the order of their names. Otherwise a coordinator's thresholds could find every
        value of a small site's columns.
        """
        medians = thresholds.shape[1] == EDGES and self.prepare.missing == "median"
        quartiles = thresholds.shape[1] == len(QUARTILES) * EDGES and self.prepare.scale == "robust"
        if not medians and not quartiles:
            got = f"client {self.client} got {thresholds.shape[1]} thresholds per column"
            raise ShareableError(f"{got}, which no quantile of the run needs (guard: quantiles)")
        bins = MedianBins if medians else QuartileBins
        edges = thresholds.reshape(len(thresholds), -1, EDGES)
        low, high = edges[..., :1], edges[..., -1:]
        even = low + (high - low) * np.linspace(0, 1, EDGES)
        slack = 1e-9 * (high - low) + 8 * EPS * np.maximum(np.abs(low), np.abs(high))
        outside = (low > high)[..., 0] | (np.abs(edges - even) > slack).any(axis=-1)
        if bins.known(self.memory):
            before = bins.load(self.memory).edges
            outside |= ~((before[..., :-1] <= low) & (high <= before[..., 1:])).any(axis=-1)
        if outside.any():
            wrong = f"the request's thresholds for client {self.client} do not divide a bin of the previous ones"
            allowed = "one bin for each quantile, evenly, more finely from round to round (guard: quantiles)"
            raise ShareableError(f"{wrong}; allowed: {allowed}")
        bins(edges).save(self.memory)

    def _numbers(self, names: tuple[str, ...]) -> FloatArray:
        """Return the numeric columns (n, p) in the agreed order; ShareableError if one has too few values."""
        self._check_names(names, self.prepare.numeric_names(self.X.names))
        ordered: RawTable = self.X.select([*names, *self.prepare.categories])
        with self._row_errors_logged():
            numbers = self.prepare.numeric_columns(ordered)
        if self.guards is not None:
            least = max(self.guards.cell_rows, self.min_rows)
            for name, count in zip(names, _counts(numbers).astype(int).tolist(), strict=True):
                if 0 < count < least:
                    raise ShareableError(
                        f"client {self.client} has fewer than {least} values in column {name!r}; their sum would "
                        f"reveal too much. Allowed: no values, at least {least}, or drop the column (guard: cells)"
                    )
        return numbers

    def _check_names(self, names: tuple[str, ...], own: tuple[str, ...]) -> tuple[str, ...]:
        """Raise ShareableError unless names are the columns `own`, in any order; return the numeric ones."""
        if len(names) != len(own) or set(names) != set(own):
            differ = f"columns that differ from the {len(own)} of {self.X.title}"
            raise ShareableError(f"the request names {len(names)} {differ}")
        return self.prepare.numeric_names(names)


def _counts(numbers: FloatArray) -> FloatArray:
    return np.asarray(np.isfinite(numbers).sum(axis=0), dtype=np.float64)
