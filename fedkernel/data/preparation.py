"""Preparation of raw tables for a method: options common to all sites, and values fitted to their data.

`Prepare` holds the options. `Preparation` adds fills, centres and scales, computed over the rows of all sites or, for
divided columns, by each site for its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pydantic
from pydantic import Field

from fedkernel.data.raw import RawTable, is_text, missing_cells
from fedkernel.ground import FloatArray, InputError, short_repr, value_object

LARGEST = 1e100
"""Largest cell, centre and unit, and inverse of the smallest unit, in magnitude: no quotient of these overflows."""

OTHER = "*"  # level that stands for every text that `Prepare.categories` does not list
Levels = Annotated[tuple[str, ...], Field(min_length=2)]


def _two_numbers(value: Any) -> Any:
    if isinstance(value, list | tuple) and len(value) == 2:
        return value
    raise ValueError(f"{short_repr(value)} is no pair of numbers, such as [60, 12]")


TwoNumbers = Annotated[tuple[float, float], pydantic.BeforeValidator(_two_numbers)]


@value_object()
class Prepare:
    """Options for the preparation of all sites' columns: clip, logarithm, fill and scale, with indicators.

    - `scale`: centre and unit of each column of numbers, ``{ age = [60, 12] }``; or as scikit-learn's StandardScaler,
      MinMaxScaler or RobustScaler over all sites, but constant columns are only centred.
    - `missing`: treatment of empty cells: an error, removal of the row, the centre that `scale` states, or the column's
      mean or median over all sites.
    - `indicator`: a further column for each with empty cells at any site: 1 for a filled cell.
    - `categories`: all levels of columns of text, each of which becomes a column of 0 and 1. "*" stands for all other
      levels, which else are an error. An empty cell that stays has 0 in all.
    - `log`: columns of positive numbers to replace by their natural logarithm.
    - `clip`: least and greatest number of columns; others are set to these.
    - `drift`: treatment of a column that differs at one site by more than chance explains.
    """

    scale: dict[str, TwoNumbers] | Literal["standard", "minmax", "robust", "none"] = "standard"
    missing: Literal["refuse", "drop", "center", "mean", "median"] = "refuse"
    indicator: bool = False
    categories: dict[str, Levels] = pydantic.Field(default_factory=dict)
    log: tuple[str, ...] = ()
    clip: dict[str, TwoNumbers] = pydantic.Field(default_factory=dict)
    drift: Literal["warn", "refuse", "ignore"] = "warn"

    @pydantic.model_validator(mode="after")
    def _fits(self) -> Self:
        for name, (least, most) in self.clip.items():
            if not least < most:
                raise ValueError(f"clip = [{least:g}, {most:g}] of column {name!r}: the first must be below the second")
        for name, (center, unit) in self.by_column.get("scale", {}).items():
            if not (abs(center) <= LARGEST and 1 / LARGEST <= unit <= LARGEST):
                allowed = f"a centre, and a unit above 0, from {1 / LARGEST:g} to {LARGEST:g}"
                raise ValueError(f"scale = [{center:g}, {unit:g}] of column {name!r}; allowed: {allowed}")
        for name, levels in self.categories.items():
            if len(set(levels)) < len(levels):
                raise ValueError(f"categories: column {name!r} has a level twice")
            if any(name in named for option, named in self.by_column.items() if option != "categories"):
                raise ValueError(f"column {name!r} is a category; log, clip and scale are for numbers")
        if self.indicator and self.missing not in ("mean", "median"):
            raise ValueError('indicator = true is for missing = "mean" or "median"')
        if self.missing == "center" and not isinstance(self.scale, dict):
            raise ValueError(f'missing = "center", but scale = "{self.scale}"; allowed: a table, {{ age = [60, 12] }}')
        return self

    @property
    def by_column(self) -> dict[str, Any]:
        """Options that name columns."""
        scale = {"scale": self.scale} if isinstance(self.scale, dict) else {}
        return {"categories": self.categories, "log": self.log, "clip": self.clip, **scale}

    @property
    def measured(self) -> list[str]:
        """Options that need numbers from the rows of all sites. If empty, no site is asked about its cells."""
        rules = {"scale": ("standard", "minmax", "robust"), "missing": ("mean", "median"), "drift": ("warn", "refuse")}
        return [f'{option} = "{own}"' for option, of in rules.items() if (own := getattr(self, option)) in of]

    @property
    def refusing(self) -> list[str]:
        """Options that refuse single cells: numbers without a logarithm, or levels that are not listed."""
        logs = [name for name in self.log if self.clip.get(name, (0.0,))[0] <= 0]
        levels = [name for name, listed in self.categories.items() if OTHER not in listed]
        return [f"log of {name!r}" for name in logs] + [f"categories of {name!r}" for name in levels]

    @property
    def _key(self) -> tuple[Any, ...]:
        """Fields as a hashable tuple. Mappings keep their order, since a model's columns follow it."""
        return tuple(tuple(value.items()) if isinstance(value, dict) else value for value in vars(self).values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Prepare) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def table(self) -> dict[str, Any]:
        """Options as a TOML table."""
        return dict(pydantic.TypeAdapter(type(self)).dump_python(self, mode="json"))

    def most_columns(self, columns: int) -> int:
        """Return the largest possible number of columns after preparation. It is exact without an indicator."""
        numeric, levels = columns - len(self.categories), sum(map(len, self.categories.values()))
        return numeric * (1 + self.indicator) + levels

    def numeric_columns(self, raw: RawTable) -> FloatArray:
        """Return the numeric columns (n, d) after clipping and logarithms, with NaN for missing cells.

        Raises InputError, which names column and row: a column of `by_column` that is missing or of another kind; a
        column of text that is no category; a number without a logarithm.
        """
        for option, names in self.by_column.items():
            if absent := [name for name in names if name not in raw.columns]:
                raise InputError(f"prepare.{option} names {absent[0]!r}, which is no column of {raw.title}")
        numeric: list[FloatArray] = []
        for name in self.numeric_names(raw.names):
            column = raw.columns[name]
            if is_text(column):
                allowed = "allowed: numbers, or its levels in prepare.categories"
                raise InputError(f"{raw.title}: column {name!r} holds text; {allowed}")
            if name in self.clip:
                column = np.clip(column, *self.clip[name])
            if name in self.log:
                if (without_logarithm := np.flatnonzero(column <= 0)).size:
                    where = f"{raw.title}: {raw.row(without_logarithm[0])} of column {name!r}"
                    raise InputError(f"{where} has no logarithm; allowed in prepare.log: columns of positive numbers")
                column = np.log(column)
            numeric.append(column)
        return np.column_stack(numeric) if numeric else np.empty((raw.rows, 0))

    def numeric_names(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return those of the named columns that are no categories."""
        return tuple(name for name in names if name not in self.categories)

    def within(self, names: Sequence[str]) -> Self:
        """Return the options restricted to the named columns, for a site with some of all columns."""
        own: dict[str, Any] = {
            option: {name: of[name] for name in of if name in names}
            if isinstance(of, dict)
            else tuple(name for name in of if name in names)
            for option, of in self.by_column.items()
        }
        return replace(self, **own)

    def usable_rows(self, raw: RawTable) -> npt.NDArray[np.bool_]:
        """Return a mask of the rows to keep. Empty cells drop their rows, raise InputError or stay: see `missing`."""
        whole = np.ones(raw.rows, dtype=bool)
        for name, column in raw.columns.items():
            missing = missing_cells(column)
            if missing.any() and self.missing == "refuse":
                more = f", nor do {missing.sum() - 1} more of its cells" if missing.sum() > 1 else ""
                where = f"{raw.title}: {raw.row(int(np.argmax(missing)))}, column {name!r}"
                allowed = 'finite numbers, or [prepare] missing = "drop", "center", "mean" or "median"'
                raise InputError(f"{where} holds no value{more}; allowed: {allowed}")
            whole &= ~missing
        return whole if self.missing == "drop" else np.ones(raw.rows, dtype=bool)


@dataclass(frozen=True)
class Preparation:
    """Fitted preparation of a run. It converts any raw table that has the run's columns to a model's input.

    `names`: the raw table's columns, in the model's order. `fill`, `center`, `scale` (d,): for each numeric column,
    after clip and log: value of an empty cell, subtrahend and divisor. `flagged`: numeric columns with an indicator.
    """

    prepare: Prepare
    names: tuple[str, ...]
    fill: FloatArray
    center: FloatArray
    scale: FloatArray
    flagged: tuple[str, ...] = ()

    __repr__ = short_repr

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the prepared table's columns: numbers, indicators, levels."""
        flags = [f"{name} missing" for name in self.flagged]
        levels = [f"{name} = {level}" for name, levels in self.prepare.categories.items() for level in levels]
        return (*self.prepare.numeric_names(self.names), *flags, *levels)

    def apply(self, raw: RawTable) -> tuple[FloatArray, npt.NDArray[np.intp]]:
        """Convert a raw table to a model's input, with columns found by name.

        Returns the rows (n_kept, len(columns)) and their positions (n_kept,) in the table: all, unless rows with empty
        cells are dropped. Raises InputError: a missing column or one of another kind, a forbidden empty cell, an
        unknown level.
        """
        ordered = raw.select(self.names)
        positions = np.flatnonzero(self.prepare.usable_rows(ordered))
        ordered = ordered.take(positions)
        numbers = self.prepare.numeric_columns(ordered)
        empty = np.isnan(numbers)
        filled = np.where(empty, self.fill, numbers)
        numeric = self.prepare.numeric_names(self.names)
        flags = [empty[:, numeric.index(name)] for name in self.flagged]
        levels = [mask for name in self.prepare.categories for mask in self._levels(ordered, name)]
        indicators = np.column_stack([*flags, *levels]) if flags or levels else np.empty((ordered.rows, 0))
        return np.ascontiguousarray(np.hstack([(filled - self.center) / self.scale, indicators])), positions

    def _levels(self, raw: RawTable, name: str) -> list[npt.NDArray[np.bool_]]:
        column, levels = raw.columns[name], self.prepare.categories[name]
        texts = column if is_text(column) else np.array([None if np.isnan(cell) else f"{cell:g}" for cell in column])
        if OTHER in levels:
            texts = np.array([cell if cell is None or cell in levels else OTHER for cell in texts], dtype=object)
        if unknown_levels := [row for row, cell in enumerate(texts) if cell is not None and cell not in levels]:
            where = f"{raw.title}: {raw.row(unknown_levels[0])} of column {name!r}"
            raise InputError(f"{where} has a level that prepare.categories does not list; allowed: {', '.join(levels)}")
        return [np.array([cell == level for cell in texts], dtype=bool) for level in levels]

    def to_table(self) -> dict[str, Any]:
        """Return the preparation as plain data, for a model's file; the inverse of `from_table`."""
        arrays = {name: getattr(self, name).tolist() for name in ("fill", "center", "scale")}
        return {"prepare": self.prepare.table, "names": list(self.names), "flagged": list(self.flagged), **arrays}

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Self:
        """Rebuild a preparation from plain data. Raises ValueError, KeyError or TypeError if it is inconsistent."""
        fill, center, scale = (np.array(table[name], dtype=np.float64) for name in ("fill", "center", "scale"))
        prepare, names, flagged = Prepare(**table["prepare"]), tuple(table["names"]), tuple(table["flagged"])
        shape = (len(prepare.numeric_names(names)),)
        fits = all(array.shape == shape and np.isfinite(array).all() for array in (fill, center, scale))
        known = set(flagged) <= set(prepare.numeric_names(names)) and set(prepare.categories) <= set(names)
        if not (fits and known and (scale > 0).all()):
            raise ValueError("preparation")
        return cls(prepare, names, fill, center, scale, flagged)
