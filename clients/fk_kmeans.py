"""Client of federated kernel k-means, with its own requests and replies; kmeans_base.py has the k-means requests.

Source: the paper of `fedkernel.strategies.fk_kmeans`, section 4, algorithm 1, theorem 4.

In iteration t the site has W_t[m] = [A_t[m], B_t[m]] diag(w_t): D random features of its rows, which everyone draws
from the same seed, and r_t columns from the iterations so far. Requests are about [A_t[m], B_t[m]]; the coordinator
alone applies the weights w_t, which follow from the step size.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Generic

import numpy as np

from fedkernel.clients.kmeans_base import Embedding, KMeansClient
from fedkernel.ground import (
    BLOCK_ROWS,
    AnyArray,
    FloatArray,
    Precision,
    ProtocolError,
    map_in_order,
    read_only,
    row_blocks,
)
from fedkernel.models import combine_draws, multiply_step
from fedkernel.numerics import RandomFeatures, pack_symmetric, unpack_symmetric
from fedkernel.protocol import (
    ROUNDING,
    Count,
    Done,
    PackedSemidefinite,
    Reply,
    ReplyT,
    Request,
    Shape,
    State,
    Summed,
    bounded_rows,
    each_alone,
)

MOST_CACHED_BYTES = 2**26
"""Largest size in bytes of random features, or of rows in float32, that a site keeps between two messages."""

FLOAT32_ROWS = 256
"""Rows whose products of float32 are summed in float32; the sums of these pieces are summed in float64."""


def relative_rounding(precision: Precision) -> float:
    """Return the rounding error of sums of products of features, as a share of the summed terms.

    For float32: a sum of `FLOAT32_ROWS` terms, in whatever order, loses at most `FLOAT32_ROWS` times the unit roundoff
    of 6e-8, and as much again is more than the error of cosines. A repeated row, with all roundings alike, gave 1e-6,
    others 2e-7.
    """
    return ROUNDING if precision == "float64" else FLOAT32_ROWS * float(np.finfo(np.float32).eps)


class FeatureRequest(Request[ReplyT], Generic[ReplyT]):
    """Base of iteration t's requests, with its random features and their ``precision``. Sums are in float64."""

    features: RandomFeatures
    t: Count
    precision: Precision = "float64"

    def memory_floats(self, rows: int, columns: int) -> int:
        """Return the memory for an answer, in floats: frequencies, a block's features and, if cached, all features."""
        lasting_rows = rows if self.features_are_kept(rows) else 0
        entries = self.features.n_features * (min(rows, BLOCK_ROWS) + lasting_rows)
        return self.features.memory_floats(columns) + entries * np.dtype(self.precision).itemsize // 8

    def features_are_kept(self, rows: int) -> bool:
        """Return whether the features of `rows` rows are small enough to be cached at the site."""
        return np.dtype(self.precision).itemsize * rows * self.features.n_features <= MOST_CACHED_BYTES

    def feature_key(self, t: int) -> str:
        """Return the cache key of iteration t's features."""
        return f"{t} {self.precision} {self.features!r}"


class IterationRequest(FeatureRequest[ReplyT], Generic[ReplyT]):
    """Base of iteration t's requests with CEM, which carry the map to the columns B_t.

    The first request of an iteration carries the map M with B_t = [A_{t-1}, B_{t-1}] M; those after it, and the first
    iteration's, which starts without columns B, do not.
    """

    map: Annotated[FloatArray | None, Shape("p_before", "r", empty=True)] = None

    def memory_floats(self, rows: int, columns: int) -> int:
        """Return the memory for an answer, in floats, including converted rows."""
        entries = rows * columns if self.rows_are_converted(rows, columns) else 0
        return super().memory_floats(rows, columns) + entries * np.dtype(self.precision).itemsize // 8

    def rows_are_converted(self, rows: int, columns: int) -> bool:
        """Return whether rows are converted to float32 once, and cached. Larger tables are converted block by block."""
        return self.precision == "float32" and 4 * rows * columns <= MOST_CACHED_BYTES


class PackedGram(Summed):
    """Upper triangle, row by row, of the columns' Gram matrix: (D + r)(D + r + 1) / 2 floats.

    Reveals sums over the site's rows of products of random features, of new ones in every iteration. No linear algebra
    gives the rows back (the paper's theorem 4), but a non-linear search does, up to their order, also from the sums of
    all sites. It needs seconds and more numbers than entries: for 178 x 13 ten iterations with 50 features.
    """

    upper: Annotated[FloatArray, Shape("packed"), PackedSemidefinite()]


class MultiplyColumns(IterationRequest[PackedGram]):
    """Request for the products [A_t, B_t]^T [A_t, B_t] of the site's columns, once per iteration."""

    columns: Count

    def sensitivity(self, radius: float) -> Mapping[str, float]:
        """Return the bound of a row's products, whatever the row's own length.

        Of D features a_i with a_i^2 <= 2, whose squares sum to D at most, the triangle's squares sum to half of
        (sum a_i^2)^2 + sum a_i^4.
        """
        D = self.features.n_features
        return {"upper": D * math.sqrt(1 / 2 + 1 / D)}

    def memory_floats(self, rows: int, columns: int) -> int:
        """Return the memory for an answer, in floats, including the features' products."""
        return super().memory_floats(rows, columns) + self.features.n_features**2

    def check_reply(self, reply: PackedGram) -> None:
        """Check also that the triangle is one of the requested columns."""
        super().check_reply(reply)
        entries = self.columns * (self.columns + 1) // 2
        if reply.upper.size != entries:
            raise ValueError(
                f"upper has {reply.upper.size} entries, but must have {entries} for {self.columns} columns"
            )

    def check_table(self, reply: PackedGram, sizes: Mapping[str, int]) -> None:
        """Check also that squares of an angle's cosine and sine sum to 1."""
        super().check_table(reply, sizes)
        D, rows, slack = self.features.n_features, sizes["n_m"], max(relative_rounding(self.precision), reply.rounding)
        squares = np.diag(unpack_symmetric(reply.upper))[:D]
        if self.features.form == "pairs":
            off = float(np.abs(squares[: D // 2] + squares[D // 2 :] - 2 * rows).max())
            if off > slack * rows:
                total = f"{2 * rows} for {rows} rows"
                raise ValueError(f"squares of each pair of features must sum to {total}, but are off by {off:.3g}")
        elif (most := squares.max()) > 2 * (1 + slack) * rows:
            raise ValueError(f"squares of a feature sum to {most:.6g}, but to at most {2 * rows} for {rows} rows")


class GramProduct(Summed):
    """Gram matrix of the site's columns, times a vector: D + r floats.

    Reveals what a `PackedGram` reveals, after D + r independent vectors.
    """

    product: Annotated[FloatArray, Shape("p")]


class MultiplyGram(IterationRequest[GramProduct]):
    """Request for [A_t, B_t]^T [A_t, B_t] c: one iteration of the distributed Lanczos algorithm with CEM."""

    vector: Annotated[FloatArray, Shape("p")]

    def check_table(self, reply: GramProduct, sizes: Mapping[str, int]) -> None:
        """Check also that vector^T product >= 0, up to rounding."""
        super().check_table(reply, sizes)
        form, length = float(self.vector @ reply.product), float(self.vector @ self.vector)
        rounding, trace = max(relative_rounding(self.precision), reply.rounding), 2 * sizes["n_m"]
        if form < -rounding * trace * (self.features.n_features + 1) * length:
            raise ValueError(f"vector^T product must be at least 0, not {form:.6g}")


class FeatureSums(Summed):
    """Weighted sums of the features over the site's rows, A_t[m]^T c[m]: D floats.

    Reveals smooth functions of the site's rows; after n_m independent vectors, the features themselves, and with them
    the rows. One vector that weighs a single row shows it.
    """

    sums: Annotated[FloatArray, Shape("D")]


class SumFeatures(FeatureRequest[FeatureSums]):
    """Request for A_t[m]^T c[m]: the first upload of a Lanczos iteration without CEM."""

    probes: ClassVar = ("vector",)
    largest: ClassVar = {"D": "features.n_features"}
    vector: Annotated[FloatArray, Shape("n_m")]

    @property
    def draw(self) -> int:
        """Index of the iteration, since each iteration draws features of its own."""
        return self.t

    def known_dimensions(self) -> dict[str, int]:
        """Return the number of features."""
        return {"D": self.features.n_features}

    def check_reply(self, reply: FeatureSums) -> None:
        """Check also that the sums are possible for features of at most sqrt(2)."""
        super().check_reply(reply)
        check_combined("sums", reply.sums, self.vector, max(relative_rounding(self.precision), reply.rounding))


def check_combined(name: str, combined: FloatArray, weights: FloatArray, slack: float) -> None:
    """Raise ValueError if numbers are too large for such weighted sums of features. A feature is at most sqrt(2)."""
    most = (1 + slack) * 2**0.5 * float(np.abs(weights).sum())
    if (largest := float(np.abs(combined).max())) > most:
        raise ValueError(
            f"{name} has an entry of size {largest:.6g}, but must be at most {most:.6g} with these weights"
        )


class FeatureValues(Reply):
    """Combination of the features of each of the site's rows, A_t[m] g: n_m floats.

    Reveals one number per row; after D independent vectors, the features themselves, and with them the rows.
    """

    values: Annotated[FloatArray, Shape("n_m")]


class CombineFeatures(FeatureRequest[FeatureValues]):
    """Request for A_t[m] g: the second upload of a Lanczos iteration without CEM."""

    vector: Annotated[FloatArray, Shape("D")]

    def check_reply(self, reply: FeatureValues) -> None:
        """Check also that the values are possible combinations of features."""
        super().check_reply(reply)
        check_combined("values", reply.values, self.vector, max(relative_rounding(self.precision), reply.rounding))


class EmbedRows(IterationRequest[Done]):
    """Request to compute the rows' coordinates, H[m] = [A_T[m], B_T[m]] M, which stay at the site.

    ``t`` is the number of the iteration that would come next. Without a map: H[m] = A_1[m] / sqrt(D), in float64.
    """

    once: ClassVar = True


class TakeEmbedding(Request[Done]):
    """Request to store the coordinates of the site's rows. Without CEM, the coordinator has computed them."""

    embedding: Annotated[FloatArray, Shape("n_m", "s")]


@dataclass(frozen=True)
class Columns(State):
    """Columns B_t[m] from the iterations so far, (n_m, r_t)."""

    B: FloatArray


@dataclass(frozen=True)
class DrawnFeatures(State):
    """Cache of random features A_t[m] (n_m, D) and the draw's key, if the features are small enough."""

    is_cache: ClassVar = True
    A: FloatArray
    draw: AnyArray


@dataclass(frozen=True)
class ColumnProducts(State):
    """Products of the columns, [A_t[m], B_t[m]]^T [A_t[m], B_t[m]], (D + r_t, D + r_t)."""

    G: FloatArray


class FKKMeansClient(KMeansClient):
    """Client of FKKMeans: sends products of its random features and columns, then clusters its embedded rows.

    Memory between rounds: B_t, n_m r_t floats, and with the Lanczos solver the (D + r_t)^2 products of the columns,
    computed once per iteration. Random features are computed from their seed, a block of rows at a time: once per
    iteration if all of them take `MOST_CACHED_BYTES` bytes at most and the site's process lives until the next, else
    twice, and without CEM twice per product. In float32, twice as many of them are kept.
    """

    answers = (
        *KMeansClient.answers,
        *(MultiplyColumns, MultiplyGram, SumFeatures, CombineFeatures, EmbedRows, TakeEmbedding),
    )

    def multiply_columns(self, ask: MultiplyColumns) -> PackedGram:
        """Compute the products of the site's columns [A_t, B_t]."""
        if self.privacy is not None:
            A = self._single_features(ask, ask.t)
            return PackedGram(upper=pack_symmetric(A.T @ A))
        return PackedGram(upper=pack_symmetric(self._column_products(ask)))

    def multiply_gram(self, ask: MultiplyGram) -> GramProduct:
        """Multiply a vector by the columns' Gram matrix. The iteration's first request computes this matrix."""
        if ask.map is not None or (ask.t == 1 and not ColumnProducts.known(self.memory)):
            ColumnProducts(self._column_products(ask)).save(self.memory)
        G = ColumnProducts.load(self.memory).G
        if len(G) != len(ask.vector):
            raise ProtocolError(f"vector has {len(ask.vector)} entries, but must have {len(G)}, one for each column")
        return GramProduct(product=G @ ask.vector)

    def sum_features(self, ask: SumFeatures) -> FeatureSums:
        """Sum the rows' features with the given weights of the rows."""
        if len(ask.vector) != len(self.X):
            raise ProtocolError(f"vector has {len(ask.vector)} entries, but must have {len(self.X)}, one for each row")
        features_of, sums = self._features_by_slice(ask), np.zeros(ask.features.n_features)
        for rows in row_blocks(len(self.X)):
            sums += ask.vector[rows] @ features_of(rows)
        return FeatureSums(sums=sums)

    def combine_features(self, ask: CombineFeatures) -> FeatureValues:
        """Combine each row's features with the given coefficients."""
        features_of, values = self._features_by_slice(ask), np.empty(len(self.X))
        for rows in row_blocks(len(self.X)):
            values[rows] = features_of(rows) @ ask.vector
        return FeatureValues(values=values)

    def embed_rows(self, ask: EmbedRows) -> Done:
        """Compute and store the coordinates of the site's rows."""
        if ask.map is not None:
            H = self._next_columns(ask, ask.map)
        elif self.privacy is not None:
            H = self._single_features(ask, ask.t) / math.sqrt(ask.features.n_features)
        else:
            H = combine_draws(self.X, ask.features, None)
        Embedding(H).save(self.memory)
        return Done()

    def take_embedding(self, ask: TakeEmbedding) -> Done:
        """Store the coordinates of the site's rows."""
        if len(ask.embedding) != len(self.X):
            raise ProtocolError(f"embedding has {len(ask.embedding)} rows, but must have {len(self.X)}")
        Embedding(ask.embedding).save(self.memory)
        DrawnFeatures.forget(self.memory)  # no longer needed
        return Done()

    def _single_features(self, ask: FeatureRequest[ReplyT], t: int) -> FloatArray:
        """Return the first draw's random features (n_m, D) for noisy sums. Each row is computed alone, and bounded."""
        if t != 1:
            raise ProtocolError(f"t = {ask.t}, but with noise there is one draw of features")
        features = ask.features.map(self.X.shape[1], t, ask.precision)
        A = each_alone(features, self.X).astype(np.float64)  # in which the sums of their products are exact
        return np.asarray(bounded_rows(A, math.sqrt(ask.features.n_features)))

    def _features_by_slice(self, ask: FeatureRequest[ReplyT]) -> Callable[[slice], FloatArray]:
        """Return a function from a slice of rows to those rows' features. The features are cached if they are small."""
        if (drawn := self._cached_features(ask, ask.t)) is not None:
            return drawn.A.__getitem__
        features = ask.features.map(self.X.shape[1], ask.t, ask.precision)
        if not ask.features_are_kept(len(self.X)):
            return lambda rows: features(self.X[rows])
        A = np.empty((len(self.X), ask.features.n_features), ask.precision)
        for rows in row_blocks(len(self.X)):
            A[rows] = features(self.X[rows])
        DrawnFeatures(read_only(A), np.array(ask.feature_key(ask.t))).save(self.memory)
        return A.__getitem__

    def _cached_features(self, ask: FeatureRequest[ReplyT], t: int) -> DrawnFeatures | None:
        drawn = DrawnFeatures.load(self.memory) if DrawnFeatures.known(self.memory) else None
        return drawn if drawn is not None and str(drawn.draw) == ask.feature_key(t) else None

    def _column_products(self, ask: IterationRequest[ReplyT]) -> FloatArray:
        """Compute the products of iteration t's columns, after mapping to B_t if the request has a map."""
        if ask.map is not None:
            Columns(read_only(self._next_columns(ask, ask.map))).save(self.memory)
        elif ask.t == 1:
            Columns(np.empty((len(self.X), 0))).save(self.memory)
        B, X = Columns.load(self.memory).B, self._converted_rows(ask)
        features, D = ask.features.map(X.shape[1], ask.t, ask.precision), ask.features.n_features
        A = np.empty((len(X), D), ask.precision) if ask.features_are_kept(len(X)) else None
        G = np.zeros((D + B.shape[1],) * 2)

        def products(rows: slice) -> FloatArray:
            W = np.hstack([features(X[rows]), B[rows]], dtype=ask.precision, casting="same_kind")
            if A is not None:
                A[rows] = W[:, :D]
            step = len(W) if ask.precision == "float64" else FLOAT32_ROWS
            pieces = [W[first : first + step] for first in range(0, len(W), step)]
            if len(pieces) == 1:
                return np.asarray(W.T @ W)
            part = np.zeros_like(G)
            for piece in pieces:
                part += piece.T @ piece
            return part

        # One thread if the products take more than the rows
        for part in map_in_order(products, row_blocks(len(X)), most=None if len(G) <= BLOCK_ROWS else 1):
            G += part
        if A is not None:
            DrawnFeatures(read_only(A), np.array(ask.feature_key(ask.t))).save(self.memory)
        return G

    def _next_columns(self, ask: IterationRequest[ReplyT], M: FloatArray) -> FloatArray:
        B = Columns.load(self.memory).B if self.privacy is None else np.empty((len(self.X), 0))
        if len(M) != (columns := ask.features.n_features + B.shape[1]):
            raise ProtocolError(f"map has {len(M)} rows, but must have {columns}, one for each column")
        if self.privacy is not None:
            H = each_alone(lambda row: np.asarray(row @ M), self._single_features(ask, ask.t - 1))
            return np.where(np.isfinite(H), H, 0.0)  # a refusal would tell of a row
        drawn = self._cached_features(ask, ask.t - 1)
        DrawnFeatures.forget(self.memory)  # no longer needed
        if drawn is not None:
            return multiply_step(drawn.A, B, lambda A: A, M)
        features = ask.features.map(self.X.shape[1], ask.t - 1, ask.precision)
        return multiply_step(self._converted_rows(ask), B, features, M)

    def _converted_rows(self, ask: IterationRequest[ReplyT]) -> Any:
        """Return the rows (n_m, d) for computing features, in float32 if they are converted once."""
        if not ask.rows_are_converted(*self.X.shape):
            return self.X
        return self.cached("rows in float32", lambda: self.X.astype(np.float32))
