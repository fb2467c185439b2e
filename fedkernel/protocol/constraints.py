"""Rules that a message's numbers obey whatever the data are.

They are declared beside the shapes::

    class LocalSpectrum(Reply):
        vectors: Annotated[FloatArray, Shape("N", "D_m"), Orthonormal()]
        values: Annotated[FloatArray, Shape("D_m"), Eigenvalues()]

Both ends check them: who makes the message as it is made, who gets it as it is read. What depends on the request, such
as whether its kernel is semidefinite, `Request.check_reply` checks; what depends on the size of the table, which the
client has introduced, `Request.check_table`. What none of them can catch, docs/reliability.md says.
"""

import abc
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

from fedkernel.ground import FloatArray
from fedkernel.numerics import RBF, Kernel, unpack_symmetric

ORTHONORMAL = 1e-8
"""By how much an entry of V^T V may differ from that of the identity."""

ROUNDING = 1e-9
"""What sums and products may be off by, as a share of the terms that they are of."""

SINGLE = 1e-6
"""What takes their place for numbers that travelled as float32, by which each is rounded by 6e-8 of itself."""

SEMIDEFINITE = 1e-6
"""By how much an eigenvalue may be below 0, as a share of the trace: products of float32 are rounded by 1e-7 each."""


ENTRY = 1e30
"""What entries of a table may be, and sums of these: whatever is made of them at other sites stays within a message."""

BESIDE = 1e8
"""How many times as large as all others the entries of a site's rows may be where a kernel takes distances.

Beside the squares of larger ones, those of the others are lost to rounding.
"""

COORDINATE = 1e70
"""What coordinates may be, whose squares are added up at other sites."""


def surely_within(values: npt.NDArray[Any], bound: float) -> bool:
    """Tell of most arrays of floats whose entries are no larger than a bound that they are, in a single pass.

    Their squares add up to less than half of its square: of NaN, or where that is no number, nothing is told.
    """
    return values.dtype.kind == "f" and values.flags.c_contiguous and bool(np.vdot(values, values) < bound * bound / 2)


class Rule(abc.ABC):
    """What is known of an array that is finite and has the declared shape and type."""

    @abc.abstractmethod
    def check(self, array: npt.NDArray[Any]) -> None:
        """Raise ValueError, which goes on from the array's name, if the array does not obey."""

    def rounded(self) -> "Rule":
        """Return the rule for arrays that obeyed it before their entries were rounded to float32: by default itself."""
        return self


@dataclass(frozen=True)
class Orthonormal(Rule):
    """Columns of unit length at right angles: of an array (..., N, k) V^T V = I, each entry but for 1e-8."""

    off: float = ORTHONORMAL

    def rounded(self) -> "Orthonormal":
        """Return the rule with products off by what rounding to float32 leaves of them."""
        return Orthonormal(SINGLE)

    def check(self, array: npt.NDArray[Any]) -> None:
        """Raise ValueError if they are not."""
        with np.errstate(over="ignore", invalid="ignore"):
            products = np.swapaxes(array, -1, -2) @ array
        off = float(np.abs(products - np.eye(array.shape[-1])).max(initial=0.0))
        if not off <= self.off:
            raise ValueError(f"must have orthonormal columns, but their products are off by {off:.3g}")


@dataclass(frozen=True)
class Eigenvalues(Rule):
    """Leading ones of a semidefinite matrix: the largest first, none below 0 but for 1e-9 of that."""

    def check(self, array: npt.NDArray[Any]) -> None:
        """Raise ValueError if they are not."""
        if np.any(array[1:] > array[:-1]):
            raise ValueError("must be in non-increasing order")
        if array.size and array[-1] < -ROUNDING * abs(array[0]):
            raise ValueError(f"must be at least 0 but for rounding, not {array[-1]:.6g}")


@dataclass(frozen=True)
class Within(Rule):
    """From a least to a greatest number; `whole` where they count something."""

    least: float = 0.0
    greatest: float = np.inf
    whole: bool = False

    def rounded(self) -> "Within":
        """Return the rule with bounds as much wider as what lies on them may have been rounded."""
        least, greatest = self.least - SINGLE * abs(self.least), self.greatest + SINGLE * abs(self.greatest)
        return replace(self, least=least, greatest=greatest)

    def check(self, array: npt.NDArray[Any]) -> None:
        """Raise ValueError if they are not."""
        if not self.whole and -self.least == self.greatest and surely_within(array, self.greatest):
            return
        if array.size and not (self.least <= array.min() and array.max() <= self.greatest):
            allowed = f"at least {self.least:g}" if self.greatest == np.inf else f"{self.least:g} to {self.greatest:g}"
            raise ValueError(f"must be {allowed}, not {array.min():.6g} to {array.max():.6g}")
        if self.whole and np.any(array != np.floor(array)):
            raise ValueError("must be whole numbers")


@dataclass(frozen=True)
class PackedSemidefinite(Rule):
    """The upper triangle, row after row, of a matrix without an eigenvalue below 0, but for 1e-6 of its trace."""

    def check(self, array: npt.NDArray[Any]) -> None:
        """Raise ValueError if it is none."""
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
    """Tell whether a kernel's values of rows, of entries up to ``others``, are lost beside a row with a larger entry.

    Their distances are, where it is `BESIDE` times as large. That does not matter as long as its square is no more than
    `BESIDE` by the kernel's width: what is rounded off moves no exponent by more than some 1e-8 then.
    """
    if not isinstance(kernel, RBF) or kernel.gamma is None:
        return False
    return largest > BESIDE * others > 0 and kernel.gamma * largest * largest > BESIDE


def check_share(captured: FloatArray, total: float, rounding: float = ROUNDING) -> None:
    """Raise ValueError if parts, and their sum, are not from 0 to a total, but for rounding by this share of it."""
    slack = rounding * max(total, 0.0)
    if total < 0 or captured.min(initial=0.0) < -slack or captured.sum() > total + slack:
        raise ValueError(f"captured must be from 0 to total = {total:.6g}, not {captured.sum():.6g} in all")
