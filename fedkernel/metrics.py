"""How far a result is from the exact answer."""

import numpy as np

from fedkernel.arrays import FloatArray
from fedkernel.errors import InputError
from fedkernel.models import KernelPCA
from fedkernel.subspaces import align_signs, sin_theta_error

METRICS = {
    "error": "sin-theta error D - ||V^T W||_F^2 between the subspaces of eigenvectors: 0 is equal, D is orthogonal",
    "distance": "Euclidean distance between the eigenvectors after aligning their signs (VFedPCA paper, equation 4)",
    "worst_error": "of isolated baselines, whose error is the clients' mean: the largest",
    "bound": "the paper's bound on ||sin Theta||_F, the root of the error, where there is one",
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
