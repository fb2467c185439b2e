"""Symmetric matrices of known spectra, and what leading eigenpairs of one must be."""

import numpy as np
import scipy.linalg

from fedkernel.numerics import Eigenpairs

N = 60


RANDOM = np.random.default_rng(7)


SPECTRA = {
    "decaying": 0.75 ** np.arange(N),
    "flat": np.linspace(1, 2, N),
    "indefinite": np.linspace(-3, 1, N),
    "negative": np.linspace(-3, -1, N),
    "repeated": np.r_[[2.0] * 4, [1.0] * 4, np.linspace(0, 0.5, N - 8)],
    "repeated first": np.r_[1.0, 1.0, 0.9, 0.8, np.linspace(0, 0.1, N - 4)],
    "rank 3": np.r_[3.0, 2.0, 1.0, np.zeros(N - 3)],
    "projection": np.r_[[1.0] * 5, np.zeros(N - 5)],
    "identity": np.ones(N),
    "zero": np.zeros(N),
    "nearly repeated": 1 + 1e-12 * np.arange(N),
}


def symmetric(spectrum, seed=0):
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(spectrum), len(spectrum))))[0]
    A = (Q * spectrum) @ Q.T
    return (A + A.T) / 2


def assert_leading(pairs, A, k, tol=1e-12):
    """Values as of a full decomposition, vectors orthonormal, each a solution: true for repeated values as well."""
    true = scipy.linalg.eigh(A, eigvals_only=True)[::-1]
    scale = max(np.abs(true).max(), np.finfo(float).tiny)
    assert isinstance(pairs, Eigenpairs)
    assert pairs.values.shape == (k,)
    assert pairs.vectors.shape == (len(A), k)
    assert (np.diff(pairs.values) <= 0).all()
    np.testing.assert_allclose(pairs.values / scale, true[:k] / scale, atol=tol)
    np.testing.assert_allclose(pairs.vectors.T @ pairs.vectors, np.eye(k), atol=tol)
    np.testing.assert_allclose((A / scale) @ pairs.vectors, pairs.vectors * (pairs.values / scale), atol=tol)
