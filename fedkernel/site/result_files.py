"""Files of results that a site stores for itself after a run."""

import itertools
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkernel.data import Preparation, Prepare, SiteData, as_table
from fedkernel.ground import AnyArray, InputError, Positions, Rows, open_npz, write_atomic, write_rows
from fedkernel.preparing import TableToPrepare, from_text
from fedkernel.wire import Projecting

log = logging.getLogger(__name__)

SHEET = 50
"""Columns of an array that a site also keeps as CSV, at most."""

RUN = "(run)"
"""Name of the array that identifies the run among others of the same id."""

EARLIER = "earlier"
"""Subfolder for files of other runs of the same id."""


def keeper(path: Path | None, sheet: Path | None = None, key: str = "") -> Callable[[dict[str, AnyArray]], object]:
    """Return a function that stores a site's arrays in a file, and labels and coordinates as CSV.

    `path` None: nothing is stored. `key`: identifies the run; files of another run of the same id are moved to
    `EARLIER`.
    """

    def keep(outputs: dict[str, AnyArray]) -> None:
        if path is not None and key:
            _set_aside([path, *([] if sheet is None else [sheet])], key)
            outputs = {**outputs, RUN: np.array(key)}
        if path is not None:
            write_atomic(path, lambda file: np.savez_compressed(file, allow_pickle=False, **outputs), 0o600)
        few = {name: array for name, array in outputs.items() if array.ndim < 2 or array.shape[1] <= SHEET}
        if sheet is not None and {"labels", "embedding"} & few.keys():
            write_rows(sheet, few, 0o600)

    return keep


def _set_aside(files: Sequence[Path], key: str) -> None:
    """Move files into the folder `EARLIER` under new names, unless the first is of this run."""
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
        log.warning("%s is of another run of that name, and now %s", path, path.rename(place))


@dataclass(frozen=True)
class RunRows:
    """The rows of a site's file in a run, in its order, noted for runs that project.

    `order`: see `fedkernel.wire.order_of`. `positions` (N,): in the file. `ids` (N,): texts. `sha256`: of the file.
    """

    order: int
    positions: Positions
    ids: npt.NDArray[np.str_]
    sha256: str

    @classmethod
    def of(
        cls,
        order: int,
        positions: Positions | None,
        ids: Sequence[str],
        sha256: str,
        used: Positions | None = None,
    ) -> "RunRows":
        """Return the rows at these positions (None: all) among a file's `used` ones, which have these ids."""
        places = np.arange(len(ids)) if positions is None else positions
        return cls(order, places if used is None else used[places], np.array(ids)[places], sha256)

    def save(self, folder: Path, run: str) -> None:
        """Write the rows as .npz, readable for the site's owner only."""
        arrays = {name: np.array(getattr(self, name)) for name in ("order", "positions", "ids", "sha256")}
        path = _noted(folder, run)
        write_atomic(path, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays), 0o600)

    @classmethod
    def load(cls, folder: Path, run: str) -> "RunRows":
        """Read a run's rows; InputError if none are noted."""
        path = _noted(folder, run)
        try:
            with open_npz(path) as file:
                noted: dict[str, Any] = {name: file[name] for name in ("order", "positions", "ids", "sha256")}
            return cls(int(noted["order"]), noted["positions"], noted["ids"], str(noted["sha256"]))
        except FileNotFoundError:
            raise InputError(
                f"nothing is noted of run {run!r} in {path.parent}; allowed: the folder that it was joined with (--out)"
            ) from None

    def rows_for(self, project: Projecting, own: SiteData, sha256: str, what: str) -> Rows:
        """Return the earlier run's rows (N, d_m) of the site's table; InputError like `check_for`."""
        self.check_for(project, sha256, what)
        return as_table(own.X, what).take(self.positions)

    def used_of(self, table: TableToPrepare) -> Positions:
        """Return the positions of the rows among the usable ones of the file's raw table."""
        return self.positions if table.kept is None else np.searchsorted(table.kept, self.positions)

    def check_for(self, project: Projecting, sha256: str, what: str) -> None:
        """Raise InputError if the file's hash is not this one, or the run has another order since."""
        if self.order != project.order:
            raise InputError(f"run {project.of!r} has begun again since, with its rows in another order")
        if self.sha256 != sha256:
            raise InputError(
                f"{what} has changed since run {project.of!r}; allowed: the file as it was then, new rows in another"
            )


def table_as_begun(folder: Path, run: str, beginning: str, now: str) -> str:
    """Return the table's fingerprint at a run's start, and note the present one, `now`, at a new start.

    A process that was restarted within a run gets all requests again, from the same start. The note detects a table
    changed since the earlier answers. `beginning`: the coordinator's id of this start; empty: always a new start.
    """
    path = folder / "tables-of-runs" / f"{run}.txt"
    if beginning and path.exists():
        noted_beginning, _, fingerprint = path.read_text(encoding="utf-8").partition(" ")
        if noted_beginning == beginning:
            return fingerprint
    write_atomic(path, lambda file: file.write(f"{beginning} {now}".encode()), 0o600)
    return now


def kept_preparation(folder: Path, run: str, prepare: Prepare | None) -> Preparation | None:
    """Return the preparation of a site's table in an earlier run; None: not prepared.

    Raises InputError unless the stored preparation is the expected one, `prepare`.
    """
    path, preparation = folder / f"{run}.npz", None
    try:
        with open_npz(path) as file:
            if "preparation" in file:
                preparation = from_text(str(file["preparation"]))
    except FileNotFoundError:
        pass
    if preparation is None:
        same = prepare is None
    else:
        same = prepare is not None and preparation.prepare == prepare.within(preparation.names)
    if not same:
        way = "nothing" if preparation is None else "another way"
        raise InputError(
            f"{path} says {way} of how run {run!r} prepared the table; allowed: what it says, in the study (prepare), "
            "and the folder that the run was joined with (--out)"
        )
    return preparation


def _noted(folder: Path, run: str) -> Path:
    return folder / "rows-of-runs" / f"{run}.npz"
