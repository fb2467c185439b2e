"""Client of disKPCA, with all requests and replies. It scores a site's rows, and sends some raw ones as landmarks.

Source: the paper of `fedkernel.strategies.diskpca`, algorithms 1 (disLS), 2 (RepSample) and 3 (disLR).

A site reads its table a block of rows at a time and keeps two things per block, not per row: the products of the
embedded rows, t (t + 1) / 2 floats, which give the block's sum of leverage scores for any scores that the coordinator
asks for; and the sum of distances. It draws a block by these sums, and then a row of it, computing its weights again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Generic

import numpy as np
from pydantic import Field

from fedkernel.clients.landmark_base import (
    DrawnPositions,
    LandmarkClient,
    LandmarkRequest,
    MeasureCaptured,
    MultiplyKernel,
    Products,
    Sketch,
    SketchKernel,
    SketchRequest,
    TakeComponents,
    TakeLandmarks,
    sketch_fields,
    sketch_product,
)
from fedkernel.ground import FloatArray, Positions, Precision, ProtocolError, Rows, ShareableError, row_blocks
from fedkernel.numerics import Kernel, RowSketch, SubspaceEmbedding, draw_distinct, pack_symmetric, whitening
from fedkernel.protocol import Answers, CarriesRows, Count, Reply, ReplyT, Request, Shape, State, Within


class MultiplyPoints(Request[Products]):
    """Request for the products E_m^T E_m (t, t) of the embedded rows."""

    embedding: SubspaceEmbedding
    precision: Precision


class SketchPoints(SketchRequest):
    """Request for the embedded rows E_m^T (t, n_m), sketched to p columns. With under 2 p rows, products are sent."""

    setting: ClassVar = "point_sketch_size"
    embedding: SubspaceEmbedding
    precision: Precision


class Total(Reply):
    """Sum of the sampling weights of the site's rows: 1 float.

    Reveals the site's share of the leverage, or its rows' squared distance to the landmarks' span.
    """

    total: Annotated[float, Shape(), Within()]


class ScoreRows(Request[Total]):
    """Request for the sum of the rows' leverage scores: the squared lengths of E_m Z^-1's rows, Z^-1 being (t, r)."""

    whitening: Annotated[FloatArray, Shape("t", "r", empty=True)]


class MeasureDistances(LandmarkRequest[Total]):
    """Request for the sum of the rows' squared distances, in feature space, to the span of the landmarks so far."""


class DrawnRows(CarriesRows, Reply):
    """Drawn rows of the site's table, unchanged and distinct: d floats a row, or a sparse row's nonzero entries.

    Reveals the drawn rows, to the coordinator and to every other site: the method has no other form.
    """

    @property
    def disclosed(self) -> int:
        """Number of rows that the site shows."""
        return int(self.rows.shape[0])


class DrawRequest(Request[ReplyT], Generic[ReplyT]):
    """Base of requests for drawn rows of the table, with a check of their number."""

    seeded: ClassVar = True
    samples: Count

    def check_reply(self, reply: ReplyT) -> None:
        """Check also that 1 to the requested number of rows are sent."""
        super().check_reply(reply)
        if not 1 <= reply.disclosed <= self.samples:
            raise ValueError(f"the reply has {reply.disclosed} rows, but must have from 1 to {self.samples}")


class DrawByLeverage(DrawRequest[DrawnRows]):
    """Request for distinct rows, drawn in proportion to their leverage scores. Fewer are sent if fewer have a score."""

    embedding: SubspaceEmbedding
    precision: Precision


class DrawByDistance(DrawRequest[DrawnRows]):
    """Request for different rows, drawn in proportion to their squared distances to the landmarks' span."""

    kernel: Kernel
    precision: Precision
    tol: Annotated[float, Field(ge=0, lt=1)]


class DrawUniformly(DrawRequest[DrawnRows]):
    """Request for a number of different rows, every choice equally likely."""


@dataclass(frozen=True)
class BlockProducts(State):
    """Packed products E^T E of the embedded rows in each of b blocks, (b, t (t + 1) / 2)."""

    upper: FloatArray


@dataclass(frozen=True)
class Leverages(State):
    """Map to leverage scores, and their sums over blocks of rows, for the first draw.

    `whitening` (t, r): Z^-1, which maps an embedded row to a vector whose squared length is its score. `sums` (b,): of
    the scores of each block's rows.
    """

    whitening: FloatArray
    sums: FloatArray


@dataclass(frozen=True)
class Distances(State):
    """Sums of the squared distances of each block's rows, (b,)."""

    sums: FloatArray


LOW_RANK_REQUESTS: Answers = (
    *(SketchPoints, MultiplyPoints, ScoreRows, DrawByLeverage, DrawUniformly, MeasureDistances, DrawByDistance),
    *(TakeLandmarks, SketchKernel, MultiplyKernel, TakeComponents),
)
"""Requests of algorithms 1 to 3."""


class DisKPCAClient(LandmarkClient):
    """Client of disKPCA. A table in memory, memory-mapped, from a file, sparse or generated is read a block at a time.

    Memory between rounds: the landmarks, and t (t + 1) / 2 + 1 floats per block of 2048 rows, at t = 50 0.6 a row.
    """

    answers: ClassVar[Answers] = (*LOW_RANK_REQUESTS, MeasureCaptured)

    # disLS

    def sketch_points(self, ask: SketchPoints) -> Sketch:
        """Embed the rows, and sketch the embedded points."""
        return Sketch(**sketch_fields(self._sketch_points(ask, ask.columns)))

    def multiply_points(self, ask: MultiplyPoints) -> Products:
        """Embed the rows, and multiply the embedded points."""
        return Products(upper=pack_symmetric(sketch_product(self._sketch_points(ask, None))))

    def _sketch_points(self, ask: SketchPoints | MultiplyPoints, columns: int | None) -> RowSketch:
        embed = ask.embedding.map(self.X.shape[1], ask.precision)
        sketch = RowSketch(len(self.X), columns, None if columns is None else self.rng("point sketch"))
        products = []
        for _, block in self._blocks(ask.precision):
            E = embed(block)
            sketch.add(E)
            products.append(pack_symmetric(np.asarray(E.T @ E, dtype=np.float64)))
        BlockProducts(np.array(products)).save(self.memory)
        return sketch

    def score_rows(self, ask: ScoreRows) -> Total:
        """Sum the leverage scores of each block, from the block's products, and reply with the total."""
        products = BlockProducts.load(self.memory).upper
        M = ask.whitening @ ask.whitening.T
        if len(M) * (len(M) + 1) // 2 != products.shape[1]:
            raise ProtocolError(f"whitening has {len(M)} rows, but must have one for each coordinate of the embedding")
        # trace(M G) of symmetric matrices, from their upper triangles
        sums = np.maximum(products @ pack_symmetric(2 * M - np.diag(np.diag(M))), 0.0)
        Leverages(ask.whitening, sums).save(self.memory)
        return Total(total=float(sums.sum()))

    # RepSample

    def draw_by_leverage(self, ask: DrawByLeverage) -> DrawnRows:
        """Draw the first landmarks among the site's rows, by leverage."""
        embed = ask.embedding.map(self.X.shape[1], ask.precision)
        leverages = Leverages.load(self.memory)
        Z = leverages.whitening.astype(ask.precision)
        weigh: Callable[[Rows], FloatArray] = lambda block: np.square(embed(block) @ Z).sum(axis=1)  # noqa: E731
        return self._reveal_rows(self._draw_positions("leverages", leverages.sums, ask.samples, weigh, ask.precision))

    def draw_uniformly(self, ask: DrawUniformly) -> DrawnRows:
        """Draw rows without replacement, every choice equally likely."""
        if ask.samples > (n := len(self.X)):
            raise ShareableError(f"samples = {ask.samples}, but must be at most the {n} rows of client {self.client}")
        if ask.samples == n:
            return self._reveal_rows(np.arange(n))
        return self._reveal_rows(np.sort(self.rng("uniform").choice(n, ask.samples, replace=False)))

    def measure_distances(self, ask: MeasureDistances) -> Total:
        """Compute the rows' squared distances from the span of the landmarks so far."""
        self._add_landmarks(ask, ask.before)
        distances = self._distances(ask.kernel, ask.precision, ask.tol)
        sums = np.array([distances(block).sum(dtype=np.float64) for _, block in self._blocks(ask.precision)])
        Distances(sums).save(self.memory)
        return Total(total=float(sums.sum()))

    def draw_by_distance(self, ask: DrawByDistance) -> DrawnRows:
        """Draw further landmarks among the site's rows, by their distance to the span."""
        distances = self._distances(ask.kernel, ask.precision, ask.tol)
        sums = Distances.load(self.memory).sums
        return self._reveal_rows(self._draw_positions("distances", sums, ask.samples, distances, ask.precision))

    def _draw_positions(
        self, by: str, sums: FloatArray, samples: int, weigh: Callable[[Rows], FloatArray], precision: Precision
    ) -> Positions:
        """Draw distinct row positions in proportion to the rows' weights. `sums`: each block's total weight."""
        blocks = list(row_blocks(len(self.X)))

        def weights(number: int) -> FloatArray:
            return weigh(self.X.block(blocks[number].start, blocks[number].stop, precision))

        drawn = draw_distinct(sums, samples, weights, self.rng(f"draw by {by}"))
        positions = [blocks[number].start + drawn[number] for number in sorted(drawn)]
        return np.concatenate([np.empty(0, dtype=np.int64), *positions])

    def _reveal_rows(self, positions: Positions) -> DrawnRows:
        """Return rows as the reply, and store their positions, so that the coordinator need not send the rows back."""
        DrawnPositions(positions).save(self.memory)
        return DrawnRows(**CarriesRows.of(self.X.take(positions)))

    def _distances(self, kernel: Kernel, precision: Precision, tol: float) -> Callable[[Rows], FloatArray]:
        """Return a function from rows (n, d) to their squared distances (n,) from the landmarks' span."""
        P = self._landmarks()
        K = kernel.gram(P)
        basis = whitening(K, tol).astype(precision)
        values = kernel.against(P, precision)
        floor = tol * float(np.linalg.norm(K, 2))  # error of the basis at the landmarks themselves

        def distances(block: Rows) -> FloatArray:
            left: FloatArray = kernel.diag(block) - np.square(values(block) @ basis).sum(axis=1)
            left[left <= floor] = 0.0
            return left

        return distances
