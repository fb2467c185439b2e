"""Shapes and column names of the clients' tables, for the report's description of the data."""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from experiments.results.rows import Run
from fedkernel.ground import InputError, load_parts, write_atomic


def write_shapes(out: Path, shapes: Sequence[tuple[int, int]], dropped: Sequence[int] = ()) -> None:
    """Write each client's table shape, (rows, columns), and rows left out for an empty cell, unless written."""
    if read_shapes(out) != (list(shapes), list(dropped)):
        table = {"shapes": list(shapes)} | ({"dropped": list(dropped)} if dropped else {})
        write_atomic(out / "data.json", lambda file: file.write(json.dumps(table).encode()))


def read_shapes(out: Path) -> tuple[list[tuple[int, int]], list[int]]:
    """Return rows and columns of each client's table, and each one's dropped rows; empty if there is no valid file."""
    try:
        table = json.loads((out / "data.json").read_text())
        shapes = [(int(rows), int(columns)) for rows, columns in table["shapes"]]
        return shapes, [int(rows) for rows in table.get("dropped", ())]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return [], []


class Columns(NamedTuple):
    """Column names that all clients' tables have, and the number of columns after preparation."""

    names: tuple[str, ...]
    prepared: int


def read_columns(out: Path, runs: Iterable[Run]) -> Columns | None:
    """Return the columns in the first strategy's model; None without a model or names."""
    path = next((out / run.model for run in runs if run.kind == "strategy" and run.model), None)
    with suppress(InputError, KeyError, TypeError):
        if path is not None and (columns := (about := load_parts(path).about).get("columns")):
            return Columns(tuple(about.get("preparation", {"names": columns})["names"]), len(columns))
    return None
