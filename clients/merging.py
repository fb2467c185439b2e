"""How vectors that several clients found are merged, at a coordinator or by each of its neighbours.

Source: Cheung, Jiang, Yu, Lou: Vertical Federated Principal Component Analysis and Its Kernel Extension on
Feature-wise Distributed Data, arXiv 2203.01752: equations 13 and 15.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedkernel.arrays import FloatArray, sum_in_order
from fedkernel.numerics import Eigenpairs, fix_signs, orthonormal_basis, signs_towards

ROUNDING = 1e-12
"""A client's eigenvalues below this part of its largest are zero but for rounding."""


def merging_weights(eigenvalues: FloatArray, rule: Literal["eigenvalue", "average"], scaling: bool) -> FloatArray:
    """Return by what clients' vectors are weighted where they are merged: equations 13 and 15.

    A vector whose eigenvalue is zero is no direction of its client's but the random start: it weighs 0. Where no client
    has an eigenvalue, all weigh the same.

    Parameters
    ----------
    eigenvalues : ndarray of shape (M, k)
        Of each client, for each of its vectors.
    rule : {"eigenvalue", "average"}
    scaling : bool
        Raise the weights of the half of clients with the largest eigenvalues, and lower the others (equation 15).

    Returns
    -------
    ndarray of shape (M, k)
    """
    # A sigmoid kernel is indefinite, and power iteration finds the eigenvalue of largest magnitude.
    sizes = np.abs(eigenvalues)
    clients = len(sizes)
    sizes = np.where(sizes > ROUNDING * sizes.max(axis=1, keepdims=True), sizes, 0.0)
    votes = np.sign(sizes) if rule == "average" else sizes
    total = votes.sum(axis=0)
    weights = np.where(total > 0, votes / np.where(total > 0, total, 1), 1 / clients)
    if scaling:
        rank = np.argsort(np.argsort(-sizes, axis=0, kind="stable"), axis=0)
        eta = weights.sum(axis=0) / clients
        weights = weights * np.where(rank < (clients + 1) // 2, 1 + eta, 1 - eta)
    return np.asarray(weights)


def merged(pairs: Sequence[Eigenpairs], weights: FloatArray) -> FloatArray:
    """Return the merged vectors (N, k): signs as those of the client with the largest eigenvalue, orthonormal."""
    first = pairs[int(np.argmax([abs(pair.values[0]) for pair in pairs]))].vectors
    parts = zip((pair.vectors for pair in pairs), weights, strict=True)
    total = sum_in_order([V * (w * signs_towards(V, first)) for V, w in parts])
    return fix_signs(orthonormal_basis(total))
