"""Frequencies of random Fourier features that are drawn together, not one by one, for a smaller error of the kernel."""

from typing import Literal, TypeAlias

import numpy as np

from fedkernel.arrays import FloatArray

Frequencies: TypeAlias = Literal["independent", "orthogonal"]
"""How frequencies of one draw relate to each other."""

MOST_ORTHOGONAL = 1024
"""Columns of a block at most: it takes as long as the features of 2048 dense rows, and an array of 8 MB."""


def are_orthogonal(columns: int) -> bool:
    """Tell whether frequencies of so many entries can be made orthogonal, and are worth it."""
    return 1 < columns <= MOST_ORTHOGONAL


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
