"""Values of RBF and arc-cosine kernels at rows, in blocks and in place, and checks of the rows."""

from typing import Any

import numpy as np
import scipy.sparse

from fedkernel.ground import FloatArray, InputError, Rows, check_finite, for_each
from fedkernel.numerics import pairwise
from fedkernel.numerics.pairwise import RowFunction, cached_blocks, in_dtype, mirrored, products_with, squared_norms

_SOME_ROWS = 31


def checked_pair(X: Rows, Y: Rows | None) -> tuple[Rows, Rows]:
    """Check rows X and Y, and convert both to float64. If Y is X or None, return X twice, for zero self-distances."""
    rows = checked_rows(X, "X")
    others = rows if Y is None or Y is X else checked_rows(Y, "Y")
    if rows.shape[1] != others.shape[1]:
        raise InputError(f"X has {rows.shape[1]} columns and Y {others.shape[1]}; they must have the same")
    return rows, others


def checked_rows(X: Any, name: str, *, keep: bool = False) -> Any:
    """Check the shape and values of rows, and convert them to float64. With `keep`, float32 stays."""
    sparse = scipy.sparse.issparse(X)
    dtype = np.float32 if keep and getattr(X, "dtype", None) == np.float32 else np.float64
    try:
        X = in_dtype(X, dtype)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be an array of numbers") from None
    if X.ndim != 2 or min(X.shape) == 0:
        raise InputError(f"{name} of shape {X.shape} is not allowed; it must have two dimensions, none of them 0")
    check_finite(X.data if sparse else X, f"{name} of shape {X.shape}")
    return X


def exponential(distances: FloatArray, gamma: float) -> FloatArray:
    """Compute exp(-gamma distances) in place."""
    distances *= -gamma
    return np.exp(distances, out=distances)


def power(K: FloatArray, degree: int) -> FloatArray:
    """Compute K^degree entrywise, in place, by squaring, ten times faster than `**=`."""
    base = K if degree & (degree - 1) == 0 else K.copy()
    for bit in f"{degree:b}"[1:]:
        np.multiply(K, K, out=K)
        if bit == "1":
            K *= base
    return K


def rbf_values(X: Rows, Y: Rows, gamma: float) -> FloatArray:
    """Compute the RBF kernel exp(-gamma ||x - y||^2) of all rows of X and Y; symmetric if Y is X."""
    if not scipy.sparse.issparse(X) and not scipy.sparse.issparse(Y):
        # Distances do not change, but the rounding of far-off data does: squared norms cancel in them.
        middle = _middle(Y)
        X, Y = (X - middle,) * 2 if Y is X else (X - middle, Y - middle)
    if Y is not X:
        return exponential(pairwise.squared_distances(X, Y), gamma)
    K, n = pairwise.squared_distances(X, X), X.shape[0]
    # Only the upper triangle is computed, since exponentials are half of the work
    for_each(lambda rows: exponential(K[rows, rows.start :], gamma), cached_blocks(n, n, np.float64))
    return mirrored(K)


def _middle(X: FloatArray) -> FloatArray:
    """Return the median (d,) of some rows of X (n, d), which a few far-off rows do not move."""
    some = np.arange(_SOME_ROWS) * 0.618034 % 1 * len(X)  # spread over all, but not evenly, as such rows may be
    return np.asarray(np.median(X[some.astype(np.intp)], axis=0))


def rbf_against(Y: Rows, dtype: np.dtype[Any], gamma: float) -> RowFunction:
    """Return a function of blocks X that computes the RBF kernel with all rows of Y."""
    products, norms = products_with(2 * gamma * Y, dtype), (squared_norms(Y) * -gamma).astype(dtype)
    # As in `rbf_values`. The point rounded to dtype is subtracted from both, so that its rounding does not matter.
    middle = None if scipy.sparse.issparse(Y) else _middle(Y).astype(dtype)
    if middle is not None:
        Z = Y - middle
        # (x, ||x||^2, 1) times these columns is the exponent.
        columns = np.vstack([2 * gamma * Z.T, np.full(len(Z), -gamma), squared_norms(Z) * -gamma]).astype(dtype)

    def values(X: Rows) -> FloatArray:
        n, d = X.shape
        if middle is None or scipy.sparse.issparse(X):
            X = in_dtype(X, dtype)
            K = products(X)
            K += (squared_norms(X) * -gamma).astype(dtype)[:, None]
            K += norms
            return np.exp(np.minimum(K, 0, out=K), out=K)
        left = np.empty((n, d + 2), dtype)
        np.subtract(X, middle, out=left[:, :d], casting="same_kind")
        np.einsum("ij,ij->i", left[:, :d], left[:, :d], out=left[:, d])
        left[:, d + 1] = 1
        K = np.empty((n, columns.shape[1]), dtype)

        def fill(rows: slice) -> None:
            block = np.matmul(left[rows], columns, out=K[rows])
            np.minimum(block, 0, out=block)
            np.exp(block, out=block)

        for_each(fill, cached_blocks(n, columns.shape[1], dtype))
        return K

    return values


def arc_cosine_against(Y: Rows, dtype: np.dtype[Any], degree: int) -> RowFunction:
    """Return a function of blocks X that computes the arc-cosine kernel with all rows of Y."""
    V, lengths = pairwise.unit_rows(Y, dtype)
    products, weights = products_with(V, dtype), _weights(lengths, degree)

    def values(X: Rows) -> FloatArray:
        U, lengths = pairwise.unit_rows(X, dtype)
        K = np.empty((X.shape[0], V.shape[0]), dtype)
        for rows in cached_blocks(len(K), V.shape[0], dtype):
            C = products(U[rows])
            np.clip(C, -1, 1, out=C)
            K[rows] = _of_cosines(C, U[rows], V, degree)
        K *= _weights(lengths, degree)[:, None]
        K *= weights
        return K

    return values


def _weights(lengths: FloatArray, degree: int) -> FloatArray:
    """Compute the lengths ||x|| to the power of the degree, but 0 for zero rows even with degree 0."""
    return np.asarray((lengths > 0).astype(lengths.dtype) if degree == 0 else lengths**degree)


def _of_cosines(C: FloatArray, U: Rows, V: Rows, degree: int) -> FloatArray:
    """Compute the arc-cosine kernel's J_n(theta) / pi from the cosines C = U V^T of angles theta, overwriting C."""
    if degree == 0:
        J = pairwise.angles(C, U, V)
        return np.subtract(1, np.multiply(J, 1 / np.pi, out=J), out=J)
    # A small change of C changes J_1 and J_2 as little, though not theta and its sine: one angle serves both.
    J = np.arccos(C)
    np.subtract(np.pi, J, out=J)
    sine = np.sqrt((1 - C) * (1 + C))
    if degree == 2:
        sine *= 3 * C
        C *= C
        C *= 2
        C += 1
    J *= C
    J += sine
    J *= 1 / np.pi
    return J
