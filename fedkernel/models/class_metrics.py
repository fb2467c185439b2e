"""Metrics of class structure in a model's coordinates. Rows whose class is None have coordinates, but do not count."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedkernel.data import has_label
from fedkernel.ground import AnyArray, FloatArray, InputError, Rows, generator
from fedkernel.models.clusters import RESTARTS
from fedkernel.models.comparing import compare_classes
from fedkernel.models.components import KernelPCA, LandmarkPCA
from fedkernel.numerics import IntArray, assign, k_means

TRAINING_ROWS = 200  # number of the classifier's training rows in the DKPCA letter


def _coordinates_of(classes: AnyArray, model: Any, shards: Sequence[Rows]) -> FloatArray:
    """Return the coordinates (N, k) of the clients' rows along a model's components."""
    if not isinstance(model, KernelPCA | LandmarkPCA):
        raise InputError(f"a {type(model).__name__} has no components, so rows have no coordinates along them")
    Z = model.embedding() if isinstance(model, KernelPCA) else np.vstack([model.transform(X) for X in shards])
    if len(classes) != len(Z):
        raise InputError(f"there are classes of {len(classes)} rows, but {len(Z)} rows; allowed: a class for each row")
    if len(set(classes[has_label(classes)].tolist())) < 2:
        raise InputError("all rows are of one class, but this metric needs at least 2")
    return Z


def classification_error(model: Any, shards: Sequence[Rows], classes: AnyArray, seed: int) -> float:
    """Return the test error of a linear support vector machine on rows' coordinates in a model.

    200 random rows, or half of fewer than 400, train it; the others test it, whose classes (N,) are in the coordinates'
    order. The draw depends on the seed and the number of rows only, so that models are comparable. The classifier is
    scikit-learn's LinearSVC with C = 1, on coordinates divided by their largest standard deviation, which makes C
    comparable across kernels; training rows of one class predict that class. Source: the DKPCA letter (2021), section
    III, table II.
    """
    from sklearn.svm import LinearSVC  # noqa: PLC0415 - takes a second to import

    Z = _coordinates_of(classes, model, shards)
    has_class = has_label(classes)
    Z, classes = Z[has_class] / (Z.std(axis=0).max() or 1.0), np.array(classes[has_class].tolist())
    order = generator("classification", seed).permutation(len(Z))
    training, others = np.split(order, [min(TRAINING_ROWS, len(Z) // 2)])
    if len(np.unique(classes[training])) == 1:
        return float(np.mean(classes[others] != classes[training[0]]))
    machine = LinearSVC(dual=False).fit(Z[training], classes[training])
    return float(np.mean(machine.predict(Z[others]) != classes[others]))


def cluster_nmi(model: Any, shards: Sequence[Rows], classes: AnyArray, seed: int) -> float:
    """Return the normalised mutual information of the rows' classes and their `clusters`."""
    return compare_classes(clusters(model, shards, classes, seed), classes)["nmi"]


def cluster_ari(model: Any, shards: Sequence[Rows], classes: AnyArray, seed: int) -> float:
    """Return the adjusted Rand index of the rows' classes and their `clusters`."""
    return compare_classes(clusters(model, shards, classes, seed), classes)["ari"]


def clusters(model: Any, shards: Sequence[Rows], classes: AnyArray, seed: int) -> IntArray:
    """Cluster rows' coordinates in a model by k-means, with the number of classes as k.

    The best of ten starts, which depend on the seed only, so that models are comparable. Arguments are those of
    `classification_error`. Source: the VFedPCA paper (2022), section 4.3.
    """
    Z = _coordinates_of(classes, model, shards)
    k = min(len(set(classes[has_label(classes)].tolist())), len(Z))
    return assign(Z, k_means(Z, k, generator("clusters", seed), restarts=RESTARTS))[0]
