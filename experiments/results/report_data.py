"""Data for the report beside runs.jsonl: table shapes, columns, component directions, and rows in two coordinates."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedkernel.experiments.results.rows import Run
from fedkernel.ground import AnyArray, FloatArray, InputError, load_npy, load_parts, open_npz, write_atomic


def write_shapes(out: Path, shapes: Sequence[tuple[int, int]], dropped: Sequence[int] = ()) -> None:
    """Write each client's table shape (rows, columns) and number of rows dropped for empty cells, unless written."""
    if read_shapes(out) != (list(shapes), list(dropped)):
        table = {"shapes": list(shapes)} | ({"dropped": list(dropped)} if dropped else {})
        write_atomic(out / "data.json", lambda file: file.write(json.dumps(table).encode()))


def read_shapes(out: Path) -> tuple[list[tuple[int, int]], list[int]]:
    """Return each client's table shape (rows, columns) and number of dropped rows. Empty without a valid file."""
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
    """Return the columns in the first strategy's model, or None without a model or names."""
    path = next((out / run.model for run in runs if run.kind == "strategy" and run.model), None)
    with suppress(InputError, KeyError, TypeError):
        if path is not None and (columns := (about := load_parts(path).about).get("columns")):
            return Columns(tuple(about.get("preparation", {"names": columns})["names"]), len(columns))
    return None


DIRECTIONS, ROWS = "directions.npy", "rows.npz"  # files in a run's folder of results


def write_directions(out: Path, run_id: str, directions: FloatArray) -> None:
    """Write a run's component directions, shape (k, rows, columns), each column of the data being a pixel."""
    write_atomic(_path(out, run_id, DIRECTIONS), lambda file: np.save(file, directions))


def read_directions(out: Path, runs: Iterable[Run]) -> Mapping[str, FloatArray]:
    """Return the stored component directions by run id."""
    paths = {run.id: _path(out, run.id, DIRECTIONS) for run in runs}
    return {run_id: load_npy(path) for run_id, path in paths.items() if path.exists()}


@dataclass(frozen=True)
class RowPicture:
    """Points (n, 2), class texts (n,) and cluster numbers (n,) of the drawn rows.

    The rows are the same for all methods of a seed. `sizes`: number of all rows in each cluster.
    """

    points: FloatArray
    classes: AnyArray | None = None
    clusters: AnyArray | None = None
    sizes: AnyArray | None = None


def write_row_picture(out: Path, run_id: str, picture: RowPicture) -> None:
    """Write a run's row picture into its results folder."""
    arrays = {name: array for name, array in vars(picture).items() if array is not None}
    write_atomic(_path(out, run_id, ROWS), lambda file: np.savez_compressed(file, allow_pickle=False, **arrays))


def read_row_pictures(out: Path, runs: Iterable[Run]) -> Mapping[str, RowPicture]:
    """Return the stored row pictures by run id."""
    pictures = {}
    for run in runs:
        if (path := _path(out, run.id, ROWS)).exists():
            with open_npz(path) as file:
                pictures[run.id] = RowPicture(**file)
    return pictures


def _path(out: Path, run_id: str, name: str) -> Path:
    return out / "results" / run_id / name
