"""Random features: explicit coordinates whose inner products approximate a kernel, the same wherever the seed is."""

import zlib
from collections.abc import Callable
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from fedkernel.arrays import FloatArray
from fedkernel.errors import InputError, value_object
from fedkernel.kernels import RBF, Laplacian

ShiftInvariant = Annotated[RBF | Laplacian, Field(discriminator="type")]


@value_object(frozen=True)
class RandomFeatures:
    """Random Fourier features A, of shape (n, D), of a shift-invariant kernel: the mean of A A^T / D is the kernel.

    Source: Rahimi and Recht, Random Features for Large-Scale Kernel Machines, NIPS 2007; federated kernel k-means
    (2021), appendix A. With frequencies w from the kernel's Fourier transform (normal of variance 2 gamma for RBF,
    Cauchy of scale gamma for Laplacian),

    - "cosine" (the paper's): sqrt(2) cos(w^T x + b), b uniform on [0, 2 pi), one feature per frequency;
    - "pairs": sqrt(2) cos(w^T x) and sqrt(2) sin(w^T x): every diagonal entry of A A^T / D is exactly 1.

    The numbers depend on the seed, the draw and the number of columns only, so that parties who agree on them have
    the same features without a matrix crossing the wire.

    Parameters
    ----------
    kernel : RBF or Laplacian
        Its gamma must be a number.
    n_features : int
        D; even for "pairs".
    form : {"pairs", "cosine"}
    seed : int
    """

    kernel: ShiftInvariant
    n_features: Annotated[int, Field(ge=1)]
    form: Literal["pairs", "cosine"] = "pairs"
    seed: Annotated[int, Field(ge=0)] = 0

    def __post_init__(self) -> None:
        """Check what one field demands of another."""
        if self.kernel.gamma is None:
            raise InputError("kernel.gamma must be a number, since the features do not know the number of columns")
        if self.form == "pairs" and self.n_features % 2:
            raise InputError(f'n_features = {self.n_features}, but must be even with features = "pairs"')

    def map(self, columns: int, draw: int = 1) -> Callable[[FloatArray], FloatArray]:
        """Return the function that computes A, (n, D), for rows X, (n, columns).

        Parameters
        ----------
        columns : int
        draw : int
            Which draw: each gives features of its own.
        """
        words = [self.seed, draw, columns, zlib.crc32(b"random features")]
        rng = np.random.default_rng(np.random.SeedSequence(words))
        gamma = float(self.kernel.gamma or 0.0)
        count = self.n_features // 2 if self.form == "pairs" else self.n_features
        if isinstance(self.kernel, RBF):
            frequencies = rng.standard_normal((columns, count)) * np.sqrt(2 * gamma)
        else:
            frequencies = rng.standard_cauchy((columns, count)) * gamma
        offsets = rng.uniform(0, 2 * np.pi, count) if self.form == "cosine" else np.zeros(count)

        def features(X: FloatArray) -> FloatArray:
            angles: FloatArray = X @ frequencies
            if self.form == "cosine":
                angles += offsets
                A: FloatArray = np.cos(angles, out=angles)
            else:
                A = np.empty((len(X), self.n_features))
                np.cos(angles, out=A[:, :count])
                np.sin(angles, out=A[:, count:])
            A *= np.sqrt(2)
            return A

        return features
