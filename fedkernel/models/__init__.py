"""What runs yield: models, their files, what they are judged by, their central counterparts."""

from typing import TYPE_CHECKING

from fedkernel.lazily import lazily

if TYPE_CHECKING:
    from fedkernel.models.base import Choice, Model
    from fedkernel.models.central import RESTARTS, check_landmarks, kernel_kmeans, nystroem_kernel_kmeans
    from fedkernel.models.clusters import KernelKMeans, clustering_objective
    from fedkernel.models.comparing import (
        compare_classes,
        compare_components,
        compare_kernel_kmeans,
        compare_vectors,
        is_found,
        kept_variance,
        kmeans_objective,
        over_clients,
        recover_error,
        training_of,
    )
    from fedkernel.models.components import KernelPCA, LandmarkPCA, NodeComponents, PeerComponents
    from fedkernel.models.directions import Directions, center_blocks, normalised_kernel_pca
    from fedkernel.models.embeddings import FeatureChain, advance, combine_draws
    from fedkernel.models.files import load_model, save_model
    from fedkernel.models.fitted import FittedModel
    from fedkernel.models.metrics import MAIN, METRICS, ROUNDING, Metric, check_metric, is_own, metric_of, own_metrics
else:
    __getattr__ = lazily(__name__)

__all__ = [
    "MAIN",
    "METRICS",
    "RESTARTS",
    "ROUNDING",
    "Choice",
    "Directions",
    "FeatureChain",
    "FittedModel",
    "KernelKMeans",
    "KernelPCA",
    "LandmarkPCA",
    "Metric",
    "Model",
    "NodeComponents",
    "PeerComponents",
    "advance",
    "center_blocks",
    "check_landmarks",
    "check_metric",
    "clustering_objective",
    "combine_draws",
    "compare_classes",
    "compare_components",
    "compare_kernel_kmeans",
    "compare_vectors",
    "is_found",
    "is_own",
    "kept_variance",
    "kernel_kmeans",
    "kmeans_objective",
    "load_model",
    "metric_of",
    "normalised_kernel_pca",
    "nystroem_kernel_kmeans",
    "over_clients",
    "own_metrics",
    "recover_error",
    "save_model",
    "training_of",
]
