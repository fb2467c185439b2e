"""Jointly drawn frequencies of random Fourier features, for a smaller kernel error than independent ones."""

from typing import Literal, TypeAlias

import numpy as np

from fedkernel.ground import FloatArray

Frequencies: TypeAlias = Literal["independent", "orthogonal", "structured"]
"""Joint distribution of the frequencies of one draw."""

MOST_ORTHOGONAL = 1024
"""Most columns of an orthogonal block: it takes the time of features of 2048 dense rows, and 8 MB."""

LEAST_STRUCTURED, MOST_STRUCTURED = 256, 1 << 16
"""Range of columns for structured frequencies: fewer save no time, more take over 8 MB for 8 padded rows."""


def possible_frequencies(frequencies: Frequencies, columns: int, count: int) -> Frequencies:
    """Return the requested kind of frequencies, or the nearest one suitable for this size.

    Structured ones must be at least 256 p / columns, p being the next power of two: below that a matrix product is no
    slower than NumPy's Hadamard transforms.
    """
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
    independent.

    - `G` (d, count): standard normal.

    Returns (d, count): in blocks of d columns, the last perhaps smaller. The last bits depend on the installed LAPACK.
    """
    d, count = G.shape
    frequencies = np.empty_like(G)
    for first in range(0, count, d):
        block = G[:, first : first + d]
        Q, R = np.linalg.qr(block)
        lengths = np.copysign(np.linalg.norm(block, axis=0), np.diagonal(R))
        np.multiply(Q, lengths, out=frequencies[:, first : first + d])
    return frequencies
