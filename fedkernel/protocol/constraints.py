"""Rules that the arrays of a message obey for any data, checked by sender and receiver.

They are declared beside the shapes::

    class LocalSpectrum(Reply):
        vectors: Annotated[FloatArray, Shape("N", "D_m"), Orthonormal()]
        values: Annotated[FloatArray, Shape("D_m"), Eigenvalues()]

Both ends check them: the sender as it makes the message, the receiver as it reads it. `Request.check_reply` checks
conditions that depend on the request, such as a semidefinite kernel, and `Request.check_table` those that depend on the
size of the client's table. docs/explanation/reliability.md lists the faults that none of them can catch.
"""

import abc
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

from fedkernel.ground import FloatArray
from fedkernel.numerics import RBF, Kernel, unpack_symmetric

ROUNDING = 1e-9
"""Relative rounding error of sums and products, as a share of their terms."""

FLOAT32_ROUNDING = 1e-6
"""Relative rounding error of sums and products of numbers sent as float32, each rounded by 6e-8 of itself."""

SEMIDEFINITE = 1e-6
"""Largest negative eigenvalue allowed, as a share of the trace: products of float32 are rounded by 1e-7 each."""

MAX_ENTRY = 1e30
"""Largest entry of a table, or sum of entries; numbers that other sites compute from these fit a message."""

MAX_ENTRY_RATIO = 1e8
"""Largest ratio of a site's entries to all others', for kernels of distances: beyond it rounding loses the others'."""

MAX_COORDINATE = 1e70
"""Largest coordinate, since other sites add up the squares."""


def surely_within(values: npt.NDArray[Any], bound: float) -> bool:
    """Return whether a float array's squares sum to less than half of a bound's square, False for NaN and overflow."""
    return values.dtype.kind == "f" and values.flags.c_contiguous and bool(np.vdot(values, values) < bound * bound / 2)


class Rule(abc.ABC):
    """Base class of rules for a message's array, beyond its shape, type and finiteness."""

    @abc.abstractmethod
    def check(self, array: npt.NDArray[Any]) -> None:
        """Raise ValueError if the array breaks the rule. The error's text follows the array's name."""

    def rounded(self) -> "Rule":
        """Return the rule for arrays that were rounded to float32, by default the same rule."""
        return self


@dataclass(frozen=True)
class Orthonormal(Rule):
    """Rule of orthonormal columns: V^T V = I for an array (..., N, k), within 1e-8 for each entry."""

    off: float = 1e-8

    def rounded(self) -> "Orthonormal":
        """Return the rule with the tolerance for products of numbers rounded to float32."""
        return Orthonormal(FLOAT32_ROUNDING)

    def check(self, array: npt.NDArray[Any]) -> None:
        """Raise ValueError unless the columns are orthonormal."""
        with np.errstate(over="ignore", invalid="ignore"):
            products = np.swapaxes(array, -1, -2) @ array
        off = float(np.abs(products - np.eye(array.shape[-1])).max(initial=0.0))
        if not off <= self.off:
            raise ValueError(f"must have orthonormal columns, but their products are off by {off:.3g}")


@dataclass(frozen=True)
class Eigenvalues(Rule):
    """Rule of leading eigenvalues of a semidefinite matrix: non-increasing, none below -1e-9 of the largest."""

    def check(self, array: npt.NDArray[Any]) -> None:
        """Raise ValueError unless the values are in non-increasing order and not negative."""
        if np.any(array[1:] > array[:-1]):
            raise ValueError("must be in non-increasing order")
        if array.size and array[-1] < -ROUNDING * abs(array[0]):
            raise ValueError(f"must be at least 0 but for rounding, not {array[-1]:.6g}")


@dataclass(frozen=True)
class Within(Rule):
    """Rule of numbers from a least to a greatest one. `whole`: only whole numbers, such as counts."""

    least: float = 0.0
    greatest: float = np.inf
    whole: bool = False

    def rounded(self) -> "Within":
        """Return the rule with bounds widened by the rounding to float32."""
        below, above = FLOAT32_ROUNDING * abs(self.least), FLOAT32_ROUNDING * abs(self.greatest)
        return replace(self, least=self.least - below, greatest=self.greatest + above)

    def check(self, array: npt.NDArray[Any]) -> None:
        """Raise ValueError if a number is out of bounds, or not whole where it must be."""
        if not self.whole and -self.least == self.greatest and surely_within(array, self.greatest):
            return
        if array.size and not (self.least <= array.min() and array.max() <= self.greatest):
            allowed = f"at least {self.least:g}" if self.greatest == np.inf else f"{self.least:g} to {self.greatest:g}"
            raise ValueError(f"must be {allowed}, not {array.min():.6g} to {array.max():.6g}")
        if self.whole and np.any(array != np.floor(array)):
            raise ValueError("must be whole numbers")


@dataclass(frozen=True)
class PackedSemidefinite(Rule):
    """Rule of a semidefinite matrix's upper triangle, by rows. Eigenvalues may be below 0 by 1e-6 of the trace."""

    def check(self, array: npt.NDArray[Any]) -> None:
        """Raise ValueError if the matrix has an eigenvalue below 0."""
        matrix = unpack_symmetric(array)
        diagonal = np.diagonal(matrix)
        largest = float(diagonal.max(initial=0.0))
        failed = bool(diagonal.min(initial=0.0) < -SEMIDEFINITE * largest)
        if not failed and largest > 0:
            shifted = matrix / largest  # sums of huge features would overflow
            shifted.flat[:: len(matrix) + 1] += SEMIDEFINITE * float(np.trace(shifted))
            try:
                scipy.linalg.cholesky(shifted, lower=True, overwrite_a=True, check_finite=False)
            except scipy.linalg.LinAlgError:
                failed = True
        if failed or (largest <= 0 and bool(np.any(matrix))):
            raise ValueError("must be products of a matrix with itself, but has eigenvalues below 0")


def lost_to_rounding(kernel: Kernel, largest: float, others: float) -> bool:
    """Return whether one row's large entry makes rounding destroy the kernel values of other rows.

    `largest`, `others`: the largest entry of that row, and of the others. Distances are lost if the first is
    `MAX_ENTRY_RATIO` times larger. That is harmless up to a square times gamma of that ratio: rounding then moves
    exponents by 1e-8 at most.
    """
    if not isinstance(kernel, RBF) or kernel.gamma is None:
        return False
    return largest > MAX_ENTRY_RATIO * others > 0 and kernel.gamma * largest * largest > MAX_ENTRY_RATIO


def check_share(captured: FloatArray, total: float, rounding: float = ROUNDING) -> None:
    """Raise ValueError unless captured parts and their sum are between 0 and a total, up to rounding."""
    slack = rounding * max(total, 0.0)
    if total < 0 or captured.min(initial=0.0) < -slack or captured.sum() > total + slack:
        raise ValueError(f"captured must be from 0 to total = {total:.6g}, not {captured.sum():.6g} in all")
