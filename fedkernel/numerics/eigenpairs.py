"""Leading eigenpairs of symmetric matrices and of factors: values in non-increasing order, vectors as columns."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg
from scipy.sparse.linalg import LinearOperator

from fedkernel.ground import EPS, FloatArray, InputError
from fedkernel.numerics.block_lanczos import block_lanczos, hides_copies
from fedkernel.numerics.matrix_products import by_columns, check_matrix, transposed_product
from fedkernel.numerics.subspaces import complement, fix_signs

# Thresholds of `leading_eigenpairs`, measured with benchmarks/eigensolvers.py.
LANCZOS_SIZE = 1000
# For a factor, singular values take longer, products less: 1000 x 5000 1.5 s against 0.2, 2000 x 10000 11 against 0.8.
FACTOR_LANCZOS_SIZE = 1000
LANCZOS_PART = 20
# Most products of Lanczos for each row: LAPACK takes about as long.
LANCZOS_PRODUCTS = 0.5
# Vectors of a block: for a matrix beyond a core's caches, products are bound by memory, and more vectors are free.
LANCZOS_WIDTH, WIDE_LANCZOS_WIDTH, WIDE_LANCZOS_SIZE = 8, 16, 4000
# Tolerated excess over the smallest eigenvalue found, relative to the matrix, and probability of a larger one.
_MISSED = 1e-12
_OVERLOOKED = 1e-6
_BLOCK = 256


class Eigenpairs(NamedTuple):
    """Eigenvalues (k,) in non-increasing order, and orthonormal eigenvectors (n, k)."""

    values: FloatArray
    vectors: FloatArray


def leading_eigenpairs(A: FloatArray | LinearOperator, k: int) -> Eigenpairs:
    """Compute the k algebraically largest eigenvalues of a symmetric matrix, and their eigenvectors.

    Block Lanczos for n >= 1000 and k <= n / 20, else LAPACK (bisection and inverse iteration for k < n, else divide and
    conquer): docs/explanation/solvers.md. A block of random vectors meets every eigenvalue with fewer copies than it
    has vectors. If that many are equal up to rounding, a second run, from another random start, searches the complement
    for anything larger than the smallest eigenvalue found. If that succeeds, or the first run did not converge in n / 2
    products, LAPACK decides; pairs that its bisection leaves rough are computed by divide and conquer, all n. For
    LAPACK a `LinearOperator` is formed from its products with the unit vectors. Memory besides the k vectors: LAPACK
    one further (n, n) array, by divide and conquer three; Lanczos 4 k + 12 b vectors, b in a block.

    `A` (n, n): taken as symmetric without a test: LAPACK reads one triangle. Any scale between 1e-200 and 1e200. `k`:
    between 1 and n. Signs are as by `fix_signs`; the same call gives the same bits. Raises InputError if `A` is not
    square or not finite, or `k` is out of range.
    """
    if not isinstance(A, LinearOperator):
        A = np.asarray(A, dtype=np.float64)
    n = _checked_size(A, k)
    if lanczos_width(n, k):
        pairs = _lanczos(A, k, int(LANCZOS_PRODUCTS * n))
        if pairs is not None:
            return pairs
    if isinstance(A, LinearOperator):
        A = _dense(A)
    return _lapack(A, k)


def lanczos_width(n: int, k: int) -> int:
    """Return the block size of Lanczos for k of n pairs, or 0 for LAPACK."""
    if n < LANCZOS_SIZE or k > n // LANCZOS_PART:
        return 0
    return LANCZOS_WIDTH if n < WIDE_LANCZOS_SIZE else WIDE_LANCZOS_WIDTH


def leading_eigenpairs_of_factor(F: FloatArray, k: int) -> Eigenpairs:
    """Compute the k largest eigenvalues of F F^T, and their eigenvectors, without forming an (n, n) array.

    By the singular values of F (n, r), so that an eigenvalue l has a relative error of about eps * sqrt(l_1 / l), where
    forming F F^T would give eps * l_1 / l. For a large F and a small k by Lanczos, kept only if l_k >= 1e-4 l_1, where
    the difference does not matter. Beyond the rank, also for k above r, eigenvalues are zero and eigenvectors any
    orthonormal completion. Raises InputError if `F` is not a finite matrix, if `k` is not between 1 and n, or if F F^T
    overflows.
    """
    check_matrix(F, "F")
    n, r = F.shape
    _check_count(k, n)
    small = min(n, r)
    scale = _power_of_two(F)
    if small == 0 or scale == 0.0:
        return Eigenpairs(np.zeros(k), np.eye(n, k))
    if scale > 1e150:
        raise InputError(f"F has entries of about {scale:.1e}, for which F F^T overflows; scale F down")
    G = F / scale
    pairs = None
    if small >= FACTOR_LANCZOS_SIZE and k <= small // LANCZOS_PART:
        # SciPy gives `matvec` columns too, (n, 1)
        products = LinearOperator(
            (n, n), matvec=lambda x: G @ (G.T @ x), matmat=lambda X: G @ transposed_product(G, X), dtype=np.float64
        )
        pairs = _lanczos(products, k, int(LANCZOS_PRODUCTS * small))
    if pairs is None or pairs.values[-1] < 1e-4 * pairs.values[0]:
        U, s, _ = scipy.linalg.svd(G, full_matrices=False, overwrite_a=True, check_finite=False)
        U = U[:, :k]
        values = np.zeros(k)
        values[: s[:k].size] = s[:k] ** 2
        pairs = Eigenpairs(values, fix_signs(np.hstack([U, complement(U, k - U.shape[1])]) if k > small else U))
    return Eigenpairs(pairs.values * scale * scale, pairs.vectors)


def eigenpairs_above(A: FloatArray | LinearOperator, ratio: float) -> Eigenpairs:
    """Compute the eigenpairs with eigenvalues above `ratio` times the largest, lambda_1, and at least one.

    DKPCA's eq. 4 (the adaptive number of components), 0 <= ratio < 1. Doubles the number of pairs within the range of
    Lanczos, then LAPACK computes them all, in two (n, n) arrays. Eigenvalues below n * eps * lambda_1 count as zero.
    """
    n = _checked_size(A, 1)
    return _above(lambda k: leading_eigenpairs(A, k), n, ratio)


def eigenpairs_of_factor_above(F: FloatArray, ratio: float) -> Eigenpairs:
    """Compute `eigenpairs_above` of F F^T from F (n, r), as accurately as `leading_eigenpairs_of_factor`."""
    check_matrix(F, "F")
    return _above(lambda k: leading_eigenpairs_of_factor(F, k), max(1, min(F.shape)), ratio)


def above_rounding(values: FloatArray, n: int, tol: float = 0.0) -> npt.NDArray[np.bool_]:
    """Return a mask of the eigenvalues that are above 0 and above max(tol, n eps) times the first."""
    return np.asarray(values > max(tol, n * EPS) * max(float(values[0]), 0.0))


LEAST_DIVISOR = 1e-300  # least eigenvalue for a division: its inverse root still fits a message


def whitening(A: FloatArray, tol: float) -> FloatArray:
    """Return R (n, r) with R^T A R = I for a symmetric positive semidefinite A. From eigenpairs, R = V diag(l^-1/2).

    For a Gram matrix A (n, n) of vectors, their combinations by R's columns are an orthonormal basis of their span.
    Pairs (l, v) with l <= max(tol, n eps) l_1 are left out: r is the numerical rank. Raises InputError if some of the
    others are below `LEAST_DIVISOR`.
    """
    pairs = leading_eigenpairs(A, len(A))
    above = above_rounding(pairs.values, len(A), tol)
    if above.any() and (least := float(pairs.values[above].min())) < LEAST_DIVISOR:
        raise InputError(f"products of rows fall to {least:.1g}, below {LEAST_DIVISOR:g}; use a smaller unit")
    return np.asarray(pairs.vectors[:, above] / np.sqrt(pairs.values[above]))


def _lapack(A: FloatArray, k: int) -> Eigenpairs:
    """Compute leading eigenpairs by LAPACK, whose drivers scale the matrix themselves."""
    n = len(A)
    if not A.any():
        return Eigenpairs(np.zeros(k), np.eye(n, k))
    # The transpose of a symmetric matrix in C order is the same matrix in LAPACK's order, without a copy.
    work = A.T if A.flags.c_contiguous else A
    # In a cluster of eigenvalues bisection may lose some or leave vectors rough; divide and conquer does not.
    # evx: vectors orthogonal to 1e-14, where evr reaches 1e-12.
    settled = False
    if k < n:
        values, vectors = scipy.linalg.eigh(work, subset_by_index=(n - k, n - 1), driver="evx", check_finite=False)
        size = float(scipy.linalg.norm(work, 1, check_finite=False))  # numpy's would copy the matrix
        settled = values.size == k and _solved(work @ vectors, values, vectors, size)
    if not settled:
        values, vectors = scipy.linalg.eigh(work, driver="evd", check_finite=False)
        values, vectors = values[n - k :], vectors[:, n - k :]
    return Eigenpairs(values[::-1].copy(), fix_signs(vectors[:, ::-1]))


def _solved(products: FloatArray, values: FloatArray, vectors: FloatArray, size: float) -> bool:
    """Return whether eigenpairs of a matrix of norm `size` are exact to rounding, by its products with the vectors."""
    allowed = 10 * len(vectors) * EPS
    residual = products - vectors * values
    skew = vectors.T @ vectors - np.eye(values.size)
    return bool(np.abs(residual).max() <= allowed * size and np.abs(skew).max() <= allowed)


def _lanczos(A: FloatArray | LinearOperator, k: int, products: int) -> Eigenpairs | None:
    """Compute leading eigenpairs by Lanczos. Returns None without convergence, or if an eigenvalue may be missing."""
    n = A.shape[0]
    width = lanczos_width(n, k)
    multiply = _multiplication(A)
    # A random vector is in the null space of the zero operator only.
    other = np.random.default_rng(1).standard_normal((1, n))
    first = multiply(other)
    scale = _power_of_two(first)
    if not np.isfinite(scale):
        raise InputError("A has entries that are not finite, or overflows when applied")
    if scale == 0.0:
        return Eigenpairs(np.zeros(k), np.eye(n, k))

    def scaled(rows: FloatArray) -> FloatArray:
        return multiply(rows) / scale

    pairs = block_lanczos(scaled, n, k, width=width, products=products)
    if pairs is None:
        return None
    values, V = pairs[0], pairs[1].T
    size = max(float(np.abs(values).max()), float(np.linalg.norm(first / scale) / np.linalg.norm(other)))
    if not _solved(scaled(pairs[1]).T, values, V, size):
        return None
    if hides_copies(values, width) and _overlooks_larger(values[-1], scaled, V, other, size=size, products=products):
        return None
    return Eigenpairs(values * scale, fix_signs(V))


def _overlooks_larger(
    threshold: float,
    apply: Callable[[FloatArray], FloatArray],
    V: FloatArray,
    start: FloatArray,
    *,
    size: float,
    products: int,
) -> bool:
    """Return whether an operator may have an eigenvalue l above a threshold in V's complement. True if unsettled.

    Lanczos from a row `start`, every vector orthogonalised twice against V and all before. The largest Ritz value theta
    never exceeds l, and a residual r < |w| (l - theta) cannot be, w being the start's part along l's eigenvector. So
    once r <= 1e-6 (threshold - theta), an l has been overlooked only if |w| < 1e-6; once r is at rounding level, an l
    that is 1e-12 of the size above only if |w| < 2e-3.
    """
    basis = np.empty((32, len(V)))
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    q = start[0] / np.linalg.norm(start)
    for _ in range(2):
        q = q - V @ (V.T @ q)
    q /= np.linalg.norm(q)
    for m in range(products):
        if m == len(basis):
            basis = np.vstack([basis, np.empty_like(basis)])
        basis[m] = q
        q = apply(basis[m : m + 1])[0]
        diagonal.append(float(basis[m] @ q))
        for _ in range(2):
            q = q - V @ (V.T @ q)
            q -= (basis[: m + 1] @ q) @ basis[: m + 1]
        length = float(np.linalg.norm(q))
        ritz, last = scipy.linalg.eigh_tridiagonal(diagonal, off_diagonal, select="i", select_range=(m, m))
        if ritz[0] > threshold + _MISSED * size:
            return True
        if length * abs(last[-1, 0]) <= max(_OVERLOOKED * (threshold - ritz[0]), 10 * EPS * size):
            return False
        off_diagonal.append(length)
        q /= length
    return True


def _multiplication(A: FloatArray | LinearOperator) -> Callable[[FloatArray], FloatArray]:
    """Return a function that multiplies rows by A. For an array it takes half of the time of ``A @ X``."""
    if isinstance(A, np.ndarray) and (A.flags.c_contiguous or A.flags.f_contiguous):
        return by_columns(A if A.flags.c_contiguous else A.T)
    return lambda rows: np.asarray(A @ rows.T).T


def _above(solve: Callable[[int], Eigenpairs], size: int, ratio: float) -> Eigenpairs:
    """Compute more and more of `size` eigenpairs until an eigenvalue is at or below `ratio` times the largest."""
    if not 0 <= ratio < 1:
        raise InputError(f"ratio = {ratio} is not allowed; it must be at least 0 and less than 1")
    k = 8
    while True:
        if not lanczos_width(size, k):
            k = size
        values, vectors = solve(k)
        above = int(np.count_nonzero(values > max(ratio, size * EPS) * values[0]))
        if above < k or k == size:
            D = max(1, above)
            return Eigenpairs(values[:D].copy(), vectors[:, :D].copy())
        k *= 2


def _dense(A: LinearOperator) -> FloatArray:
    """Form the matrix of an operator, by blocks of columns."""
    n = A.shape[0]
    dense = np.empty((n, n), order="F")
    for first in range(0, n, _BLOCK):
        columns = slice(first, min(first + _BLOCK, n))
        dense[:, columns] = A.matmat(np.eye(n, columns.stop - first, -first))
    check_matrix(dense, "A")
    return dense


def _power_of_two(A: FloatArray) -> float:
    """Return the power of two just above the largest magnitude, or 0 for zeros. Division by it is exact."""
    largest = max(float(A.max(initial=0.0)), -float(A.min(initial=0.0)))
    if largest == 0.0 or not np.isfinite(largest):
        return largest
    return float(np.ldexp(1.0, min(int(np.frexp(largest)[1]), 1023)))


def _checked_size(A: FloatArray | LinearOperator, k: int) -> int:
    """Check the arguments of an eigenvalue solver, and return the matrix' size n."""
    if len(A.shape) != 2 or A.shape[0] != A.shape[1]:
        raise InputError(f"A of shape {A.shape} is not allowed; it must be square")
    if not isinstance(A, LinearOperator):
        check_matrix(A, "A")
    _check_count(k, A.shape[0])
    return int(A.shape[0])


def _check_count(k: int, n: int) -> None:
    if not 1 <= k <= n:
        raise InputError(f"k = {k} is not allowed; it must be between 1 and n = {n}")
