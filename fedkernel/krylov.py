"""Block Lanczos whose matrix lives elsewhere: a coroutine that yields blocks and is sent their products."""

from collections.abc import Generator

import numpy as np
import scipy.linalg

from fedkernel.arrays import EPS, FloatArray
from fedkernel.errors import InputError
from fedkernel.linalg import Eigenpairs, leading_eigenpairs
from fedkernel.subspaces import complement, fix_signs


def block_krylov(
    start: FloatArray, k: int, *, tol: float, max_steps: int
) -> Generator[FloatArray, FloatArray, Eigenpairs]:
    """Find the k algebraically largest eigenpairs of a symmetric A from products with blocks; a coroutine.

    Yields an orthonormal block Q of shape (n, b) and is to be sent A Q, of the same shape. Each step is then one
    Rayleigh-Ritz on everything seen, with values theta and vectors V, and ends the search when

    - the estimated ||sin Theta||_F of the leading k vectors, ||A V - V diag(theta)||_F / gap, is at most `tol`, or
    - the residual ||A V - V diag(theta)||_F is at rounding level, or the basis spans the whole space, or
    - `max_steps` products were used.

    The gap is theta_k - theta_{k+1}, less the residual of pair k + 1: an eigenvalue lies that near theta_{k+1}, perhaps
    above it. While the basis has only k columns there is no theta_{k+1}, and only the residual can end the search.
    It is an estimate still. A start block that lacks the leading vectors, or with fewer columns than a repeated
    eigenvalue has copies, can hide eigenpairs, as in every Krylov method; so can, as long as `tol` is above 1e-3 or so,
    a near-repeated eigenvalue of which a single vector shows one Ritz value. Start at random, with at least k columns,
    better k + 1, where that matters.

    Linearly dependent directions are dropped, so that b shrinks. With none left the basis is an invariant subspace and
    the search ends, unless it has fewer than k columns: then it goes on in the complement.

    Keeps the basis and its products: 2 n b steps floats. Every new block is orthogonalised against the whole basis,
    twice, which costs 8 n b^2 steps flops.

    Parameters
    ----------
    start : ndarray of shape (n, b)
        Not zero. b = 1 is the Lanczos method; b = k finds eigenvalues with up to k copies.
    k : int
        Between 1 and n.
    tol : float
        At least 0, which asks for a residual at rounding level.
    max_steps : int
        The most products, at least k / b.

    Returns
    -------
    Eigenpairs
        Signs as by `fix_signs`.

    Raises
    ------
    InputError
        If an argument is out of range, or a product has another shape than its block or is not finite.
    """
    n = _checked_start(start, k, tol, max_steps)
    Q = _independent(start, [], _norm(start))
    basis: list[FloatArray] = []
    products: list[FloatArray] = []
    T = np.zeros((0, 0))
    scale = 0.0  # of A, as far as seen: what is small beside it is rounding
    for step in range(1, n + 1):
        AQ = yield Q
        if AQ.shape != Q.shape or not np.isfinite(AQ).all():
            raise InputError(f"the product of step {step}, of shape {AQ.shape}, must be finite, of shape {Q.shape}")
        basis.append(Q)
        products.append(AQ)
        T = _bordered(T, basis, AQ)
        scale = max(scale, _norm(AQ))
        m = len(T)
        if m >= k:
            # One pair more than asked for gives the gap.
            values, S = leading_eigenpairs(T, min(k + 1, m))
            V = _combination(basis, S)
            residual = _combination(products, S) - V * values
            done = m == n or step >= max_steps or _converged(values, residual, k, tol, scale)
            if done:
                return Eigenpairs(values[:k].copy(), fix_signs(V[:, :k]))
        Q = _independent(AQ, basis, scale)
        if Q.shape[1] == 0:
            if m >= k:
                return Eigenpairs(values[:k].copy(), fix_signs(V[:, :k]))
            Q = complement(np.hstack(basis), min(start.shape[1], n - m))
    raise AssertionError("a basis of n columns ends the search")  # pragma: no cover


def _converged(values: FloatArray, residual: FloatArray, k: int, tol: float, scale: float) -> bool:
    """Say whether the leading k of the Ritz pairs are as near their eigenvectors as `tol` asks."""
    error = _norm(residual[:, :k])
    if error <= 4 * EPS * np.sqrt(len(residual)) * scale:
        return True
    if len(values) == k:
        return False
    gap = float(values[k - 1] - values[k]) - _norm(residual[:, k:])
    return gap > 0 and error <= tol * gap


def _bordered(T: FloatArray, basis: list[FloatArray], AQ: FloatArray) -> FloatArray:
    """Border T = B^T A B with the columns of a new block, of product AQ, that is last in the basis B."""
    old = len(T)
    border = np.vstack([B.T @ AQ for B in basis])
    T = np.block([[T, border[:old]], [border[:old].T, border[old:]]])
    return (T + T.T) / 2


def _combination(blocks: list[FloatArray], S: FloatArray) -> FloatArray:
    """Multiply the blocks, side by side, with S, without a copy of them."""
    total = np.zeros((len(blocks[0]), S.shape[1]))
    first = 0
    for block in blocks:
        total += block @ S[first : first + block.shape[1]]
        first += block.shape[1]
    return total


def _independent(X: FloatArray, basis: list[FloatArray], scale: float) -> FloatArray:
    """Orthonormalise the columns of X against the basis and each other; drop what is rounding beside `scale`."""
    room = len(X) - sum(block.shape[1] for block in basis)
    for floor in (4 * EPS * np.sqrt(len(X)) * scale, 0.5):
        for block in basis:
            X = X - block @ (block.T @ X)
        Q, R, _ = scipy.linalg.qr(X, mode="economic", pivoting=True, check_finite=False)
        # The second time the columns are orthonormal but for the rounding of short ones: a column that loses half
        # its length then was nothing but rounding.
        independent = min(room, int(np.count_nonzero(np.abs(np.diagonal(R)) > floor)))
        X = np.array(Q[:, :independent], dtype=np.float64)
        if X.shape[1] == 0:
            break
    return X


def _checked_start(start: FloatArray, k: int, tol: float, max_steps: int) -> int:
    if start.ndim != 2 or not np.isfinite(start).all() or not start.any():
        raise InputError(f"start of shape {start.shape} is not allowed; it must be a finite matrix, not zero")
    n, b = len(start), start.shape[1]
    if not 1 <= k <= n:
        raise InputError(f"k = {k} is not allowed; it must be between 1 and n = {n}")
    if not tol >= 0:
        raise InputError(f"tol = {tol} is not allowed; it must be at least 0")
    if max_steps < 1 or max_steps * b < k:
        raise InputError(f"max_steps = {max_steps} is not allowed; blocks of {b} need at least {-(-k // b)} for {k}")
    return n


def _norm(X: FloatArray) -> float:
    """Frobenius norm whose squares neither overflow nor underflow."""
    largest = float(np.abs(X).max(initial=0.0))
    return largest * float(np.linalg.norm(X / largest)) if largest > 0 else 0.0
