"""Kernels, linear algebra, sketches, clustering: arrays in, arrays out, with no word of transport."""

from fedkernel.numerics.blockwise import RowSketch, draw_distinct, is_sketched
from fedkernel.numerics.clustering import allot, assign, coreset, k_means
from fedkernel.numerics.estimates import eigengap, mean_error, squared_move
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
from fedkernel.numerics.krylov import Search, block_krylov, block_krylov_above
from fedkernel.numerics.linalg import (
    Eigenpairs,
    above_rounding,
    center_gram,
    eigenpairs_above,
    eigenpairs_of_factor_above,
    leading_eigenpairs,
    leading_eigenpairs_of_factor,
    pack_symmetric,
    power_iteration,
    unpack_symmetric,
    whitening,
)
from fedkernel.numerics.sketch import Embeddable, RandomFeatures, ShiftInvariant, SubspaceEmbedding
from fedkernel.numerics.subspaces import align_signs, fix_signs, orthonormal_basis, sin_theta_error
from fedkernel.numerics.widths import WIDTHS, fk_gamma, moments, with_width

__all__ = [
    "KERNELS",
    "RBF",
    "WIDTHS",
    "AnyKernel",
    "ArcCosine",
    "Eigenpairs",
    "Embeddable",
    "Kernel",
    "Laplacian",
    "Linear",
    "Polynomial",
    "RandomFeatures",
    "RowSketch",
    "Search",
    "ShiftInvariant",
    "Sigmoid",
    "SubspaceEmbedding",
    "above_rounding",
    "align_signs",
    "allot",
    "assign",
    "block_krylov",
    "block_krylov_above",
    "center_gram",
    "coreset",
    "draw_distinct",
    "eigengap",
    "eigenpairs_above",
    "eigenpairs_of_factor_above",
    "fix_signs",
    "fk_gamma",
    "is_sketched",
    "k_means",
    "leading_eigenpairs",
    "leading_eigenpairs_of_factor",
    "mean_error",
    "moments",
    "normalised_gram",
    "orthonormal_basis",
    "pack_symmetric",
    "power_iteration",
    "sin_theta_error",
    "squared_move",
    "unpack_symmetric",
    "whitening",
    "with_width",
]
