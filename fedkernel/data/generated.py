"""Generated sets: a table of options builds one, and called with a random generator it gives X and y."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

import numpy as np
import sklearn.datasets
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from fedkernel.arrays import FloatArray
from fedkernel.data.matrix import AnyArray
from fedkernel.errors import value_object

Table = tuple[FloatArray, AnyArray | None]


def _with_spectrum(values: FloatArray, n: int, d: int, rng: np.random.Generator) -> FloatArray:
    """Return X = V diag(sqrt(S)) U^T of shape (n, d) with random orthonormal V and U; S is cut at min(n, d)."""
    S = values[: min(n, d)]
    V = np.linalg.qr(rng.standard_normal((n, len(S)))).Q
    U = np.linalg.qr(rng.standard_normal((d, len(S)))).Q
    return np.asarray((V * np.sqrt(S)) @ U.T)


@value_object(frozen=True)
class Geometric:
    """Eigenvalues 5000 * 0.75^i, i < 50, of X X^T; the generator of the DKPCA experiments (papers/NOTES.md, 1)."""

    n: PositiveInt = 400
    d: PositiveInt = 1000
    seed: NonNegativeInt | None = None

    def __call__(self, rng: np.random.Generator) -> Table:
        """Draw X of shape (n, d); no labels."""
        return _with_spectrum(5000 * np.power(0.75, np.arange(50.0)), self.n, self.d, rng), None


@value_object(frozen=True)
class Plateau:
    """Eigenvalues 5000 ten times, 2500, then 50 thirty-nine times (papers/NOTES.md, 1, figure 3a)."""

    n: PositiveInt = 400
    d: PositiveInt = 1000
    seed: NonNegativeInt | None = None

    def __call__(self, rng: np.random.Generator) -> Table:
        """Draw X of shape (n, d); no labels."""
        return _with_spectrum(np.repeat([5000.0, 2500.0, 50.0], [10, 1, 39]), self.n, self.d, rng), None


@value_object(frozen=True)
class Blobs:
    """Gaussian clusters of standard deviation `spread`, labelled by cluster (scikit-learn's make_blobs)."""

    n: PositiveInt = 300
    d: PositiveInt = 2
    centers: PositiveInt = 3
    spread: PositiveFloat = 1.0
    seed: NonNegativeInt | None = None

    def __call__(self, rng: np.random.Generator) -> Table:
        """Draw X of shape (n, d) and the number of each row's cluster."""
        X, y, *_ = sklearn.datasets.make_blobs(
            self.n, self.d, centers=self.centers, cluster_std=self.spread, random_state=_state(rng)
        )
        return X, y


@value_object(frozen=True)
class Circles:
    """A circle inside another, `factor` times as large (scikit-learn's make_circles)."""

    n: Annotated[int, Field(ge=2)] = 300
    noise: NonNegativeFloat = 0.05
    factor: Annotated[float, Field(ge=0, lt=1)] = 0.5
    seed: NonNegativeInt | None = None

    def __call__(self, rng: np.random.Generator) -> Table:
        """Draw X of shape (n, 2) and labels 0 (outer) and 1 (inner)."""
        X, y = sklearn.datasets.make_circles(self.n, noise=self.noise, factor=self.factor, random_state=_state(rng))
        return X, y


@value_object(frozen=True)
class Moons:
    """Two interleaved half circles (scikit-learn's make_moons)."""

    n: Annotated[int, Field(ge=2)] = 300
    noise: NonNegativeFloat = 0.1
    seed: NonNegativeInt | None = None

    def __call__(self, rng: np.random.Generator) -> Table:
        """Draw X of shape (n, 2) and labels 0 and 1."""
        X, y = sklearn.datasets.make_moons(self.n, noise=self.noise, random_state=_state(rng))
        return X, y


def _state(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))


Generated = Geometric | Plateau | Blobs | Circles | Moons
GENERATED: Mapping[str, type[Generated]] = MappingProxyType(
    {"geometric": Geometric, "plateau": Plateau, "blobs": Blobs, "circles": Circles, "moons": Moons}
)
