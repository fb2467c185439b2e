"""Orthonormal bases of subspaces: computation, signs, completion and distance."""

from functools import cache

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dgeqrf, dorgqr

from fedkernel.ground import FloatArray, InputError


def fix_signs(V: FloatArray) -> FloatArray:
    """Flip each column so that its entry of largest magnitude is positive. Of nearly equal entries the first counts."""
    magnitudes = np.abs(V)
    # The tolerance is far above rounding: another solver or thread count then picks the same entry.
    deciding = np.argmax(magnitudes >= (1 - 1e-6) * magnitudes.max(axis=0, initial=0.0), axis=0)
    return V * _signs(np.take_along_axis(V, deciding[None, :], axis=0)[0] if len(V) else np.ones(V.shape[1]))


def align_signs(V: FloatArray, reference: FloatArray) -> FloatArray:
    """Flip columns (n, k) so that none has a negative inner product with the reference's column."""
    _check_same_shape(V, reference)
    return V * _signs(np.einsum("ij,ij->j", V, reference))


def orthonormal_basis(V: FloatArray) -> FloatArray:
    """Orthonormalise the columns of an array (n, k), k <= n, without flipping any."""
    Q, R = economic_qr(V)
    Q *= _signs(np.diagonal(R))
    return Q


def economic_qr(V: FloatArray, *, overwrite: bool = False) -> tuple[FloatArray, FloatArray]:
    """Compute the QR decomposition of V (n, k), k <= n. Returns orthonormal Q in LAPACK's order, and R (k, k)."""
    # LAPACK is called directly: for a few columns SciPy's wrapper takes several times as long
    n, k = V.shape
    if k > n:
        raise InputError(f"V of shape {V.shape} is not allowed; it must have no more columns than rows")
    if not k:
        return np.empty((n, 0)), np.empty((0, 0))
    reflectors, scales, _, _ = dgeqrf(V, lwork=64 * k, overwrite_a=overwrite)
    R = np.where(_upper_triangle(k), reflectors[:k], 0.0)
    Q, _, _ = dorgqr(reflectors, scales, lwork=64 * k, overwrite_a=1)
    return Q, R


@cache
def _upper_triangle(k: int) -> npt.NDArray[np.bool_]:
    return np.tri(k, dtype=bool).T


def complement(V: FloatArray, count: int) -> FloatArray:
    """Return `count` orthonormal columns orthogonal to those of V (n, k), always the same ones."""
    # V may end with an earlier complement, so the seed depends on its width: the same draw would lie in V's span
    G = np.random.default_rng(V.shape[1]).standard_normal((len(V), count))
    for _ in range(3):  # the first round may leave little of a column, whose rounding errors the later ones remove
        G -= V @ (V.T @ G)
        G = orthonormal_basis(G)
    return G


def sin_theta_error(V: FloatArray, W: FloatArray) -> float:
    """Return the distance D - ||V^T W||_F^2 of the spans of orthonormal V and W, both (n, D).

    Computed as ||W - V V^T W||_F^2: the difference of two numbers near D could not resolve less than 1e-16.
    """
    _check_same_shape(V, W)
    residual = W - V @ (V.T @ W)
    return float(np.vdot(residual, residual))


def _signs(judges: FloatArray) -> FloatArray:
    return np.where(judges < 0, -1.0, 1.0)


def _check_same_shape(V: FloatArray, W: FloatArray) -> None:
    if V.ndim != 2 or V.shape != W.shape:
        raise InputError(f"shapes {V.shape} and {W.shape} are not allowed; they must be the same, with two dimensions")
