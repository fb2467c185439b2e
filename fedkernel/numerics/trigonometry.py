"""Cosines and sines of many angles: of float64 by numba where it is installed (the extra `fast`), else by NumPy.

The first call finds out, so that whoever needs no cosine does not import numba. The two agree to 1e-15. NumPy's float32
is faster than what is compiled here (0.5 ns a number against 1.3).
"""

import functools
import types

import numpy as np

from fedkernel.arrays import FloatArray


@functools.cache
def compiled() -> types.ModuleType | None:
    """Return the functions in machine code, or None without numba."""
    try:
        from fedkernel.numerics import compiled as functions  # noqa: PLC0415 - optional, and 0.3 s to import
    except ImportError:
        return None
    return functions


def cosines(angles: FloatArray, factor: float = 1.0) -> None:
    """Replace angles, an array of float64 or float32, by their cosines times a factor."""
    if angles.dtype == np.float32:
        np.cos(angles, out=angles)
    elif angles.flags.forc and (functions := compiled()) is not None:  # else `ravel` would give a copy
        functions.cosines(angles.ravel(order="K"), factor)
        return
    else:
        _tangents(angles)
        np.multiply(angles, angles, out=angles)
        angles += 1
        np.divide(2, angles, out=angles)
        angles -= 1
    if factor != 1:
        angles *= factor


def cosines_and_sines(angles: FloatArray, factor: float = 1.0) -> FloatArray:
    """Return cosines and sines of angles, each times a factor, beside each other.

    Parameters
    ----------
    angles : ndarray of shape (n, m), of float64 or float32
        They are worked in.
    factor : float

    Returns
    -------
    ndarray of shape (n, 2 m)
    """
    m = angles.shape[1]
    A = np.empty((len(angles), 2 * m), angles.dtype)
    C, S = A[:, :m], A[:, m:]
    if angles.dtype == np.float32:
        np.cos(angles, out=C)
        np.sin(angles, out=S)
    elif (functions := compiled()) is not None:
        functions.cosines_and_sines(np.ascontiguousarray(angles), A, factor)
        return A
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
    """Replace angles x by t = tan(x / 2): cos x = 2 / (1 + t^2) - 1 and sin x = 2 t / (1 + t^2), to 4e-16.

    NumPy's cosine of float64 takes 14 ns a number, its tangent 1 ns with AVX-512 and as long as the cosine without.
    """
    angles *= 0.5
    np.tan(angles, out=angles)
