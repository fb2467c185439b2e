"""Kernels, linear algebra, sketches and clustering on plain arrays, independent of transport."""

from typing import TYPE_CHECKING

from fedkernel.ground.lazy_imports import lazily

if TYPE_CHECKING:
    from .blockwise_sketches import RowSketch, draw_distinct, is_sketched
    from .cluster_quality import (
        Agreement,
        Silhouette,
        adjusted_rand,
        adjusted_rand_within,
        ratio_of_variances,
        score,
        silhouette,
        simplified_silhouettes,
        site_agreement,
    )
    from .clustering import IntArray, WeightedPoints, allot_samples, assign, coreset, k_means, landmark_centers
    from .eigenpairs import (
        Eigenpairs,
        above_rounding,
        eigenpairs_above,
        eigenpairs_of_factor_above,
        lanczos_width,
        leading_eigenpairs,
        leading_eigenpairs_of_factor,
        whitening,
    )
    from .estimate_accuracy import components_by_gap, eigengap, mean_error, squared_move, value_ratios
    from .fixed_point import add_words, from_fixed_point, to_fixed_point, words_of
    from .frequencies import Frequencies
    from .kernels import (
        KERNELS,
        RBF,
        AnyKernel,
        ArcCosine,
        Kernel,
        Laplacian,
        Linear,
        Polynomial,
        Sigmoid,
        WidthRule,
        import_kernels,
        kernel_from,
        kernel_tables,
        normalised_gram,
        table_of_name,
    )
    from .matrix_products import (
        center_gram,
        center_rows,
        frobenius_norm,
        pack_symmetric,
        symmetric_product,
        tall_product,
        transposed_product,
        unpack_symmetric,
    )
    from .microaggregation import MOST_LEAST, group_averages, grouped_together, row_groups
    from .pairwise import squared_norms, symmetric_by_rows
    from .power import LowRank, low_rank, low_rank_pays, power_iteration
    from .random_features import RandomFeatures, ShiftInvariant
    from .remote_lanczos import Search, Unconverged, block_krylov, block_krylov_above, block_krylov_gap
    from .subspace_embedding import Embeddable, SubspaceEmbedding
    from .subspaces import align_signs, complement, fix_signs, orthonormal_basis, sin_theta_error
    from .widths import (
        NARROW_MEAN,
        WIDE_MEAN,
        Moments,
        deviations,
        difference_sigma,
        dimension_sigma,
        fk_gamma,
        is_bounded,
        mean_of_landmarks,
        mean_of_points,
        mean_value,
        moments,
        moments_of_blocks,
        rule_name,
        scale_gamma,
        width_warning,
        with_rule_value,
        with_width,
    )
else:
    __getattr__, __all__ = lazily(__name__)
