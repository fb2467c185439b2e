"""Noise that protects: from the operating system's generator or a site's own key, so that nobody else can draw it."""

import hashlib
import math
import os

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from scipy.special import ndtri

from fedkernel.ground.arrays import FloatArray
from fedkernel.ground.seeds import derived


def system_normal(shape: tuple[int, ...]) -> FloatArray:
    """Return standard normal numbers of this shape from the operating system's generator."""
    return _normal(os.urandom(8 * math.prod(shape)), shape)


def noise_on(values: FloatArray, scale: float, key: bytes) -> FloatArray:
    """Return normal numbers of an array's shape, that nobody without the key can draw.

    For the same values and scale they are the same, so that they do not average out where a run begins again, nor over
    the runs of a study; for any others they are others, so that no difference of values stands without noise. Runs with
    other scales, or that work on other rows, do average it.

    `scale`: their standard deviation. `key`: 32, the site's; empty: the operating system's generator is used, and the
    numbers are others each time.
    """
    if not key:
        return scale * system_normal(values.shape)
    contents = hashlib.sha256(np.ascontiguousarray(values).data).hexdigest()
    own = derived(key, f"noise {scale!r} on {values.shape} {contents}")
    stream = Cipher(ChaCha20(own, bytes(16)), mode=None).encryptor()
    return scale * _normal(stream.update(bytes(8 * values.size)), values.shape)


def _normal(entropy: bytes, shape: tuple[int, ...]) -> FloatArray:
    """Return standard normal numbers by the inverse distribution function of uniform ones.

    Those are multiples of 2^-53, in the middle of their interval, so that none is 0 or 1.
    """
    words = np.frombuffer(entropy, np.uint64)
    uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return np.asarray(ndtri(uniform)).reshape(shape)
