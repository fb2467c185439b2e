"""Block Lanczos for a matrix that clients hold, as a coroutine that yields blocks and receives products."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import dgeqp3, dorgqr, dsyevd

from fedkernel.ground import EPS, FloatArray, InputError, all_finite
from fedkernel.numerics.eigenpairs import Eigenpairs, leading_eigenpairs
from fedkernel.numerics.estimate_accuracy import components_by_gap
from fedkernel.numerics.matrix_products import frobenius_norm
from fedkernel.numerics.subspaces import complement, fix_signs

_SLACK = 0.01
_ROUNDING = 1024
_WIDTH = 16

Search: TypeAlias = Generator[FloatArray, FloatArray, Eigenpairs]
"""Coroutine that yields blocks, receives their products, and returns eigenpairs."""

KnownProducts: TypeAlias = Sequence[tuple[FloatArray, FloatArray]]
"""Blocks (n, b) already yielded by a search, each with its product (n, b)."""


class Unconverged(Eigenpairs):
    """Eigenpairs of a search that reached `max_steps` before the requested accuracy."""


def block_krylov(start: FloatArray, k: int, *, tol: float, max_steps: int, seen: KnownProducts = ()) -> Search:
    """Find the k algebraically largest eigenpairs of a symmetric A from products with blocks, as a coroutine.

    Yields an orthonormal block Q of shape (n, b) and must be sent A Q, of the same shape. Each step then does one
    Rayleigh-Ritz on the whole basis, with values theta and vectors V, and ends the search when

    - the estimated ||sin Theta||_F of the leading k vectors, ||A V - V diag(theta)||_F / gap, is at most `tol`, or
    - that residual is at rounding level, or the basis spans the whole space, or
    - `max_steps` products were used: the result is `Unconverged`.

    The gap is theta_k - theta_{k+1}, less the residual of pair k + 1: an eigenvalue lies that near theta_{k+1}, perhaps
    above it. While the basis has only k columns, only the residual can end the search.

    As in every Krylov method, a start block that lacks the leading vectors, or with fewer columns than a repeated
    eigenvalue has copies, can hide eigenpairs; so can a near-repeated eigenvalue, for `tol` above 1e-3 or so. Start at
    random, with at least k columns, better k + 1, if that matters.

    Linearly dependent directions are dropped, so that b shrinks. With none left the basis is an invariant subspace and
    the search ends, unless it has fewer than k columns: then it goes on in the complement. Keeps the basis and its
    products: 2 n b steps floats, and at most 32 n more, and takes 8 n b^2 steps flops.

    - `start` (n, b): not zero. b = 1 is the Lanczos method; b = k finds eigenvalues with up to k copies.
    - `k`, `max_steps`: between 1 and n, and at least k / b.
    - `tol`: at least 0, which requests a residual at rounding level.
    - `seen`: to resume a search without its coroutine: its blocks, of which `start` is the first, and their products.
      The first block yielded is the next one.

    Signs are as by `fix_signs`. Raises InputError if an argument is out of range, or a product has another shape than
    its block or is not finite.
    """
    _check_count(start, k, max_steps)
    return (yield from _search(start, _Leading(k, tol), max_steps, seen))


def block_krylov_above(start: FloatArray, threshold: float, *, tol: float, max_steps: int) -> Search:
    """Find all eigenpairs of a symmetric A with eigenvalues above a threshold, as a coroutine like `block_krylov`.

    The search ends when every Ritz pair above the threshold has a residual of at most `tol` times the size of A, as far
    as seen, and the first Ritz pair not above it has one of at most a hundredth of its distance from the threshold, or
    as small as the others', without which eigenvalues just above the threshold are sometimes missed. Parameters are
    those of `block_krylov`; b = 1 finds repeated eigenvalues once, or more often by rounding. Returns all such pairs.
    """
    if np.isnan(threshold):
        raise InputError(f"threshold = {threshold} is not allowed; it must be a number")
    return (yield from _search(start, _Above(threshold, tol), max_steps))


def block_krylov_gap(start: FloatArray, most: int, *, tol: float, max_steps: int) -> Search:
    """Find the eigenpairs of a symmetric A before the largest ratio of consecutive eigenvalues, as a coroutine.

    Their number is that of `components_by_gap` among `most`, between 1 and n. The search ends as that of `block_krylov`
    for this number of pairs, but not before the number is certain: with every eigenvalue between its Ritz value and
    that plus its residual, no other ratio may be as large. Later pairs have only the accuracy needed for that.
    `max_steps` is more than `most` / b; a search ended by it may have another number than A. Returns `most` + 1 pairs,
    which determine the number, or n.
    """
    number = min(most + 1, len(start))
    _check_count(start, number, max_steps)
    return (yield from _search(start, _BeforeGap(most, number, tol), max_steps))


@dataclass(frozen=True)
class _Leading:
    """Convergence rule for the k leading pairs.

    A rule gives the least number of basis columns, the number of wanted Ritz values, and whether these pairs have
    converged, by the values and residuals with one pair more. Smaller residuals never revoke convergence.
    """

    k: int
    tol: float

    @property
    def least(self) -> int:
        return self.k

    def wanted(self, values: FloatArray) -> int:
        return self.k

    def good(self, values: FloatArray, errors: FloatArray, n: int, wanted: int, scale: float) -> bool:
        error = frobenius_norm(errors[:wanted])
        if error <= 4 * EPS * np.sqrt(n) * scale:
            return True
        if len(values) == wanted:
            return False
        gap = float(values[wanted - 1] - values[wanted] - errors[wanted])
        return gap > 0 and error <= self.tol * gap


@dataclass(frozen=True)
class _Above:
    """Convergence rule for all pairs above a threshold."""

    threshold: float
    tol: float
    least: int = 1

    def wanted(self, values: FloatArray) -> int:
        return int(np.count_nonzero(values > self.threshold))

    def good(self, values: FloatArray, errors: FloatArray, n: int, wanted: int, scale: float) -> bool:
        allowed = max(self.tol, 4 * EPS * np.sqrt(n)) * scale
        if np.any(errors[:wanted] > allowed) or len(values) == wanted:
            return False
        # Without a converged pair before it, only the largest eigenvalue itself shows that nothing is above.
        distance = _SLACK * (self.threshold - float(values[wanted])) if wanted else 0.0
        return bool(errors[wanted] <= max(allowed, distance))


@dataclass(frozen=True)
class _BeforeGap:
    """Convergence rule for the pairs before the largest eigenvalue ratio.

    ``least`` is `most` + 1, or n: these pairs determine the number, and only so many must converge.
    """

    most: int
    least: int
    tol: float

    def wanted(self, values: FloatArray) -> int:
        return self.least

    def good(self, values: FloatArray, errors: FloatArray, n: int, wanted: int, scale: float) -> bool:
        if frobenius_norm(errors[:wanted]) <= 4 * EPS * np.sqrt(n) * scale:
            return True
        largest = values + errors
        number, candidates = components_by_gap(values[:wanted], self.most, n)
        if components_by_gap(largest[:wanted], self.most, n)[1] != candidates:
            return False
        if candidates > 1:
            ratios = largest[:candidates] / values[1 : candidates + 1]
            ratios[number - 1] = 0.0
            if ratios.max() >= values[number - 1] / largest[number]:
                return False
        return _Leading(number, self.tol).good(values[: number + 1], errors[: number + 1], n, number, scale)


class _GrowingColumns:
    """Matrix of n rows that grows by blocks of columns, without copying earlier columns."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._arrays: list[FloatArray] = []
        self._last = 0  # used columns of the last array
        self.count = 0

    def append(self, block: FloatArray) -> None:
        for first in range(0, block.shape[1], _WIDTH):
            part = block[:, first : first + _WIDTH]
            if not self._arrays or self._last + part.shape[1] > _WIDTH:
                if self._arrays:
                    self._arrays[-1] = self._arrays[-1][:, : self._last]
                self._arrays.append(np.empty((self._n, _WIDTH), order="F"))
                self._last = 0
            self._arrays[-1][:, self._last : self._last + part.shape[1]] = part
            self._last += part.shape[1]
        self.count += block.shape[1]

    def _parts(self) -> list[FloatArray]:
        return [*self._arrays[:-1], self._arrays[-1][:, : self._last]] if self._arrays else []

    def dot(self, X: FloatArray) -> FloatArray:
        """Return the products (count, b) of all columns with X (n, b)."""
        result, first = np.empty((self.count, X.shape[1])), 0
        for part in self._parts():
            np.matmul(part.T, X, out=result[first : first + part.shape[1]])
            first += part.shape[1]
        return result

    def combine(self, S: FloatArray) -> FloatArray:
        """Return the columns times S (count, c)."""
        total, first = np.zeros((self._n, S.shape[1])), 0
        for part in self._parts():
            total += part @ S[first : first + part.shape[1]]
            first += part.shape[1]
        return total

    def whole(self) -> FloatArray:
        return np.hstack(self._parts())


def _search(
    start: FloatArray, rule: _Leading | _Above | _BeforeGap, max_steps: int, seen: KnownProducts = ()
) -> Search:
    """Extend a Krylov basis by a block per product until the rule is satisfied, and return the wanted eigenpairs."""
    n = _checked_start(start, rule.tol, max_steps)
    basis, products = _GrowingColumns(n), _GrowingColumns(n)
    Q = seen[0][0] if seen else _independent(start, basis, frobenius_norm(start))
    T = np.zeros((0, 0))
    scale = 0.0  # of A, as far as seen, for the rounding level
    for step in range(1, n + 1):
        Q, AQ = seen[step - 1] if step <= len(seen) else (Q, (yield Q))
        if AQ.shape != Q.shape or not all_finite(AQ):
            raise InputError(f"the product of step {step}, of shape {AQ.shape}, must be finite, of shape {Q.shape}")
        basis.append(Q)
        products.append(AQ)
        T = _bordered(T, basis.dot(AQ))
        scale = max(scale, frobenius_norm(AQ))
        m = len(T)
        if step < len(seen):
            continue
        Q = _independent(AQ, basis, scale) if m < n else AQ[:, :0]
        if m >= rule.least:
            values, S = _ritz(T)
            wanted = rule.wanted(values)
            # One more pair than wanted gives the gap to the rest.
            values, S = values[: wanted + 1], S[:, : wanted + 1]
            invariant, last = Q.shape[1] == 0, step >= max_steps
            # In most steps the residuals' part outside the basis is too large already: no need to form the vectors.
            if invariant or last or rule.good(values, _residuals_outside_basis(Q, AQ, S, scale), n, wanted, scale):
                V = basis.combine(S)
                good = invariant or rule.good(values, _norms(products.combine(S) - V * values), n, wanted, scale)
                if good or last:
                    kind = Eigenpairs if good else Unconverged
                    return kind(values[:wanted].copy(), fix_signs(V[:, :wanted]))
        elif Q.shape[1] == 0:
            Q = complement(basis.whole(), min(start.shape[1], n - m))
    raise AssertionError("a basis of n columns ends the search")  # pragma: no cover


def _bordered(T: FloatArray, border: FloatArray) -> FloatArray:
    """Extend T = B^T A B by B^T A Q (m, b). Q is the last block of the basis B."""
    m, old = len(border), len(T)
    grown, corner = np.empty((m, m)), border[old:]
    grown[:old, :old], grown[:old, old:], grown[old:, :old] = T, border[:old], border[:old].T
    grown[old:, old:] = (corner + corner.T) / 2
    return grown


def _ritz(T: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the eigenvalues of T in non-increasing order, and eigenvectors of any sign."""
    values, vectors, failed = dsyevd(T.T, lower=1)  # the transpose, in LAPACK's order, is no copy
    if failed:
        return leading_eigenpairs(T, len(T))
    return values[::-1], vectors[:, ::-1]


def _residuals_outside_basis(Q: FloatArray, AQ: FloatArray, S: FloatArray, scale: float) -> FloatArray:
    """Return lower bounds on the residuals: their lengths outside the basis, from the last products AQ and block Q."""
    outside = (Q.T @ AQ / (scale or 1.0)) @ S[len(S) - AQ.shape[1] :]  # at most 1, so that squares are in range
    least = np.sqrt((outside * outside).sum(axis=0)) - _ROUNDING * EPS * len(Q) ** 0.5
    return np.asarray(np.maximum(least, 0.0) * scale)


def _independent(X: FloatArray, basis: _GrowingColumns, scale: float) -> FloatArray:
    """Orthonormalise the columns of X against the basis and each other; drop those at rounding level.

    A product has an error of about 4 EPS sqrt(n) `scale`, and many times as much along a basis column that was short
    before normalisation: 850 EPS of `scale` was seen. No bound is known.
    """
    for floor in (_ROUNDING * EPS * np.sqrt(len(X)) * scale, 0.5):
        if basis.count:
            X = X - basis.combine(basis.dot(X))
        Q, lengths = _pivoted_qr(X)
        # In the second pass the columns are orthonormal up to the rounding of short ones: a column that loses half
        # its length then was rounding only.
        independent = min(len(X) - basis.count, int(np.count_nonzero(lengths > floor)))
        X = np.array(Q[:, :independent], dtype=np.float64)
        if X.shape[1] == 0:
            break
    return X


def _pivoted_qr(X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return Q of a pivoted QR decomposition, and the absolute diagonal of R."""
    if X.shape[1] > 1:
        Q, R, _ = scipy.linalg.qr(X, mode="economic", pivoting=True, check_finite=False)
        return np.asarray(Q, dtype=np.float64), np.asarray(np.abs(np.diagonal(R)), dtype=np.float64)
    # called directly: scipy's checks of arguments take several times as long
    reflections, _, factors, _, _ = dgeqp3(X)
    return dorgqr(reflections, factors)[0], np.abs(reflections[:1, 0])


def _check_count(start: FloatArray, k: int, max_steps: int) -> None:
    n = len(start)
    if start.ndim == 2 and not 1 <= k <= n:
        raise InputError(f"k = {k} is not allowed; it must be between 1 and n = {n}")
    if max_steps < 1 or max_steps * start.shape[-1] < k:
        least = -(-k // start.shape[-1])
        raise InputError(f"max_steps = {max_steps}, but must be at least {least}, for {k} pairs from this start")


def _checked_start(start: FloatArray, tol: float, max_steps: int) -> int:
    if start.ndim != 2 or not all_finite(start) or not start.any():
        raise InputError(f"start of shape {start.shape} is not allowed; it must be a finite matrix, not zero")
    if not tol >= 0:
        raise InputError(f"tol = {tol} is not allowed; it must be at least 0")
    if max_steps < 1:
        raise InputError(f"max_steps = {max_steps} is not allowed; it must be at least 1")
    return len(start)


def _norms(X: FloatArray) -> FloatArray:
    """Return the norm of every column, as `frobenius_norm`."""
    largest = np.abs(X).max(axis=0, initial=0.0)
    return np.asarray(largest * np.linalg.norm(X / np.where(largest > 0, largest, 1.0), axis=0))
