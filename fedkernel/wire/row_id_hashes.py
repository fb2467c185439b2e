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

HASH_BYTES = 16
"""Bytes of a hash: among 10^9 ids, two have equal hashes with probability 10^-21."""

Missing = Literal["drop", "refuse"]
"""Treatment of rows that some site lacks: drop them everywhere, or refuse the run."""

Hashes = npt.NDArray[np.uint8]


def hash_ids(ids: Sequence[str], key: bytes, run: str, seed: int) -> Hashes:
    """Return the keyed hashes (n, 16) of row ids in a run. A repeated run has the same hashes."""
    salt = hashlib.sha256(f"fedkernel, ids of run {run}, seed {seed}".encode()).digest()
    hashes = b"".join(hmac.digest(key, salt + row_id.encode(), "sha256")[:HASH_BYTES] for row_id in ids)
    return np.frombuffer(hashes, np.uint8).reshape(-1, HASH_BYTES)


def key_check(key: bytes, run: str, seed: int) -> Hashes:
    """Return a hash, of shape (16,), that is equal at all sites with the same key."""
    check: Hashes = hash_ids([""], key, run, seed)[0]
    return check


def order_id(common: Hashes) -> int:
    """Return a number from 0 to 2^48 - 1 that identifies the common rows and their order."""
    return int.from_bytes(hashlib.sha256(common.tobytes()).digest()[:6])


def are_hashes(array: npt.NDArray[Any]) -> bool:
    """Return whether an array has the type and shape of hashes, uint8 and (n, 16)."""
    return array.dtype == np.uint8 and array.ndim == 2 and array.shape[1] == HASH_BYTES


def as_keys(hashes: npt.NDArray[Any]) -> npt.NDArray[np.bytes_]:
    """View hashes (n, 16) as n byte strings, which NumPy sorts and compares."""
    return np.ascontiguousarray(hashes).view(f"S{HASH_BYTES}").ravel()
