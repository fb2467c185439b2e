"""Client of DKPCA: local eigenpairs of the kernel matrix, with all requests to a site and all its replies.

Source: the letter of `fedkernel.strategies.dkpca`, algorithm 1, step 1, and equation 4.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from fedkernel.clients.new_rows_base import NewRowsClient, TakeCoordinates
from fedkernel.ground import FloatArray, check_at_most
from fedkernel.numerics import (
    Eigenpairs,
    Kernel,
    Linear,
    eigenpairs_above,
    eigenpairs_of_factor_above,
    leading_eigenpairs,
    leading_eigenpairs_of_factor,
)
from fedkernel.protocol import (
    Count,
    Eigenvalues,
    Orthonormal,
    Reply,
    ReplyT,
    Request,
    Shape,
    Summed,
    Within,
    check_share,
)


class LocalSpectrum(Reply):
    """Leading eigenpairs of the site's part of the kernel matrix: D_m (N + 1) floats, or one more on request.

    Reveals the site's similarities between all pairs of rows, as exactly as D_m eigenpairs can. A reader with a few
    rows of the table can rebuild the others from it: with an RBF kernel up to the error of the truncation, with a
    linear one exactly if the site has no more columns than D_m. `vectors`, `values` (N, D_m). `omitted`: if asked: the
    next eigenvalue, the largest that is left out.
    """

    vectors: Annotated[FloatArray, Shape("N", "D_m"), Orthonormal()]
    values: Annotated[FloatArray, Shape("D_m"), Eigenvalues()]
    omitted: Annotated[float | None, Shape()] = None


class LocalProducts(Reply):
    """Leading eigenpairs of the inner products between the site's centred rows: D_m (N + 1) floats.

    Reveals the distances between all pairs of rows, whatever the kernel, as a linear kernel's eigenpairs would. If the
    site has no more columns than D_m, a reader with d_m + 1 rows of the table can compute all others exactly.
    """

    vectors: Annotated[FloatArray, Shape("N", "D_m"), Orthonormal()]
    values: Annotated[FloatArray, Shape("D_m"), Eigenvalues()]


class EigenpairsRequest(Request[ReplyT], Generic[ReplyT]):
    """Base of requests for leading eigenpairs: a fixed number, or all above a share of the largest (equation 4)."""

    largest: ClassVar = {"D_m": "n_components"}
    n_components: Count | None = None
    epsilon: Annotated[float, Field(gt=0, lt=1)] | None = None

    @model_validator(mode="after")
    def _has_one_rule(self) -> Self:
        if (self.n_components is None) == (self.epsilon is None):
            raise ValueError("n_components or epsilon is required, and not both")
        return self

    def check_pairs(self, values: FloatArray) -> None:
        """Raise ValueError if a reply has more eigenpairs than requested."""
        if self.n_components is not None and values.size > self.n_components:
            raise ValueError(f"values has {values.size} entries, but must have at most {self.n_components}")


class FindLocalEigenpairs(EigenpairsRequest[LocalSpectrum]):
    """Request for leading eigenpairs of the site's part of the kernel matrix. `omitted`: also the next eigenvalue."""

    kernel: Kernel
    omitted: bool = False

    def check_reply(self, reply: LocalSpectrum) -> None:
        """Check also that at most the requested pairs are sent, an omitted eigenvalue only if requested, in order."""
        super().check_reply(reply)
        self.check_pairs(reply.values)
        if (reply.omitted is not None) != self.omitted:
            raise ValueError(f"omitted must be {'sent, as' if self.omitted else 'absent unless'} requested")
        last = max(float(reply.values[-1]), 0.0)
        if reply.omitted is not None and not 0 <= reply.omitted <= last:
            raise ValueError(f"omitted = {reply.omitted}, but must be from 0 to the last of values, {last}")

    def check_table(self, reply: LocalSpectrum, sizes: Mapping[str, int]) -> None:
        """Check also that values sum to at most the number of rows if k(x, x) = 1."""
        super().check_table(reply, sizes)
        total = float(reply.values.sum()) + (reply.omitted or 0.0)
        if self.kernel.vertical == "product" and total > (1 + reply.rounding) * sizes["N"]:
            raise ValueError(f"values sum to {total:.6g}, but must sum to at most {sizes['N']}, the number of rows")


class FindLocalProducts(EigenpairsRequest[LocalProducts]):
    """Request for the leading eigenpairs of X_m X_m^T, X_m centred. They give the distances for a kernel of any width.

    It names its kernel for a site's policy, which allows this request if it allows linear kernels.
    """

    kernel: Linear = Linear()

    def check_reply(self, reply: LocalProducts) -> None:
        """Check also that at most the requested pairs are sent."""
        super().check_reply(reply)
        self.check_pairs(reply.values)


class Projections(Summed):
    """Site's share of the new rows' coordinates: n_new k floats.

    Reveals sums over the site's columns, products of each new row and combinations of the training rows.
    """

    products: Annotated[FloatArray, Shape("n_new", "k")]


class ProjectNewRows(Request[Projections]):
    """Request for the inner products of new rows with the training rows, times the given vectors (linear kernel)."""

    probes: ClassVar = ("vectors",)
    once: ClassVar = True
    vectors: Annotated[FloatArray, Shape("N", "k")]


class KernelRows(Reply):
    """Site's part of the kernel between new and training rows: n_new N floats.

    Reveals the site's similarity of every new row to every training row, exactly.
    """

    part: Annotated[FloatArray, Shape("n_new", "N")]


class ComputeKernelRows(Request[KernelRows]):
    """Request for the site's part of the kernel between new and training rows, for non-linear kernels."""

    once: ClassVar = True
    kernel: Kernel


class KeptVariance(Summed):
    """Squared length of the site's columns along each vector, and in total: k + 1 floats.

    Reveals the total squared length of the site's columns, and its share along each vector.
    """

    captured: Annotated[FloatArray, Shape("k"), Within()]
    total: Annotated[float, Shape(), Within()]


class MeasureKept(Request[KeptVariance]):
    """Request for the squared length of the site's columns, centred or not, along each vector (linear kernel)."""

    probes: ClassVar = ("vectors",)
    once: ClassVar = True
    center: bool
    vectors: Annotated[FloatArray, Shape("N", "k")]

    def check_reply(self, reply: KeptVariance) -> None:
        """Check also that captured <= total."""
        super().check_reply(reply)
        check_share(reply.captured, reply.total, reply.rounding)


class DKPCAClient(NewRowsClient):
    """Client of DKPCA: sends local eigenpairs, and products or kernel values for the projection of new rows."""

    answers = (FindLocalEigenpairs, FindLocalProducts, ProjectNewRows, ComputeKernelRows, MeasureKept, TakeCoordinates)

    X: FloatArray

    def find_local_eigenpairs(self, ask: FindLocalEigenpairs) -> LocalSpectrum:
        """Solve the local eigenproblem (algorithm 1, step 1), and once more if the omitted eigenvalue is requested.

        Memory: (N, d_m) for kernels of inner products, whose part has rank d_m at most and is never formed; one (N, N)
        array for the others, and a copy of it if LAPACK solves: see `leading_eigenpairs`.
        """
        if ask.kernel.vertical == "product":
            K = ask.kernel.part(self.X)
            problem = _Problem(partial(leading_eigenpairs, K), partial(eigenpairs_above, K), len(K))
        else:
            problem = _Problem.of_products(self.X)
        pairs = self._solve(ask, problem)
        omitted = problem.after(pairs) if ask.omitted else None
        return LocalSpectrum(vectors=pairs.vectors, values=pairs.values, omitted=omitted)

    def find_local_products(self, ask: FindLocalProducts) -> LocalProducts:
        """Solve the eigenproblem of X_m X_m^T in (N, d_m) memory. X_m is centred first, which changes no distance."""
        pairs = self._solve(ask, _Problem.of_products(self.X - self.X.mean(axis=0)))
        return LocalProducts(vectors=pairs.vectors, values=pairs.values)

    def _solve(self, ask: EigenpairsRequest[Any], problem: "_Problem") -> Eigenpairs:
        if ask.epsilon is not None:
            return problem.above(ask.epsilon)
        check_at_most("local_components", ask.n_components or 1, self.X.shape[0])
        # Pairs beyond the rank are zero.
        return problem.leading(min(ask.n_components or 1, problem.rank))

    def project_new_rows(self, ask: ProjectNewRows) -> Projections:
        """Apply the site's share of a linear kernel to the learned vectors, without forming the (n_new, N) array."""
        return Projections(products=self._new_rows() @ (self.X.T @ ask.vectors))

    def compute_kernel_rows(self, ask: ComputeKernelRows) -> KernelRows:
        """Compute the site's part of the kernel between new and training rows."""
        return KernelRows(part=ask.kernel.part(self._new_rows(), self.X))

    def measure_kept(self, ask: MeasureKept) -> KeptVariance:
        """Compute ``||X_m^T v||^2`` for every vector and the total ``||X_m||^2``."""
        X = self.X - self.X.mean(axis=0) if ask.center else self.X
        return KeptVariance(captured=np.square(X.T @ ask.vectors).sum(axis=0), total=float(np.square(X).sum()))


class _Problem(NamedTuple):
    """Eigenproblem of a site: solvers for k leading pairs and for all above a share of the largest, and rank."""

    leading: Callable[[int], Eigenpairs]
    above: Callable[[float], Eigenpairs]
    rank: int

    @classmethod
    def of_products(cls, X: FloatArray) -> Self:
        """Return the eigenproblem of X X^T, without forming this matrix."""
        return cls(partial(leading_eigenpairs_of_factor, X), partial(eigenpairs_of_factor_above, X), min(X.shape))

    def after(self, pairs: Eigenpairs) -> float:
        """Return the next eigenvalue after the given ones, clipped to lie between 0 and the last of them."""
        size, last = pairs.values.size, max(float(pairs.values[-1]), 0.0)
        return min(max(float(self.leading(size + 1).values[size]), 0.0), last) if size < self.rank else 0.0
