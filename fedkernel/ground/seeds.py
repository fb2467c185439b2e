"""Random generators and derived keys: one per seed, client and purpose."""

import hmac
import zlib

import numpy as np


def generator(purpose: str, *words: int) -> np.random.Generator:
    """Return the random generator for a purpose and a seed, in the same state on each call.

    Different purposes give independent numbers. `*words`: the seed and, for instance, a client's number or an
    iteration, each at least 0.
    """
    return np.random.default_rng(np.random.SeedSequence([*words, zlib.crc32(purpose.encode())]))


def derive_key(secret: bytes, purpose: str) -> bytes:
    """Derive a 32-byte key for a purpose from a secret, by HMAC-SHA256."""
    return hmac.digest(secret, purpose.encode(), "sha256")
