"""Random Fourier features: coordinates of rows whose inner products approximate a shift-invariant kernel.

Their numbers depend on their fields and the number of columns only, so that parties share the same maps without sending
a matrix.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse
from pydantic import BeforeValidator, Field

from fedkernel.ground import FloatArray, InputError, Rows, generator, value_object
from fedkernel.numerics.frequencies import Frequencies, StructuredFrequencies, orthogonal_blocks, possible_frequencies
from fedkernel.numerics.kernels import RBF, AnyKernel, Laplacian, table_of_name
from fedkernel.numerics.pairwise import RowFunction, float_type, in_dtype, multiplication_by
from fedkernel.numerics.trigonometry import cosines, cosines_and_sines

MOST_FEATURES = 1 << 16  # most features: a request for them costs a site memory, 1 GB for a block of rows
MOST_CACHED_ENTRIES = 1 << 19  # most entries of cached frequencies, 4 MiB; larger ones are drawn each time

FeatureCount = Annotated[int, Field(ge=1, le=MOST_FEATURES)]

ShiftInvariant = Annotated[RBF | Laplacian, Field(discriminator="type"), BeforeValidator(table_of_name)]
Fill: TypeAlias = Callable[[Rows, FloatArray], None]
"""Function that computes features of rows (n, d), without their common factor, into an array (n, m)."""


@value_object()
class RandomFeatures:
    """Random Fourier features A (n, D) of a shift-invariant kernel. The mean of A A^T / D is the kernel matrix.

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
        check_gamma(self.kernel)
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
        """Return a function that computes the features A (n, D) of rows X (n, columns), dense or CSR.

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
        """Return a function for the products w^T x (n, count) in this dtype, and the offsets."""
        frequencies, offsets = self._draw(columns, draw)
        offsets = offsets.astype(dtype, copy=False)
        if isinstance(frequencies, StructuredFrequencies):
            return frequencies.astype(dtype).angles, offsets
        matrix = self._cast(frequencies, dtype)
        return lambda X: X @ matrix, offsets

    def _cast(self, frequencies: FloatArray, dtype: npt.DTypeLike) -> FloatArray:
        """Convert frequencies to this dtype. Raises InputError on overflow."""
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


def check_gamma(kernel: AnyKernel) -> None:
    """Raise InputError unless the kernel has a number as its gamma."""
    if kernel.gamma is None:
        raise InputError("kernel.gamma must be a number, since the features do not know the number of columns")
