"""Directions of a run's components over the columns, stored with its model for the report's images."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from experiments.results.rows import Run
from fedkernel.ground import FloatArray, write_atomic


def write_directions(out: Path, run_id: str, directions: FloatArray) -> None:
    """Write a run's component directions, shape (k, rows, columns), each column of the data being a pixel."""
    write_atomic(_path(out, run_id), lambda file: np.save(file, directions))


def read_directions(out: Path, runs: Iterable[Run]) -> Mapping[str, FloatArray]:
    """Return the stored component directions by run id."""
    paths = {run.id: _path(out, run.id) for run in runs}
    return {run_id: np.load(path, allow_pickle=False) for run_id, path in paths.items() if path.exists()}


def _path(out: Path, run_id: str) -> Path:
    return out / "results" / run_id / "directions.npy"
