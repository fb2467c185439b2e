"""Models with their files, metrics of results, and central counterparts of federated methods."""

from typing import TYPE_CHECKING

from fedkernel.ground.lazy_imports import lazily

if TYPE_CHECKING:
    from .base import RESULT_FIELDS, Choice, Model
    from .clusters import (
        RESTARTS,
        KernelKMeans,
        check_landmarks,
        clustering_objective,
        kernel_kmeans,
        nystroem_kernel_kmeans,
    )
    from .comparing import (
        check_same_kernel,
        compare_classes,
        compare_components,
        compare_kernel_kmeans,
        compare_vectors,
        drop_misleading_figures,
        finds_structure,
        kept_variance,
        kmeans_objective,
        mean_over_clients,
        recover_error,
        same_kernel,
        training_coordinates,
    )
    from .components import KernelPCA, LandmarkPCA, NodeComponents, PeerComponents
    from .direction_similarity import Directions, center_blocks, normalised_kernel_pca
    from .embedding_maps import Embedding, FeatureChain, Landmarks, combine_draws, multiply_step
    from .files import load_model, save_model
    from .fitted_model import FittedModel, ModelOutput, class_names
    from .metric_registry import (
        ERROR_ROUNDING,
        MAIN_METRIC,
        METRICS,
        Metric,
        check_metric,
        compute_metrics,
        is_user_defined,
        metric_of,
        namesakes,
    )
else:
    __getattr__, __all__ = lazily(__name__)
