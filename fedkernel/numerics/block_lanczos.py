"""Block Lanczos with thick restarts: leading eigenpairs of a symmetric matrix from products with blocks of vectors.

Source: Wu, Simon: Thick-restart Lanczos method for large symmetric eigenvalue problems, SIAM Journal on Matrix Analysis
and Applications 2000; with blocks in place of vectors. Products are bound by memory, and a product with a block reads
the matrix only once for all of its vectors.
"""

from collections.abc import Callable

import numpy as np
import scipy.linalg

from fedkernel.ground import EPS, FloatArray
from fedkernel.numerics.subspaces import economic_qr

_RESIDUAL = 10 * EPS
_VANISHING = 1e-8


def block_lanczos(
    multiply: Callable[[FloatArray], FloatArray], n: int, k: int, *, width: int, products: int
) -> tuple[FloatArray, FloatArray] | None:
    """Find the k algebraically largest eigenpairs, or return None without convergence.

    The start is random, as are replacements for vectors lost to an invariant subspace. Every block is orthogonalised
    against all earlier vectors, at least twice. Of an eigenvalue with more than ``width`` copies only that many are
    found, or more by rounding: see `hides_copies`.

    `multiply`: returns the matrix, of norm about 1, times the rows of a block of shape (width, n), as rows. `n`: at
    least 2 k + 8 width. `products`: most products with a single vector. Returns `values` (k,), in non-increasing order,
    and `rows` (k, n), orthonormal eigenvectors, with residuals of about 1e-15 of the largest eigenvalue's magnitude.
    """
    rng = np.random.default_rng(0)
    # vectors of a full basis, and after a restart
    most, fewest = 2 * k + 6 * width, k + 2 * width
    basis, images, T = np.empty((most, n)), np.empty((most, n)), np.zeros((most, most))
    block = _orthonormal(rng.standard_normal((width, n)), basis[:0], rng)
    m = steps = used = 0
    check, last_check = 0, (0, np.inf)
    while used < products:
        # Extend the basis B by the block, and B A B^T by its products
        last = slice(m, m + width)
        basis[last], images[last] = block, multiply(block)
        m, steps, used = m + width, steps + 1, used + width
        coupling = images[last] @ basis[:m].T
        T[last, :m], T[:m, last] = coupling, coupling.T
        corner = coupling[:, -width:]
        T[last, last] = (corner + corner.T) / 2
        block, R = _qr(images[last] - coupling @ basis[:m])
        # Rayleigh-Ritz, if convergence is expected or the basis is full
        full = m + width > most
        if full or (m >= k + width and steps >= check):
            values, S = scipy.linalg.eigh(T[:m, :m], driver="evd", check_finite=False)
            values, S = values[::-1], S[:, ::-1]
            allowed = _RESIDUAL * float(np.abs(values).max(initial=0.0))
            residual = float(np.linalg.norm(R @ S[last, :k], axis=0).max())
            if residual <= allowed:
                return values[:k].copy(), S[:, :k].T @ basis[:m]
            check, last_check = _next_check(steps, residual, allowed, last_check), (steps, residual)
            if full:
                leading = S[:, :fewest].T
                basis[:fewest], images[:fewest] = leading @ basis[:m], leading @ images[:m]
                T[:] = 0
                T[:fewest, :fewest] = np.diag(values[:fewest])
                m = fewest
        block[np.abs(np.diagonal(R)) <= EPS * float(np.abs(T).max())] = 0.0
        block = _orthonormal(block, basis[:m], rng)
    return None


def hides_copies(values: FloatArray, width: int) -> bool:
    """Return whether `width` consecutive eigenvalues are equal up to rounding, so that more copies may exist."""
    if len(values) < width:
        return False
    spread = values[: len(values) - width + 1] - values[width - 1 :]
    return bool(spread.min() <= 1e-10 * np.abs(values).max())


def _next_check(steps: int, residual: float, allowed: float, before: tuple[int, float]) -> int:
    """Return the step of the next Rayleigh-Ritz, from the residual's rate of decrease."""
    if not allowed < residual < before[1] < np.inf:
        return steps + 1
    pace = np.log(before[1] / residual) / (steps - before[0])
    return steps + max(1, int(0.7 * np.log(residual / allowed) / pace)) if allowed > 0 else steps + 1


def _qr(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Orthonormalise rows, overwriting them. Returns Q (b, n) and R (b, b) with rows = R^T Q."""
    Q, R = economic_qr(rows.T, overwrite=True)
    return Q.T, R


def _orthonormal(rows: FloatArray, basis: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Orthonormalise unit rows against the basis and each other, and redraw vanishing ones."""
    dead = ~rows.any(axis=1)
    for _ in range(5):
        if dead.any():
            fresh = rng.standard_normal((int(dead.sum()), rows.shape[1]))
            rows[dead] = fresh / np.linalg.norm(fresh, axis=1, keepdims=True)
        rows, R = _qr(rows - (rows @ basis.T) @ basis)
        lengths = np.abs(np.diagonal(R))
        if (lengths > 0.5).all():
            break
        dead = lengths < _VANISHING
    return rows
