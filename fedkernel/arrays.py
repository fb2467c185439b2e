"""Names that everything numerical shares."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
EPS = float(np.finfo(np.float64).eps)


def sum_in_order(terms: Sequence[FloatArray]) -> FloatArray:
    """Add arrays up in their order, so that the last bits are always the same."""
    total = terms[0].copy()
    for term in terms[1:]:
        total += term
    return total
