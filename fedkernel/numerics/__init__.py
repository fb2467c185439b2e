"""Kernels, linear algebra, sketches, clustering: arrays in, arrays out, with no word of transport."""

from typing import TYPE_CHECKING

from fedkernel.lazily import lazily

if TYPE_CHECKING:
    from fedkernel.numerics.agreement import Agreement, adjusted_rand, adjusted_rand_within
    from fedkernel.numerics.blockwise import RowSketch, draw_distinct, is_sketched
    from fedkernel.numerics.clustering import WeightedPoints, allot, assign, coreset, k_means
    from fedkernel.numerics.estimates import components_by_gap, eigengap, mean_error, squared_move
    from fedkernel.numerics.frequencies import Frequencies
    from fedkernel.numerics.kernels import (
        KERNELS,
        RBF,
        AnyKernel,
        ArcCosine,
        Kernel,
        Laplacian,
        Linear,
        Polynomial,
        Sigmoid,
        normalised_gram,
    )
    from fedkernel.numerics.krylov import Search, Unconverged, block_krylov, block_krylov_above, block_krylov_gap
    from fedkernel.numerics.linalg import (
        Eigenpairs,
        above_rounding,
        center_gram,
        center_rows,
        eigenpairs_above,
        eigenpairs_of_factor_above,
        lanczos_width,
        leading_eigenpairs,
        leading_eigenpairs_of_factor,
        pack_symmetric,
        symmetric_product,
        tall_product,
        transposed_product,
        unpack_symmetric,
        whitening,
    )
    from fedkernel.numerics.power import LowRank, low_rank, power_iteration, shortens
    from fedkernel.numerics.quality import (
        Silhouette,
        calinski_harabasz,
        kernel_silhouette,
        ratio_of_variances,
        scored,
        silhouette,
        site_agreement,
    )
    from fedkernel.numerics.row_products import squared_norms
    from fedkernel.numerics.sketch import Embeddable, RandomFeatures, ShiftInvariant, SubspaceEmbedding
    from fedkernel.numerics.subspaces import align_signs, fix_signs, orthonormal_basis, signs_towards, sin_theta_error
    from fedkernel.numerics.symmetric import symmetric_by_rows
    from fedkernel.numerics.width_grid import WidthFactors, scaled_width
    from fedkernel.numerics.widths import (
        WIDTHS,
        dimension_sigma,
        fk_gamma,
        moments,
        scale_gamma,
        with_number,
        with_width,
    )
else:
    __getattr__ = lazily(__name__)

__all__ = [
    "KERNELS",
    "RBF",
    "WIDTHS",
    "Agreement",
    "AnyKernel",
    "ArcCosine",
    "Eigenpairs",
    "Embeddable",
    "Frequencies",
    "Kernel",
    "Laplacian",
    "Linear",
    "LowRank",
    "Polynomial",
    "RandomFeatures",
    "RowSketch",
    "Search",
    "ShiftInvariant",
    "Sigmoid",
    "Silhouette",
    "SubspaceEmbedding",
    "Unconverged",
    "WeightedPoints",
    "WidthFactors",
    "above_rounding",
    "adjusted_rand",
    "adjusted_rand_within",
    "align_signs",
    "allot",
    "assign",
    "block_krylov",
    "block_krylov_above",
    "block_krylov_gap",
    "calinski_harabasz",
    "center_gram",
    "center_rows",
    "components_by_gap",
    "coreset",
    "dimension_sigma",
    "draw_distinct",
    "eigengap",
    "eigenpairs_above",
    "eigenpairs_of_factor_above",
    "fix_signs",
    "fk_gamma",
    "is_sketched",
    "k_means",
    "kernel_silhouette",
    "lanczos_width",
    "leading_eigenpairs",
    "leading_eigenpairs_of_factor",
    "low_rank",
    "mean_error",
    "moments",
    "normalised_gram",
    "orthonormal_basis",
    "pack_symmetric",
    "power_iteration",
    "ratio_of_variances",
    "scale_gamma",
    "scaled_width",
    "scored",
    "shortens",
    "signs_towards",
    "silhouette",
    "sin_theta_error",
    "site_agreement",
    "squared_move",
    "squared_norms",
    "symmetric_by_rows",
    "symmetric_product",
    "tall_product",
    "transposed_product",
    "unpack_symmetric",
    "whitening",
    "with_number",
    "with_width",
]
