"""A coreset along two axes: all that is kept of it, and only where a study says that the coordinator may."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from fedkernel.arrays import FloatArray
from fedkernel.errors import InputError
from fedkernel.models.base import fitting_together
from fedkernel.models.clusters import KernelKMeans
from fedkernel.numerics.clustering import IntArray, assign
from fedkernel.numerics.subspaces import fix_signs
from fedkernel.storage import Parts, load_parts, save_parts


@dataclass(frozen=True)
class CoresetPicture:
    """The weighted points that centres were found from, along the two axes on which they spread most.

    Coordinates in an embedding are in no order that suits the eye, and all of them may give a row away, as those of
    random features do. So of each point two numbers are kept, its weight and its cluster, and not which site sent it.

    Attributes
    ----------
    points : ndarray of shape (c, 2)
        Along the first two principal axes of the weighted points, about their mean, in the order of the first number.
    weights : ndarray of shape (c,)
        How many rows each stands for; points that stand for none are left out.
    clusters : ndarray of shape (c,)
        The nearest centre of each, in the whole embedding.
    centers : ndarray of shape (k, 2)
        Along the same axes.
    """

    points: FloatArray
    weights: FloatArray
    clusters: IntArray
    centers: FloatArray

    @classmethod
    def of(cls, model: Any) -> "CoresetPicture | None":
        """Return that of a model fresh from its run; None where it has no coreset, or that has fewer than two axes."""
        if not isinstance(model, KernelKMeans) or model.coreset_ is None:
            return None
        there = model.coreset_.weights > 0
        points, weights = model.coreset_.points[there], model.coreset_.weights[there]
        if min(points.shape) < 2:
            return None
        mean = np.average(points, axis=0, weights=weights)
        _, _, axes = np.linalg.svd(np.sqrt(weights)[:, None] * (points - mean), full_matrices=False)
        two = fix_signs(axes[:2].T)
        along = (points - mean) @ two
        order = np.argsort(along[:, 0], kind="stable")
        clusters = assign(points, model.centers_)[0]
        return cls(along[order], weights[order], clusters[order], (model.centers_ - mean) @ two)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it as npz, in the format and version of models; the file appears whole or not at all."""
        return save_parts(path, Parts(type(self).__name__, {}, dict(vars(self))))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; InputError if the file is missing, damaged, or something else."""
        parts = load_parts(path)
        if parts.model != cls.__name__:
            raise InputError(f"{path} holds a {parts.model} model, not a {cls.__name__}")
        with fitting_together(path):
            picture = cls(**parts.arrays)
            c, k = len(picture.weights), len(picture.centers)
            shapes = [array.shape for array in vars(picture).values()]
            if shapes != [(c, 2), (c,), (c,), (k, 2)] or not np.isin(picture.clusters, np.arange(k)).all():
                raise ValueError("shapes")
            return picture
