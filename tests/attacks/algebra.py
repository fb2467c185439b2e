"""What attacks compute of what they were told, away from the site."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from fedkernel.numerics import RandomFeatures

EXACT = 1e-6
"""A relative error below this is rounding."""


def relative(recovered: Any, true: Any) -> float:
    """Return ||recovered - true||_F / ||true||_F."""
    return float(np.linalg.norm(np.asarray(recovered) - true) / np.linalg.norm(true))


def unknown_error(coordinates: Any, table: Any, known: int) -> float:
    """Return how far off the rows are that the attacker does not know, from coordinates (n, r) of all.

    The rows are taken to be an affine map of the coordinates, which the known rows, the first of the table, determine:
    r + 1 of them, if the coordinates are exact.
    """
    extended = np.hstack([coordinates, np.ones((len(coordinates), 1))])
    fitted, *_ = np.linalg.lstsq(extended[:known], table[:known], rcond=None)
    return relative(extended[known:] @ fitted, table[known:])


def coordinates_of_distances(squared: Any, d: int) -> Any:
    """Return points (n, d) at these squared distances (n, n), up to a motion: classical multidimensional scaling."""
    J = np.eye(len(squared)) - 1 / len(squared)
    values, vectors = np.linalg.eigh(-0.5 * J @ squared @ J)
    return vectors[:, -d:] * np.sqrt(np.maximum(values[-d:], 0))


def rows_of_small_angles(values: Any, frequencies: Any) -> Any:
    """Return the rows whose features sqrt(2) cos(w^T x), sqrt(2) sin(w^T x) are these (n, 2 c), with |w^T x| < pi."""
    count = values.shape[1] // 2
    angles = np.arctan2(values[:, count:], values[:, :count])
    return np.linalg.lstsq(frequencies.T, angles.T, rcond=None)[0].T


def rows_of_features(values: Any, features: Callable[[Any], Any], d: int, gamma: float, steps: int = 30) -> Any:
    """Return the rows whose random features of an RBF kernel are these, (n, D), by Gauss-Newton's method.

    It starts where the kernel says: log k(x, s e) - log k(x, -s e) = 4 gamma s e^T x, and k(x, y) is about the product
    of x's features, which were told, with y's, which anybody can compute.
    """
    s = 0.5 / np.sqrt(gamma * d)
    near = np.vstack([s * np.eye(d), -s * np.eye(d)])
    K = np.maximum(values @ features(near).T / (features(near[:1]) ** 2).sum(), 1e-3)
    rows = (np.log(K[:, :d]) - np.log(K[:, d:])) / (4 * gamma * s)
    h = 1e-6
    for _ in range(steps):
        now = features(rows)
        slopes = np.stack([(features(rows + h * e) - features(rows - h * e)) / (2 * h) for e in np.eye(d)], axis=2)
        change = np.array([np.linalg.lstsq(J, r, rcond=None)[0] for J, r in zip(slopes, values - now, strict=True)])
        lengths = np.linalg.norm(change, axis=1, keepdims=True)
        rows = rows + change * np.minimum(1, 1 / np.maximum(lengths, 1e-300))
        if lengths.max() < 1e-9:
            break
    return rows


def rows_of_products(vectors: Any, products: Any, features: RandomFeatures, n: int, d: int) -> Any:
    """Return rows (n, d), in some order, whose features A, pairs of the first draw, have A^T A vectors = products.

    Newton's method of least squares in a trust region, from up to three random starts.
    """
    half = features.n_features // 2
    features_of, frequencies = features.map(d), np.tile(features._draw(d)[0], 2)

    def wrong(flat: Any) -> Any:
        A = features_of(flat.reshape(n, d))
        return (A.T @ (A @ vectors) - products).ravel()

    def slopes(flat: Any) -> Any:
        A = features_of(flat.reshape(n, d))
        S = np.hstack([-A[:, half:], A[:, :half]])[:, :, None] * frequencies.T  # of each feature by its row's entries
        slope = S[:, :, None] * (A @ vectors)[:, None, :, None]
        slope += A[:, :, None, None] * np.einsum("npd,pq->nqd", S, vectors)[:, None]
        return slope.transpose(1, 2, 0, 3).reshape(-1, n * d)

    rng = np.random.default_rng(0)
    for _ in range(3):
        search = least_squares(wrong, rng.standard_normal(n * d), slopes, max_nfev=150)
        if search.cost < EXACT:
            break
    return search.x.reshape(n, d)
