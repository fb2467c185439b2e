"""Schema of all sites' tables, a TOML file with the names, types, units and ranges of columns.

It is written by hand, or derived from a site's data and then edited::

    rows = 200 # for a rehearsal; a site may have another number
    ids = true # whether rows are known by ids
    id_length = 5 # if all ids have as many characters

    [columns]
    age = { unit = "years", from = 18, to = 99, whole = true }
    bmi = { from = 15.0, to = 45.0 }
    sex = { type = "text", levels = ["f", "m"] }
    seen = { type = "date" }

A range is a limit: a number outside is a fault. Outside a measured range (``measured = true``, as `fedkernel check
--schema FILE --ranges` writes of one site's rows) numbers are only noted, up to its own width away. Sites compare their
files with the schema (`fedkernel check --against`) and rehearse runs with rows made from it.
"""

import importlib
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pydantic
from pydantic import Field

from fedkernel.data.block_tables import file_errors
from fedkernel.data.checks.text_column_kinds import is_date
from fedkernel.data.raw import RawTable, is_text
from fedkernel.ground import AnyArray, InputError, explain, parse_toml, toml_value, write_atomic

MOST_LEVELS = 20  # most different texts of a column that a schema lists


class Column(pydantic.BaseModel):
    """Agreed properties of a table's column, an entry of a schema.

    - `least`, `most`: range of its numbers, ``from`` and ``to`` in the file.
    - `measured`: whether the range was measured at a site and so is no limit.
    - `whole`: whether its numbers are integers.
    - `levels`: all allowed texts.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    type: Literal["number", "text", "date"] = "number"
    unit: str | None = None
    least: float | None = Field(None, alias="from")
    most: float | None = Field(None, alias="to")
    measured: bool = False
    whole: bool = False
    levels: Annotated[tuple[str, ...], Field(min_length=1)] | None = None

    @pydantic.model_validator(mode="after")
    def _fits(self) -> "Column":
        if self.least is not None and self.most is not None and not self.least <= self.most:
            raise ValueError(f"from = {self.least:g} is more than to = {self.most:g}")
        if self.measured and (self.least is None or self.most is None):
            raise ValueError("measured = true, but not both from and to, which were measured then")
        ranged = self.unit is not None or self.least is not None or self.most is not None or self.whole
        if self.type != "number" and ranged:
            raise ValueError(f'type = "{self.type}", but unit, from, to and whole are for numbers')
        if self.type != "text" and self.levels is not None:
            raise ValueError(f'type = "{self.type}", but levels are for text')
        return self

    @property
    def range(self) -> tuple[float, float]:
        """Least and greatest number, infinite if not given."""
        return (-np.inf if self.least is None else self.least, np.inf if self.most is None else self.most)

    @property
    def limits(self) -> tuple[float, float]:
        """Least and greatest number allowed. A measured range may be exceeded by its own width at either end."""
        least, most = self.range
        slack = most - least if self.measured else 0.0
        return least - slack, most + slack

    def draw(self, rows: int, rng: np.random.Generator) -> AnyArray:
        """Draw synthetic cells (rows,), uniform in the column's range. Without one, numbers are near [0, 1]."""
        if self.type == "text":
            return rng.choice(np.array(self.levels or ("a", "b")), rows)
        if self.type == "date":
            return np.array([str(day) for day in np.datetime64("2000-01-01") + rng.integers(0, 9000, rows)])
        least = self.least if self.least is not None else min(0.0, 0.0 if self.most is None else self.most - 1)
        most = self.most if self.most is not None else max(1.0, least + 1)
        values = rng.uniform(least, most, rows)
        return np.round(values) if self.whole else values


class Schema(pydantic.BaseModel):
    """Agreed columns of all sites' tables, the number of synthetic rows, and the presence and length of ids."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    rows: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    ids: bool = False
    id_length: Annotated[int, Field(ge=1)] | None = None
    columns: Annotated[dict[str, Column], Field(min_length=1)]

    @pydantic.field_validator("columns")
    @classmethod
    def _stripped(cls, columns: dict[str, Column]) -> dict[str, Column]:
        return {name.strip(): column for name, column in columns.items()}

    @property
    def id(self) -> str | None:
        """Name of the column of synthetic ids, unlike any other column's, or None without ids."""
        name = "id"
        while name in self.columns:
            name += "_"
        return name if self.ids else None

    def write(self, path: Path, seed: int | None = None) -> Path:
        """Write independent synthetic rows as .parquet; without a seed they differ each time."""
        rng = np.random.default_rng(seed)
        rows = REHEARSAL_ROWS if self.rows is None else self.rows
        columns: dict[str, Any] = {name: column.draw(rows, rng) for name, column in self.columns.items()}
        if self.id is not None:
            columns[self.id] = [f"made-up-{row}" for row in range(rows)]
        arrow, parquet = (importlib.import_module(name) for name in ("pyarrow", "pyarrow.parquet"))
        return write_atomic(path, lambda file: parquet.write_table(arrow.table(columns), file), 0o600)

    def to_toml(self) -> str:
        """Return the schema as TOML, the inverse of `read_schema`."""
        head = {"rows": self.rows, "ids": self.ids, "id_length": self.id_length}
        lines = [f"{key} = {toml_value(value)}" for key, value in head.items() if value is not None]
        lines += ["", "[columns]"]
        for name, column in self.columns.items():
            table = column.model_dump(by_alias=True, exclude_defaults=True)
            lines.append(f"{toml_value(name)} = {toml_value(table)}")
        return "\n".join(lines) + "\n"


REHEARSAL_ROWS = 200  # default number of synthetic rows


def read_schema(path: Path) -> Schema:
    """Read a schema file. Raises InputError, with the file's name, if it is invalid."""
    with file_errors(path, "a schema, a TOML file such as `fedkernel check --schema` writes"):
        text = path.read_text(encoding="utf-8")
    try:
        return Schema.model_validate(parse_toml(text, path))
    except pydantic.ValidationError as error:
        raise InputError(f"{path}: {explain(error, list(Schema.model_fields))}") from None


def schema_of(raw: RawTable, *, ranges: bool) -> Schema:
    """Derive a schema from a table: columns, types and length of ids.

    `ranges`: whether to include data on single rows: their number, least and greatest numbers, and up to `MOST_LEVELS`
    texts.
    """
    lengths = {len(id_) for id_ in raw.ids or ()}
    return Schema(
        rows=raw.rows if ranges else None,
        ids=raw.ids is not None,
        id_length=lengths.pop() if len(lengths) == 1 else None,
        columns={name: _column(column, ranges) for name, column in raw.columns.items()},
    )


def _column(column: AnyArray, ranges: bool) -> Column:
    if is_text(column):
        texts = sorted({cell for cell in column if cell is not None})
        if texts and all(map(is_date, texts)):
            return Column(type="date")
        return Column(type="text", levels=tuple(texts) if ranges and 0 < len(texts) <= MOST_LEVELS else None)
    numbers = column[np.isfinite(column)]
    whole = bool(numbers.size and (numbers == np.round(numbers)).all())
    if not (ranges and numbers.size):
        return Column(whole=whole)
    ends = {"from": float(numbers.min()), "to": float(numbers.max())}
    return Column.model_validate({**ends, "measured": True, "whole": whole})


def without_unit(name: str) -> tuple[str, str | None]:
    """Split a column's name into name and unit, as in ``glucose [mg/dl]``."""
    for opening, closing in (("[", "]"), ("(", ")")):
        if name.endswith(closing) and opening in name:
            base, _, unit = name[:-1].rpartition(opening)
            if base.strip():
                return base.strip(), unit.strip()
    return name, None
