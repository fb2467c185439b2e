"""Random generators and derived keys: one per seed, client and purpose."""

import hmac
import zlib

import numpy as np


def generator(purpose: str, *words: int) -> np.random.Generator:
    """Return an independent random generator for a purpose. `*words`: numbers from 0, such as seed and client."""
    return np.random.default_rng(np.random.SeedSequence([*words, zlib.crc32(purpose.encode())]))


def derive_key(secret: bytes, purpose: str) -> bytes:
    """Derive a 32-byte key for a purpose from a secret, by HMAC-SHA256."""
    return hmac.digest(secret, purpose.encode(), "sha256")
