"""What the coordinator reads off the rebuilt kernel matrix's eigenvalues: how sure the components are."""

import numpy as np

from fedkernel.arrays import EPS, FloatArray


def certified(values: FloatArray, D: int, rows: int, omitted: float) -> float:
    """Return a bound on ||sin Theta||_F that needs no data, for linear, RBF and Laplacian kernels.

    It is ``sqrt(min(D, N - D)) R / (lambda_D(K^) - lambda_{D + 1}(K^))``, where R is the sum of the clients'
    lambda_{D_m + 1}(K_m), and never above ``sqrt(min(D, N - D))``, which holds for any two subspaces. K - K^ is
    positive semidefinite, and R no less than its norm: of a sum, plainly; of elementwise products with diagonals of 1
    at most, by Schur's theorem, one factor after the other. So lambda_D(K) >= lambda_D(K^), and with V, of K, and the
    complement W^, of K^, ``V^T (K - K^) W^ = Lambda V^T W^ - V^T W^ Lambda^`` gives the bound, without the factor 2 of
    Davis and Kahan's. Centring K and K^ changes none of this. R counts rounding in, ``10 N eps lambda_1(K^)``.

    Parameters
    ----------
    values : ndarray of shape (D,) or (D + 1,)
        Leading eigenvalues of K^; of D + 1, where there are so many.
    D : int
    rows : int
        N.
    omitted : float
        R, but for rounding.
    """
    if rows == D:
        return 0.0
    most, rounding = float(np.sqrt(min(D, rows - D))), 10 * rows * EPS * float(values[0])
    return min(most, most * over_gap(omitted + rounding, values, D, rows))


def over_gap(numerator: float, values: FloatArray, D: int, rows: int) -> float:
    """Return a number over lambda_D - lambda_{D + 1}; infinity where these are the same but for rounding."""
    gap = float(values[D - 1] - values[D])
    return numerator / gap if gap > rows * EPS * abs(float(values[0])) else float("inf")
