"""A site's rows: positions of the common rows, and differences to the rows of earlier runs."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedkernel.data import file_errors
from fedkernel.ground import InputError, Positions, ProtocolError, ShareableError, read_secret, write_atomic
from fedkernel.wire import SIZE, Hashes, are_hashes, as_keys, hash_ids


def read_key(path: str) -> bytes:
    """Read the key that sites share, stripped; InputError if the file is missing or holds less than 16 bytes."""
    with file_errors(path, "a file with the sites' key"):
        key = read_secret(Path(path).expanduser()).strip()
    if len(key) < SIZE:
        raise InputError(f"the key in {path} has {len(key)} bytes; allowed: at least {SIZE}")
    return key


def find_rows(own: Hashes, common: npt.NDArray[Any]) -> Positions:
    """Return the positions (n,) of the common rows in a site's table.

    `own` (n_m, 16). `common` (n, 16): from the coordinator. Raises ProtocolError if `common` are no hashes, not in
    order, repeated, or not all among the site's own.
    """
    if not are_hashes(common) or not len(common):
        raise ProtocolError(
            f"the rows agreed on have shape {common.shape}, {common.dtype}; allowed: (n, {SIZE}), uint8"
        )
    common_keys, own_keys = as_keys(common), as_keys(own)
    order = np.argsort(own_keys)
    places = np.minimum(np.searchsorted(own_keys, common_keys, sorter=order), len(own_keys) - 1)
    positions = order[places]
    if not np.all(common_keys[:-1] < common_keys[1:]) or not np.array_equal(own_keys[positions], common_keys):
        raise ProtocolError("the rows agreed on are not some of this site's own, in order and each once")
    return positions.astype(np.int64)


def own_rows(ids: Sequence[str] | None, key: bytes, positions: Positions | None, rows: int) -> Hashes:
    """Return hashes (n, 16) of a run's row ids, or row numbers without ids, the same in every run.

    `ids`: of all the site's `rows`. `positions` (n,): of the run's; None: all.
    """
    names = [str(row) for row in range(rows)] if ids is None else ids
    chosen = range(rows) if positions is None else positions.tolist()
    return hash_ids([names[row] for row in chosen], key, "", 0)


class RowsApart(NamedTuple):
    """Error phrases for rows new in a run, rows gone since an earlier one, and equal rows."""

    new: str
    gone: str
    same: str


ROWS_APART = RowsApart("{} rows more", "{} rows fewer", "rows")

VALUES_APART = RowsApart("other values in {} rows", "other values in {} rows", "values")


def check_rows_apart(
    folder: Path, rows: Hashes, least: int, *, note: bool = True, wording: RowsApart = ROWS_APART
) -> None:
    """Raise ShareableError if rows (n, 16) differ from an earlier run's, but by fewer than `least`.

    Differences over more than two runs are not checked. `rows`: from `own_rows` or
    `fedkernel.site.row_contents.row_contents`. `note`: whether to note the rows in `folder` for later runs. `wording`:
    phrases of the error.
    """
    keys = np.sort(as_keys(rows))
    path = folder / f"{hashlib.sha256(keys.tobytes()).hexdigest()}.npy"
    if path.exists():
        return
    for earlier in sorted(folder.glob("*.npy")):
        before = as_keys(np.load(earlier, allow_pickle=False))
        for what, differing in ((wording.new, np.setdiff1d(keys, before)), (wording.gone, np.setdiff1d(before, keys))):
            if 0 < len(differing) < least:
                raise ShareableError(
                    f"the run would work on {what.format(len(differing))} than an earlier one, whose difference would "
                    f"be about these; allowed: the same {wording.same}, or at least {least} others (table.rows_apart)"
                )
    if note:
        write_atomic(path, lambda file: np.save(file, rows), 0o600)
