"""Positions of the common rows in a site's table, and check of its rows against earlier runs."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkernel.data import file_errors
from fedkernel.ground import InputError, Positions, ProtocolError, ShareableError, read_secret, write_atomic
from fedkernel.wire import HASH_BYTES, Hashes, are_hashes, as_keys, hash_ids


def read_key(path: str) -> bytes:
    """Read the key for id hashes that sites share; InputError if it is missing or shorter than 16 bytes."""
    with file_errors(path, "a file with the sites' key"):
        key = read_secret(Path(path).expanduser()).strip()
    if len(key) < HASH_BYTES:
        raise InputError(f"the key in {path} has {len(key)} bytes; allowed: at least {HASH_BYTES}")
    return key


def find_rows(own: Hashes, common: npt.NDArray[Any]) -> Positions:
    """Return the positions (n,) of the common rows in a site's table, by their hashes.

    `own` (n_m, 16): of the site's rows. `common` (n, 16): from the coordinator. Raises ProtocolError unless `common`
    are some of the site's hashes, in order and each once.
    """
    if not are_hashes(common) or not len(common):
        raise ProtocolError(
            f"the hashes of the common rows have shape {common.shape} and type {common.dtype}, but must have "
            f"(n, {HASH_BYTES}) and uint8"
        )
    common_keys, own_keys = as_keys(common), as_keys(own)
    order = np.argsort(own_keys)
    places = np.minimum(np.searchsorted(own_keys, common_keys, sorter=order), len(own_keys) - 1)
    positions = order[places]
    if not np.all(common_keys[:-1] < common_keys[1:]) or not np.array_equal(own_keys[positions], common_keys):
        raise ProtocolError("the common rows must be among this site's own, in order and each once")
    return positions.astype(np.int64)


def row_hashes(ids: Sequence[str] | None, key: bytes, positions: Positions | None, rows: int) -> Hashes:
    """Return hashes (n, 16) of the ids, or else positions, of a run's rows (None: all), equal in every run."""
    names = [str(row) for row in range(rows)] if ids is None else ids
    chosen = range(rows) if positions is None else positions.tolist()
    return hash_ids([names[row] for row in chosen], key, "", 0)


ROWS_APART = "{} rows more", "{} rows fewer", "rows"
VALUES_APART = "other values in {} rows", "other values in {} rows", "values"
"""Error phrases for rows added since an earlier run, rows removed since then, and equal rows."""


def check_rows_apart(
    folder: Path, rows: Hashes, least: int, *, note: bool = True, wording: tuple[str, str, str] = ROWS_APART
) -> None:
    """Raise ShareableError if a run's rows differ from an earlier run's in some, but fewer than `least`.

    Differences over more than two runs are not checked. `rows` (n, 16): from `row_hashes` or
    `fedkernel.site.row_contents.row_contents`. `note`: store them in `folder` for later runs.
    """
    keys = np.sort(as_keys(rows))
    path, (new, gone, same) = folder / f"{hashlib.sha256(keys.tobytes()).hexdigest()}.npy", wording
    if path.exists():
        return
    for earlier in sorted(folder.glob("*.npy")):
        before = as_keys(np.load(earlier, allow_pickle=False))
        for what, differing in ((new, np.setdiff1d(keys, before)), (gone, np.setdiff1d(before, keys))):
            if 0 < len(differing) < least:
                raise ShareableError(
                    f"the run has {what.format(len(differing))} than an earlier run, so their results' difference "
                    f"would show these; allowed: the same {same} or {least} others at least (table.rows_apart)"
                )
    if note:
        write_atomic(path, lambda file: np.save(file, rows), 0o600)
