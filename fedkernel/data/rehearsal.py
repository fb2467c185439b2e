"""A table that is made up: of the columns, kinds and ranges that a schema says, for a site that rehearses a run.

A schema is a TOML file::

    rows = 200
    ids = true # whether rows are known by ids, which are made up, too

    [columns]
    age = { from = 18, to = 99, whole = true }
    bmi = { from = 15.0, to = 45.0 }
"""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import pydantic
from pydantic import Field

from fedkernel.data.site_files import SiteData
from fedkernel.data.tables import readable
from fedkernel.errors import InputError
from fedkernel.storage import write_whole
from fedkernel.validation import explain


class Column(pydantic.BaseModel):
    """Between which numbers a column's values are, and whether these are whole."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    least: float = Field(alias="from")
    most: float = Field(alias="to")
    whole: bool = False

    @pydantic.model_validator(mode="after")
    def _in_order(self) -> "Column":
        if not self.least <= self.most:
            raise ValueError(f"from = {self.least:g} is more than to = {self.most:g}")
        return self


class Schema(pydantic.BaseModel):
    """What a table is like, without one of its values.

    Attributes
    ----------
    rows : int
    ids : bool
        Whether rows are known by ids.
    columns : dict of str to Column
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    rows: Annotated[int, Field(ge=1, le=10_000_000)]
    ids: bool = False
    columns: Annotated[dict[str, Column], Field(min_length=1)]

    def write(self, path: Path, seed: int | None = None) -> Path:
        """Write made-up rows as .npz, uniformly distributed and independent; other ones each time without a seed."""
        rng = np.random.default_rng(seed)
        drawn = [rng.uniform(column.least, column.most, self.rows) for column in self.columns.values()]
        whole = [column.whole for column in self.columns.values()]
        X = np.column_stack(
            [np.round(values) if is_whole else values for values, is_whole in zip(drawn, whole, strict=True)]
        )
        arrays = {"X": X, "columns": np.array(list(self.columns))}
        if self.ids:
            arrays["ids"] = np.array([f"made-up-{row}" for row in range(self.rows)])
        return write_whole(path, lambda file: np.savez(file, allow_pickle=False, **arrays), 0o600)


def read_schema(path: Path) -> Schema:
    """Read a schema; InputError in one sentence that names the file if it is none."""
    with readable(path, "a schema, a TOML file such as `fedkernel policy schema` writes"):
        text = path.read_text(encoding="utf-8")
    try:
        return Schema.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is no TOML: {error}") from None
    except pydantic.ValidationError as error:
        raise InputError(f"{path}: {explain(error, list(Schema.model_fields))}") from None


def schema_of(data: SiteData) -> str:
    """Return the schema of a table, as TOML: its size, and each column's name, kind and range, as they are."""
    n, d = data.X.shape
    least, most, whole = np.full(d, np.inf), np.full(d, -np.inf), np.ones(d, bool)
    for start in range(0, n, BLOCK):
        block = np.asarray(data.X.take(np.arange(start, min(start + BLOCK, n))))
        least, most = np.minimum(least, block.min(axis=0)), np.maximum(most, block.max(axis=0))
        whole &= (block == np.round(block)).all(axis=0)
    names: Sequence[str] = data.columns or [f"c{place}" for place in range(d)]
    lines = [f"rows = {n}", f"ids = {str(data.ids is not None).lower()}", "", "[columns]"]
    for name, low, high, is_whole in zip(names, least.tolist(), most.tolist(), whole.tolist(), strict=True):
        key = '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
        lines.append(f"{key} = {{ from = {low!r}, to = {high!r}{', whole = true' if is_whole else ''} }}")
    return "\n".join(lines) + "\n"


BLOCK = 10_000
"""Rows that are looked at a time."""
