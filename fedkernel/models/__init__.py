"""Models with their files, metrics of results, and central counterparts of federated methods."""

from typing import TYPE_CHECKING

from fedkernel.ground.lazy_imports import lazily

if TYPE_CHECKING:
    from fedkernel.models.base import RESULT_FIELDS, Choice, Model
    from fedkernel.models.clusters import (
        RESTARTS,
        KernelKMeans,
        check_landmarks,
        clustering_objective,
        kernel_kmeans,
        nystroem_kernel_kmeans,
    )
    from fedkernel.models.comparing import (
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
    from fedkernel.models.components import KernelPCA, LandmarkPCA, NodeComponents, PeerComponents
    from fedkernel.models.direction_similarity import Directions, center_blocks, normalised_kernel_pca
    from fedkernel.models.embedding_maps import Embedding, FeatureChain, Landmarks, combine_draws, multiply_step
    from fedkernel.models.files import load_model, save_model
    from fedkernel.models.fitted_model import FittedModel, ModelOutput, class_names
    from fedkernel.models.metric_registry import (
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
