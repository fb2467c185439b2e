"""How far a result is from the exact answer."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from fedkernel.arrays import FloatArray
from fedkernel.clustering import assign
from fedkernel.errors import InputError
from fedkernel.models import KernelKMeans, KernelPCA
from fedkernel.subspaces import align_signs, sin_theta_error

METRICS = {
    "error": "sin-theta error D - ||V^T W||_F^2 between the subspaces of eigenvectors: 0 is equal, D is orthogonal",
    "distance": "Euclidean distance between the eigenvectors after aligning their signs (VFedPCA paper, equation 4)",
    "worst_error": "of isolated baselines, whose error is the clients' mean: the largest",
    "bound": "the paper's bound on ||sin Theta||_F, the root of the error, where there is one",
    "recover_error": "||H H^T - K_s||_F^2 / N^2 of an embedding H and the best rank-s kernel matrix (FK k-means paper)",
    "nmi": "normalised mutual information of the clusters and the data set's classes: 1 is the same division",
    "ari": "adjusted Rand index of the clusters and the data set's classes: 1 is the same, 0 is chance",
    "nmi_central": "normalised mutual information of the clusters and those found with all rows in one place",
    "floats_up_per_iteration": "mean floats that all clients upload in an outer iteration",
    "lanczos_iterations": "mean Lanczos iterations in an outer iteration",
    "explained_variance_ratio": "share of the clients' total variance that the components keep",
}
"""What a result's metrics mean."""


def eigenvector_distance(V: FloatArray, W: FloatArray) -> float:
    """Return ``||V - W||_F`` after aligning the signs of V's columns with W's (VFedPCA paper, equation 4).

    Meaningful only where the single eigenvectors are: their eigenvalues must be apart.
    """
    return float(np.linalg.norm(align_signs(V, W) - W))


def compare_kernel_pca(model: KernelPCA, reference: KernelPCA) -> dict[str, float]:
    """Return error and distance of a model's eigenvectors against a reference's."""
    V, W = model.eigenvectors_, reference.eigenvectors_
    if V.shape != W.shape:
        raise InputError(f"the reference has eigenvectors of shape {W.shape}, but the model {V.shape}")
    return {"error": sin_theta_error(W, V), "distance": eigenvector_distance(V, W)}


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


def compare_kernel_kmeans(
    model: KernelKMeans, reference: KernelKMeans, shards: Sequence[FloatArray]
) -> dict[str, float]:
    """Return recover error and agreement of the clusters, for a reference that holds its training coordinates."""
    # A central model is often the reference itself, and transforming its own rows again is what costs most.
    H = model.training_ if model.training_ is not None else np.vstack([model.transform(shard) for shard in shards])
    E = training_of(reference)
    found, expected = assign(H, model.centers_)[0], assign(E, reference.centers_)[0]
    agreement = float(normalized_mutual_info_score(expected, found))
    return {"recover_error": recover_error(H, E), "nmi_central": agreement}


def training_of(reference: KernelKMeans) -> FloatArray:
    """Return the training rows' coordinates of a central model."""
    if reference.training_ is None:
        raise InputError("the reference holds no coordinates of training rows; take one from central(shards)")
    return reference.training_


def compare_classes(labels: npt.ArrayLike, classes: npt.ArrayLike) -> dict[str, float]:
    """Return how far clusters agree with classes that the data set names; both of shape (N,)."""
    nmi, ari = normalized_mutual_info_score(classes, labels), adjusted_rand_score(classes, labels)
    return {"nmi": float(nmi), "ari": float(ari)}
