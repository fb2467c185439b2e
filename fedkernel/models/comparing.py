"""How far a result is from the exact answer, and what it is worth by itself."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fedkernel.data import Table, labelled
from fedkernel.ground import FloatArray, InputError, Rows
from fedkernel.models.base import Model
from fedkernel.models.clusters import KernelKMeans
from fedkernel.models.components import KernelPCA, LandmarkPCA
from fedkernel.models.embeddings import Landmarks
from fedkernel.numerics import align_signs, assign

T = TypeVar("T", bound=dict[str, float])

_ROUNDING = 1e-12
"""Share of the rows' squared lengths that sums of them are exact to."""


_DEPENDENT = 1e-10
"""Share of the largest singular value of vectors below which they are one fewer."""

_TELLING = 0.05
"""Share of the rows' squared lengths, beyond chance, that the best answer must capture for others to be held to it."""


LENGTHS = {"reconstruction_error", "error_ratio", "recover_error", "kmeans_objective"}
LENGTHS |= {"explained_variance", "explained_variance_ratio", "explained_variance_bound"}
"""Figures of rows' squared lengths: near to perfect where a kernel sees all rows alike, whatever is found."""


def without_flattery(figures: T, model: Any, *, centred: bool) -> T:
    """Take off, in place, what reads as perfect since the mean is all that a kernel sees, unless that is taken off."""
    if not centred and isinstance(model, Model) and model.sees_all_alike:
        for name in LENGTHS & figures.keys():
            del figures[name]
    return figures


def is_telling(best: float, total: float, k: int, rows: int) -> bool:
    """Tell whether there is anything to be found: of `total`, all rows' squared lengths, the best k directions' share.

    Any k of the rows capture k / rows of it and more. Where the best capture hardly more, as of the identity matrix,
    every answer is near the best, and figures relative to it are left out: they would read as perfect.
    """
    chance = k / rows
    return best / total - chance >= _TELLING * (1 - chance) if total > 0 else False


def eigenvector_distance(V: FloatArray, W: FloatArray) -> float:
    """Return ``||V - W||_F`` after aligning the signs of V's columns with W's (VFedPCA paper, equation 4).

    Meaningful only where the single eigenvectors are: their eigenvalues must be apart.
    """
    return float(np.linalg.norm(align_signs(V, W) - W))


def compare_vectors(V: FloatArray, reference: KernelPCA) -> dict[str, float]:
    """Return error and distance of eigenvectors (N, k) against a reference's; its own are not off by rounding.

    The error is that of what V spans, whatever its columns' lengths and angles: of no vectors at all it is k.
    """
    W = reference.eigenvectors_
    if V is W:
        return {"error": 0.0, "distance": 0.0}
    if V.shape != W.shape:
        raise InputError(f"the reference has eigenvectors of shape {W.shape}, but the model {V.shape}")
    U, lengths, _ = np.linalg.svd(V, full_matrices=False)
    Q = U[:, lengths > _DEPENDENT * lengths.max(initial=0.0)]
    return {"error": float(np.square(W - Q @ (Q.T @ W)).sum()), "distance": eigenvector_distance(V, W)}


def compare_components(model: LandmarkPCA, reference: LandmarkPCA, shards: Sequence[Rows]) -> dict[str, float]:
    """Return how much of all rows the components miss, also relative to the reference's, and how far the spans are.

    What is missed counts as no less than rounding leaves: where neither misses anything, the ratio is 1. There is none
    where the reference captures hardly more than chance (`is_telling`). It captures of all rows, which are its own,
    what its eigenvalues say.
    Source: the disKPCA paper (2016), section 6, and for `error` the sin-theta error in feature space.
    """
    check_same_kernel(model, reference)
    model = model if model is reference else model.orthonormal()
    if model is reference:
        total = sum(float(model.kernel.diag(shard).sum()) for shard in shards)
        captured = best = float(model.eigenvalues_.sum())
    else:
        (total, captured), (_, best) = (np.sum([pca.captured(X) for X in shards], axis=0) for pca in (model, reference))
    missed, least = max(total - captured, _ROUNDING * total), max(total - best, _ROUNDING * total)
    k, rows = reference.n_components, sum(shard.shape[0] for shard in shards)
    overlap = k if model is reference else float(np.square(model.inner_products(reference)).sum())
    figures = {"reconstruction_error": float(1 - captured / total), "error": float(k - overlap)}
    return figures | ({"error_ratio": float(missed / least)} if is_telling(best, total, k, rows) else {})


def same_kernel(model: Any, reference: Any) -> bool:
    """Tell whether two models have kernels, if any, that are equal but for the rounding of sums in gamma.

    Sums are over all rows in one place, or over the clients'.
    """
    own, other = (part.own_kernel if isinstance(part, Model) else None for part in (model, reference))
    if own is None or other is None or own == other:
        return True
    if own.gamma is None or other.gamma is None or not math.isclose(own.gamma, other.gamma, rel_tol=1e-9):
        return False
    return own == other.with_gamma(own.gamma)


def check_same_kernel(model: Any, reference: Any) -> None:
    """Raise InputError if a model and its reference are of different kernels."""
    if not same_kernel(model, reference):
        raise InputError(f"the reference has the kernel {reference.own_kernel!r}, but the model {model.own_kernel!r}")


def kept_variance(captured: float, total: float, rows: int) -> dict[str, float]:
    """Return what components keep of rows' squared lengths, both summed over so many rows, and what they miss."""
    ratio = captured / total if total > 0 else 0.0
    return {
        "explained_variance": captured / rows,
        "explained_variance_ratio": ratio,
        "reconstruction_error": 1.0 - ratio,
    }


def over_clients(figures: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the means of the figures that all clients have and, where there is an error, the worst."""
    names = [name for name in figures[0] if all(name in own for own in figures)]
    means = {name: float(np.mean([own[name] for own in figures])) for name in names}
    return means | {"worst_error": max(own["error"] for own in figures)} if "error" in means else means


def recover_error(H: FloatArray, E: FloatArray) -> float:
    """Return the normalised recover error ||H H^T - E E^T||_F^2 / N^2, without forming an (N, N) array.

    Source: the federated kernel k-means paper (2021), section 6.2, where E E^T is the kernel matrix's best
    approximation of rank s.

    Parameters
    ----------
    H : ndarray of shape (N, r)
        Coordinates of the rows.
    E : ndarray of shape (N, s)
        The exact ones, rows in the same order.
    """
    if len(H) != len(E):
        raise InputError(f"H has {len(H)} rows, but the reference was made from {len(E)}")
    # Of the difference's factors [H, E] only the triangle counts: no difference of large numbers.
    _, R = np.linalg.qr(np.hstack([H, E]), mode="reduced")
    r = H.shape[1]
    return float(np.linalg.norm(R[:, :r] @ R[:, :r].T - R[:, r:] @ R[:, r:].T) ** 2) / len(H) ** 2


def compare_kernel_kmeans(model: KernelKMeans, reference: KernelKMeans, shards: Sequence[Rows]) -> dict[str, float]:
    """Return recover error and agreement of the clusters, for a reference that holds its training coordinates.

    No recover error where these are hardly more than chance (`is_telling`), since that of no coordinates would be as
    small; no agreement with a single cluster.
    """
    # A central model is often the reference itself, and transforming its own rows again is what costs most.
    H = model.training_
    if H is None or len(H) != sum(shard.shape[0] for shard in shards):
        H = np.vstack([model.transform(shard) for shard in shards])
    E = training_of(reference)
    labels, expected = assign(H, model.centers_)[0], assign(E, reference.centers_)[0]
    from sklearn.metrics import normalized_mutual_info_score  # noqa: PLC0415 - a second to import, for those who need it

    figures = {"recover_error": recover_error(H, E)} if is_found(reference) else {}
    if len(np.unique(expected)) > 1:
        figures["nmi_central"] = float(normalized_mutual_info_score(expected, labels))
    return figures


def is_found(reference: KernelKMeans) -> bool:
    """Tell whether a central model's coordinates capture more of its rows, which are its landmarks, than chance."""
    E, embedding = training_of(reference), reference.embedding
    if not isinstance(embedding, Landmarks) or embedding.landmarks.shape[0] != len(E):
        return True
    total = float(embedding.kernel.diag(embedding.landmarks).sum())
    return is_telling(float(np.square(E).sum()), total, E.shape[1], len(E))


def kmeans_objective(model: KernelKMeans, X: Rows | Table) -> float:
    """Return the squared distances in feature space of rows X (n, d), a table of any kind, to their centres, summed up.

    What the components miss of a row counts too: ||phi(x) - L c||^2 = k(x, x) - ||h||^2 + ||h - c||^2, h = L^T phi(x).
    Source: the disKPCA paper (2016), section 6 and figure 8, where the mean over the rows is the objective.
    """
    if not isinstance(model.embedding, Landmarks):
        raise InputError("the objective in feature space is known for models with landmarks only")
    total = 0.0
    for block, H in model.embedding.blocks(X):
        missed = model.embedding.kernel.diag(block) - np.square(H).sum(axis=1)
        total += float((missed + assign(H, model.centers_)[1]).sum())
    return total


def training_of(reference: KernelKMeans) -> FloatArray:
    """Return the training rows' coordinates of a central model."""
    if reference.training_ is None:
        raise InputError("the reference holds no coordinates of training rows; take one from central(shards)")
    return reference.training_


def compare_classes(labels: npt.ArrayLike, classes: npt.ArrayLike) -> dict[str, float]:
    """Return how far clusters agree with classes that the data set names, both of shape (N,).

    Rows whose class is None are left out; where the others have fewer than two classes, so are the figures.
    """
    known = labelled(classes)
    labels, classes = (np.array(np.asarray(column)[known].tolist()) for column in (labels, classes))
    if len(np.unique(classes)) < 2:
        return {}
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score  # noqa: PLC0415 - a second to import, for those who need it

    nmi, ari = normalized_mutual_info_score(classes, labels), adjusted_rand_score(classes, labels)
    return {"nmi": float(nmi), "ari": float(ari)}
