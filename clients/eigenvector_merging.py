"""Merge of the clients' leading eigenvectors into one set, at a coordinator or at each peer (VFedPCA).

Source: the paper of `fedkernel.strategies.vfedpca`, equations 13 and 15.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedkernel.ground import FloatArray
from fedkernel.numerics import (
    Eigenpairs,
    above_rounding,
    complement,
    fix_signs,
    leading_eigenpairs,
    leading_eigenpairs_of_factor,
    orthonormal_basis,
    sin_theta_error,
    tall_product,
    transposed_product,
)

ZERO_SHARE = 1e-12
"""Share of a client's largest eigenvalue below which others are zero but for rounding."""


def merging_weights(eigenvalues: FloatArray, rule: Literal["eigenvalue", "average"], scaling: bool) -> FloatArray:
    """Return the weight of each client's vectors in a merge: equations 13 and 15 of the paper.

    A vector with eigenvalue zero is no direction of its client's but the random start: its weight is 0. If no client
    has an eigenvalue, all weights are equal. `eigenvalues` (M, k): magnitudes count, for indefinite kernels such as a
    sigmoid. `scaling`: raise the weights of the half of clients with the largest eigenvalues (several vectors: the
    largest sums), and lower the others' (equation 15). Returns (M, k): their sum is 1 before scaling.
    """
    sizes = np.abs(eigenvalues)
    clients = len(sizes)
    sizes = np.where(sizes > ZERO_SHARE * sizes.max(axis=1, keepdims=True), sizes, 0.0)
    votes = np.sign(sizes) if rule == "average" else sizes / (sizes.max() or 1.0)
    weights = votes / votes.sum() if votes.any() else np.full(votes.shape, 1 / votes.size)
    if scaling:
        # One factor for all vectors of a client: equal eigenvalues of its matrix have any basis
        rank = np.argsort(np.argsort(-sizes.sum(axis=1), kind="stable"))
        weights = weights * np.where(rank < (clients + 1) // 2, 1 + 1 / clients, 1 - 1 / clients)[:, None]
    return np.asarray(weights)


def merge_eigenpairs(pairs: Sequence[Eigenpairs], weights: FloatArray) -> Eigenpairs:
    """Merge the leading eigenpairs of M clients into k orthonormal vectors with Ritz values.

    One vector each: equation 13, the weighted mean of the vectors at length 1, their signs aligned with those of the
    client with the largest eigenvalue. Several, a case that the paper leaves open: the k leading eigenvectors of
    ``sum_m V_m diag(w_m) V_m^T``, by singular values of its factor (N, M k), since clients' directions need not be in
    the same order. (For one vector this would multiply each weight by its cosine with the result.) `pairs`: values (k,)
    and orthonormal vectors (N, k) of each client. `weights` (M, k). Returns orthonormal vectors (N, k), and
    non-increasing Ritz values of ``sum_m V_m diag(values_m) V_m^T``, which settle the basis if weights are equal.
    Directions below `ZERO_SHARE` of the weighted sum's largest eigenvalue are dropped, never scaled up: vectors without
    preference for any row, of value 0, take their places.
    """
    vectors, values = np.hstack([pair.vectors for pair in pairs]), np.concatenate([pair.values for pair in pairs])
    if weights.shape[1] == 1:
        first = vectors[:, [int(np.argmax(np.abs(values)))]]
        signs = np.where(transposed_product(vectors, first) < 0, -1.0, 1.0)
        basis = orthonormal_basis(tall_product(vectors, weights * signs))
    else:
        shares = leading_eigenpairs_of_factor(vectors * np.sqrt(weights.ravel()), weights.shape[1])
        basis = shares.vectors[:, above_rounding(shares.values, len(vectors), ZERO_SHARE)]
    inner = transposed_product(vectors, basis)
    ritz = leading_eigenpairs(inner.T @ (values[:, None] * inner), len(inner.T))
    leading, dropped = fix_signs(tall_product(basis, ritz.vectors)), weights.shape[1] - len(ritz.values)
    return Eigenpairs(np.append(ritz.values, np.zeros(dropped)), np.hstack([leading, complement(leading, dropped)]))


def is_moved(vectors: FloatArray, last: FloatArray) -> bool:
    """Return whether a merge spans a different subspace than the last one, both (N, k)."""
    return sin_theta_error(last, vectors) > ZERO_SHARE**2
