"""Cosines and sines: the same numbers as NumPy's own functions give."""

import numpy as np
import pytest

from fedkernel.numerics.trigonometry import cosines, cosines_and_sines


def angles(scale, shape=(40, 700)):
    """Normal angles, among them multiples of a quarter of pi: wider than what is worked on at a time."""
    x = np.random.default_rng(0).standard_normal(shape) * scale
    x[0] = np.arange(shape[1]) * np.pi / 4 * max(1, scale // 100)
    return x


def both(x, factor=1.0):
    alone = x.copy()
    cosines(alone, factor)
    return alone, cosines_and_sines(x.copy(), factor)


@pytest.mark.parametrize("scale", [1e-9, 1, 30, 1e4, 2**20, 1e9])
def test_they_are_numpy_s_to_1e_13(scale):
    x = angles(scale)
    alone, beside = both(x, 1.5)
    np.testing.assert_allclose(alone, 1.5 * np.cos(x), rtol=0, atol=1e-13)
    np.testing.assert_allclose(beside, 1.5 * np.hstack([np.cos(x), np.sin(x)]), rtol=0, atol=1e-13)
    part, expected = x[:, :3], np.cos(x[:, :3])
    cosines(part)
    np.testing.assert_allclose(x[:, :3], expected, rtol=0, atol=1e-13, err_msg="written into a part of an array")
    x = angles(min(scale, 30)).astype(np.float32)
    alone, beside = both(x)
    assert alone.dtype == beside.dtype == np.float32
    np.testing.assert_allclose(alone, np.cos(x, dtype=float), rtol=0, atol=2e-7)
    np.testing.assert_allclose(beside, np.hstack([np.cos(x, dtype=float), np.sin(x, dtype=float)]), rtol=0, atol=2e-7)
