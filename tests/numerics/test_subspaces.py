"""Signs, bases and distances of subspaces."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from spectra import RANDOM

from fedkernel.ground import InputError
from fedkernel.numerics import align_signs, complement, fix_signs, orthonormal_basis, sin_theta_error


@given(hnp.arrays(float, (5, 3), elements=st.floats(-10, 10)), hnp.arrays(bool, 3))
def test_fixed_signs_do_not_depend_on_the_signs_given(V, flips):
    fixed = fix_signs(V)
    assert np.array_equal(np.abs(fixed), np.abs(V))
    assert (fixed.max(axis=0) >= np.abs(fixed).max(axis=0) * (1 - 1e-6)).all()
    assert np.array_equal(fix_signs(V * np.where(flips, -1, 1)), fixed)
    v = np.array([[-0.5], [0.5], [0.5], [-0.5]])
    for noise in ([1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, -1], [0, 0, 0, 0]):  # no rounding decides
        assert fix_signs(v + 1e-14 * np.array(noise)[:, None])[0, 0] > 0


def test_aligned_signs():
    reference = RANDOM.standard_normal((6, 4))
    flips = np.array([1, -1, 1, -1])
    V = reference + 0.1 * RANDOM.standard_normal((6, 4))
    assert np.array_equal(align_signs(V * flips, reference), V)
    with pytest.raises(InputError, match=r"\(6, 4\) and \(6, 3\)"):
        align_signs(V, reference[:, :3])


@pytest.mark.parametrize(("n", "k"), [(5, 0), (5, 2), (30, 29)])
def test_complement_completes_a_basis_which_is_gram_and_schmidt_s(n, k):
    S = RANDOM.standard_normal((n, k))
    V = orthonormal_basis(S) if k else np.zeros((n, 0))
    expected = S.copy()
    for j in range(k):
        expected[:, j] -= expected[:, :j] @ (expected[:, :j].T @ S[:, j])
        expected[:, j] /= np.linalg.norm(expected[:, j])
    np.testing.assert_allclose(V, expected, atol=1e-11)
    whole = np.hstack([V, complement(V, n - k)])
    np.testing.assert_allclose(whole.T @ whole, np.eye(n), atol=1e-14)
    assert np.array_equal(complement(V, n - k), whole[:, k:])


def test_a_complement_is_orthogonal_where_the_draw_is_nearly_in_the_span_and_drawn_anew_after_an_earlier_one():
    """What one projection leaves of such a draw is mostly its rounding."""
    draw = orthonormal_basis(np.random.default_rng(1).standard_normal((8, 1)))  # that of a complement of one column
    V = orthonormal_basis(draw + 1e-9 * RANDOM.standard_normal((8, 1)))
    assert sin_theta_error(V, draw) < 1e-15
    W = complement(V, 1)
    assert abs(float(V[:, 0] @ W[:, 0])) < 1e-15
    assert np.linalg.norm(W) == pytest.approx(1, rel=1e-15)
    # The same draw again would lie in the span: normalised rounding, which may stand on a single row.
    V = np.full((400, 1), 0.05)
    for _ in range(8):
        V = np.hstack([V, complement(V, 1)])
    assert np.abs(V).max() < 0.25  # 5 standard deviations
    np.testing.assert_allclose(V.T @ V, np.eye(9), atol=1e-14)


@pytest.mark.parametrize("angle", [0.5, 1e-3, 1e-10, 1e-14, 0.0])
def test_sin_theta_error_resolves_tiny_angles(angle):
    Q = np.linalg.qr(RANDOM.standard_normal((10, 4)))[0] if angle else np.eye(10)[:, :4]
    V, W = Q[:, :2], np.column_stack([Q[:, 0], np.cos(angle) * Q[:, 1] + np.sin(angle) * Q[:, 2]])
    mixed = W @ np.array([[0.6, -0.8], [0.8, 0.6]]) if angle > 1e-3 else W
    assert sin_theta_error(V, mixed) == pytest.approx(np.sin(angle) ** 2, rel=0.2, abs=0.0)
    if angle == 0.5:
        assert sin_theta_error(V, mixed) == pytest.approx(2 - np.linalg.norm(V.T @ mixed) ** 2, rel=1e-12)
    with pytest.raises(InputError):
        sin_theta_error(V, W[:, :1])
