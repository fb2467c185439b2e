"""Client that answers for a site's raw table until it is prepared: counts, sums, and the preparation."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedkernel.data import Preparation, Prepare, RawTable, is_text
from fedkernel.ground import FloatArray, InputError, OwnFileError, ShareableError
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
from fedkernel.preparing.scaling import QUARTILES, fitted
from fedkernel.preparing.site_differences import as_seen_from, differences
from fedkernel.protocol import MAX_NUMBER, KernelClient, State

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MedianBins(State):
    """Last thresholds (p, 1, b) of the search for medians, kept by sites with guards."""

    edges: FloatArray


@dataclass(frozen=True)
class QuartileBins(State):
    """Last thresholds (p, 3, b) of the search for quartiles, kept by sites with guards."""

    edges: FloatArray


class PrepareClient(KernelClient):
    """Client of a raw table: only sums leave it, and what its policy allows beside them.

    - `X`: the rows that the run works on.
    - `prepare`: the run's choices of preparing, as the site knows them.
    - `min_rows`: fewest rows with which the site answers; with guards, also fewest values of a column.
    - `**more`: as of `KernelClient`.

    `preparation`: set once it is settled.
    """

    answers = (
        CountCells,
        SumSquares,
        CompareColumns,
        CountBelow,
        FindExtremes,
        TakePreparation,
        PrepareOwn,
    )

    def __init__(self, X: RawTable, *, prepare: Prepare, min_rows: int = 1, **more: Any) -> None:
        super().__init__(X, **more)  # type: ignore[arg-type] # which `table` takes
        self.prepare = prepare
        self.min_rows = min_rows
        self.preparation: Preparation | None = None

    @staticmethod
    def table(X: Any, what: str) -> Any:
        """Return a raw table unchanged."""
        if not isinstance(X, RawTable):
            raise TypeError(f"{what} is no RawTable")
        return X

    def count_cells(self, ask: CountCells) -> Cells:
        """Count the cells that hold a value, and add these up; log the columns without any here."""
        numbers = self._numbers(ask.names)
        for place in np.flatnonzero(~np.isfinite(numbers).any(axis=0)).tolist() if len(numbers) else ():
            text = "%s: this site (client %d) has no value: each of its cells is filled by those of other sites"
            log.warning(text, ask.names[place], self.client)
        return Cells(counts=_counts(numbers), sums=_sum(numbers))

    def sum_squares(self, ask: SumSquares) -> Squares:
        """Add up distances from the center, and their squares."""
        apart = self._numbers(ask.names) - ask.center
        return Squares(deviations=_sum(apart), squares=_sum(apart**2))

    def compare_columns(self, ask: CompareColumns) -> Differences:
        """Compare the columns with those of all other sites; log those that differ, not the site at fault."""
        reply = differences(self._numbers(ask.names), ask)
        for place, mean, spread in zip(reply.columns, reply.means.tolist(), reply.spreads.tolist(), strict=True):
            log.warning("%s", as_seen_from(f"this site (client {self.client})", ask.names[place], mean, spread))
        return reply

    def count_below(self, ask: CountBelow) -> CellsBelow:
        """Count values that are at most each threshold."""
        if self.guards is not None:
            self._check_refines(ask.thresholds)
        columns = zip(self._numbers(ask.names).T, ask.thresholds, strict=True)
        counts = [
            np.searchsorted(np.sort(column[~np.isnan(column)]), thresholds, "right") for column, thresholds in columns
        ]
        return CellsBelow(counts=np.array(counts, dtype=np.float64).reshape(ask.thresholds.shape))

    def find_extremes(self, ask: FindExtremes) -> Extremes:
        """Find the least and the greatest value of each column."""
        numbers, limit = self._numbers(ask.names), MAX_NUMBER
        missing = np.isnan(numbers)
        least = np.where(missing, limit, numbers).min(axis=0)
        return Extremes(least=least, greatest=np.where(missing, -limit, numbers).max(axis=0))

    def take_preparation(self, ask: TakePreparation) -> Prepared:
        """Prepare the table as the request says."""
        numeric = self._check_names(ask.names, self.X.names)
        if strange := sorted(set(ask.flagged) - (set(numeric) if self.prepare.indicator else set())):
            raise ShareableError(f"an indicator is to stand beside {strange[0]!r}; the run has none")
        if len(ask.scale) != len(numeric):
            raise ShareableError(f"{len(ask.scale)} columns are scaled, but {len(numeric)} are of numbers")
        with self._for_the_log():
            return self._settle(Preparation(self.prepare, ask.names, ask.fill, ask.center, ask.scale, ask.flagged))

    def prepare_own(self, ask: PrepareOwn) -> Prepared:
        """Prepare the table by its own statistics."""
        with self._for_the_log():
            return self._settle(fitted(self.prepare.within(self.X.names), self.X))

    def _has_larger(self, bound: float) -> bool:
        return any(bool((np.abs(column) > bound).any()) for column in self.X.columns.values() if not is_text(column))

    @contextmanager
    def _for_the_log(self) -> Iterator[None]:
        """Keep errors that name a row in the log of a site with guards: a coordinator's scales select that row."""
        try:
            yield
        except InputError as error:
            if self.guards is None:
                raise
            who = f"client {self.client}"
            raise OwnFileError(f"{who} cannot prepare its table", f"{who}: {error}") from None

    def _settle(self, preparation: Preparation) -> Prepared:
        with np.errstate(over="ignore"):
            X, positions = preparation.apply(self.X)
        if not np.isfinite(X).all():
            raise InputError(f"{self.X.title} has numbers that are too large once it is centred and scaled")
        if X.shape[1] == 0:
            raise InputError(f"{self.X.title} has no columns once it is prepared; allowed: at least one")
        self.preparation = preparation
        return Prepared(rows=len(positions), columns=X.shape[1])

    def _check_refines(self, thresholds: FloatArray) -> None:
        """Raise ShareableError unless thresholds divide, for each quantile, one bin between two of the earlier ones.

        Otherwise a coordinator's thresholds could find every value of a small site's columns.
        """
        medians = thresholds.shape[1] == EDGES and self.prepare.missing == "median"
        quartiles = thresholds.shape[1] == len(QUARTILES) * EDGES and self.prepare.scale == "robust"
        if not medians and not quartiles:
            raise ShareableError(
                f"client {self.client} was asked to count below {thresholds.shape[1]} thresholds of each column, which "
                "no quantile of the run needs (guard: quantiles)"
            )
        bins = MedianBins if medians else QuartileBins
        edges = thresholds.reshape(len(thresholds), -1, EDGES)
        outside = (np.diff(edges) < 0).any(axis=-1)
        if bins.known(self.memory):
            before = bins.load(self.memory).edges
            low, high = edges[..., :1], edges[..., -1:]
            outside |= ~((before[..., :-1] <= low) & (high <= before[..., 1:])).any(axis=-1)
        if outside.any():
            raise ShareableError(
                f"client {self.client} was asked to count below thresholds that do not divide a bin of those before; "
                "allowed: one bin for each quantile, more finely from round to round (guard: quantiles)"
            )
        bins(edges).save(self.memory)

    def _numbers(self, names: tuple[str, ...]) -> FloatArray:
        """Return the columns of numbers in the agreed order."""
        self._check_names(names, self.prepare.numeric_names(self.X.names))
        ordered: RawTable = self.X.select([*names, *self.prepare.categories])
        with self._for_the_log():
            numbers = self.prepare.numeric_columns(ordered)
        if self.guards is not None:
            least = max(self.guards.cell_rows, self.min_rows)
            for name, count in zip(names, _counts(numbers).astype(int).tolist(), strict=True):
                if 0 < count < least:
                    raise ShareableError(
                        f"client {self.client} has fewer than {least} values in column {name!r}, whose "
                        "sum would be about these; allowed: none or more of them, or to leave the column out (guard: "
                        "cells)"
                    )
        return numbers

    def _check_names(self, names: tuple[str, ...], own: tuple[str, ...]) -> tuple[str, ...]:
        """Raise ShareableError unless these are the table's own columns, in any order; return those of numbers."""
        if len(names) != len(own) or set(names) != set(own):
            raise ShareableError(f"{len(names)} columns were asked for that are not the {len(own)} of {self.X.title}")
        return self.prepare.numeric_names(names)


def _counts(numbers: FloatArray) -> FloatArray:
    counts: FloatArray = np.isfinite(numbers).sum(axis=0).astype(np.float64)
    return counts


def _sum(numbers: FloatArray) -> FloatArray:
    total: FloatArray = np.nansum(numbers, axis=0)
    return total
