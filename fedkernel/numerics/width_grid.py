"""Widths over a grid: factors by which a kernel's width is multiplied."""

from itertools import pairwise
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field

from fedkernel.numerics.kernels import Kernel, Laplacian

MOST_WIDTHS = 16
"""Of a grid: a site's memory and time grow with them."""

APART = 1.05
"""The least ratio of a grid's factors: nearer ones find the same."""

KernelT = TypeVar("KernelT", bound=Kernel)


def scaled_width(kernel: KernelT, factor: float) -> KernelT:
    """Return a kernel with a number whose width is a factor times as large: sigma of an RBF, 1 / gamma of a Laplacian.

    Random features of both are those of the same frequencies, divided by the factor.
    """
    power = 1 if isinstance(kernel, Laplacian) else 2
    return kernel.with_gamma(float(kernel.gamma or 0.0) / factor**power)


def _apart(factors: tuple[float, ...]) -> tuple[float, ...]:
    for less, more in pairwise(sorted(factors)):
        if more < APART * less:
            raise ValueError(f"{less:g} and {more:g} are not allowed; each must differ from the others by 5 % or more")
    return factors


def _few(factors: Any) -> Any:
    if isinstance(factors, list | tuple) and len(factors) > MOST_WIDTHS:  # before each of them is looked at
        raise ValueError(f"there are {len(factors)}, but at most {MOST_WIDTHS} are allowed")
    return factors


WidthFactors = Annotated[
    tuple[Annotated[float, Field(ge=1e-3, le=1e3)], ...],
    Field(min_length=1),
    BeforeValidator(_few),
    AfterValidator(_apart),
]
"""A grid: 1 to 16 factors from 0.001 to 1000, each 5 % or more from the others."""
