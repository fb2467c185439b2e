"""Intersection of the sites' rows by hashed ids, and comparison of the sites' column names."""

import logging
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkernel.ground import InputError, ProtocolError
from fedkernel.wire import HASH_BYTES, Hashes, Missing, are_hashes, as_keys

log = logging.getLogger(__name__)


def common_rows(hashed: Mapping[str, npt.NDArray[Any]], missing: Missing, run: str) -> Hashes:
    """Return the hashed ids (n, 16) common to all sites, sorted. The aligned rows have this order.

    Raises InputError if there are none, or if `missing` refuses rows; ProtocolError for invalid or repeated hashes.
    """
    keys = {}
    for site, hashes in hashed.items():
        if not are_hashes(hashes):
            raise ProtocolError(f"{site} sent {hashes.dtype} ids of shape {hashes.shape}, not uint8 (n, {HASH_BYTES})")
        keys[site] = np.unique(as_keys(hashes))
        if len(keys[site]) < len(hashes):
            raise ProtocolError(f"{site} sent the same id twice; ids must differ")
    common = reduce(np.intersect1d, keys.values())
    counts = ", ".join(f"{site} has {len(own)}" for site, own in keys.items())
    if not len(common):
        raise InputError(f"no row is common to all sites: {counts}; at least one id must be at all sites")
    if missing == "refuse":
        every = len(reduce(np.union1d, keys.values()))
        if lacking := ", ".join(f"{every - len(own)} at {site}" for site, own in keys.items() if len(own) < every):
            raise InputError(f"missing = 'refuse', but of the {every} ids of all sites some are missing: {lacking}")
    log.info("%s: rows are aligned by their ids: %s; %d are common to all", run, counts, len(common))
    return np.frombuffer(common.tobytes(), np.uint8).reshape(-1, HASH_BYTES)


def outlying_site(hashed: Mapping[str, Hashes]) -> str | None:
    """Return the only site without which the others (two or more) have common rows, or None if there is none."""
    if len(hashed) < 3:
        return None
    keys = {site: as_keys(hashes) for site, hashes in hashed.items()}
    others = {site: [own for other, own in keys.items() if other != site] for site in keys}
    strangers = [site for site, rest in others.items() if len(reduce(np.intersect1d, rest))]
    return strangers[0] if len(strangers) == 1 else None


def check_same_columns(columns: Mapping[str, Sequence[str]], *, in_any_order: bool = False) -> None:
    """Raise InputError if sites' column names differ. `in_any_order`: another order than the first's is only logged."""
    (first, expected), *others = columns.items()
    for site, names in others:
        if list(names) == list(expected):
            continue
        if in_any_order and sorted(names) == sorted(expected):
            log.info("the columns of %s are reordered like those of %s", site, first)
            continue
        if len(names) < len(expected):
            lacking = next(name for name in expected if name not in names)
            text = f"{site} has no column {lacking!r}, which {first} has; allowed: the same columns everywhere"
            raise InputError(text)
        if len(names) > len(expected):
            surplus = next(name for name in names if name not in expected)
            raise InputError(f"{site} has a column {surplus!r}, which {first} lacks; allowed: the same everywhere")
        place = next(place for place, name in enumerate(names) if name != expected[place])
        order = "; the names are equal, but in a different order" if set(names) == set(expected) else ""
        raise InputError(
            f"{site}: column {place} (counted from 0) is {names[place]!r}, but {expected[place]!r} was expected, as at "
            f"{first}{order}"
        )
