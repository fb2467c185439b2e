"""What attacks compute of what they were told, away from the site."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from scipy.optimize import least_squares, linear_sum_assignment, minimize
from scipy.spatial.distance import cdist

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


def cosines_of(features: RandomFeatures, d: int, draw: int = 1) -> tuple[Any, Any]:
    """Return frequencies W (d, D) and offsets b (D,), with which the features of a row x are sqrt(2) cos(x^T W + b)."""
    W, b = features._draw(d, draw)
    return (W, b) if features.form == "cosine" else (np.tile(W, 2), np.repeat([0, -np.pi / 2], W.shape[1]))


def rows_of_products(products: Any, cosines: Sequence[tuple[Any, Any]], mix: Any, n: int, seconds: float = 60.0) -> Any:
    """Return rows (n, d), in some order, of whose features E_t = cos(X W_t + b_t) L the products E_t^T E_t are these.

    Searches by L-BFGS, from up to three random starts until rows fit, and returns those that fit best.

    Parameters
    ----------
    products : array-like of shape (T, D, D)
    cosines : sequence of (ndarray of shape (d, c), ndarray of shape (c,))
        W_t and b_t.
    mix : ndarray of shape (c, D)
        L.
    n : int
    seconds : float
        Processor time for all searches together.
    """
    W, b = np.stack([W for W, _ in cosines]), np.stack([b for _, b in cosines])[:, None]
    P, rng = np.asarray(products), np.random.default_rng(0)
    scale, latest = 1e6 / np.square(P).sum(), time.process_time() + seconds

    def misfit(flat: Any) -> tuple[float, Any]:
        angles = flat.reshape(n, -1) @ W + b
        E = np.cos(angles) @ mix
        R = E.transpose(0, 2, 1) @ E - P
        slopes = (-4 * np.sin(angles) * (E @ R @ mix.T)) @ W.transpose(0, 2, 1)
        return scale * float(np.square(R).sum()), scale * slopes.sum(axis=0).ravel()

    def end(_: Any) -> None:
        if time.process_time() > latest:
            raise StopIteration

    options = {"maxiter": 20_000, "maxfun": 40_000, "maxcor": 30, "ftol": 1e-18, "gtol": 1e-10}
    searches: list[Any] = []
    for _ in range(3):
        start = 0.7 * rng.standard_normal(n * W.shape[1])
        searches.append(minimize(misfit, start, jac=True, method="L-BFGS-B", callback=end, options=options))
        if searches[-1].fun < EXACT or time.process_time() > latest:
            break
    return min(searches, key=lambda search: search.fun).x.reshape(n, -1)


def rows_within(residuals: Callable[[Any], Any], starts: Iterable[Any], ranges: Any) -> Any:
    """Return rows (n, d) within the columns' ranges (2, d), in some order, that leave the least residuals.

    Searches by Gauss-Newton steps in a trust region from one start after another, until rows fit.
    """
    fits = []
    for start in starts:
        fits.append(
            least_squares(
                lambda flat: residuals(flat.reshape(-1, ranges.shape[1])).ravel(),
                np.clip(start, *ranges).ravel(),
                bounds=np.tile(ranges + np.array([[-EXACT], [EXACT]]), len(start)),
                **dict.fromkeys(("ftol", "xtol", "gtol"), 1e-13),
                max_nfev=40,
            )
        )
        if fits[-1].cost < 1e-12:
            break
    return min(fits, key=lambda fit: fit.cost).x.reshape(-1, ranges.shape[1])


def coordinates_of_products(blocks: Any, products: Any, d: int) -> Any:
    """Return C (n, r), r <= d, of which C C^T is the best A of rank d that is known of A Q = P.

    Products with directions Q (n, m) that span the image of A determine A = P (Q^T P)^+ P^T.
    """
    inner = blocks.T @ products
    values, vectors = np.linalg.eigh((inner + inner.T) / 2)
    clear = np.flatnonzero(values > 1e-10 * values.max(initial=0))
    U, lengths, _ = np.linalg.svd(products @ (vectors[:, clear] / np.sqrt(values[clear])), full_matrices=False)
    return U[:, :d] * lengths[:d]


def in_order_of(table: Any, rows: Any) -> Any:
    """Return, for each row of a table, another one of these rows: those that are nearest, all together."""
    return rows[linear_sum_assignment(cdist(table, rows))[1]]
