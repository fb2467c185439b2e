"""Jointly drawn frequencies of random Fourier features, for a smaller kernel error than independent ones."""

import functools
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse

from fedkernel.ground import FloatArray, Rows
from fedkernel.numerics.pairwise import cached_blocks

Frequencies: TypeAlias = Literal["independent", "orthogonal", "structured"]
"""Joint distribution of the frequencies of one draw."""

MOST_ORTHOGONAL = 1024  # most columns of an orthogonal block: it takes the time of 2048 dense rows' features, and 8 MB

LEAST_STRUCTURED, MOST_STRUCTURED = 256, 1 << 16
"""Range of columns for structured frequencies: fewer save no time, more take over 8 MB for 8 padded rows."""

_ROWS = 8  # least number of rows that are transformed together: `cached_blocks`


def possible_frequencies(frequencies: Frequencies, columns: int, count: int) -> Frequencies:
    """Return the requested kind of frequencies, or the nearest one suitable for this size; see `RandomFeatures`."""
    enough = columns * count >= LEAST_STRUCTURED * padded_length(columns)
    if frequencies == "structured" and enough and LEAST_STRUCTURED <= columns <= MOST_STRUCTURED:
        return "structured"
    return "orthogonal" if frequencies != "independent" and 1 < columns <= MOST_ORTHOGONAL else "independent"


def padded_length(columns: int) -> int:
    """Return the next power of two, the length of rows padded for a Hadamard transform."""
    return 1 << (columns - 1).bit_length()


def orthogonal_blocks(G: FloatArray) -> FloatArray:
    """Return frequencies that are orthogonal within blocks of d, with the lengths of normal vectors.

    Source: Yu, Suresh, Choromanski, Holtmann-Rice and Kumar, Orthogonal Random Features, NIPS 2016, section 3. Of a
    block G = Q R with a positive diagonal of R, Q is uniform among the matrices with orthonormal columns, and
    independent of R, which has the lengths of G's columns: each frequency is as normal as G's, and the lengths are
    independent. `G` (d, count): standard normal, in blocks of d columns, the last perhaps smaller. The last bits depend
    on the installed LAPACK.
    """
    d, count = G.shape
    frequencies = np.empty_like(G)
    for first in range(0, count, d):
        block = G[:, first : first + d]
        Q, R = np.linalg.qr(block)
        lengths = np.copysign(np.linalg.norm(block, axis=0), np.diagonal(R))
        np.multiply(Q, lengths, out=frequencies[:, first : first + d])
    return frequencies


@dataclass(frozen=True)
class StructuredFrequencies:
    """Frequencies in blocks of p, the least power of two that is not below the number d of columns.

    Source: Yu, Suresh, Choromanski, Holtmann-Rice and Kumar, Orthogonal Random Features, NIPS 2016, section 4. Those of
    a block are the rows of H D1 H D2 H D3, with the orthogonal p x p Hadamard matrix H and diagonals D of random signs,
    times lengths. Rows get p - d zeros; their products take 3 p log2 p additions, not p d products.

    The lengths are those of normal vectors of p entries, not all sqrt(p) as in the source, with which the mean of
    cos(w^T z) is too small by up to 0.54 / p. The remaining error is due to directions that are not uniform: 0.72 / p^2
    at worst, for z with one entry, of length 2.

    `signs` (blocks, 3, p): diagonals of D3, D2 and D1. `factors` (count,): lengths, without the Hadamard matrices' own.
    """

    signs: FloatArray
    factors: FloatArray

    @classmethod
    def draw(cls, columns: int, count: int, deviation: float, rng: np.random.Generator) -> Self:
        """Draw frequencies whose entries are about normal with this standard deviation."""
        p = padded_length(columns)
        signs = rng.integers(0, 2, (-(-count // p), 3, p), dtype=np.int8).astype(np.float64)
        signs *= 2
        signs -= 1
        factors: FloatArray = np.sqrt(rng.chisquare(p, count)) * (deviation * p**-1.5)
        return cls(signs, factors)

    @staticmethod
    def memory_floats(columns: int, count: int) -> int:
        """Return the number of floats in memory for the frequencies and a block's transforms."""
        p = padded_length(columns)
        return 3 * p * -(-count // p) + count + 3 * _ROWS * p

    def astype(self, dtype: npt.DTypeLike) -> Self:
        """Return these frequencies in float32 or float64."""
        return type(self)(self.signs.astype(dtype, copy=False), self.factors.astype(dtype, copy=False))

    def angles(self, X: Rows) -> FloatArray:
        """Compute w^T x, (n, count), of rows X (n, d), dense or CSR. A row's bits do not depend on the others."""
        (n, d), p, count = X.shape, self.signs.shape[2], len(self.factors)
        angles = np.empty((n, count), self.factors.dtype)
        for rows in cached_blocks(n, 4 * p, angles.dtype):
            part: Any = X[rows].toarray() if scipy.sparse.issparse(X) else X[rows]
            Z = np.empty((len(part), p), angles.dtype)
            for block, diagonals in enumerate(self.signs):
                Z[:, :d], Z[:, d:] = part, 0
                for signs in diagonals:
                    hadamard(Z, signs)
                columns = slice(block * p, (block + 1) * p)
                np.multiply(Z[:, : count - block * p], self.factors[columns], out=angles[rows, columns])
        return angles


def hadamard(Z: FloatArray, signs: FloatArray) -> None:
    """Replace each row z of a contiguous array (n, p) by H D z, in place.

    H is the Hadamard matrix in Sylvester's order, D a diagonal of signs. H = H_a (x) H_c, p = a c, by two products with
    small matrices, faster than additions that pass over the array at every step. Each row is multiplied separately, for
    BLAS may sum more rows in a different order.
    """
    n, p = Z.shape
    outer, inner = _factors(p, Z.dtype)
    Z *= signs
    squares = Z.reshape(n, len(outer), len(inner))
    np.matmul(outer, squares @ inner, out=squares)


@functools.cache
def _factors(p: int, dtype: np.dtype[Any]) -> tuple[FloatArray, FloatArray]:
    """Return Hadamard matrices of sizes near sqrt(p), whose Kronecker product is that of size p."""
    a = 1 << (p.bit_length() - 1) // 2
    return scipy.linalg.hadamard(a, dtype), scipy.linalg.hadamard(p // a, dtype)
