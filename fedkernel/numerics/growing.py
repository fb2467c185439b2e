"""Storage of a growing number of columns, as of a Krylov basis, with fast products."""

import numpy as np

from fedkernel.ground import FloatArray

_WIDTH = 16


class GrowingColumns:
    """Growing matrix of n rows, whose columns are appended by blocks.

    A single array would be copied on growth; one array per block would make every product a loop.
    """

    def __init__(self, n: int) -> None:
        self._n = n
        self._arrays: list[FloatArray] = []
        self._last = 0  # used columns of the last array
        self.count = 0

    def append(self, block: FloatArray) -> None:
        """Append a block of shape (n, b)."""
        for first in range(0, block.shape[1], _WIDTH):
            part = block[:, first : first + _WIDTH]
            if not self._arrays or self._last + part.shape[1] > _WIDTH:
                if self._arrays:
                    self._arrays[-1] = self._arrays[-1][:, : self._last]
                self._arrays.append(np.empty((self._n, _WIDTH), order="F"))
                self._last = 0
            self._arrays[-1][:, self._last : self._last + part.shape[1]] = part
            self._last += part.shape[1]
        self.count += block.shape[1]

    def _parts(self) -> list[FloatArray]:
        return [*self._arrays[:-1], self._arrays[-1][:, : self._last]] if self._arrays else []

    def dot(self, X: FloatArray) -> FloatArray:
        """Return the products of all columns with X, (n, b): shape (count, b)."""
        result, first = np.empty((self.count, X.shape[1])), 0
        for part in self._parts():
            np.matmul(part.T, X, out=result[first : first + part.shape[1]])
            first += part.shape[1]
        return result

    def combine(self, S: FloatArray) -> FloatArray:
        """Return the columns times S, (count, c): shape (n, c)."""
        total, first = np.zeros((self._n, S.shape[1])), 0
        for part in self._parts():
            total += part @ S[first : first + part.shape[1]]
            first += part.shape[1]
        return total

    def whole(self) -> FloatArray:
        """Return all columns as one array, a copy."""
        return np.hstack(self._parts())
