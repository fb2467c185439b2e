"""What the components of a run are in the space of the columns, kept beside its model for the report's pictures."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from experiments.results.rows import Run
from fedkernel.ground import FloatArray, write_whole


def write_directions(out: Path, run_id: str, directions: FloatArray) -> None:
    """Write the directions of a run, (k, rows, columns) where each column of the data is a pixel."""
    write_whole(_path(out, run_id), lambda file: np.save(file, directions))


def read_directions(out: Path, runs: Iterable[Run]) -> Mapping[str, FloatArray]:
    """Return by the run's id what has been written."""
    paths = {run.id: _path(out, run.id) for run in runs}
    return {run_id: np.load(path, allow_pickle=False) for run_id, path in paths.items() if path.exists()}


def _path(out: Path, run_id: str) -> Path:
    return out / "results" / run_id / "directions.npy"
