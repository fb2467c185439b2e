"""Keyed hashes of row ids, by which sites find the rows that they have in common.

Rows are compared by hashes of their ids: HMAC-SHA256 of the run's salt and the id, under a key that the sites share and
the coordinator does not know. It learns how many rows each site has and which hashes are at which sites; another run's
hashes are others. Without a key the function is known to everybody: a coordinator (or whoever reads its messages) that
can list likely ids, such as all customer numbers, finds out which of them a site has.
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
"""What becomes of rows that are missing at a site: they are left out everywhere, or the run is refused."""

Hashes = npt.NDArray[np.uint8]


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


def order_of(common: Hashes) -> int:
    """Return a number from 0 to 2^48 - 1 by which sites and coordinator know the rows agreed on, in their order."""
    return int.from_bytes(hashlib.sha256(common.tobytes()).digest()[:6])


def are_hashes(array: npt.NDArray[Any]) -> bool:
    """Return whether an array has the type and shape of hashes, uint8 and (n, 16)."""
    return array.dtype == np.uint8 and array.ndim == 2 and array.shape[1] == SIZE


def as_keys(hashes: npt.NDArray[Any]) -> npt.NDArray[np.bytes_]:
    """Return hashes (n, 16) as n keys that numpy compares and sorts, byte after byte."""
    return np.ascontiguousarray(hashes).view(f"S{SIZE}").ravel()
