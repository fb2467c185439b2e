"""How much of the rows' classes a model's coordinates keep: what a linear classifier, or k-means, makes of them.

Rows whose class is None have coordinates, but are in no figure.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedkernel.data import labelled
from fedkernel.ground import AnyArray, FloatArray, InputError, Rows, generator
from fedkernel.models.comparing import compare_classes
from fedkernel.models.components import KernelPCA, LandmarkPCA
from fedkernel.numerics import IntArray, assign, k_means

TRAINING_ROWS = 200
"""Rows that train the classifier in the DKPCA letter."""

RESTARTS = 10
"""Starts of k-means, of which the best counts."""


def coordinates(model: Any, shards: Sequence[Rows]) -> FloatArray:
    """Return the coordinates that components give the clients' rows, (N, k)."""
    if isinstance(model, KernelPCA):
        return model.embedding()
    if isinstance(model, LandmarkPCA):
        return np.vstack([model.transform(shard) for shard in shards])
    raise InputError(f"rows have coordinates along the components of a model, but of a {type(model).__name__} none")


def _coordinates_of(classes: AnyArray, model: Any, shards: Sequence[Rows]) -> FloatArray:
    Z = coordinates(model, shards)
    if len(classes) != len(Z):
        raise InputError(f"there are {len(Z)} rows, but classes of {len(classes)}")
    if len(set(classes[labelled(classes)].tolist())) < 2:
        raise InputError("all rows are of one class, which any answer would find; at least 2 are needed")
    return Z


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

    Z = _coordinates_of(classes, model, shards)
    known = labelled(classes)
    Z, classes = Z[known] / (Z.std(axis=0).max() or 1.0), np.array(classes[known].tolist())
    order = generator("classification", seed).permutation(len(Z))
    training, others = np.split(order, [min(TRAINING_ROWS, len(Z) // 2)])
    if len(np.unique(classes[training])) == 1:
        return float(np.mean(classes[others] != classes[training[0]]))
    machine = LinearSVC(dual=False).fit(Z[training], classes[training])
    return float(np.mean(machine.predict(Z[others]) != classes[others]))


def cluster_nmi(model: Any, shards: Sequence[Rows], classes: AnyArray, seed: int) -> float:
    """Return the normalised mutual information of the classes and of clusters of the coordinates: see `clusters`."""
    return compare_classes(clusters(model, shards, classes, seed), classes)["nmi"]


def cluster_ari(model: Any, shards: Sequence[Rows], classes: AnyArray, seed: int) -> float:
    """Return the adjusted Rand index of the classes and of clusters of the coordinates: see `clusters`."""
    return compare_classes(clusters(model, shards, classes, seed), classes)["ari"]


def clusters(model: Any, shards: Sequence[Rows], classes: AnyArray, seed: int) -> IntArray:
    """Return the cluster of each row: k-means of the coordinates, as many clusters as there are classes.

    The best of ten starts, which follow from the seed alone, so that models are compared by the same. Arguments are
    those of `classification_error`. Source: the VFedPCA paper (2022), section 4.3.
    """
    Z = _coordinates_of(classes, model, shards)
    k = min(len(set(classes[labelled(classes)].tolist())), len(Z))
    return assign(Z, k_means(Z, k, generator("clusters", seed), restarts=RESTARTS))[0]
