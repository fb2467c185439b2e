"""Subspace embeddings: few coordinates, which sum features of any semidefinite kernel, or columns, with random signs.

As for `RandomFeatures`, numbers depend on the fields and the number of columns only: parties share a map by its seed.
"""

from typing import Annotated, Any, cast

import numpy as np
import numpy.typing as npt
import scipy.fft
import scipy.linalg
import scipy.sparse
from pydantic import BeforeValidator, Field

from fedkernel.ground import FloatArray, InputError, Rows, for_each, generator, row_blocks, value_object
from fedkernel.numerics.frequencies import Frequencies
from fedkernel.numerics.kernels import RBF, ArcCosine, Laplacian, Linear, Polynomial, Sigmoid, table_of_name
from fedkernel.numerics.pairwise import RowFunction, cached_blocks, dense_copy, float_type, in_dtype, multiplication_by
from fedkernel.numerics.random_features import FeatureCount, Fill, RandomFeatures, check_gamma


def _refuse_sigmoid(kernel: Any) -> Any:
    kernel = table_of_name(kernel)
    named = kernel.get("type") if isinstance(kernel, dict) else getattr(kernel, "type", None)
    if named == Sigmoid.type:
        raise ValueError("the sigmoid kernel is not positive semidefinite, so that it has no embedding")
    return kernel


Embeddable = Annotated[
    Linear | RBF | Laplacian | Polynomial | ArcCosine, Field(discriminator="type"), BeforeValidator(_refuse_sigmoid)
]


@value_object()
class SubspaceEmbedding:
    """Random coordinates E (n, t) of rows, such that the mean of E E^T is the kernel matrix.

    Source: Balcan, Liang, Song, Woodruff, Xie, Communication Efficient Distributed Kernel Principal Component Analysis,
    KDD 2016, section 4. The kernel's m features (`RandomFeatures` of the form "cosine", rectified powers for arc-cosine
    kernels, a tensor sketch for polynomial ones) get random signs and are summed up in t groups of m / t consecutive
    ones: a CountSketch with groups of equal size, since features are identically distributed. Cosines of random offsets
    have a symmetric distribution and need no signs. A linear kernel's rows are sketched to t coordinates by a
    CountSketch, or unchanged if they have at most t columns.

    How near E E^T is to the kernel depends on t before m. With RBF kernels and arc-cosine kernels of degree 0, m = t is
    as accurate as m = 2000; polynomial kernels and arc-cosine kernels of higher degree need m > t.

    - `kernel`: its gamma must be a number.
    - `size`: t. None: all m features, or the rows themselves (dense) for a linear kernel.
    - `n_features`: m, at least t; it is rounded up to a multiple of t.
    - `frequencies`: of an RBF kernel's features, see `RandomFeatures`.
    """

    kernel: Embeddable
    size: FeatureCount | None = None
    n_features: FeatureCount = 2000
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    frequencies: Frequencies = "independent"

    def __post_init__(self) -> None:
        check_gamma(self.kernel)
        if not isinstance(self.kernel, Linear) and self.size is not None and self.n_features < self.size:
            raise InputError(f"n_features = {self.n_features}, but must be at least size = {self.size}")

    def width(self, columns: int) -> int:
        """Return the number of coordinates for this number of columns."""
        if isinstance(self.kernel, Linear):
            return columns if self.size is None else min(columns, self.size)
        return self.n_features if self.size is None else self.size

    def map(self, columns: int, dtype: npt.DTypeLike = np.float64) -> RowFunction:
        """Return a function that computes the coordinates E (n, width) of rows X (n, columns), dense or CSR.

        It works on blocks whose features stay in cache, and is thread-safe.
        """
        dtype, width, kernel = float_type(dtype), self.width(columns), self.kernel
        if isinstance(kernel, Linear):
            if width == columns:
                return lambda X: dense_copy(X, dtype)
            buckets = _Buckets(count_sketch(columns, width, self._rng(columns)), np.ones(columns), dtype)
            return _scaled(buckets.fill, width, dtype, 1.0)
        m = -(-self.n_features // width) * width
        scale = 1.0 if isinstance(kernel, Polynomial) else float(np.sqrt(2 / m))  # E[A A^T] is the kernel
        if isinstance(kernel, Polynomial):
            fill = _tensor_sketch(kernel, m, self.seed, columns, dtype)
        elif isinstance(kernel, ArcCosine):
            fill = _arc_cosine_features(kernel, m, self.seed, columns, dtype)
        else:
            fill = RandomFeatures(kernel, m, "cosine", self.seed, self.frequencies)._fill(columns, dtype)
        if self.size is None:
            return _scaled(fill, m, dtype, scale)
        signs = None
        if not isinstance(kernel, RBF | Laplacian):
            signs = self._rng(columns).choice(np.array([-1, 1], dtype), m)
        return _scaled(fill, m, dtype, scale, width, signs=signs)

    def _rng(self, columns: int) -> np.random.Generator:
        return generator("subspace embedding", self.seed, columns)


def count_sketch(rows: int, size: int, rng: np.random.Generator) -> scipy.sparse.csr_array:
    """Draw a CountSketch S, (size, rows), which adds each row with a random sign to one of `size` sums.

    The mean of S^T S is the identity. Source: Clarkson and Woodruff, Low-Rank Approximation and Regression in Input
    Sparsity Time, STOC 2013.
    """
    identity = scipy.sparse.eye_array(rows, format="csc")
    return scipy.sparse.csr_array(scipy.linalg.clarkson_woodruff_transform(identity, size, rng=rng))


def _arc_cosine_features(kernel: ArcCosine, m: int, seed: int, columns: int, dtype: np.dtype[Any]) -> Fill:
    """Return a function that computes (w^T x)^degree for w^T x > 0, else 0, with standard normal w.

    Times sqrt(2), E[A A^T] / m is the kernel: Cho and Saul, Kernel Methods for Deep Learning, NIPS 2009, equation 1.
    """
    rng = generator("arc-cosine features", seed, columns)
    products = multiplication_by(rng.standard_normal((columns, m)).astype(dtype, copy=False))

    def fill(X: Rows, out: FloatArray) -> None:
        products(X, out)
        if kernel.degree == 0:
            np.greater(out, 0, out=out)
            return
        np.maximum(out, 0, out=out)
        if kernel.degree == 2:
            np.multiply(out, out, out=out)

    return fill


def _tensor_sketch(kernel: Polynomial, m: int, seed: int, columns: int, dtype: np.dtype[Any]) -> Fill:
    """Return a function that computes features A of a polynomial kernel. The mean of A A^T is the kernel matrix.

    Source: Pham and Pagh, Fast and Scalable Polynomial Kernels via Explicit Feature Maps, KDD 2013. The kernel is
    (u^T v)^degree of the rows u = (sqrt(gamma) x, sqrt(coef0)). A CountSketch of the degree-fold tensor product of u is
    the circular convolution of `degree` CountSketches of u: a product of their Fourier transforms.
    scikit-learn's PolynomialCountSketch takes CSR rows a column at a time, some hundred times as long.
    """
    scale = np.full(columns + 1, np.sqrt(float(kernel.gamma or 0.0)))
    scale[columns] = np.sqrt(kernel.coef0)
    rng = generator("tensor sketch", seed, columns)
    sketches = [_Buckets(count_sketch(columns + 1, m, rng), scale, dtype) for _ in range(kernel.degree)]

    def fill(X: Rows, out: FloatArray) -> None:
        for rows in cached_blocks(len(out), m, dtype):
            A, product = out[rows], cast(Any, None)
            for buckets in sketches:
                buckets.fill(X[rows], A)
                factor: Any = scipy.fft.rfft(A, axis=1)
                product = factor if product is None else np.multiply(product, factor, out=product)
            A[...] = scipy.fft.irfft(product, n=m, axis=1, overwrite_x=True)

    return fill


class _Buckets:
    """CountSketch (X, 1) diag(scale) S^T of scaled rows. There are ones only if S has one more column than X."""

    def __init__(self, S: scipy.sparse.csr_array, scale: FloatArray, dtype: np.dtype[Any]) -> None:
        # One entry per row: the column's target and factor.
        self._transposed = in_dtype(S.T, dtype)
        self._transposed.data *= scale.astype(dtype)

    def fill(self, X: Rows, out: FloatArray) -> None:
        (n, d), places, factors = X.shape, self._transposed.indices, self._transposed.data
        if scipy.sparse.issparse(X):
            entries = X.data * factors[X.indices], places[X.indices], X.indptr
        else:
            entries = (X * factors[:d]).ravel(), np.tile(places[:d], n), np.arange(0, n * d + 1, d)
        scipy.sparse.csr_array(entries, shape=out.shape).toarray(out=out)  # sums entries with the same target
        if d < len(places):
            out[:, places[d]] += factors[d]


def _scaled(
    fill: Fill, m: int, dtype: np.dtype[Any], scale: float, sums: int | None = None, *, signs: FloatArray | None = None
) -> RowFunction:
    """Return a function that scales the m features of `fill`, or their signed sums. It returns (n, m) or (n, sums)."""
    scales = None if sums is None else np.full(m // sums, scale, dtype)

    def features(X: Rows) -> FloatArray:
        X = in_dtype(X, dtype)
        E = np.empty((X.shape[0], sums or m), dtype)

        def compute(rows: slice) -> None:
            A = E[rows] if scales is None else np.empty((rows.stop - rows.start, m), dtype)
            fill(X[rows], A)
            if signs is not None:
                A *= signs
            if scales is not None:
                np.matmul(A.reshape(-1, len(scales)), scales, out=E[rows].reshape(-1))
            elif scale != 1:
                A *= scale

        n = X.shape[0]  # CSR rows in larger blocks, others in blocks whose features fit the cache
        for_each(compute, row_blocks(n) if scipy.sparse.issparse(X) else cached_blocks(n, m, dtype))
        return E

    return features
