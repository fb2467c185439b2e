"""Arc-cosine kernels: against the integral that defines them, at every angle, for zero rows, and where refused."""

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.sparse
from allocation import peak_of
from kernel_cases import rows
from scipy.stats import ortho_group

from fedkernel import DKPCA, InputError
from fedkernel.numerics import ArcCosine, kernel_from

DEGREES = [0, 1, 2]
every_degree = pytest.mark.parametrize("degree", DEGREES)
ANGLES = [1e-9, 1e-7, 3e-5, 1e-3, 0.03, 0.044, 0.045, 0.3, 1.0, math.pi / 2, 2.0, 3.0]


def at_angles(angles, d=6):
    """A row of length 1, and rows of length 1 at these angles to it, in d dimensions."""
    turn = ortho_group.rvs(d, random_state=np.random.default_rng(3))
    X = np.zeros((len(angles) + 1, d))
    X[0, 0] = 1
    X[1:, 0], X[1:, 1] = np.cos(angles), np.sin(angles)
    X = X @ turn
    return X[:1], X[1:]


def by_quadrature(degree, x, y):
    """2 E[(w x)^n (w y)^n; both positive] for standard normal w, in polar coordinates of the plane of x and y.

    The radius integrates to 2^n n!, and the angle phi of w to x runs over the half-planes' common part.
    """
    norms = np.linalg.norm(x), np.linalg.norm(y)
    unit = x / norms[0], y / norms[1]
    theta = 2 * math.atan2(np.linalg.norm(unit[0] - unit[1]), np.linalg.norm(unit[0] + unit[1]))

    def product(phi):
        return (math.cos(phi) * math.cos(phi - theta)) ** degree

    angular, _ = scipy.integrate.quad(product, theta - math.pi / 2, math.pi / 2, epsabs=1e-14, epsrel=1e-13)
    return 2 / (2 * math.pi) * 2**degree * math.factorial(degree) * angular * (norms[0] * norms[1]) ** degree


@every_degree
@pytest.mark.parametrize("d", [1, 2, 5])
def test_gram_is_the_integral_that_defines_it(degree, d):
    X, Y = rows(7, d), rows(5, d, seed=1)
    expected = [[by_quadrature(degree, x, y) for y in Y] for x in X]
    np.testing.assert_allclose(ArcCosine(degree=degree).gram(X, Y), expected, rtol=1e-11, atol=1e-11)
    # lengths come out as powers
    scaled = ArcCosine(degree=degree).gram(5 * X, 2 * Y)
    np.testing.assert_allclose(scaled, 10.0**degree * np.array(expected), rtol=1e-11, atol=1e-9)


@every_degree
def test_diagonal_is_exact(degree):
    X = rows(700, 9) * np.geomspace(1e-3, 1e3, 700)[:, None]
    kernel = ArcCosine(degree=degree)
    expected = [1, 1, 3][degree] * (X**2).sum(axis=1) ** degree
    np.testing.assert_allclose(kernel.diag(X), expected, rtol=1e-13)
    np.testing.assert_allclose(np.diagonal(kernel.gram(X)), kernel.diag(X), rtol=1e-13)
    # Between two copies too, whose products of unit rows are 1 but for rounding.
    np.testing.assert_allclose(np.diagonal(kernel.gram(X, X.copy())), kernel.diag(X), rtol=1e-12)
    sparse = scipy.sparse.csr_array(X)
    np.testing.assert_allclose(np.diagonal(kernel.gram(sparse, sparse.copy())), kernel.diag(sparse), rtol=1e-12)


@every_degree
@pytest.mark.parametrize("kind", [np.array, scipy.sparse.csr_array])
@pytest.mark.parametrize(("dtype", "error"), [(np.float64, 2e-15), (np.float32, 1e-6)])
def test_angles_of_nearly_parallel_and_opposite_rows_keep_their_digits(degree, kind, dtype, error):
    """A cosine alone holds the angle to 1e-8 there, and in float32 to 3e-4."""
    J = [
        lambda theta: math.pi - theta,
        lambda theta: math.sin(theta) + (math.pi - theta) * math.cos(theta),
        lambda theta: 3 * math.sin(theta) * math.cos(theta) + (math.pi - theta) * (1 + 2 * math.cos(theta) ** 2),
    ][degree]
    expected = np.array([J(theta) for theta in ANGLES]) / math.pi
    opposite = np.array([J(math.pi - theta) for theta in ANGLES]) / math.pi
    x, Y = at_angles(np.array(ANGLES))
    K = ArcCosine(degree=degree).against(kind(Y), dtype)
    np.testing.assert_allclose(K(kind(x).astype(dtype))[0], expected, rtol=0, atol=error * 3)
    np.testing.assert_allclose(K(kind(-x).astype(dtype))[0], opposite, rtol=0, atol=error * 3)
    if degree == 0 and dtype == np.float64:  # below the rounding of cosines
        theta = math.pi * (1 - K(kind(x))[0])
        np.testing.assert_allclose(theta[:2], ANGLES[:2], rtol=0, atol=1e-15)


@every_degree
def test_matrices_are_positive_semidefinite(degree):
    X = rows(60, 3)
    X = np.vstack([X, X[:20] * 2, -X[:20], X[:20] + 1e-9 * rows(20, 3, seed=2), np.zeros((3, 3))])
    values = np.linalg.eigvalsh(ArcCosine(degree=degree).gram(X))
    assert values[0] >= -1e-13 * values[-1]


@every_degree
@pytest.mark.parametrize("kind", [np.array, scipy.sparse.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_zero_rows_have_kernel_0_with_everything(degree, kind, dtype):
    X = rows(6, 4)
    X[[1, 4]] = 0
    kernel, zero = ArcCosine(degree=degree), np.array([1, 4])
    for K in (kernel.gram(kind(X)), kernel.gram(kind(X), kind(X.copy())), kernel.against(kind(X), dtype)(kind(X))):
        assert (K[zero] == 0).all()
        assert (K[:, zero] == 0).all()
        assert (K.diagonal()[[0, 2, 3, 5]] > 0.1).all()
    assert (kernel.diag(kind(X))[zero] == 0).all()
    assert (kernel.diag(kind(X))[[0, 2, 3, 5]] > 0).all()


def test_many_nearly_parallel_rows_take_no_more_memory_than_the_result():
    X = 1 + 1e-3 * rows(1000, 40)
    peak, K = peak_of(lambda: ArcCosine(degree=0).gram(X))
    assert (K > 0.99).all()
    assert peak < 3 * K.nbytes


@every_degree
def test_columns_split_over_clients_are_refused(degree):
    kernel, X = ArcCosine(degree=degree), rows(4, 3)
    assert kernel.vertical == "none"
    calls = (lambda: kernel.part(X), lambda: kernel.combine([np.eye(2)]), lambda: DKPCA(2, kernel))
    for call in (kernel.require_vertical, *calls):
        with pytest.raises(InputError, match="ArcCosine is for horizontally divided data only"):
            call()


@pytest.mark.parametrize(
    ("field", "text"),
    [
        *(({"degree": degree}, f"degree = {degree}: input should be 0, 1 or 2") for degree in (-1, 3, 1.5)),
        ({"gamma": 1.0}, "gamma is not a known name"),
    ],
)
def test_other_degrees_and_a_width_are_refused(field, text):
    with pytest.raises(InputError, match=f"ArcCosine: {text}"):
        kernel_from({"type": "arc-cosine", **field})
