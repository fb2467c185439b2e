"""What the pair finds."""

from dataclasses import dataclass

import numpy as np

from fedkernel import Kernel


@dataclass(frozen=True)
class Centre:
    """The rows' mean, each weighted by how like the others it is."""

    kernel: Kernel
    point: np.ndarray
    weight: float
    rows: tuple[int, ...]
