"""Models that are clusters."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fedkernel.arrays import FloatArray, Rows
from fedkernel.data.tables import Table
from fedkernel.models.base import Model
from fedkernel.models.embeddings import EMBEDDINGS, Embedding
from fedkernel.numerics.clustering import assign
from fedkernel.storage import under


@dataclass(frozen=True)
class KernelKMeans(Model):
    """Clusters in the feature space of a kernel: an embedding of rows, and the centres of k-means in it.

    Attributes
    ----------
    centers_ : ndarray of shape (k, s)
        Fewer than asked for where there are fewer distinct points.
    embedding : Embedding
        Rows to coordinates, (n, d) to (n, s): all that labelling new rows needs.
    eigenvalues_ : ndarray of shape (s,) or None
        Of the kernel matrix that the embedding approximates, in non-increasing order, where the method finds them.
    training_ : ndarray of shape (N, s) or None
        The training rows' coordinates, where one party had all rows; else they stay with the sites.
    """

    centers_: FloatArray
    embedding: Embedding
    eigenvalues_: FloatArray | None = None
    training_: FloatArray | None = None

    def transform(self, X: npt.ArrayLike | Rows | Table) -> FloatArray:
        """Embed rows X, (n, d): coordinates of shape (n, s)."""
        return self.embedding(X)

    def predict(self, X: npt.ArrayLike | Rows | Table) -> npt.NDArray[np.int64]:
        """Label rows X, (n, d), by the nearest centre: integers of shape (n,) from 0 to k - 1."""
        return assign(self.transform(X), self.centers_)[0]

    def _parts(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        fields, arrays = self.embedding.parts()
        own = {"centers_": self.centers_, "eigenvalues_": self.eigenvalues_, "training_": self.training_}
        arrays = {f"embedding.{name}": array for name, array in arrays.items()}
        arrays |= {name: array for name, array in own.items() if array is not None}
        return {"embedding": {"kind": self.embedding.kind, **fields}}, arrays

    @classmethod
    def _from_parts(cls, fields: Mapping[str, Any], arrays: Mapping[str, FloatArray]) -> Self:
        table, inner = fields["embedding"], under("embedding.", arrays)
        own = {name: array for name, array in arrays.items() if not name.startswith("embedding.")}
        model = cls(embedding=EMBEDDINGS[table["kind"]].from_parts(table, inner), **own)
        width = model.embedding.width
        consistent = model.centers_.ndim == 2 and model.centers_.shape[1] == width and len(model.centers_) > 0
        consistent &= model.eigenvalues_ is None or model.eigenvalues_.shape == (width,)
        consistent &= model.training_ is None or model.training_.shape[1:] == (width,)
        if not consistent:
            raise ValueError("shapes")
        return model
