"""Where every random number comes from: one generator for a seed, a client where there is one, and a purpose."""

import hmac
import zlib

import numpy as np


def generator(purpose: str, *words: int) -> np.random.Generator:
    """Return the generator for one purpose under a seed, the same whenever it is asked for.

    `purpose`: other purposes under the same words draw independent numbers. `*words`: each from 0: the seed, and what
    else tells the draws apart, such as a client's number or an iteration.
    """
    return np.random.default_rng(np.random.SeedSequence([*words, zlib.crc32(purpose.encode())]))


def derived(secret: bytes, purpose: str) -> bytes:
    """Return what follows from a secret for a purpose: 32 bytes that tell nothing of it, nor of those for others."""
    return hmac.digest(secret, purpose.encode(), "sha256")
