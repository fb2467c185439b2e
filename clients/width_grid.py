"""What a site does, and all that can leave it, in k-means of its rows embedded at several widths of a kernel at once.

The rounds are those of `clients.kmeans` at one width, and so is what is drawn in each: the frequencies of the random
features, the starts of the local k-means, the rows of a coreset. At the end labels are for the width that was chosen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pydantic
from pydantic import Field

from clients.kmeans import Embedding, KMeansClient, LabelRows, Sampling, check_weights
from fedkernel.arrays import FloatArray
from fedkernel.errors import ProtocolError
from fedkernel.numerics import RandomFeatures, WeightedPoints, WidthFactors, coreset
from fedkernel.protocol import COORDINATE, Answers, Count, Receipt, Reply, Request, Shape, State, Within

IntArray = npt.NDArray[np.int32]


Samples = Annotated[int, Field(ge=0, le=1_000_000)]


class EmbedAtWidths(Request[Receipt]):
    """Asks to embed the rows by random features, at widths of their kernel that are so many times its own.

    The coordinates stay on the site: G n_m D floats, from one product of the rows with the frequencies.
    """

    widened: ClassVar = "factors"
    features: RandomFeatures
    factors: WidthFactors

    def takes(self, rows: int, columns: int) -> int:
        """Count the frequencies and the coordinates."""
        return self.features.takes(columns) + len(self.factors) * rows * self.features.n_features


class LocalCosts(Reply):
    """Sum of squared distances of the site's embedded rows to its own k centres, at each of G widths: G floats.

    Reveals how far apart the site's rows are, all together, as kernels of these widths see them: smooth functions of
    the distances between its rows, G of them.
    """

    costs: Annotated[FloatArray, Shape("G"), Within()]


class SolveAtWidths(Request[LocalCosts]):
    """Asks for a local k-means solution at each width, of which only the costs leave the site."""

    seeded: ClassVar = True
    n_clusters: Count


class LocalCoresets(Reply):
    """For each of G widths, weighted points that stand for the site's rows: (samples + G k) (D + 1) floats at most.

    Reveals what G coresets do: at each width the coordinates of some embedded rows as they are, of all widths together
    of no more rows than one coreset may have (guard: coreset), which may be the same ones at several widths; and the
    site's cluster centres and sizes at each. A row follows from its coordinates where these are no fewer than its
    attributes. Between two widths clusters may differ by few rows, about which their sizes then are; where features are
    nearly linear, as of wide kernels, the difference of two centres is nearly about these rows, too: no local centre
    stands for fewer than 3 rows (guard: groups), but such a difference may.

    Attributes
    ----------
    points : ndarray of shape (c_m, D)
        Of the first width, then of the next.
    weights : ndarray of shape (c_m,)
    sizes : ndarray of shape (G,)
        How many points there are at each width.
    """

    points: Annotated[FloatArray, Shape("c_m", "s"), Within(-COORDINATE, COORDINATE)]
    weights: Annotated[FloatArray, Shape("c_m"), Within()]
    sizes: Annotated[IntArray, Shape("G", dtype="int32"), Within(1)]

    @classmethod
    def of(cls, coresets: Sequence[WeightedPoints]) -> Self:
        """Return the coresets, one for each width, as a message."""
        points, weights = zip(*coresets, strict=True)
        sizes = np.array([len(own) for own in weights], dtype=np.int32)
        return cls(points=np.vstack(points), weights=np.concatenate(weights), sizes=sizes)

    @property
    def coresets(self) -> list[WeightedPoints]:
        """One for each width."""
        ends = np.cumsum(self.sizes)[:-1]
        return list(map(WeightedPoints, np.split(self.points, ends), np.split(self.weights, ends)))


class SampleAtWidths(Sampling[LocalCoresets]):
    """Asks for so many sampled points at each width, `samples` of all together, and the local centres."""

    each: Annotated[tuple[Samples, ...], Field(min_length=1, max_length=100, fail_fast=True)]

    def known_dimensions(self) -> dict[str, int]:
        """Settle the number of widths."""
        return {"G": len(self.each)}

    def check_reply(self, reply: LocalCoresets) -> None:
        """Check also that the points are those of the widths."""
        super().check_reply(reply)
        if int(reply.sizes.sum()) != len(reply.weights):
            raise ValueError(f"sizes must add up to {len(reply.weights)}, the number of points")

    def check_table(self, reply: LocalCoresets, sizes: Mapping[str, int]) -> None:
        """Check also that at each width the points stand for as many rows as there are."""
        super().check_table(reply, sizes)
        for own in reply.coresets:
            check_weights(own.weights, sizes["n_m"], reply.rounding)

    @pydantic.model_validator(mode="after")
    def _adds_up(self) -> Self:
        if sum(self.each) != self.samples:
            raise ValueError(f"each adds up to {sum(self.each)}, but samples = {self.samples}")
        return self


class LabelAtWidth(LabelRows):
    """Hands over the common centres at the width that was chosen, by which the site labels its rows; labels stay there.

    Attributes
    ----------
    chosen : int
        Which of the widths, from 0.
    """

    chosen: Annotated[int, Field(ge=0, lt=2**63)]


@dataclass(frozen=True)
class EmbeddingsAtWidths(State):
    """The site's embedded rows, (G, n_m, D)."""

    rows: FloatArray


@dataclass(frozen=True)
class CentersAtWidths(State):
    """The site's own centres, at most k at each width: of all widths, (c, D), and how many at each, (G,)."""

    centers: FloatArray
    counts: npt.NDArray[np.int64]


class WidthGridClient(KMeansClient):
    """Answers for its rows embedded at several widths.

    Memory between rounds: G n_m D floats, and the G k local centres.
    """

    answers: ClassVar[Answers] = (EmbedAtWidths, SolveAtWidths, SampleAtWidths, LabelAtWidth)

    def embed_at_widths(self, ask: EmbedAtWidths) -> Receipt:
        """Compute the coordinates of the site's rows."""
        rows = ask.features.at_widths(self.X, ask.factors)
        rows /= np.sqrt(ask.features.n_features)
        EmbeddingsAtWidths(rows).save(self.memory)
        return Receipt()

    def solve_at_widths(self, ask: SolveAtWidths) -> LocalCosts:
        """Compute at each width a local solution, from the same starts."""
        embeddings = EmbeddingsAtWidths.load(self.memory).rows
        centers, costs = zip(*(self._local_centers(H, ask.n_clusters) for H in embeddings), strict=True)
        CentersAtWidths(np.vstack(centers), np.array(list(map(len, centers)))).save(self.memory)
        return LocalCosts(costs=np.array(costs))

    def sample_at_widths(self, ask: SampleAtWidths) -> LocalCoresets:
        """Sample at each width by cost, and add the centres with what the samples do not stand for."""
        embeddings, solved = EmbeddingsAtWidths.load(self.memory).rows, CentersAtWidths.load(self.memory)
        if len(ask.each) != len(embeddings):
            raise ProtocolError(f"samples at {len(ask.each)} widths do not fit the {len(embeddings)} of the embedding")
        centers = np.split(solved.centers, np.cumsum(solved.counts)[:-1])
        return LocalCoresets.of(
            [
                coreset(H, own, samples, self.rng("coreset"))
                for H, own, samples in zip(embeddings, centers, ask.each, strict=True)
            ]
        )

    def label_at_width(self, ask: LabelAtWidth) -> Receipt:
        """Keep labels of shape (n_m,) and the embedding at the chosen width on the site, and of the others nothing."""
        embeddings = EmbeddingsAtWidths.load(self.memory).rows
        if ask.chosen >= len(embeddings):
            raise ProtocolError(f"chosen = {ask.chosen} is none of the {len(embeddings)} widths of the embedding")
        Embedding(embeddings[ask.chosen].copy()).save(self.memory)
        EmbeddingsAtWidths.forget(self.memory)
        CentersAtWidths.forget(self.memory)
        return self.label_rows(LabelRows(centers=ask.centers))
