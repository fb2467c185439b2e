"""What sites agree on before the first round: which rows they have in common, and that their columns are the same.

Rows are compared by hashes of their ids: HMAC-SHA256 of the run's salt and the id, under a key that the sites share and
the coordinator does not know. It learns how many rows each site has and which hashes are at which sites; another run's
hashes are others. Without a key the function is known to everybody: a coordinator (or whoever reads its messages) that
can list likely ids, such as all customer numbers, finds out which of them a site has.
"""

import hashlib
import hmac
import logging
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fedkernel.arrays import Positions
from fedkernel.data.tables import readable
from fedkernel.errors import InputError, ProtocolError, TellableError
from fedkernel.storage import read_secret, write_whole

log = logging.getLogger(__name__)

SIZE = 16
"""Bytes of a hash: among 10^9 ids, two have the same one with probability 10^-21."""

Missing = Literal["drop", "refuse"]
"""What becomes of rows that are missing at a site: they are left out everywhere, or the run is refused."""

Hashes = npt.NDArray[np.uint8]


# --- what a site does ------------------------------------------------------------------------------------------------


def read_key(path: str) -> bytes:
    """Read the key that sites share, less the white space around it; none is known as text.

    Raises InputError if the file is missing or holds less than 16 bytes.
    """
    with readable(path, "a file with the sites' key"):
        key = read_secret(Path(path).expanduser()).strip()
    if len(key) < SIZE:
        raise InputError(f"the key in {path} has {len(key)} bytes; allowed: at least {SIZE}")
    return key


def hash_ids(ids: Sequence[str], key: bytes, run: str, seed: int) -> Hashes:
    """Return the hashes of ids in a run, of shape (n, 16).

    The salt follows from the run's id and seed, so that a run that is repeated sends the same bytes.
    """
    salt = hashlib.sha256(f"fedkernel, ids of run {run}, seed {seed}".encode()).digest()
    hashes = b"".join(hmac.digest(key, salt + row_id.encode(), "sha256")[:SIZE] for row_id in ids)
    return np.frombuffer(hashes, np.uint8).reshape(-1, SIZE)


def key_check(key: bytes, run: str, seed: int) -> Hashes:
    """Return what tells whether two sites have the same key, of shape (16,): the hash of the empty id of no row."""
    check: Hashes = hash_ids([""], key, run, seed)[0]
    return check


def find_rows(own: Hashes, common: npt.NDArray[Any]) -> Positions:
    """Return where a site has the rows that all agreed on.

    `own` (n_m, 16). `common` (n, 16): what the coordinator sent. Returns ndarray of shape (n,). Raises ProtocolError if
    `common` are no hashes, not in order, repeated, or not all among the site's own.
    """
    if not _are_hashes(common) or not len(common):
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


def order_of(common: Hashes) -> int:
    """Return a number from 0 to 2^48 - 1 by which sites and coordinator know the rows agreed on, in their order."""
    return int.from_bytes(hashlib.sha256(common.tobytes()).digest()[:6])


def own_rows(ids: Sequence[str] | None, key: bytes, positions: Positions | None, rows: int) -> Hashes:
    """Return by what a site knows the rows of a run in its own record, the same in every run: shape (n, 16).

    `ids`: of all its rows; None: they are known by their positions. `positions` (n,): of the rows that the run works
    on; None: all. `rows`: how many the site has.
    """
    names = [str(row) for row in range(rows)] if ids is None else ids
    chosen = range(rows) if positions is None else positions.tolist()
    return hash_ids([names[row] for row in chosen], key, "", 0)


class RowsApart(NamedTuple):
    """How an error names rows that a run has and an earlier one had not, those that only that had, and what is kept."""

    new: str
    gone: str
    same: str


ROWS_APART = RowsApart("{} rows more", "{} rows fewer", "rows")
VALUES_APART = RowsApart("other values in {} rows", "other values in {} rows", "values")


def check_rows_apart(
    folder: Path, rows: Hashes, least: int, *, note: bool = True, said: RowsApart = ROWS_APART
) -> None:
    """Raise InputError if rows (n, 16) differ from those of an earlier run by few; perhaps note them for later ones.

    The same rows again are allowed. What three runs say together about few rows is not seen.

    - `folder`: where the rows of earlier runs are noted.
    - `rows` (n, 16): as `own_rows` gives them, or `fedkernel.run.contents.row_contents`.
    - `least`: by how many they may differ.
    - `note`: whether something about them leaves.
    - `said`: what the error says of them.
    """
    keys = np.sort(as_keys(rows))
    path = folder / f"{hashlib.sha256(keys.tobytes()).hexdigest()}.npy"
    if path.exists():
        return
    for earlier in sorted(folder.glob("*.npy")):
        before = as_keys(np.load(earlier, allow_pickle=False))
        for what, differing in ((said.new, np.setdiff1d(keys, before)), (said.gone, np.setdiff1d(before, keys))):
            if 0 < len(differing) < least:
                raise TellableError(
                    f"the run would work on {what.format(len(differing))} than an earlier one, whose difference would "
                    f"be about these; allowed: the same {said.same}, or at least {least} others (table.rows_apart)"
                )
    if note:
        write_whole(path, lambda file: np.save(file, rows), 0o600)


# --- what the coordinator does ---------------------------------------------------------------------------------------


def common_rows(hashed: Mapping[str, npt.NDArray[Any]], missing: Missing, run: str) -> Hashes:
    """Return the hashes that all sites have, of shape (n, 16), in their own order, which is the rows' from now on.

    `hashed` (n_m, 16): the sites' hashes, by what error texts call them. `run`: for the log. Raises InputError if no
    row is common to all, or if one is not and that is refused. Raises ProtocolError if a site sent no hashes, or one
    twice.
    """
    keys = {}
    for site, hashes in hashed.items():
        if not _are_hashes(hashes):
            raise ProtocolError(f"{site} sent ids of shape {hashes.shape}, {hashes.dtype}; allowed: (n, {SIZE}), uint8")
        keys[site] = np.unique(as_keys(hashes))
        if len(keys[site]) < len(hashes):
            raise ProtocolError(f"{site} sent the same id twice; allowed: each once")
    common = reduce(np.intersect1d, keys.values())
    counts = ", ".join(f"{site} has {len(own)}" for site, own in keys.items())
    if not len(common):
        raise InputError(f"no row is common to all sites: {counts}; allowed: at least one id that all have")
    if missing == "refuse":
        every = len(reduce(np.union1d, keys.values()))
        if lacking := ", ".join(f"{every - len(own)} at {site}" for site, own in keys.items() if len(own) < every):
            raise InputError(f"missing = 'refuse', but of the {every} ids of all sites some are missing: {lacking}")
    log.info("%s: rows are aligned by their ids: %s; %d are common to all", run, counts, len(common))
    return np.frombuffer(common.tobytes(), np.uint8).reshape(-1, SIZE)


def stranger_of(hashed: Mapping[str, Hashes]) -> str | None:
    """Return the one site of three or more without which the others have rows in common; None: there is no such one."""
    if len(hashed) < 3:
        return None
    keys = {site: as_keys(hashes) for site, hashes in hashed.items()}
    others = {site: [own for other, own in keys.items() if other != site] for site in keys}
    strangers = [site for site, rest in others.items() if len(reduce(np.intersect1d, rest))]
    return strangers[0] if len(strangers) == 1 else None


def check_same_columns(columns: Mapping[str, Sequence[str]], *, in_any_order: bool = False) -> None:
    """Raise InputError if sites' columns, by what error texts call the sites, have other names.

    So does another order, unless the run puts them in the first site's, which is logged then.
    """
    (first, expected), *others = columns.items()
    for site, names in others:
        if list(names) == list(expected):
            continue
        if in_any_order and sorted(names) == sorted(expected):
            log.info("the columns of %s are put in the order of those of %s", site, first)
            continue
        if len(names) < len(expected):
            lacking = next(name for name in expected if name not in names)
            raise InputError(
                f"{site} has no column {lacking!r}, which {first} has; allowed: the same columns everywhere"
            )
        if len(names) > len(expected):
            surplus = next(name for name in names if name not in expected)
            raise InputError(f"{site} has a column {surplus!r}, which {first} has not; allowed: the same everywhere")
        place = next(place for place, name in enumerate(names) if name != expected[place])
        order = "; the names are the same, but not their order" if set(names) == set(expected) else ""
        raise InputError(
            f"{site}: column {place} (counted from 0) is {names[place]!r}, but {expected[place]!r} was expected, as at "
            f"{first}{order}"
        )


def _are_hashes(array: npt.NDArray[Any]) -> bool:
    return array.dtype == np.uint8 and array.ndim == 2 and array.shape[1] == SIZE


def as_keys(hashes: npt.NDArray[Any]) -> npt.NDArray[np.bytes_]:
    """Return hashes (n, 16) as n keys that numpy compares and sorts, byte after byte."""
    return np.ascontiguousarray(hashes).view(f"S{SIZE}").ravel()
