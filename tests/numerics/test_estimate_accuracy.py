"""What eigenpairs tell of estimates of a matrix: against the matrices themselves, and against means of many draws."""

import numpy as np
import pytest

from fedkernel.numerics import eigengap, mean_error, squared_move


@pytest.mark.parametrize(("r", "D"), [(1, 2), (4, 3), (6, 20)])
def test_a_move_is_that_of_the_matrices(r, D):
    rng = np.random.default_rng(r)
    roots, b = rng.uniform(0.5, 2, r), 0.8
    B = np.linalg.qr(rng.standard_normal((30, r)))[0] * roots
    W = np.hstack([rng.standard_normal((30, D)) / 3, b * B])
    values, V = (pairs[..., ::-1] for pairs in np.linalg.eigh(W.T @ W))
    after = values - 0.3 * values[-1]
    U = W @ V / np.sqrt(values)
    explicit = np.linalg.norm((U * after) @ U.T - B @ B.T) ** 2
    assert squared_move(roots**2, after, values, V[D:] / b) == pytest.approx(explicit, rel=1e-10)
    # W = B, whose eigenvectors are the axes, and Z' = Z: nothing has moved
    assert squared_move(roots**2, roots**2, roots**2, np.eye(r)) == pytest.approx(0, abs=1e-14)


@pytest.mark.parametrize("t", [2, 5, 20])
def test_the_error_of_a_mean_follows_from_its_moves_on_average(t):
    """Of t vectors of variance 7 (of their squared lengths) it is 7 / t, whatever they are draws of."""
    rng = np.random.default_rng(t)
    estimates = []
    for _ in range(3000):
        draws = 5 + rng.standard_normal((t, 7))
        means = np.cumsum(draws, axis=0) / np.arange(1, t + 1)[:, None]
        estimates.append(mean_error(list(np.square(np.diff(means, axis=0)).sum(axis=1))))
    assert abs(np.mean(estimates) - 7 / t) < 5 * np.std(estimates) / np.sqrt(3000)


@pytest.mark.parametrize(
    ("values", "least", "most", "expected"),
    [
        ([8, 4, 3, 1, 0.9], 1, 4, 3),  # ratios 2, 1.3, 3, 1.1
        ([8, 4, 3, 1, 0.9], 1, 2, 1),
        ([8, 4, 3, 1, 0.9], 2, 2, 2),
        ([8, 4, 2, 1, 0.5], 1, 4, 1),  # of equal ones the first
        ([8, 4, 3], 1, 6, 3),  # those that are missing are 0
        ([8, 4, 3, 1e-17], 2, 3, 3),  # as is rounding
        ([8, 1, 0, 0], 2, 3, 2),
        ([8, 0], 3, 5, 3),
    ],
)
def test_the_eigengap_is_the_largest_ratio_of_neighbours(values, least, most, expected):
    assert eigengap(np.array(values, dtype=float), least, most) == expected
