"""Generated data sets: classes of options that, called with a random generator, return X and y."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

import numpy as np
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from fedkernel.data.matrix import csr
from fedkernel.ground import AnyArray, FloatArray, Rows, value_object

RowsAndLabels = tuple[Rows, AnyArray | None]


def _with_spectrum(values: FloatArray, n: int, d: int, rng: np.random.Generator) -> FloatArray:
    """Return X (n, d) with random singular vectors and these eigenvalues of X X^T, cut at min(n, d)."""
    S = values[: min(n, d)]
    V = np.linalg.qr(rng.standard_normal((n, len(S)))).Q
    U = np.linalg.qr(rng.standard_normal((d, len(S)))).Q
    return np.asarray((V * np.sqrt(S)) @ U.T)


@value_object()
class Geometric:
    """Table X with eigenvalues 5000 * 0.75^i of X X^T, i < 50, as in the DKPCA experiments (papers/NOTES.md, 1)."""

    n: PositiveInt = 400
    d: PositiveInt = 1000
    seed: NonNegativeInt | None = None

    def __call__(self, rng: np.random.Generator) -> RowsAndLabels:
        """Draw X of shape (n, d); no labels."""
        return _with_spectrum(5000 * np.power(0.75, np.arange(50.0)), self.n, self.d, rng), None


@value_object()
class Plateau:
    """Table X whose X X^T has ten eigenvalues 5000, one of 2500 and 39 of 50 (papers/NOTES.md, 1, figure 3a)."""

    n: PositiveInt = 400
    d: PositiveInt = 1000
    seed: NonNegativeInt | None = None

    def __call__(self, rng: np.random.Generator) -> RowsAndLabels:
        """Draw X of shape (n, d); no labels."""
        return _with_spectrum(np.repeat([5000.0, 2500.0, 50.0], [10, 1, 39]), self.n, self.d, rng), None


@value_object()
class Blobs:
    """Gaussian clusters of standard deviation `spread`, labelled by cluster (scikit-learn's make_blobs)."""

    n: PositiveInt = 300
    d: PositiveInt = 2
    centers: PositiveInt = 3
    spread: PositiveFloat = 1.0
    seed: NonNegativeInt | None = None

    def __call__(self, rng: np.random.Generator) -> RowsAndLabels:
        """Draw X of shape (n, d) and each row's cluster."""
        return _from_sklearn("blobs", self.n, rng, n_features=self.d, centers=self.centers, cluster_std=self.spread)


@value_object()
class Densities:
    """Values of Gaussian densities, a column each, at points within 3 deviations (VFedPCA paper, section 4.2.1).

    Deviations are 1 or, with `mixture`, drawn from 1, ..., d (the paper's 0 has no density); no value depends on the
    paper's random means.
    """

    n: PositiveInt = 200
    d: PositiveInt = 1000
    mixture: bool = False
    seed: NonNegativeInt | None = None

    def __call__(self, rng: np.random.Generator) -> RowsAndLabels:
        """Draw X of shape (n, d); no labels."""
        deviations = rng.integers(1, self.d, size=self.d, endpoint=True) if self.mixture else np.ones(self.d)
        X = rng.uniform(-3, 3, size=(self.n, self.d))
        # one array at a time: the paper's largest takes 640 MB
        X *= X
        X /= -2
        np.exp(X, out=X)
        X /= np.sqrt(2 * np.pi) * deviations
        return X, None


@value_object()
class Circles:
    """Two concentric circles, the inner one `factor` times as large (scikit-learn's make_circles)."""

    n: Annotated[int, Field(ge=2)] = 300
    noise: NonNegativeFloat = 0.05
    factor: Annotated[float, Field(ge=0, lt=1)] = 0.5
    seed: NonNegativeInt | None = None

    def __call__(self, rng: np.random.Generator) -> RowsAndLabels:
        """Draw X of shape (n, 2) and labels 0 (outer) and 1 (inner)."""
        return _from_sklearn("circles", self.n, rng, noise=self.noise, factor=self.factor)


@value_object()
class Moons:
    """Two interleaved half circles (scikit-learn's make_moons)."""

    n: Annotated[int, Field(ge=2)] = 300
    noise: NonNegativeFloat = 0.1
    seed: NonNegativeInt | None = None

    def __call__(self, rng: np.random.Generator) -> RowsAndLabels:
        """Draw X of shape (n, 2) and labels 0 and 1."""
        return _from_sklearn("moons", self.n, rng, noise=self.noise)


@value_object()
class RareClusters:
    """Blob of `n_blob` points at 0 and small clusters about `reach` sqrt(d) away, all of deviation `spread`.

    Uniform samples of some dozen rows miss most of the clusters; rows that span the table's space do not.
    """

    n_blob: PositiveInt = 1300
    n_clusters: PositiveInt = 12
    cluster_size: PositiveInt = 12
    d: PositiveInt = 20
    spread: PositiveFloat = 0.3
    reach: PositiveFloat = 6.0
    seed: NonNegativeInt | None = None

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.n_blob + self.n_clusters * self.cluster_size

    def __call__(self, rng: np.random.Generator) -> RowsAndLabels:
        """Draw X (n, d) in random order, and labels 0 (blob), 1, ..., n_clusters."""
        y = np.repeat(np.arange(self.n_clusters + 1), [self.n_blob] + [self.cluster_size] * self.n_clusters)
        centers = self.reach * rng.standard_normal((self.n_clusters + 1, self.d))
        centers[0] = 0.0
        y = rng.permutation(y)
        return centers[y] + self.spread * rng.standard_normal((self.n, self.d)), y


@value_object()
class Documents:
    """Sparse rows like those of texts: weights or counts of `d` words in `n` documents on `topics` topics.

    The k-th topic has documents in proportion to k^-skew, and its own order of the words, the r-th drawn in proportion
    to 1/r (Zipf). A document has about `length` words (Poisson, at least 1), times a log-normal factor whose logarithm
    has the deviation `spread`. Rows are tf-idf, log(1 + count) (log((1 + n) / (1 + documents with the word)) + 1), of
    length 1; or, with weights "counts", the counts.
    """

    n: PositiveInt = 2000
    d: PositiveInt = 5000
    topics: PositiveInt = 20
    length: PositiveFloat = 60.0
    skew: NonNegativeFloat = 1.5
    spread: NonNegativeFloat = 0.0
    weights: Literal["tf-idf", "counts"] = "tf-idf"
    seed: NonNegativeInt | None = None

    def __call__(self, rng: np.random.Generator) -> RowsAndLabels:
        """Draw X (n, d), CSR, and each row's topic."""
        y = rng.choice(self.topics, size=self.n, p=_power_law(self.topics, self.skew))
        lengths = rng.poisson(self.length, size=self.n)
        if self.spread:
            lengths = rng.poisson(lengths * np.exp(self.spread * rng.standard_normal(self.n)))
        lengths = np.maximum(lengths, 1)
        orders = np.array([rng.permutation(self.d) for _ in range(self.topics)])
        ranks = rng.choice(self.d, size=int(lengths.sum()), p=_power_law(self.d, 1.0))
        # a row's words, one after the other; summing up duplicates counts them
        words = orders[np.repeat(y, lengths), ranks]
        X = csr(np.ones(len(words)), words, np.concatenate([[0], np.cumsum(lengths)]), (self.n, self.d))
        X.sum_duplicates()
        if self.weights == "counts":
            return X, y
        idf = np.log((1 + self.n) / (1 + np.bincount(X.indices, minlength=self.d))) + 1
        X.data = np.log1p(X.data) * idf[X.indices]
        norms = np.sqrt(np.add.reduceat(np.square(X.data), X.indptr[:-1]))
        X.data /= np.repeat(norms, np.diff(X.indptr))
        return X, y


def _power_law(size: int, exponent: float) -> FloatArray:
    weights = np.arange(1.0, size + 1) ** -exponent
    return np.asarray(weights / weights.sum())


def _from_sklearn(maker: str, n: int, rng: np.random.Generator, **options: Any) -> RowsAndLabels:
    import sklearn.datasets  # noqa: PLC0415 - takes a second to import

    X, y, *_ = getattr(sklearn.datasets, f"make_{maker}")(n, random_state=int(rng.integers(2**31)), **options)
    return X, y


Generated = Geometric | Plateau | Blobs | Densities | Circles | Moons | RareClusters | Documents
GENERATED: Mapping[str, type[Generated]] = {
    re.sub("(?<=[a-z])(?=[A-Z])", "-", kind.__name__).lower(): kind for kind in get_args(Generated)
}
"""Classes by name: rare-clusters of RareClusters."""
