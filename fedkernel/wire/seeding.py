"""A run's seed that nobody chooses: every site commits itself to a share before it learns another's.

The coordinator shows each site all commitments, gets the shares, and shows each site those. A site checks at every step
what was shown before, so that a seed which suits a coordinator, also one that invented all other sites, would take
another share of this one. A share follows from a secret of the site, the study and the run: the same run has the same
seed whenever it begins again.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from fedkernel.ground import RefusedError

RULE = "study.joint_seed"


def commitment(share: str) -> str:
    """Return what binds a site to its share and does not tell it."""
    return hashlib.sha256(share.encode()).hexdigest()


def joint_seed(shares: Sequence[str]) -> int:
    """Return the seed of all sites' shares, in the order of the clients: below 2^48, which a float holds."""
    return int(hashlib.sha256("".join(shares).encode()).hexdigest()[:12], 16)


def check_commitments(commitments: Any, sites: int, client: int, share: str) -> str:
    """Return the digest of all sites' commitments; RefusedError unless they are of so many, this site's in its place.

    `commitments`: as whoever asks shows them. `sites`, `client`: how many sites the run has, and this one's place.
    `share`: this site's.
    """
    if not _are_texts(commitments, sites) or commitments[client] != commitment(share):
        raise RefusedError(
            RULE, f"the commitments are not one of each of {sites} sites, this one's among them ({RULE})"
        )
    return hashlib.sha256("".join(commitments).encode()).hexdigest()


def check_shares(shares: Any, sites: int, digest: str) -> int:
    """Return the seed of all sites' shares; RefusedError unless they are what the sites committed themselves to.

    `digest` is what `check_commitments` returned of the commitments that were shown before.
    """
    if not _are_texts(shares, sites) or _digest_of(shares) != digest:
        raise RefusedError(
            RULE, f"the shares of the seed are not those that the sites committed themselves to ({RULE})"
        )
    return joint_seed(shares)


def _are_texts(value: Any, number: int) -> bool:
    return isinstance(value, list | tuple) and len(value) == number and all(isinstance(text, str) for text in value)


def _digest_of(shares: Sequence[str]) -> str:
    return hashlib.sha256("".join(map(commitment, shares)).encode()).hexdigest()
