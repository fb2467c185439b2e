"""Comparison of results with a central reference, and quality figures without one."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fedkernel.data import Table, has_label
from fedkernel.ground import FloatArray, InputError, Rows
from fedkernel.models.base import Model
from fedkernel.models.clusters import KernelKMeans
from fedkernel.models.components import KernelPCA, LandmarkPCA
from fedkernel.models.embedding_maps import Landmarks
from fedkernel.numerics import align_signs, assign

T = TypeVar("T", bound=dict[str, float])

_ROUNDING = 1e-12  # relative rounding error of sums of the rows' squared lengths
_DEPENDENT = 1e-10  # relative singular value below which vectors count as dependent
_EQUAL = 1e-6  # sin-theta error below which components are those of the reference

LEAST_SHARE = 0.05
"""Least share of squared lengths, beyond chance, that the optimum captures in an informative comparison."""

LENGTH_FIGURES = {"reconstruction_error", "error_ratio", "recover_error", "kmeans_objective"}
LENGTH_FIGURES |= {"explained_variance", "explained_variance_ratio", "explained_variance_bound"}
"""Figures made of rows' squared lengths, which look near perfect for a kernel too wide to separate rows."""


def drop_misleading_figures(figures: T, model: Any, *, centred: bool) -> T:
    """Remove, in place, figures that look perfect only because the kernel is indefinite, or uncentred and too wide."""
    kernel = model.own_kernel if isinstance(model, Model) else None
    if kernel is None:
        return figures
    over = not kernel.semidefinite and figures.get("reconstruction_error", 0.0) < 0
    if over or (not centred and model.sees_all_alike):
        for name in LENGTH_FIGURES & figures.keys():
            del figures[name]
    return figures


def is_informative(best: float, total: float, k: int, rows: int) -> bool:
    """Return whether the best k directions capture clearly more of `total` than any k rows do.

    Any k of the rows capture at least k / rows of all rows' squared lengths. If the best capture hardly more, as for
    the identity matrix, relative figures would look perfect and are left out.
    """
    chance = k / rows
    return best / total - chance >= LEAST_SHARE * (1 - chance) if total > 0 else False


def compare_vectors(V: FloatArray, reference: KernelPCA) -> dict[str, float]:
    """Return sin-theta error and Euclidean distance of eigenvectors (N, k) from a reference's.

    The error is that of V's span, whatever its columns' lengths and angles; without any vectors it is k. The distance
    is ||V - W||_F after aligning signs (VFedPCA paper, equation 4), meaningful only for separate eigenvalues.
    """
    W = reference.eigenvectors_
    if V is W:
        return {"error": 0.0, "distance": 0.0}
    if V.shape != W.shape:
        raise InputError(f"the model has eigenvectors of shape {V.shape}, but the reference {W.shape}")
    U, lengths, _ = np.linalg.svd(V, full_matrices=False)
    Q = U[:, lengths > _DEPENDENT * lengths.max(initial=0.0)]
    distance = float(np.linalg.norm(align_signs(V, W) - W))
    return {"error": float(np.square(W - Q @ (Q.T @ W)).sum()), "distance": distance}


def compare_components(model: LandmarkPCA, reference: LandmarkPCA, shards: Sequence[Rows]) -> dict[str, float]:
    """Return the components' reconstruction error, its ratio to the reference's, and the sin-theta error between both.

    Missed lengths are at least at rounding level, so that two exact models have ratio 1. There is no ratio if the
    reference captures hardly more than chance (`is_informative`). Those of the reference are known.

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
    error = float(k - overlap)
    figures = {"reconstruction_error": float(1 - captured / total), "error": error}
    # what an indefinite kernel, or rounding, hides of missed lengths would look perfect
    seen = max(best, captured) <= (1 + _ROUNDING) * total
    seen = seen and (max(missed, least) > _ROUNDING * total or error <= _EQUAL)
    known = seen and is_informative(best, total, k, rows)
    return figures | ({"error_ratio": float(missed / least)} if known else {})


def same_kernel(model: Any, reference: Any) -> bool:
    """Return whether two models' kernels, if any, are equal up to rounding. Gammas are sums over rows or clients."""
    own, other = (part.own_kernel if isinstance(part, Model) else None for part in (model, reference))
    if own is None or other is None or own == other:
        return True
    if own.gamma is None or other.gamma is None or not math.isclose(own.gamma, other.gamma, rel_tol=1e-9):
        return False
    return own == other.with_gamma(own.gamma)


def check_same_kernel(model: Any, reference: Any) -> None:
    """Raise InputError if a model and its reference have different kernels."""
    if not same_kernel(model, reference):
        raise InputError(f"the model has the kernel {model.own_kernel!r}, but the reference {reference.own_kernel!r}")


def kept_variance(captured: float, total: float, rows: int) -> dict[str, float]:
    """Return explained variance and reconstruction error from squared lengths summed over rows."""
    ratio = captured / total if total > 0 else 0.0
    figures = {"explained_variance": captured / rows, "explained_variance_ratio": ratio}
    return figures | {"reconstruction_error": 1.0 - ratio}


def mean_over_clients(figures: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean over clients of each common figure, and the worst error if there is an error."""
    names = [name for name in figures[0] if all(name in own for own in figures)]
    means = {name: float(np.mean([own[name] for own in figures])) for name in names}
    return means | {"worst_error": max(own["error"] for own in figures)} if "error" in means else means


def recover_error(H: FloatArray, E: FloatArray) -> float:
    """Return the normalised recover error ||H H^T - E E^T||_F^2 / N^2, without forming an (N, N) array.

    Source: the federated kernel k-means paper (2021), section 6.2, with E E^T the kernel matrix's best one of rank s.
    `H` (N, r), `E` (N, s): coordinates of the rows, and exact ones of the same rows.
    """
    if len(H) != len(E):
        raise InputError(f"the model has {len(H)} rows, but the reference {len(E)}")
    # The R factor of [H, E] suffices, and avoids cancellation between large numbers.
    _, R = np.linalg.qr(np.hstack([H, E]), mode="reduced")
    r = H.shape[1]
    return float(np.linalg.norm(R[:, :r] @ R[:, :r].T - R[:, r:] @ R[:, r:].T) ** 2) / len(H) ** 2


def compare_kernel_kmeans(model: KernelKMeans, reference: KernelKMeans, shards: Sequence[Rows]) -> dict[str, float]:
    """Return recover error and agreement of the clusters with a central reference.

    No recover error if the reference captures hardly more than chance (`is_informative`); no agreement for one cluster.
    """
    # A central model is often the reference itself; transforming its own rows again would dominate the cost.
    H = model.training_
    if H is None or len(H) != sum(shard.shape[0] for shard in shards):
        H = np.vstack([model.transform(shard) for shard in shards])
    E = training_coordinates(reference)
    labels, expected = assign(H, model.centers_)[0], assign(E, reference.centers_)[0]
    from sklearn.metrics import normalized_mutual_info_score  # noqa: PLC0415 - takes a second to import

    figures = {"recover_error": recover_error(H, E)} if finds_structure(reference) else {}
    if len(np.unique(expected)) > 1:
        figures["nmi_central"] = float(normalized_mutual_info_score(expected, labels))
    return figures


def finds_structure(reference: KernelKMeans) -> bool:
    """Return whether a central model captures clearly more of its rows than chance (`is_informative`)."""
    E, embedding = training_coordinates(reference), reference.embedding
    if not isinstance(embedding, Landmarks) or embedding.landmarks.shape[0] != len(E):
        return True
    total = float(embedding.kernel.diag(embedding.landmarks).sum())
    return is_informative(float(np.square(E).sum()), total, E.shape[1], len(E))


def kmeans_objective(model: KernelKMeans, X: Rows | Table) -> float:
    """Return the summed squared distances in feature space of rows X (n, d) to their centres.

    The components' residual counts, too: ||phi(x) - L c||^2 = k(x, x) - ||h||^2 + ||h - c||^2, h = L^T phi(x).
    Source: the disKPCA paper (2016), section 6 and figure 8, where the mean over the rows is the objective.
    """
    if not isinstance(model.embedding, Landmarks):
        raise InputError("the objective in feature space needs a model with landmarks")
    total = 0.0
    for block, H in model.embedding.blocks(X):
        missed = model.embedding.kernel.diag(block) - np.square(H).sum(axis=1)
        total += float((missed + assign(H, model.centers_)[1]).sum())
    return total


def training_coordinates(reference: KernelKMeans) -> FloatArray:
    """Return the training rows' coordinates of a central model."""
    if reference.training_ is None:
        raise InputError("the reference has no coordinates of training rows; use one from central(shards)")
    return reference.training_


def compare_classes(labels: npt.ArrayLike, classes: npt.ArrayLike) -> dict[str, float]:
    """Return NMI and ARI of clusters and the data set's classes, both of shape (N,).

    Rows whose class is None are left out; with fewer than two classes there are no figures.
    """
    has_class = has_label(classes)
    labels, classes = (np.array(np.asarray(column)[has_class].tolist()) for column in (labels, classes))
    if len(np.unique(classes)) < 2:
        return {}
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score  # noqa: PLC0415 - takes a second to import

    nmi, ari = normalized_mutual_info_score(classes, labels), adjusted_rand_score(classes, labels)
    return {"nmi": float(nmi), "ari": float(ari)}
