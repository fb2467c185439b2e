"""Keyed hashes of row ids, for sites to find their common rows.

A hash is HMAC-SHA256 of the run's salt and the id, under a key that the sites share and the coordinator does not know.
The coordinator learns each site's number of rows and which hashes are at which sites. Hashes differ between runs.
Without a key, a reader of the hashes with a list of likely ids, such as all customer numbers, finds a site's ids.
"""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

SIZE = 16
"""Bytes of a hash: among 10^9 ids, two have the same one with probability 10^-21."""

Missing = Literal["drop", "refuse"]
"""Treatment of rows that a site lacks: drop them everywhere, or refuse the run."""

Hashes = npt.NDArray[np.uint8]


def hash_ids(ids: Sequence[str], key: bytes, run: str, seed: int) -> Hashes:
    """Return the hashes of ids in a run, of shape (n, 16).

    The salt follows from the run's id and seed, so that a repeated run sends the same bytes.
    """
    salt = hashlib.sha256(f"fedkernel, ids of run {run}, seed {seed}".encode()).digest()
    hashes = b"".join(hmac.digest(key, salt + row_id.encode(), "sha256")[:SIZE] for row_id in ids)
    return np.frombuffer(hashes, np.uint8).reshape(-1, SIZE)


def key_check(key: bytes, run: str, seed: int) -> Hashes:
    """Return a hash, of shape (16,), that is equal at two sites with the same key."""
    check: Hashes = hash_ids([""], key, run, seed)[0]
    return check


def order_of(common: Hashes) -> int:
    """Return a number, from 0 to 2^48 - 1, that identifies the common rows in their order."""
    return int.from_bytes(hashlib.sha256(common.tobytes()).digest()[:6])


def are_hashes(array: npt.NDArray[Any]) -> bool:
    """Return whether an array has the type and shape of hashes, uint8 and (n, 16)."""
    return array.dtype == np.uint8 and array.ndim == 2 and array.shape[1] == SIZE


def as_keys(hashes: npt.NDArray[Any]) -> npt.NDArray[np.bytes_]:
    """Return hashes (n, 16) as n keys that NumPy sorts bytewise."""
    return np.ascontiguousarray(hashes).view(f"S{SIZE}").ravel()
