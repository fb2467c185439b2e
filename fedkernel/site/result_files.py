"""Files that a site keeps of its runs: outputs, rows, table fingerprint, preparation and noise."""

import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkernel.data import Preparation, Prepare
from fedkernel.ground import AnyArray, InputError, Positions, ensure_writable_folder, open_npz, write_atomic, write_rows
from fedkernel.preparing import TableToPrepare, from_text
from fedkernel.wire import Projecting

log = logging.getLogger(__name__)

MOST_CSV_COLUMNS = 50
"""Most columns of an output array that a site also writes as CSV."""

NOISE_FOLDER = "noise"

Noise = Mapping[str, AnyArray]

RUN = "(run)"  # name of the array that identifies the run among runs of the same id
EARLIER = "earlier"  # subfolder for the files of earlier runs of the same id


def write_results(path: Path, outputs: dict[str, AnyArray], sheet: Path | None = None, key: str = "") -> None:
    """Write a site's output arrays to `path`, and labels and coordinates as CSV to `sheet`.

    `key`: identifies the run; files of a different run with its id move to `EARLIER`.
    """
    if key:
        _set_aside([path, *([] if sheet is None else [sheet])], key)
        outputs = {**outputs, RUN: np.array(key)}
    write_atomic(path, lambda file: np.savez_compressed(file, allow_pickle=False, **outputs), 0o600)
    few = {name: array for name, array in outputs.items() if array.ndim < 2 or array.shape[1] <= MOST_CSV_COLUMNS}
    if sheet is not None and {"labels", "embedding"} & few.keys():
        write_rows(sheet, few, 0o600)


def _set_aside(files: Sequence[Path], key: str) -> None:
    """Move files into the folder `EARLIER` under new names, unless the first one belongs to the run `key`."""
    present = [path for path in files if path.exists()]
    with suppress(FileNotFoundError, InputError, KeyError), open_npz(files[0]) as file:
        if str(file[RUN]) == key:
            return
    for number in itertools.count(1):
        places = [path.parent / EARLIER / f"{path.stem}{f'-{number}' * (number > 1)}{path.suffix}" for path in present]
        if not any(place.exists() for place in places):
            break
    for path, place in zip(present, places, strict=True):
        place.parent.mkdir(0o700, exist_ok=True)
        log.warning("%s is of a different run with this name, and was moved to %s", path, path.rename(place))


@dataclass(frozen=True)
class RunRows:
    """Rows of a site's file in a run's order: ids (N,), positions (N,), the file's SHA-256, and `order_id`."""

    order: int
    positions: Positions
    ids: npt.NDArray[np.str_]
    sha256: str

    @classmethod
    def of(
        cls, order: int, positions: Positions | None, ids: Sequence[str], sha256: str, used: Positions | None = None
    ) -> "RunRows":
        """Build from positions (None: all) among a file's usable rows. `used`, `ids`: those rows' positions and ids."""
        places = np.arange(len(ids)) if positions is None else positions
        return cls(order, places if used is None else used[places], np.array(ids)[places], sha256)

    def save(self, folder: Path, run: str) -> None:
        """Write the rows to an .npz file that only the site's owner can read."""
        arrays = {name: np.array(getattr(self, name)) for name in ("order", "positions", "ids", "sha256")}
        path = _rows_path(folder, run)
        write_atomic(path, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays), 0o600)

    @classmethod
    def load(cls, folder: Path, run: str) -> "RunRows":
        """Read the stored rows of a run. Raises InputError if there are none."""
        path = _rows_path(folder, run)
        try:
            with open_npz(path) as file:
                noted: dict[str, Any] = {name: file[name] for name in ("order", "positions", "ids", "sha256")}
            return cls(int(noted["order"]), noted["positions"], noted["ids"], str(noted["sha256"]))
        except FileNotFoundError:
            raise InputError(f"{path.parent} has no rows of run {run!r}; use the --out folder of that run") from None

    def usable_positions(self, table: TableToPrepare) -> Positions:
        """Return the rows' positions among the usable rows of the file's raw table."""
        return self.positions if table.kept is None else np.searchsorted(table.kept, self.positions)

    def check_for(self, project: Projecting, sha256: str, what: str) -> None:
        """Raise InputError if the site's file or the earlier run's row order has changed since the earlier run."""
        if self.order != project.order:
            raise InputError(f"run {project.of!r} was started again since, with its rows in a different order")
        if self.sha256 != sha256:
            raise InputError(f"{what} has changed since run {project.of!r}; restore it, and put new rows into --new")


def table_at_start(folder: Path, run: str, beginning: str, now: str) -> str:
    """Return the table's fingerprint at a run's start. A new start stores `now`, the present fingerprint.

    A process that is restarted within a run gets all requests again, from the same start; the stored fingerprint
    detects a table that changed meanwhile. `beginning`: the coordinator's id of the start; empty: always a new one.
    """
    path = folder / "tables-of-runs" / f"{run}.txt"
    if beginning and path.exists():
        noted_beginning, _, fingerprint = path.read_text(encoding="utf-8").partition(" ")
        if noted_beginning == beginning:
            return fingerprint
    write_atomic(path, lambda file: file.write(f"{beginning} {now}".encode()), 0o600)
    return now


def stored_preparation(folder: Path, run: str, prepare: Prepare | None) -> Preparation | None:
    """Return an earlier run's preparation of a site's table, if any. Raises InputError unless made by `prepare`."""
    path, preparation = folder / f"{run}.npz", None
    with suppress(FileNotFoundError), open_npz(path) as file:
        if "preparation" in file:
            preparation = from_text(str(file["preparation"]))
    expected = prepare if prepare is None or preparation is None else prepare.within(preparation.names)
    if expected != (None if preparation is None else preparation.prepare):
        way = "no preparation" if preparation is None else "a different preparation"
        raise InputError(
            f"{path} has {way} for run {run!r} than the study says; prepare must be the earlier run's, and --out its "
            "folder"
        )
    return preparation


def kept_noise(folder: Path, run: str, name: str, draw: Callable[[], Noise]) -> Noise:
    """Return the noise stored under a name in a site's folder, or draw and store it. `run`: the run's `Gate.key`.

    A repeated request then gets the same reply: another draw would give it away.
    """
    path = folder / NOISE_FOLDER / run / f"{name}.npz"
    try:
        with open_npz(path) as file:
            return dict(file)
    except FileNotFoundError:
        noise = dict(draw())
        ensure_writable_folder(folder / NOISE_FOLDER, 0o700)
        ensure_writable_folder(path.parent, 0o700)
        write_atomic(path, lambda file: np.savez(file, allow_pickle=False, **noise), 0o600)
        return noise


def _rows_path(folder: Path, run: str) -> Path:
    return folder / "rows-of-runs" / f"{run}.npz"
