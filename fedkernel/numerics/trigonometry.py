"""Cosines and sines of many angles: float64 by one tangent, float32 by NumPy's own functions."""

import numpy as np

from fedkernel.ground import FloatArray


def cosines(angles: FloatArray, factor: float = 1.0) -> None:
    """Replace angles, an array of float64 or float32, by their cosines times a factor."""
    if angles.dtype == np.float32:
        np.cos(angles, out=angles)
    else:
        _tangents(angles)
        np.multiply(angles, angles, out=angles)
        angles += 1
        np.divide(2, angles, out=angles)
        angles -= 1
    if factor != 1:
        angles *= factor


def cosines_and_sines(angles: FloatArray, factor: float = 1.0) -> FloatArray:
    """Return scaled cosines and sines, side by side (n, 2 m), of angles (n, m). The angles may be overwritten."""
    m = angles.shape[1]
    A = np.empty((len(angles), 2 * m), angles.dtype)
    C, S = A[:, :m], A[:, m:]
    if angles.dtype == np.float32:
        np.cos(angles, out=C)
        np.sin(angles, out=S)
    else:
        _tangents(angles)
        np.multiply(angles, angles, out=C)
        C += 1
        np.divide(2, C, out=C)  # 1 + cos x
        np.multiply(angles, C, out=S)
        C -= 1
    if factor != 1:
        A *= factor
    return A


def _tangents(angles: FloatArray) -> None:
    """Replace angles x by t = tan(x / 2), in place.

    cos x = 2 / (1 + t^2) - 1 and sin x = 2 t / (1 + t^2), to 4e-16, with AVX-512 14 times as fast as NumPy's cosine.
    """
    angles *= 0.5
    np.tan(angles, out=angles)
