"""Gaussian noise for privacy, from the operating system's generator or a site's secret key."""

import hashlib
import math
import os

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from scipy.special import ndtri

from fedkernel.ground.arrays import FloatArray
from fedkernel.ground.seeds import derive_key


def system_normal(shape: tuple[int, ...]) -> FloatArray:
    """Draw standard normal numbers from the operating system's generator."""
    return _normal(os.urandom(8 * math.prod(shape)), shape)


def noise_on(values: FloatArray, scale: float, key: bytes) -> FloatArray:
    """Draw normal noise of an array's shape, from a secret key or the operating system.

    With a key, equal values and scale give equal noise, so that repeating a run or study does not average the noise
    out. Any other values or scale give independent noise: runs with other scales or other rows do average it. `scale`:
    standard deviation. `key`: 32 bytes of the site; empty: the operating system's generator.
    """
    if not key:
        return scale * system_normal(values.shape)
    contents = hashlib.sha256(np.ascontiguousarray(values).data).hexdigest()
    own = derive_key(key, f"noise {scale!r} on {values.shape} {contents}")
    stream = Cipher(ChaCha20(own, bytes(16)), mode=None).encryptor()
    return scale * _normal(stream.update(bytes(8 * values.size)), values.shape)


def _normal(entropy: bytes, shape: tuple[int, ...]) -> FloatArray:
    """Convert random bytes to normal numbers, each from 52 bits by the inverse of the distribution function."""
    words = np.frombuffer(entropy, np.uint64)
    uniform = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52  # exact: never 0 or 1
    return np.asarray(ndtri(uniform)).reshape(shape)
