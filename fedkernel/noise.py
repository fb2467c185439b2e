"""Noise that protects: from the operating system's generator, so that nobody can draw it again."""

import math
import os

import numpy as np
from scipy.special import ndtri

from fedkernel.arrays import FloatArray


def system_normal(shape: tuple[int, ...]) -> FloatArray:
    """Return standard normal numbers of this shape, by the inverse distribution function of uniform ones.

    Those are multiples of 2^-53, in the middle of their interval, so that none is 0 or 1.
    """
    words = np.frombuffer(os.urandom(8 * math.prod(shape)), np.uint64)
    uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return np.asarray(ndtri(uniform)).reshape(shape)
