"""What a site does, and all that can leave it, in DKPCA.

Source: He, Lv, Yang, Huang: One-Shot Distributed Algorithm for PCA With RBF Kernels, IEEE Signal Processing Letters
2021, algorithm 1, step 1, and equation 4.
"""

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field, model_validator

from fedkernel.arrays import FloatArray
from fedkernel.errors import InputError
from fedkernel.numerics import (
    Eigenpairs,
    Kernel,
    eigenpairs_above,
    eigenpairs_of_factor_above,
    leading_eigenpairs,
    leading_eigenpairs_of_factor,
)
from fedkernel.protocol import Count, KernelClient, Reply, Request, Shape, Summed
from fedkernel.validation import check_at_most


class LocalSpectrum(Reply):
    """Leading eigenpairs of the site's part of the kernel matrix: D_m (N + 1) floats.

    Reveals the site's similarities between all pairs of rows, as exactly as D_m eigenpairs can: who knows a few rows of
    the table can rebuild the others from it, with an RBF kernel up to the error of the truncation, with a linear one
    exactly if the site has no more columns than D_m.
    """

    vectors: Annotated[FloatArray, Shape("N", "D_m")]
    values: Annotated[FloatArray, Shape("D_m")]


class FindLocalEigenpairs(Request[LocalSpectrum]):
    """Asks for the leading eigenpairs of the local part: a fixed number, or all above a share of the largest."""

    largest: ClassVar = {"D_m": "n_components"}
    kernel: Kernel
    n_components: Count | None = None
    epsilon: Annotated[float, Field(gt=0, lt=1)] | None = None

    @model_validator(mode="after")
    def _has_one_rule(self) -> "FindLocalEigenpairs":
        if (self.n_components is None) == (self.epsilon is None):
            raise ValueError("give n_components or epsilon")
        return self

    def check_reply(self, reply: LocalSpectrum) -> None:
        """Check also that there are not more pairs than asked, in non-increasing order."""
        super().check_reply(reply)
        if self.n_components is not None and reply.values.size > self.n_components:
            raise ValueError(f"values has {reply.values.size} entries, but {self.n_components} were asked")
        if np.any(np.diff(reply.values) > 0):
            raise ValueError("values must be in non-increasing order")


class Projections(Summed):
    """The site's share of the new rows' coordinates: n_new k floats.

    Reveals sums over the site's columns, products of each new row and combinations of the training rows.
    """

    products: Annotated[FloatArray, Shape("n_new", "k")]


class ProjectNewRows(Request[Projections]):
    """Linear kernel: asks for the inner products of new rows and training rows, already multiplied by the vectors."""

    probes: ClassVar = ("vectors",)
    once: ClassVar = True
    vectors: Annotated[FloatArray, Shape("N", "k")]


class KernelRows(Reply):
    """The site's part of the kernel between new and training rows: n_new N floats.

    Reveals the site's similarity of every new row to every training row, exactly.
    """

    part: Annotated[FloatArray, Shape("n_new", "N")]


class ComputeKernelRows(Request[KernelRows]):
    """Asks for the local part of the kernel between new and training rows, which other kernels need whole."""

    once: ClassVar = True
    kernel: Kernel


class DKPCAClient(KernelClient):
    """Answers with local eigenpairs; for new rows, with what their projection needs."""

    answers = (FindLocalEigenpairs, ProjectNewRows, ComputeKernelRows)

    X: FloatArray
    new: FloatArray | None

    def find_local_eigenpairs(self, ask: FindLocalEigenpairs) -> LocalSpectrum:
        """Solve the local eigenproblem (algorithm 1, step 1).

        Memory: (N, d_m) for kernels of inner products, whose part has rank d_m at most and is never formed; one
        (N, N) array and its solver's copy for the others.
        """
        if ask.n_components is not None:
            check_at_most("local_components", ask.n_components, self.X.shape[0])
        pairs = self._solve(ask)
        return LocalSpectrum(vectors=pairs.vectors, values=pairs.values)

    def _solve(self, ask: FindLocalEigenpairs) -> Eigenpairs:
        if ask.kernel.vertical == "product":
            K = ask.kernel.part(self.X)
            if ask.epsilon is not None:
                return eigenpairs_above(K, ask.epsilon)
            return leading_eigenpairs(K, ask.n_components or 1)
        if ask.epsilon is not None:
            return eigenpairs_of_factor_above(self.X, ask.epsilon)
        # The part is X X^T: pairs beyond its rank are zero and not worth sending.
        return leading_eigenpairs_of_factor(self.X, min(ask.n_components or 1, *self.X.shape))

    def project_new_rows(self, ask: ProjectNewRows) -> Projections:
        """Apply the site's share of a linear kernel to the learned vectors, without forming (n_new, N)."""
        return Projections(products=self._new_rows() @ (self.X.T @ ask.vectors))

    def compute_kernel_rows(self, ask: ComputeKernelRows) -> KernelRows:
        """Compute the local part of the kernel between new and training rows."""
        return KernelRows(part=ask.kernel.part(self._new_rows(), self.X))

    def _new_rows(self) -> FloatArray:
        if self.new is None:
            raise InputError(f"client {self.client} has no new rows to project")
        return self.new
