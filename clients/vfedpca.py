"""Client of VFedPCA and VFedAKPCA: local power iterations and products, with all requests to a site and its replies.

Source: the paper of `fedkernel.strategies.vfedpca`, algorithms 2 and 3, equations 10 and 14.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar, Generic, Literal

import numpy as np
from scipy.linalg import pinvh

from fedkernel.clients.eigenvector_merging import ZERO_SHARE
from fedkernel.clients.new_rows_base import NewRowsClient, TakeCoordinates
from fedkernel.ground import FloatArray, check_at_most, read_only
from fedkernel.numerics import (
    Eigenpairs,
    Kernel,
    LowRank,
    center_gram,
    center_rows,
    frobenius_norm,
    is_bounded,
    low_rank,
    low_rank_pays,
    mean_value,
    orthonormal_basis,
    power_iteration,
    squared_norms,
    symmetric_product,
    tall_product,
    transposed_product,
)
from fedkernel.protocol import (
    SEMIDEFINITE,
    Answers,
    Count,
    Iterations,
    Orthonormal,
    Reply,
    ReplyT,
    Request,
    Shape,
    State,
    Summed,
    Within,
    check_share,
)

Centering = Literal["columns", "rows", "none"]

ROUNDING_SHARE = 100 * float(np.finfo(np.float64).eps)
"""Share of the trace, times the vectors' length, below which a product is rounding."""

CENTRED_ROUNDING_SHARE = 10 * float(np.finfo(np.float64).eps) / SEMIDEFINITE
"""The same share for a centred kernel matrix, of the trace before centring.

The rounding is relative to the matrix before, and makes eigenvalues below 0 too large for rounding of the rest.
"""

MOST_CACHED_BYTES = 2**26
"""Largest centred table in bytes that a site keeps (64 MiB); a larger one is centred in each pass."""

CENTRED_ROWS = 1024
"""Rows of a larger table that are centred at a time."""

Apply = Callable[[FloatArray], FloatArray]


class LocalTableRequest(Request[ReplyT], Generic[ReplyT]):
    """Base of all requests of VFedPCA: the kernel and the centring of the site's table.

    The site's matrix is ``A_m = X_m X_m^T / d_m``, or with a ``kernel`` the kernel matrix of its columns.
    """

    kernel: Kernel | None = None
    center: Centering = "columns"

    @property
    def semidefinite(self) -> bool:
        """True if the site's matrix has no negative eigenvalue."""
        return self.kernel is None or self.kernel.semidefinite


class LeadingVectors(Reply):
    """Approximate leading eigenpairs of the site's matrix: k (N + 1) floats.

    Reveals the directions over the rows along which the site's columns vary most, and how much they do. If a site has
    no more than k columns, a reader with k + 1 rows of its table has the others. With a warm start a round shows k more
    directions of the sender: then no more columns than k times the rounds are enough.
    """

    vectors: Annotated[FloatArray, Shape("N", "k"), Orthonormal()]
    values: Annotated[FloatArray, Shape("k")]


class LocalIterations(LocalTableRequest[ReplyT], Generic[ReplyT]):
    """Base of requests for local power iterations, with numbers of components and iterations, update, and start."""

    seeded: ClassVar = True
    largest: ClassVar = {"k": "n_components"}
    n_components: Count
    iterations: Iterations
    update: Literal["original", "inplace"] = "original"
    warm_start: bool = False


class IterateLocally(LocalIterations[LeadingVectors]):
    """Request for local power iterations, after an update by the merged directions (none in the first round)."""

    probes: ClassVar = ("directions",)
    directions: Annotated[FloatArray | None, Shape("N", "k")] = None

    def known_dimensions(self) -> dict[str, int]:
        """Return also the number of components k."""
        return super().known_dimensions() | {"k": self.n_components}

    def check_reply(self, reply: LeadingVectors) -> None:
        """Check also that values >= 0 unless the kernel is indefinite."""
        super().check_reply(reply)
        if self.semidefinite and reply.values.min() < -ZERO_SHARE * abs(reply.values).max():
            raise ValueError(f"values must be at least 0 but for rounding, not {reply.values.min():.6g}")


class Product(Summed):
    """Site's matrix times a block of vectors: N b floats.

    Reveals combinations of the site's columns, summed over them. As many independent vectors as the site has columns
    (N, if the kernel is not linear), counted as components times rounds, give the whole matrix of inner products, and
    with it a reader with d_m + 1 rows of the table has the others.
    """

    product: Annotated[FloatArray, Shape("N", "b")]


class Multiply(LocalTableRequest[Product]):
    """Request for the site's matrix (not divided by d_m) times a block of vectors."""

    probes: ClassVar = ("block",)
    block: Annotated[FloatArray, Shape("N", "b")]

    def check_reply(self, reply: Product) -> None:
        """Check also that block^T product is symmetric, and semidefinite unless the kernel is indefinite."""
        super().check_reply(reply)
        form, rounding = (transposed_product(self.block, reply.product), SEMIDEFINITE * frobenius_norm(reply.product))
        if not np.abs(form - form.T).max() <= rounding:
            raise ValueError("block^T product must be symmetric, as the site's matrix is")
        if self.semidefinite and (least := float(np.linalg.eigvalsh((form + form.T) / 2)[0])) < -rounding:
            raise ValueError(f"block^T product must have no eigenvalue below 0, as the site's matrix, not {least:.6g}")


class Finished(Reply):
    """Mean kernel value between different rows of the site, 1 float. Sent only if the kernel's width may be unfit.

    Reveals how alike the site's rows are, all together; without an RBF, Laplacian or sigmoid kernel nothing.
    """

    kernel_mean: Annotated[float | None, Shape(), Within(-1, 1)] = None


class Finish(LocalTableRequest[Finished]):
    """Request to compute the projected features for the resulting directions, and to store both at the site."""

    directions: Annotated[FloatArray, Shape("N", "k")]


class CapturedVariance(Summed):
    """Variance of the site along each component, and in total: k + 1 floats.

    Reveals the site's total variance, and its share along each component.
    """

    captured: Annotated[FloatArray, Shape("k")]
    total: Annotated[float, Shape()]


class VarianceRequest(LocalTableRequest[CapturedVariance]):
    """Base of requests for the site's variance along given directions."""

    once: ClassVar = True

    def check_reply(self, reply: CapturedVariance) -> None:
        """Check also that captured <= total unless the kernel is indefinite."""
        super().check_reply(reply)
        if self.semidefinite:
            check_share(reply.captured, reply.total, reply.rounding)


class MeasureVariance(VarianceRequest):
    """Request for the site's variance along each component."""

    probes: ClassVar = ("directions",)
    directions: Annotated[FloatArray, Shape("N", "k")]


class DirectionProducts(Summed):
    """Site's share of new rows' products with the directions, and of the directions' variances: k (n_new + 1) floats.

    Reveals of each new row the combinations, by the directions, of its similarities to the training rows, and the
    site's variance along each direction. `products` (n_new, k): ``K_m(new, training) U``, centred as in training.
    `captured` (k,): ``u^T K_m u`` for each direction, its squared length in feature space.
    """

    products: Annotated[FloatArray, Shape("n_new", "k")]
    captured: Annotated[FloatArray, Shape("k")]


class ProjectOntoDirections(LocalTableRequest[DirectionProducts]):
    """Request for the site's share of the new rows' coordinates along directions over the training rows."""

    probes: ClassVar = ("directions",)
    once: ClassVar = True
    directions: Annotated[FloatArray, Shape("N", "k")]


def _exact_means(X: FloatArray, axis: Literal[0, 1]) -> FloatArray:
    """Return means of shape (1, d) or (n, 1); the mean of equal numbers is exactly that number."""
    first, means = X.take([0], axis=axis), X.mean(axis=axis, keepdims=True)
    candidates = np.flatnonzero(first == X.take([-1], axis=axis))
    equal = candidates[(X.take(candidates, axis=1 - axis) == first.take(candidates, axis=1 - axis)).all(axis=axis)]
    means.flat[equal] = first.flat[equal]
    return np.asarray(means)


@dataclass(frozen=True)
class KernelMatrix(State):
    """Kernel matrix of the site's columns: `K` (N, N), centred if requested; `column_means` (N,) before centring."""

    K: FloatArray
    column_means: FloatArray | None = None


@dataclass(frozen=True)
class UpdatedMatrix(State):
    """The site's matrix after equation 14, ``basis core basis^T``: orthonormal `basis` (N, k), and `core` (k, k)."""

    basis: FloatArray
    core: FloatArray

    def matrix(self) -> LowRank:
        """Return the updated matrix in factored form."""
        return LowRank(self.core, partial(transposed_product, self.basis), partial(tall_product, self.basis))


class VFedPCAClient(NewRowsClient):
    """Client of VFedPCA: local power iterations, products for the exact method, and products of new rows.

    Memory between rounds: the kernel matrix, if there is a kernel, and an (N, k) and a (k, k) factor of the matrix
    updated by equation 14, whose rank is k: the updated table itself is never formed. Without a kernel a simulated site
    keeps the centred table, too, up to 64 MiB; others centre it for each request, larger ones block by block.
    """

    answers: ClassVar[Answers] = (
        *(IterateLocally, Multiply, Finish, MeasureVariance, ProjectOntoDirections, TakeCoordinates),
    )

    X: FloatArray

    def iterate_locally(self, ask: IterateLocally) -> LeadingVectors:
        """Update the local matrix by equation 14, then iterate: algorithm 2 or, starting at the directions, 3."""
        pairs = self._local_eigenpairs(ask, ask.directions)
        return LeadingVectors(vectors=pairs.vectors, values=pairs.values)

    def multiply(self, ask: Multiply) -> Product:
        """Multiply the site's matrix by a block of vectors."""
        product = self._original_product(ask)(ask.block)
        least = (
            ROUNDING_SHARE * self._trace(ask)
            if ask.kernel is None
            else CENTRED_ROUNDING_SHARE * self._squared_lengths(ask, ask.kernel)
        )
        if frobenius_norm(product) <= least * float(np.linalg.norm(ask.block)):
            product = np.zeros_like(product)  # rounding of zero is no product of a semidefinite matrix
        return Product(product=product)

    def finish(self, ask: Finish) -> Finished:
        """Store the projected features ``U^T X_m`` (equation 10), shape (k, d_m), and the directions at the site."""
        features = np.zeros((ask.directions.shape[1], self.X.shape[1]))
        for rows, X in self._centred_blocks(ask):
            features += transposed_product(ask.directions[rows], X)
        self.outputs["features"] = features
        self.outputs["eigenvectors"] = ask.directions
        return Finished(kernel_mean=self._kernel_mean(ask))

    def measure_variance(self, ask: MeasureVariance) -> CapturedVariance:
        """Compute ``||X_m^T u||^2`` for every direction and the total ``||X_m||^2``."""
        return self._variance_along(ask, ask.directions)

    def project_onto_directions(self, ask: ProjectOntoDirections) -> DirectionProducts:
        """Compute the new rows' products, centred by the training rows. A kernel's (n_new, N) array is formed."""
        U, new = ask.directions, self._centred(ask, self._new_rows())
        if ask.kernel is None:
            products = new @ self._transposed_table_product(ask, U)
        else:
            K_new = ask.kernel.gram(new, self._centred(ask, self.X))
            if (means := self._kernel_matrix(ask, ask.kernel).column_means) is not None:
                center_rows(K_new, means, float(means.mean()))
            products = K_new @ U
        return DirectionProducts(products=products, captured=self._variance_along(ask, U).captured)

    def _variance_along(self, ask: LocalTableRequest[ReplyT], directions: FloatArray) -> CapturedVariance:
        apply = self._original_product(ask)
        captured = np.einsum("nk,nk->k", directions, apply(directions))
        return CapturedVariance(captured=captured, total=self._trace(ask))

    def _trace(self, ask: LocalTableRequest[ReplyT]) -> float:
        """Return the trace of the site's matrix before any update."""
        if ask.kernel is None:
            squares = (squared_norms(X) for _, X in self._centred_blocks(ask))
            return self.cached(f"trace, centred {ask.center}", lambda: float(np.concatenate([*squares]).sum()))
        return float(np.trace(self._kernel_matrix(ask, ask.kernel).K))

    def _is_negligible(self, ask: LocalTableRequest[ReplyT]) -> bool:
        """Return whether the sum of the centred table's squared entries is below the smallest normal float."""
        return bool(self._trace(ask) < np.finfo(np.float64).tiny)

    def _local_eigenpairs(self, ask: LocalIterations[ReplyT], directions: FloatArray | None) -> Eigenpairs:
        check_at_most("n_components", ask.n_components, self.X.shape[0])
        if directions is not None:
            self._update(ask, directions)
        start = directions if ask.warm_start else None
        if start is None:
            start = self.rng("start").standard_normal((self.X.shape[0], ask.n_components))
        scale = 1.0 if ask.kernel is not None else 1.0 / self.X.shape[1]
        pairs = power_iteration(self._current_product(ask), start, ask.iterations)
        # rounding below 0 of a semidefinite matrix's eigenvalue is 0
        return Eigenpairs((np.maximum(pairs.values, 0.0) if ask.semidefinite else pairs.values) * scale, pairs.vectors)

    def _centred_blocks(self, ask: LocalTableRequest[ReplyT]) -> Iterator[tuple[slice, FloatArray]]:
        """Yield the table's centred rows: a small table at once from the cache, a large one in blocks."""
        if ask.kernel is not None:  # once or twice in a run
            yield slice(None), self._centred(ask, self.X)
            return
        if self.X.nbytes <= MOST_CACHED_BYTES:
            yield slice(None), self.cached(f"centred {ask.center}", lambda: self._centred(ask, self.X))
            return
        for first in range(0, len(self.X), CENTRED_ROWS):
            rows = slice(first, first + CENTRED_ROWS)
            yield rows, self._centred(ask, self.X[rows])

    def _table_product(self, ask: LocalTableRequest[ReplyT], W: FloatArray) -> FloatArray:
        """Return the table times W, of shapes (N, d_m) and (d_m, k)."""
        return np.concatenate([tall_product(X, W) for _, X in self._centred_blocks(ask)])

    def _transposed_table_product(self, ask: LocalTableRequest[ReplyT], V: FloatArray) -> FloatArray:
        """Return the transposed table times V, of shapes (d_m, N) and (N, k)."""
        total = np.zeros((self.X.shape[1], V.shape[1]))
        for rows, X in self._centred_blocks(ask):
            total += transposed_product(X, V[rows])
        return total

    def _centred(self, ask: LocalTableRequest[ReplyT], rows: FloatArray) -> FloatArray:
        """Subtract column or row means, by `ask.center`. With a kernel, `center_gram` replaces the column means."""
        if ask.center == "columns" and ask.kernel is None:
            return rows - self.cached("column means", lambda: _exact_means(self.X, 0))
        return rows - _exact_means(rows, 1) if ask.center == "rows" else rows

    def _kernel_matrix(self, ask: LocalTableRequest[ReplyT], kernel: Kernel) -> KernelMatrix:
        if not KernelMatrix.known(self.memory):
            K, column_means = kernel.gram(self._centred(ask, self.X)), None
            if ask.center == "columns":
                column_means, _ = center_gram(K)
                if np.trace(K) <= CENTRED_ROUNDING_SHARE * self._squared_lengths(ask, kernel):
                    K[:] = 0.0  # only rounding, which must not count in the merge
            KernelMatrix(read_only(K), column_means).save(self.memory)
        return KernelMatrix.load(self.memory)

    def _kernel_mean(self, ask: LocalTableRequest[ReplyT]) -> float | None:
        """Return the mean kernel value between different rows before centring. None without a bounded kernel."""
        if ask.kernel is None or not is_bounded(ask.kernel):
            return None
        n, matrix = len(self.X), self._kernel_matrix(ask, ask.kernel)
        total = n * matrix.column_means.sum() if matrix.column_means is not None else matrix.K.sum()
        mean = mean_value(float(total), self._squared_lengths(ask, ask.kernel), n)
        return None if mean is None else min(max(mean, -1.0), 1.0)

    def _squared_lengths(self, ask: LocalTableRequest[ReplyT], kernel: Kernel) -> float:
        """Return the sum of k(x, x) over the rows, before any centring in feature space."""
        return float(kernel.diag(self._centred(ask, self.X)).sum())

    def _original_product(self, ask: LocalTableRequest[ReplyT]) -> Apply:
        """Return a function that multiplies by the site's matrix before any update."""
        if ask.kernel is not None:
            K = self._kernel_matrix(ask, ask.kernel).K
            return lambda V: symmetric_product(K, V)
        if self._is_negligible(ask):
            return np.zeros_like
        return lambda V: self._table_product(ask, self._transposed_table_product(ask, V))

    def _current_product(self, ask: LocalIterations[ReplyT]) -> Apply | LowRank:
        """Return the site's matrix, with any update by equation 14, in the fastest form for iterations."""
        if UpdatedMatrix.known(self.memory):
            return UpdatedMatrix.load(self.memory).matrix()
        pays = ask.kernel is None and low_rank_pays(self.X.shape, ask.n_components, ask.iterations)
        if not pays or self._is_negligible(ask):
            return self._original_product(ask)
        gram = np.zeros((self.X.shape[1], self.X.shape[1]))
        for _, X in self._centred_blocks(ask):
            gram += transposed_product(X, X)
        product, transposed = partial(self._table_product, ask), partial(self._transposed_table_product, ask)
        return low_rank(gram, ask.n_components, product, transposed) or self._original_product(ask)

    def _update(self, ask: LocalIterations[ReplyT], U: FloatArray) -> None:
        """Update the matrix K = X X^T by equation 14.

        The equation is ``X <- X M M^T / ||M M^T||`` with ``M = X^T U``. For one direction the factor is the projector
        on M. For several it is the projector on their span, since powers of M M^T would shrink the smaller components.
        In K alone, so that it serves kernels too, the new matrix is ``(K U) (U^T K U)^+ (K U)^T``, of rank k.
        """
        if ask.update == "inplace" and UpdatedMatrix.known(self.memory):
            KU = UpdatedMatrix.load(self.memory).matrix().product(U)
        else:
            KU = self._original_product(ask)(U)
        inner = transposed_product(U, KU)
        # C order, as after a move of the memory: another order gives other last bits
        basis = np.ascontiguousarray(orthonormal_basis(KU))
        R = transposed_product(basis, KU)
        core = R @ pinvh((inner + inner.T) / 2) @ R.T
        UpdatedMatrix(basis, np.asarray((core + core.T) / 2)).save(self.memory)
