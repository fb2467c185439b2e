"""How large the clients' tables were, kept beside the runs for the report's description of the data."""

import json
from collections.abc import Sequence
from pathlib import Path

from fedkernel.storage import write_whole


def write_shapes(out: Path, shapes: Sequence[tuple[int, int]]) -> None:
    """Write rows and columns of each client's table, of the first setting and seed, where that is not there yet."""
    if read_shapes(out) != list(shapes):
        write_whole(_path(out), lambda file: file.write(json.dumps({"shapes": list(shapes)}).encode()))


def read_shapes(out: Path) -> list[tuple[int, int]]:
    """Return what has been written; nothing where nothing has, or something else."""
    try:
        return [(int(rows), int(columns)) for rows, columns in json.loads(_path(out).read_text())["shapes"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _path(out: Path) -> Path:
    return out / "data.json"
