"""Frequencies of random Fourier features that are drawn together, not one by one, for a smaller error of the kernel."""

from typing import Literal, TypeAlias

import numpy as np

from fedkernel.ground import FloatArray

Frequencies: TypeAlias = Literal["independent", "orthogonal", "structured"]
"""How frequencies of one draw relate to each other."""

MOST_ORTHOGONAL = 1024
"""Columns of a block at most: it takes as long as the features of 2048 dense rows, and an array of 8 MB."""


LEAST_STRUCTURED, MOST_STRUCTURED = 256, 1 << 16
"""Columns of structured frequencies: a matrix of fewer takes no longer, and 8 padded rows of more take 8 MB."""


def possible(frequencies: Frequencies, columns: int, count: int) -> Frequencies:
    """Return how so many frequencies of so many entries relate to each other, where that relation is wished for.

    Structured ones must be at least 256 p / columns, p being the next power of two: a product of rows with fewer takes
    no longer than their Hadamard transforms by NumPy.
    """
    enough = columns * count >= LEAST_STRUCTURED * padded(columns)
    if frequencies == "structured" and enough and LEAST_STRUCTURED <= columns <= MOST_STRUCTURED:
        return "structured"
    return "orthogonal" if frequencies != "independent" and 1 < columns <= MOST_ORTHOGONAL else "independent"


def padded(columns: int) -> int:
    """Return the next power of two: as many entries as rows get for a Hadamard transform."""
    return 1 << (columns - 1).bit_length()


def orthogonal_blocks(G: FloatArray) -> FloatArray:
    """Return directions that are orthogonal within blocks of d, with the lengths of normal frequencies.

    Source: Yu, Suresh, Choromanski, Holtmann-Rice and Kumar, Orthogonal Random Features, NIPS 2016, section 3. Of a
    block G = Q R with a positive diagonal of R, Q is uniform among the matrices with orthonormal columns, and
    independent of R, which has the lengths of G's columns: each frequency is as normal as G's, and the lengths are
    independent of each other.

    Parameters
    ----------
    G : ndarray of shape (d, count)
        Standard normal.

    Returns
    -------
    ndarray of shape (d, count)
        Of blocks of d columns; the last may have fewer. The last bits are those of the LAPACK that is installed.
    """
    d, count = G.shape
    frequencies = np.empty_like(G)
    for first in range(0, count, d):
        block = G[:, first : first + d]
        Q, R = np.linalg.qr(block)
        lengths = np.copysign(np.linalg.norm(block, axis=0), np.diagonal(R))
        np.multiply(Q, lengths, out=frequencies[:, first : first + d])
    return frequencies
