"""A kernel."""

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field
from sklearn.metrics import pairwise

from fedkernel import Kernel, value_object


@value_object()
class Rational(Kernel):
    """k(x, y) = 1 / (1 + ||x - y||^2 / width)."""

    vertical: ClassVar = "none"
    width: Annotated[float, Field(gt=0)] = 1.0

    def _part(self, X, Y, gamma):
        return 1 / (1 + pairwise.euclidean_distances(X, Y, squared=True) / self.width)

    def _diag(self, X, gamma):
        return np.ones(X.shape[0])
