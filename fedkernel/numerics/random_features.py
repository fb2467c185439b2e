"""Kernel sketches: coordinates of rows whose inner products approximate a kernel, reproducible from a seed.

- `RandomFeatures`: many coordinates, of shift-invariant kernels;
- `SubspaceEmbedding`: features of any semidefinite kernel, or the rows themselves, summed up to a few coordinates;
- `count_sketch`: the sums of random signs behind it.

The first two are fields of messages. Their numbers depend on their fields and the number of columns only, so that
parties share the same maps without sending a matrix.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import scipy.fft
import scipy.linalg
import scipy.sparse
from pydantic import BeforeValidator, Field

from fedkernel.ground import FloatArray, InputError, Rows, for_each, generator, row_blocks, value_object
from fedkernel.numerics.frequencies import Frequencies, StructuredFrequencies, orthogonal_blocks, possible_frequencies
from fedkernel.numerics.kernels import RBF, AnyKernel, ArcCosine, Laplacian, Linear, Polynomial, Sigmoid, table_of_name
from fedkernel.numerics.pairwise import RowFunction, cached_blocks, dense_copy, float_type, in_dtype, multiplication_by
from fedkernel.numerics.trigonometry import cosines, cosines_and_sines

MOST_FEATURES = 1 << 16  # most features: a request for them costs a site memory, 1 GB for a block of rows
MOST_CACHED_ENTRIES = 1 << 19  # most entries of cached frequencies, 4 MiB; larger ones are drawn each time

FeatureCount = Annotated[int, Field(ge=1, le=MOST_FEATURES)]

ShiftInvariant = Annotated[RBF | Laplacian, Field(discriminator="type"), BeforeValidator(table_of_name)]
Fill: TypeAlias = Callable[[Rows, FloatArray], None]
"""Function that computes features of rows (n, d), without their common factor, into an array (n, m)."""


@value_object()
class RandomFeatures:
    """Random Fourier features A, of shape (n, D), of a shift-invariant kernel: E[A A^T] / D is the kernel.

    Source: Rahimi and Recht, Random Features for Large-Scale Kernel Machines, NIPS 2007; federated kernel k-means
    (2021), appendix A. With frequencies w from the kernel's Fourier transform (normal of variance 2 gamma for RBF,
    Cauchy of scale gamma for Laplacian),

    - "cosine" (the paper's): sqrt(2) cos(w^T x + b), b uniform on [0, 2 pi), one feature per frequency;
    - "pairs": sqrt(2) cos(w^T x) and sqrt(2) sin(w^T x): every diagonal entry of A A^T / D is exactly 1.

    Orthogonal frequencies (Yu et al., Orthogonal Random Features, NIPS 2016) have the same mean, but a smaller error.
    Structured ones (their section 4) are orthogonal ones with fast products, whose mean is too small by about 1e-5 at
    worst (`fedkernel.numerics.frequencies`). On all machines independent frequencies have the same bits, the others the
    same numbers up to roundings of some 1e-15, by which LAPACK differs.

    - `kernel`: its gamma must be a number.
    - `n_features`: D; even for "pairs".
    - `frequencies`: "orthogonal": for an RBF kernel of 2 to 1024 columns, within blocks of that many; more columns make
      independent ones nearly orthogonal, and a Laplacian's have no uniform direction. "structured": for an RBF kernel
      of 256 to 65536 columns and at least 256 p / columns frequencies, with p the next power of two; else as
      "orthogonal".
    """

    kernel: ShiftInvariant
    n_features: FeatureCount
    form: Literal["pairs", "cosine"] = "pairs"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    frequencies: Frequencies = "independent"

    def __post_init__(self) -> None:
        _check_gamma(self.kernel)
        if self.form == "pairs" and self.n_features % 2:
            raise InputError(f'n_features = {self.n_features}, but must be even with features = "pairs"')

    def memory_floats(self, columns: int) -> int:
        """Return the number of floats in memory for the frequencies and their computation."""
        count, relation = self._n_frequencies, self._frequency_kind(columns)
        if relation == "structured":
            return StructuredFrequencies.memory_floats(columns, count)
        copies = 3 if relation == "orthogonal" else 0  # a block, its Q, and LAPACK's workspace
        return columns * (count + copies * min(columns, count))

    def map(self, columns: int, draw: int = 1, dtype: npt.DTypeLike = np.float64) -> RowFunction:
        """Return a function that computes A, (n, D), for rows X, (n, columns), dense or CSR.

        Each `draw` gives independent features. float32 keeps about six digits less the digits of the largest |w^T x|.
        """
        dtype = float_type(dtype)
        products, offsets = self._angles(columns, draw, dtype)

        def features(X: Rows) -> FloatArray:
            angles = products(in_dtype(X, dtype))
            if self.form == "pairs":
                return cosines_and_sines(angles, np.sqrt(2))
            angles += offsets
            cosines(angles, np.sqrt(2))
            return angles

        return features

    @property
    def _n_frequencies(self) -> int:
        return self.n_features // 2 if self.form == "pairs" else self.n_features

    def _frequency_kind(self, columns: int) -> Frequencies:
        """Return the kind of frequencies drawn for this number of columns."""
        frequencies = self.frequencies if isinstance(self.kernel, RBF) else "independent"
        return possible_frequencies(frequencies, columns, self._n_frequencies)

    def _angles(self, columns: int, draw: int = 1, dtype: npt.DTypeLike = np.float64) -> tuple[RowFunction, FloatArray]:
        """Return a function that computes w^T x, (n, count), in this dtype, and the offsets."""
        frequencies, offsets = self._draw(columns, draw)
        offsets = offsets.astype(dtype, copy=False)
        if isinstance(frequencies, StructuredFrequencies):
            return frequencies.astype(dtype).angles, offsets
        matrix = self._cast(frequencies, dtype)
        return lambda X: X @ matrix, offsets

    def _cast(self, frequencies: FloatArray, dtype: npt.DTypeLike) -> FloatArray:
        """Convert frequencies to this dtype; InputError on overflow."""
        if np.abs(frequencies).max() > np.finfo(np.dtype(dtype)).max:
            allowed = "allowed: float64, or a table in a smaller unit"
            raise InputError(f"kernel.gamma = {self.kernel.gamma:.3g} is too large for {np.dtype(dtype)}; {allowed}")
        return frequencies.astype(dtype, copy=False)

    def _draw(self, columns: int, draw: int = 1) -> tuple[FloatArray | StructuredFrequencies, FloatArray]:
        """Return the read-only frequencies w (columns, count) and offsets b (count,); small ones are cached."""
        is_small = columns * self._n_frequencies <= MOST_CACHED_ENTRIES
        return _cached_draw(self, columns, draw) if is_small else self._draw_anew(columns, draw)

    def _draw_anew(self, columns: int, draw: int) -> tuple[FloatArray | StructuredFrequencies, FloatArray]:
        rng = generator("random features", self.seed, draw, columns)
        gamma = float(self.kernel.gamma or 0.0)
        count, relation = self._n_frequencies, self._frequency_kind(columns)
        frequencies: FloatArray | StructuredFrequencies
        if relation == "structured":
            frequencies = StructuredFrequencies.draw(columns, count, np.sqrt(2 * gamma), rng)
        elif isinstance(self.kernel, RBF):
            frequencies = rng.standard_normal((columns, count))
            if relation == "orthogonal":
                frequencies = orthogonal_blocks(frequencies)
            frequencies *= np.sqrt(2 * gamma)
        else:
            frequencies = rng.standard_cauchy((columns, count))
            frequencies *= gamma
        offsets = rng.uniform(0, 2 * np.pi, count) if self.form == "cosine" else np.zeros(count)
        for array in (frequencies, offsets):
            if isinstance(array, np.ndarray):
                array.flags.writeable = False
        return frequencies, offsets

    def _fill(self, columns: int, dtype: np.dtype[Any]) -> Fill:
        """Return a function that computes cos(w^T x + b), for the form "cosine"."""
        frequencies, offsets = self._draw(columns)
        if isinstance(frequencies, StructuredFrequencies):
            products, offsets = frequencies.astype(dtype).angles, offsets.astype(dtype, copy=False)

            def transform(X: Rows, out: FloatArray) -> None:
                np.add(products(X), offsets, out=out)
                cosines(out)

            return transform
        # The offsets are the weights of a column of ones, which is faster than adding them.
        angles = multiplication_by(self._cast(np.vstack([frequencies, offsets]), dtype))

        def fill(X: Rows, out: FloatArray) -> None:
            ones: Any = np.ones((X.shape[0], 1), dtype)
            beside: Any = scipy.sparse.hstack if scipy.sparse.issparse(X) else np.hstack
            angles(in_dtype(beside([X, ones]), dtype), out)
            cosines(out)

        return fill


_cached_draw = lru_cache(maxsize=2)(RandomFeatures._draw_anew)  # for this iteration and the previous one


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
    """Return a function that computes features A of a polynomial kernel, with E[A A^T] equal to the kernel.

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
    """Coordinates E, of shape (n, t), with E[E E^T] equal to the kernel matrix.

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
        _check_gamma(self.kernel)
        if not isinstance(self.kernel, Linear) and self.size is not None and self.n_features < self.size:
            raise InputError(f"n_features = {self.n_features}, but must be at least size = {self.size}")

    def width(self, columns: int) -> int:
        """Return the number of coordinates for this number of columns."""
        if isinstance(self.kernel, Linear):
            return columns if self.size is None else min(columns, self.size)
        return self.n_features if self.size is None else self.size

    def map(self, columns: int, dtype: npt.DTypeLike = np.float64) -> RowFunction:
        """Return a function that computes E, (n, width), for rows X, (n, columns), dense or CSR.

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


class _Buckets:
    """Operator (X, 1) diag(scale) S^T, with a column of ones if S has one more column than X."""

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
    """Return a function that computes `scale` times m features from `fill`, (n, m), or their signed sums, (n, sums)."""
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


def _check_gamma(kernel: AnyKernel) -> None:
    if kernel.gamma is None:
        raise InputError("kernel.gamma must be a number, since the features do not know the number of columns")
