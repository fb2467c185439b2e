"""What is known of the clients' tables, for the report's description of the data: their sizes, their columns' names."""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from experiments.results.rows import Run
from fedkernel.ground import InputError, load_parts, write_whole


def write_shapes(out: Path, shapes: Sequence[tuple[int, int]], dropped: Sequence[int] = ()) -> None:
    """Write what is known of each client's table, of the first setting and seed, where that is not there yet.

    Parameters
    ----------
    out : Path
    shapes : sequence of (int, int)
        Rows and columns.
    dropped : sequence of int
        How many rows were left out for an empty cell, where any are.
    """
    if (read_shapes(out), read_dropped(out)) != (list(shapes), list(dropped)):
        table = {"shapes": list(shapes)} | ({"dropped": list(dropped)} if dropped else {})
        write_whole(_path(out), lambda file: file.write(json.dumps(table).encode()))


def read_shapes(out: Path) -> list[tuple[int, int]]:
    """Return rows and columns of each client's table; nothing where nothing has been written, or something else."""
    try:
        return [(int(rows), int(columns)) for rows, columns in _read(out)["shapes"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def read_dropped(out: Path) -> list[int]:
    """Return how many rows each client's table lost; nothing where nothing has been written, or something else."""
    try:
        return [int(rows) for rows in _read(out)["dropped"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


class Columns(NamedTuple):
    """Names of the columns of the clients' tables, where all have the same, and how many a method got of them."""

    names: tuple[str, ...]
    prepared: int


def read_columns(out: Path, runs: Iterable[Run]) -> Columns | None:
    """Return what the first strategy's model knows of its columns; None where it knows nothing, or is not there."""
    path = next((out / run.model for run in runs if run.kind == "strategy" and run.model), None)
    with suppress(InputError, KeyError, TypeError):
        if path is not None and (columns := (about := load_parts(path).about).get("columns")):
            return Columns(tuple(about.get("preparation", {"names": columns})["names"]), len(columns))
    return None


def _read(out: Path) -> Any:
    return json.loads(_path(out).read_text())


def _path(out: Path) -> Path:
    return out / "data.json"
