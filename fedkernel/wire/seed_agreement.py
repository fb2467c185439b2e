"""Joint seed of a run by commit and reveal: every site commits to a share before any share is revealed.

The coordinator shows each site all commitments, collects the shares, and shows each site those. A site checks each step
against the one before. A coordinator thus cannot choose the seed, not even one that invented all other sites. A share
follows from a secret of the site, the study and the run, so that a restarted run has the same seed.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from fedkernel.ground import RefusedError

JOINT_SEED_RULE = "study.joint_seed"


def commitment(share: str) -> str:
    """Return the hash that binds a site to its share of the seed without revealing the share."""
    return hashlib.sha256(share.encode()).hexdigest()


def joint_seed(shares: Sequence[str]) -> int:
    """Compute the seed, below 2^48 and so exact as a float, from all sites' shares in client order."""
    return int(hashlib.sha256("".join(shares).encode()).hexdigest()[:12], 16)


def check_commitments(commitments: Any, sites: int, client: int, share: str) -> str:
    """Return the digest of all commitments. Raises RefusedError unless there is one per site, and this site's fits."""
    if not _are_texts(commitments, sites) or commitments[client] != commitment(share):
        raise RefusedError(
            JOINT_SEED_RULE,
            f"the request must hold one commitment per site ({sites}), including this site's own ({JOINT_SEED_RULE})",
        )
    return hashlib.sha256("".join(commitments).encode()).hexdigest()


def check_shares(shares: Any, sites: int, digest: str) -> int:
    """Compute the seed from all sites' shares. Raises RefusedError unless they match the commitments' digest."""
    if not _are_texts(shares, sites) or hashlib.sha256("".join(map(commitment, shares)).encode()).hexdigest() != digest:
        text = f"the shares of the seed do not match the sites' commitments ({JOINT_SEED_RULE})"
        raise RefusedError(JOINT_SEED_RULE, text)
    return joint_seed(shares)


def _are_texts(value: Any, number: int) -> bool:
    return isinstance(value, list | tuple) and len(value) == number and all(isinstance(text, str) for text in value)
