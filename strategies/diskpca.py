"""disKPCA: kernel PCA of horizontally partitioned data in the span of rows chosen by leverage and distance.

Source: Balcan, Liang, Song, Woodruff, Xie: Communication Efficient Distributed Kernel Principal Component Analysis, KDD
2016: algorithms 1 (disLS), 2 (RepSample), 3 (disLR) and 4; theorem 1.

Departures from the paper:

* The master's QR factorisation of the sketched points is an eigendecomposition of their product, which finds the
  directions that the embedding has: only these, r <= t, are scored.
* A client with fewer than two rows for each column of a sketch sends products instead, which are exact: a sketch would
  be its rows, one by one.
* By default `point_sketch_size` and `projection_size` are "exact": products in place of sketches. The paper's sketches,
  p = 250 and w = |Y|, have ten times and twice the floats, and errors.
* Draws are without replacement: a row that is drawn twice would be one landmark. The number that each client draws
  follows from its sum alone, as in the paper; if it has too few rows, the rest falls to the others, by their sums.
* A row is sent once by its owner and then to the other clients, not back.
* If as many landmarks are asked for as there are rows, every row is one, and nothing is drawn.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from fedkernel.clients.diskpca import DisKPCAClient, DrawUniformly
from fedkernel.ground import BLOCK_ROWS, InputError, Precision, value_object
from fedkernel.models import LandmarkPCA
from fedkernel.numerics import RBF, AnyKernel, Embeddable, Frequencies, Linear, SubspaceEmbedding
from fedkernel.protocol import AT_MOST, FLOAT, AtMost, Forecast, Member, Plan, Protocol, Run, any_width, instead, once
from fedkernel.strategies.component_count import MostComponents, NumberOfComponents
from fedkernel.strategies.drawn_landmarks import DrawnLandmarkStrategy, draw_uniformly
from fedkernel.strategies.landmark_base import LANDMARKS_PER_COMPONENT, ProjectionSize, SketchSize, sketched_floats
from fedkernel.strategies.leverage_sampling import leverage_plan, points_plan, representative_points, score_by_leverage

MOST_EMBEDDING = 50
"""Largest default of the embedding's size t."""


@value_object()
class DisKPCA(DrawnLandmarkStrategy):
    """Kernel PCA, not centred: the leading components as combinations of a few rows of the clients' data.

    A small embedding of all rows gives their leverage scores. Some rows are drawn by leverage, and more by their
    distance from the span of those. The components in the span of all drawn rows are found by one more sketch.

    Rows of the data leave the clients unchanged: `share_rows` must allow that.

    Parameters
    ----------
    n_components : int or "auto"
        k; "auto": of 1 to ``max_components``, by default 10, the number before the largest fall of the eigenvalues in
        the landmarks' span, centred, as for `DKPCA`. For that, clients send the sums of their kernel values against the
        landmarks, |Y| floats more, and get the chosen components only. The components themselves are not centred: if
        the mean has a direction of its own, there is one more. The result's ``findings`` give the reason.
    kernel : Linear, RBF, Laplacian, Polynomial or ArcCosine
    n_adaptive : int, optional
        Rows drawn by distance; with n_leverage the number of landmarks |Y|, if so many rows have a distance. By default
        as many as make |Y| 10 k, of the most if k is chosen, but no more than a tenth of any client's rows, nor so many
        that more floats than the whole table go up; at least k + 1 in all. If |Y| is less than 10 k, or more than a
        tenth of a client's rows leave, the result's ``findings`` say so. The paper's are 50 to 400.
    n_leverage : int, optional
        Rows drawn by leverage; by default k log k, rounded up, and at least k; of few landmarks half at most.
    embedding_size : int, optional
        t, coordinates of the embedding; by default 50, the paper's, or without n_adaptive as many from 2 k on as the
        whole table's floats leave beside the landmarks.
    point_sketch_size : int or "exact"
        p, columns that stand for a client's embedded rows, 250 in the paper; "exact": their products.
    projection_size : int, "landmarks" or "exact"
        w, columns that stand for a client's kernel values; "landmarks": |Y|, as in the paper; "exact": their products.
    n_random_features : int
        m, from which the embedding is sketched; at least t. A linear kernel has none. The paper's are 2000, which find
        no better landmarks than 250 (docs/explanation/features.md).
    frequencies : {"independent", "orthogonal", "structured"}
        Of an RBF kernel's random features, as for `FKKMeans`.
    share_rows : bool
        Rows may be sent; the method cannot run without.
    dtype : {"float64", "float32"}
        Precision of the embedding, kernel values and coordinates at the clients. With float32 cosines are some twenty
        times faster, and rows should be scaled to be of the order of the kernel's width.
    tol : float, optional
        Of the basis of the landmarks' span: directions whose squared length is below this share of the largest are left
        out; by default the root of the machine epsilon of `dtype`. A choice of k does not see falls below that.
    embed : bool
        Clients compute the coordinates of their rows, (n_m, k), at the end.

    Notes
    -----
    Costs, with M clients and rows of d floats (of sparse ones the entries that are not zero): 7 rounds. Floats: M t (t
    + 1) / 2 up and M t r down, r <= t, for the scores; M d for each landmark, once up and down to all others; M |Y|
    (|Y| + 1) / 2 up and M |Y| k down for the components; 2 M sums up. With sketches M t p and M |Y| w in place of
    products. No cost grows with the number of rows.

    Time: a client computes m random features of each row once, and kernel values against the landmarks twice or, to
    embed its rows, three times. Memory: a client a block of 2048 rows, their embedding and kernel values, d m for the
    random features, and t (t + 1) / 2 floats per block; the coordinator M |Y| w and |Y|^2 floats.
    """

    n_components: NumberOfComponents = 10
    kernel: Embeddable = RBF()
    n_adaptive: Annotated[int, Field(ge=0)] | None = None
    n_leverage: Annotated[int, Field(ge=1)] | None = None
    embedding_size: Annotated[int, Field(ge=1)] | None = None
    point_sketch_size: SketchSize = "exact"
    projection_size: ProjectionSize = "exact"
    n_random_features: Annotated[int, Field(ge=1)] = 500
    frequencies: Frequencies = "independent"
    share_rows: bool = False
    dtype: Precision = "float64"
    tol: Annotated[float, Field(gt=0, lt=1)] | None = None
    embed: bool = True
    max_components: MostComponents = None

    client: ClassVar = DisKPCAClient
    landmark_parameter: ClassVar = "n_adaptive"
    counterparts: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "batch KPCA": {"share_rows": True},
        "batch PCA": {"share_rows": True, "kernel": Linear()},
    }

    def __post_init__(self) -> None:
        self.check_components(self.most_landmarks, "the number of landmarks, n_leverage + n_adaptive = ")
        if not isinstance(self.kernel, Linear) and self.n_random_features < (self.embedding_size or 1):
            raise InputError(
                f"n_random_features = {self.n_random_features}, but must be at least embedding_size = "
                f"{self.embedding_size}"
            )

    @property
    def _leverage_draws(self) -> int:
        if self.n_leverage is not None:
            return self.n_leverage
        k = self.most_components
        usual = max(k, math.ceil(k * math.log(k)))
        return usual if self.n_adaptive is not None else min(usual, LANDMARKS_PER_COMPONENT * k // 2)

    @property
    def user_landmarks(self) -> int | None:
        """Number of landmarks |Y|, if the user sets it. Rows in the first draw's span are not drawn by distance."""
        return None if self.n_adaptive is None else self._leverage_draws + self.n_adaptive

    @property
    def fewest_landmarks(self) -> int:
        """Least number of landmarks |Y|, unless the user sets it."""
        return max(super().fewest_landmarks, self.n_leverage or 0)

    def _draws(self, landmarks: int) -> dict[str, int]:
        first = self._leverage_draws
        if self.n_leverage is None and self.n_adaptive is None:
            first = min(first, -(-landmarks // 2))
        return {"by_leverage": first, "by_distance": max(0, landmarks - first)}

    def _embedding_size(self, cohort: Sequence[Member] | None, landmarks: int) -> int:
        """Return the embedding's size t for this number of landmarks, or the largest t if `cohort` is None."""
        if self.embedding_size is not None:
            return self.embedding_size
        most = MOST_EMBEDDING if isinstance(self.kernel, Linear) else min(MOST_EMBEDDING, self.n_random_features)
        if cohort is None or self.user_landmarks is not None:
            return most
        budget = self.budget(cohort) - self.span_floats(cohort, landmarks, self.projection_size)
        fewest = min(2 * self.most_components, most)
        return next((t for t in range(most, fewest, -1) if self._scoring_floats(cohort, t) <= budget), fewest)

    def _scoring_floats(self, cohort: Sequence[Member], size: int) -> int:
        """Return the uploaded floats for scores and distances."""
        t = min(cohort[0].columns, size) if isinstance(self.kernel, Linear) else size
        return sketched_floats(cohort, t, self.point_sketch_size) + len(cohort) * (1 if self.n_adaptive == 0 else 2)

    def floats_up_with(self, cohort: Sequence[Member], landmarks: int) -> int:
        """Return the uploaded floats for scores, landmarks, and products or sketches."""
        t = min(2 * self.most_components, MOST_EMBEDDING) if self.embedding_size is None else self.embedding_size
        return self._scoring_floats(cohort, t) + self.span_floats(cohort, landmarks, self.projection_size)

    def _embedding(self, kernel: AnyKernel, seed: int, size: int) -> SubspaceEmbedding:
        return SubspaceEmbedding(kernel, size, self.n_random_features, seed, self.frequencies)  # type: ignore[arg-type]

    def forecast(self, cohort: Sequence[Member]) -> Forecast:
        """Return the costs of scores, draws and components. If all rows are landmarks, nothing is scored."""
        span = self.span_forecast(cohort, self.projection_size)
        M, n, d = len(cohort), max(member.rows for member in cohort), cohort[0].columns
        landmarks = self.allotment(cohort).number
        if landmarks >= sum(member.rows for member in cohort):
            return Forecast(1) + span
        size, by_distance = self._embedding_size(cohort, landmarks), self._draws(landmarks)["by_distance"]
        t = min(d, size) if isinstance(self.kernel, Linear) else size
        up = self._scoring_floats(cohort, size)
        products = -(-n // BLOCK_ROWS) * t * (t + 1) // 2
        block = min(n, BLOCK_ROWS) * (d + t) + d * self.n_random_features
        memory = FLOAT * products + np.dtype(self.dtype).itemsize * block
        return Forecast(5 if by_distance else 3, up, M * t * t, memory, "at most") + span

    def plan(self, clients: int, seed: int) -> Plan:
        """Return the plan of scores, draws and components. With no more rows than landmarks, all are drawn instead."""
        step, rows = self._step(self.kernel), self.most_landmarks
        t = self._embedding_size(None, rows)
        embedding = any_width(self.kernel, lambda kernel: self._embedding(kernel, seed, t))
        if self.embedding_size is None and self.user_landmarks is None:
            embedding["size"] = {AT_MOST: t}
        scores = leverage_plan(embedding, t, self.dtype, self.point_sketch_size)
        points = points_plan(embedding, step, **self._draws(rows))
        everyone = once(DrawUniformly, samples=AtMost(rows))
        return *instead(everyone, (*scores, *points)), *self._low_rank_plan(step)

    def protocol(self, run: Run) -> Protocol[LandmarkPCA]:
        """Run algorithm 4."""
        step, allotment = self._step(self.kernel.settled(run.columns)), self.allotment(run.members)
        if allotment.number >= run.rows:
            last = yield from draw_uniformly(allotment, step.kernel, run.rng("uniform"))
            landmarks = last.rows
        else:
            # Steps 1 and 2: embedding and leverage scores
            embedding = self._embedding(step.kernel, run.seed, self._embedding_size(run.members, allotment.number))
            totals = yield from score_by_leverage(run, embedding, self.dtype, self.point_sketch_size)
            # Step 3: representative points
            draws, rng = self._draws(allotment.number), run.rng("draws")
            landmarks, last = yield from representative_points(embedding, step, totals, allotment.most, rng, **draws)
        # Step 4: the components in their span
        model = yield from self._low_rank(run, step, landmarks, last.handed(step))
        return dataclasses.replace(model, findings_=(*allotment.findings, *model.findings_))
