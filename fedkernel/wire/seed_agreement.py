"""Joint seed of a run by commit and reveal: every site commits to a share before it learns another's.

The coordinator shows each site all commitments, collects the shares, and shows each site those. A site checks each step
against the one before. A coordinator thus cannot choose the seed, not even one that invented all other sites. A share
follows from a secret of the site, the study and the run, so that a restarted run has the same seed.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from fedkernel.ground import RefusedError

RULE = "study.joint_seed"


def commitment(share: str) -> str:
    """Return the hash that binds a site to its share without revealing the share."""
    return hashlib.sha256(share.encode()).hexdigest()


def joint_seed(shares: Sequence[str]) -> int:
    """Return the seed of all sites' shares in client order, below 2^48, exact as a float."""
    return int(hashlib.sha256("".join(shares).encode()).hexdigest()[:12], 16)


def check_commitments(commitments: Any, sites: int, client: int, share: str) -> str:
    """Return the digest of all sites' commitments, in client order; RefusedError if they do not fit.

    `sites`, `client`, `share`: the number of commitments, this site's position and its share.
    """
    if not _are_texts(commitments, sites) or commitments[client] != commitment(share):
        raise RefusedError(
            RULE, f"the commitments are not one of each of {sites} sites, this one's among them ({RULE})"
        )
    return hashlib.sha256("".join(commitments).encode()).hexdigest()


def check_shares(shares: Any, sites: int, digest: str) -> int:
    """Return the seed of all sites' shares; RefusedError if they do not fit the commitments' digest."""
    if not _are_texts(shares, sites) or _digest_of(shares) != digest:
        raise RefusedError(
            RULE, f"the shares of the seed are not those that the sites committed themselves to ({RULE})"
        )
    return joint_seed(shares)


def _are_texts(value: Any, number: int) -> bool:
    return isinstance(value, list | tuple) and len(value) == number and all(isinstance(text, str) for text in value)


def _digest_of(shares: Sequence[str]) -> str:
    return hashlib.sha256("".join(map(commitment, shares)).encode()).hexdigest()
