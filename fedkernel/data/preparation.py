"""What is done to a site's raw table before a method sees it: said once for all sites, and kept with the model.

`Prepare` says what is to be done, the same at all sites; `Preparation` is what that comes to once fills, centres and
scales are settled, over the rows of all sites or, where sites hold columns, by each for its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pydantic
from pydantic import Field

from fedkernel.data.raw import RawTable, is_text, missing_in
from fedkernel.ground import FloatArray, InputError, brief, value_object

Levels = Annotated[tuple[str, ...], Field(min_length=2)]


@value_object()
class Prepare:
    """What is done to each column, in this order: clip, log, fill, scale; then indicators stand beside the columns.

    Parameters
    ----------
    scale : {"standard", "minmax", "robust", "none"}, default="standard"
        To mean 0 and standard deviation 1; to the range from 0 to 1; by the median and the distance of the quartiles.
        What does not vary is centred only. As scikit-learn's StandardScaler, MinMaxScaler and RobustScaler do it on the
        rows of all sites together.
    missing : {"refuse", "drop", "mean", "median"}, default="refuse"
        What an empty cell means: an error that says where the first is; its row is left out; or it is filled with the
        column's mean or median over all sites.
    indicator : bool, default=False
        Whether each column with empty cells at any site gets a further column that is 1 where a cell was filled.
    categories : mapping of str to sequence of str
        Columns of text, and all their levels: each level becomes a column of 0 and 1. A cell of another level is an
        error; one that is empty has 0 in all of them, unless rows are dropped or refused.
    log : sequence of str
        Columns of positive numbers whose natural logarithm is taken.
    clip : mapping of str to (float, float)
        Columns, and the least and the most that a number of theirs may be: what is beyond becomes that.
    drift : {"warn", "refuse", "ignore"}, default="warn"
        What a column means whose numbers at one site differ from the others' by more than chance explains.
    """

    scale: Literal["standard", "minmax", "robust", "none"] = "standard"
    missing: Literal["refuse", "drop", "mean", "median"] = "refuse"
    indicator: bool = False
    categories: dict[str, Levels] = pydantic.Field(default_factory=dict)
    log: tuple[str, ...] = ()
    clip: dict[str, tuple[float, float]] = pydantic.Field(default_factory=dict)
    drift: Literal["warn", "refuse", "ignore"] = "warn"

    @pydantic.model_validator(mode="after")
    def _fits(self) -> Self:
        for name, (least, most) in self.clip.items():
            if not least < most:
                raise ValueError(f"clip = {least:g} to {most:g} of column {name!r}, but must be the least and the most")
        for name, levels in self.categories.items():
            if len(set(levels)) < len(levels):
                raise ValueError(f"categories: column {name!r} has a level twice")
            if name in self.log or name in self.clip:
                raise ValueError(f"column {name!r} is one of categories, of which there is no log or clip")
        if self.indicator and self.missing not in ("mean", "median"):
            raise ValueError('indicator = true is for missing = "mean" or "median"')
        return self

    @property
    def _key(self) -> tuple[Any, ...]:
        """All fields; of a mapping its entries, whose order is that of the columns that a model gets."""
        return tuple(tuple(value.items()) if isinstance(value, dict) else value for value in vars(self).values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Prepare) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def table(self) -> dict[str, Any]:
        """As a TOML table has it."""
        return dict(pydantic.TypeAdapter(type(self)).dump_python(self, mode="json"))

    def most_columns(self, columns: int) -> int:
        """Return how many columns so many raw ones become at most: exactly, without an indicator."""
        numeric, levels = columns - len(self.categories), sum(map(len, self.categories.values()))
        return numeric * (1 + self.indicator) + levels

    def numbers(self, raw: RawTable) -> FloatArray:
        """Return the columns that are of numbers, clipped and their logarithms taken: (n, d), NaN where one is missing.

        Raises
        ------
        InputError
            A column that `categories`, `log` or `clip` names and that is not there or of another kind; a column of text
            that is no category; a number without a logarithm. The text names column and row, and quotes no value.
        """
        for option, names in {"categories": self.categories, "log": self.log, "clip": self.clip}.items():
            if absent := [name for name in names if name not in raw.columns]:
                raise InputError(f"prepare.{option} names {absent[0]!r}, which is no column of {raw.what}")
        numeric: list[FloatArray] = []
        for name in self.numeric(raw.names):
            column = raw.columns[name]
            if is_text(column):
                raise InputError(
                    f"{raw.what}: column {name!r} holds text; allowed: numbers, or its levels in prepare.categories"
                )
            if name in self.clip:
                column = np.clip(column, *self.clip[name])
            if name in self.log:
                if (wrong := np.flatnonzero(column <= 0)).size:
                    raise InputError(
                        f"{raw.what}: {raw.row(wrong[0])} of column {name!r} has no logarithm; allowed in "
                        "prepare.log: columns of positive numbers"
                    )
                column = np.log(column)
            numeric.append(column)
        return np.column_stack(numeric) if numeric else np.empty((raw.rows, 0))

    def numeric(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return those of some columns that are of numbers."""
        return tuple(name for name in names if name not in self.categories)

    def within(self, names: Sequence[str]) -> Self:
        """Return what it says of these columns: where columns are divided, each table has its own."""
        own: dict[str, Any] = {
            "categories": {name: levels for name, levels in self.categories.items() if name in names},
            "log": tuple(name for name in self.log if name in names),
            "clip": {name: range_ for name, range_ in self.clip.items() if name in names},
        }
        return replace(self, **own)

    def whole_rows(self, raw: RawTable) -> npt.NDArray[np.bool_]:
        """Return a mask of the rows that can be used: with ``missing = "drop"`` those without an empty cell.

        Raises
        ------
        InputError
            If a cell is empty and none may be.
        """
        whole = np.ones(raw.rows, dtype=bool)
        for name, column in raw.columns.items():
            missing = missing_in(column)
            if missing.any() and self.missing == "refuse":
                more = f", nor do {missing.sum() - 1} more of its cells" if missing.sum() > 1 else ""
                raise InputError(
                    f"{raw.what}: {raw.row(int(np.argmax(missing)))}, column {name!r} holds no value{more}; "
                    'allowed: finite numbers, or [prepare] missing = "drop", "mean" or "median"'
                )
            whole &= ~missing
        return whole if self.missing == "drop" else np.ones(raw.rows, dtype=bool)


@dataclass(frozen=True)
class Preparation:
    """What `Prepare` comes to: it makes of any raw table with these columns what a model was fitted on.

    `names`: of the raw table's columns, in the order that they have for the model. `fill`, `center`, `scale` (d,): of
    each column of numbers, once clipped and its logarithm taken: what stands for an empty cell, what is subtracted, and
    by what it is divided then. Nothing is filled where ``missing`` says so. `flagged`: columns of numbers that an
    indicator stands beside.
    """

    prepare: Prepare
    names: tuple[str, ...]
    fill: FloatArray
    center: FloatArray
    scale: FloatArray
    flagged: tuple[str, ...] = ()

    __repr__ = brief

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that a model gets: those of numbers, indicators, levels."""
        flags = [f"{name} missing" for name in self.flagged]
        levels = [f"{name} = {level}" for name, levels in self.prepare.categories.items() for level in levels]
        return (*self.prepare.numeric(self.names), *flags, *levels)

    def apply(self, raw: RawTable) -> tuple[FloatArray, npt.NDArray[np.intp]]:
        """Return what a model gets of a raw table: the columns are found by name, whatever their order.

        Returns (n_kept, len(columns)), and the positions (n_kept,) of the rows that are there: all, unless rows with
        empty cells are dropped. Raises InputError: a column that is missing or of another kind, an empty cell that
        may not be, an unknown level.
        """
        ordered = raw.select(self.names)
        positions = np.flatnonzero(self.prepare.whole_rows(ordered))
        ordered = ordered.take(positions)
        numbers = self.prepare.numbers(ordered)
        empty = np.isnan(numbers)
        filled = np.where(empty, self.fill, numbers)
        numeric = self.prepare.numeric(self.names)
        flags = [empty[:, numeric.index(name)] for name in self.flagged]
        levels = [mask for name in self.prepare.categories for mask in self._levels(ordered, name)]
        beside = np.column_stack([*flags, *levels]) if flags or levels else np.empty((ordered.rows, 0))
        return np.ascontiguousarray(np.hstack([(filled - self.center) / self.scale, beside])), positions

    def _levels(self, raw: RawTable, name: str) -> list[npt.NDArray[np.bool_]]:
        column, levels = raw.columns[name], self.prepare.categories[name]
        texts = column if is_text(column) else np.array([None if np.isnan(cell) else f"{cell:g}" for cell in column])
        if strange := [row for row, cell in enumerate(texts) if cell is not None and cell not in levels]:
            raise InputError(
                f"{raw.what}: {raw.row(strange[0])} of column {name!r} has a level that prepare.categories "
                f"does not list; allowed: {', '.join(levels)}"
            )
        return [np.array([cell == level for cell in texts], dtype=bool) for level in levels]

    def to_table(self) -> dict[str, Any]:
        """Return it as plain data, for a model's file; the inverse of `from_table`."""
        arrays = {name: getattr(self, name).tolist() for name in ("fill", "center", "scale")}
        return {"prepare": self.prepare.table, "names": list(self.names), "flagged": list(self.flagged), **arrays}

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Self:
        """Read what `to_table` returned; ValueError, KeyError or TypeError for what does not fit together."""
        fill, center, scale = (np.array(table[name], dtype=np.float64) for name in ("fill", "center", "scale"))
        prepare, names, flagged = Prepare(**table["prepare"]), tuple(table["names"]), tuple(table["flagged"])
        shape = (len(prepare.numeric(names)),)
        fits = all(array.shape == shape and np.isfinite(array).all() for array in (fill, center, scale))
        if (
            not fits
            or not (scale > 0).all()
            or not set(flagged) <= set(prepare.numeric(names))
            or not set(prepare.categories) <= set(names)
        ):
            raise ValueError("preparation")
        return cls(prepare, names, fill, center, scale, flagged)
