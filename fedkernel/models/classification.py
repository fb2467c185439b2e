"""How much of the rows' classes the coordinates of a model keep: what a linear classifier makes of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedkernel.arrays import AnyArray, FloatArray, Rows
from fedkernel.errors import InputError
from fedkernel.models.components import KernelPCA, LandmarkPCA
from fedkernel.seeds import generator

TRAINING_ROWS = 200
"""Rows that train the classifier in the DKPCA letter."""


def coordinates(model: Any, shards: Sequence[Rows]) -> FloatArray:
    """Return the coordinates that components give the clients' rows, (N, k)."""
    if isinstance(model, KernelPCA):
        return model.embedding()
    if isinstance(model, LandmarkPCA):
        return np.vstack([model.transform(shard) for shard in shards])
    raise InputError(f"rows have coordinates along the components of a model, but of a {type(model).__name__} none")


def classification_error(model: Any, shards: Sequence[Rows], classes: AnyArray, seed: int) -> float:
    """Return the share of rows that a linear support vector machine on the coordinates puts into another class.

    200 rows train it, or half of fewer than 400, drawn at random; the others count. All of them have coordinates.
    The draw follows from the seed and the number of rows alone, so that models are compared on the same. The machine is
    scikit-learn's LinearSVC with C = 1, of the coordinates in units of the largest standard deviation of any: without,
    C would mean another thing for each kernel. Where all rows drawn are of one class, the others are put there, too.
    Source: the DKPCA letter (2021), section III, table II.

    Parameters
    ----------
    model : KernelPCA or LandmarkPCA
    shards : sequence of ndarray or CSR array
    classes : ndarray of shape (N,)
        Of the rows, in the order of their coordinates.
    seed : int
    """
    from sklearn.svm import LinearSVC  # noqa: PLC0415 - no other metric waits for it

    Z = coordinates(model, shards)
    if len(classes) != len(Z):
        raise InputError(f"there are {len(Z)} rows, but classes of {len(classes)}")
    if len(Z) < 2:
        raise InputError("a row alone trains no classifier that others could try; at least 2 are needed")
    Z = Z / (Z.std(axis=0).max() or 1.0)
    order = generator("classification", seed).permutation(len(Z))
    training, others = np.split(order, [min(TRAINING_ROWS, len(Z) // 2)])
    if len(np.unique(classes[training])) == 1:
        return float(np.mean(classes[others] != classes[training[0]]))
    machine = LinearSVC(dual=False).fit(Z[training], classes[training])
    return float(np.mean(machine.predict(Z[others]) != classes[others]))
