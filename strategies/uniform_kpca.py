"""Kernel PCA in the span of uniformly drawn rows, the two methods that the disKPCA paper compares itself with.

Source: Balcan, Liang, Song, Woodruff, Xie: Communication Efficient Distributed Kernel Principal Component Analysis, KDD
2016, section 6: "uniform + disLR" and "uniform + batch KPCA".
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from fedkernel.clients.diskpca import DisKPCAClient, DrawUniformly
from fedkernel.clients.landmark_base import TakeLandmarks
from fedkernel.ground import InputError, Precision, value_object
from fedkernel.models import LandmarkPCA
from fedkernel.numerics import RBF, Embeddable, center_gram, leading_eigenpairs
from fedkernel.protocol import AtMost, Forecast, Member, Plan, Protocol, Run, once, to_all, to_each
from fedkernel.strategies.component_count import MostComponents, NumberOfComponents, choose_components
from fedkernel.strategies.drawn_landmarks import DrawnLandmarkStrategy, draw_uniformly
from fedkernel.strategies.landmark_base import ProjectionSize, components_plan, kernel_pca


@value_object()
class UniformKPCA(DrawnLandmarkStrategy):
    """Kernel PCA in the span of rows drawn uniformly from all clients' rows, without replacement.

    Rows of the data leave the clients unchanged: `share_rows` must allow that.

    Parameters
    ----------
    n_components : int or "auto"
        k; "auto": of 1 to ``max_components``, as for `DisKPCA`; with "batch" by the drawn rows' eigenvalues alone.
    kernel : Linear, RBF, Laplacian, Polynomial or ArcCosine
    n_samples : int, optional
        |Y|, rows drawn; all of them if there are no more. By default 10 k, fewer of small tables, as for `DisKPCA`; the
        paper's are 200 and more.
    solver : {"disLR", "batch"}
        "disLR": the best components for all rows, by disKPCA's last step. "batch": those of the drawn rows alone.
    projection_size, share_rows, dtype, tol, embed
        As for `DisKPCA`.

    Notes
    -----
    Costs, with M clients and rows of d floats: 3 rounds, with "batch" also 3. Floats: M d for each of the rows drawn;
    with "disLR" M |Y| (|Y| + 1) / 2 up, of sketches M |Y| w; M |Y| k down.
    """

    n_components: NumberOfComponents = 10
    kernel: Embeddable = RBF()
    n_samples: Annotated[int, Field(ge=1)] | None = None
    solver: Literal["disLR", "batch"] = "disLR"
    projection_size: ProjectionSize = "exact"
    share_rows: bool = False
    dtype: Precision = "float64"
    tol: Annotated[float, Field(gt=0, lt=1)] | None = None
    embed: bool = True
    max_components: MostComponents = None

    client: ClassVar = DisKPCAClient
    landmark_parameter: ClassVar = "n_samples"
    tags: ClassVar = dataclasses.replace(DrawnLandmarkStrategy.tags, signs=True, rotations=True)

    def __post_init__(self) -> None:
        self.check_components(self.most_landmarks, "the number of landmarks, n_samples = ")
        if self.solver == "batch" and self.projection_size != "exact":
            raise InputError(f'projection_size = {self.projection_size!r} has a meaning only with solver = "disLR"')

    @property
    def user_landmarks(self) -> int | None:
        """Number of landmarks |Y|, if the user sets it, or None."""
        return self.n_samples

    @property
    def _columns(self) -> ProjectionSize:
        return 0 if self.solver == "batch" else self.projection_size

    def floats_up_with(self, cohort: Sequence[Member], landmarks: int) -> int:
        """Return the uploaded floats of rows and, with "disLR", of products or sketches."""
        return self.span_floats(cohort, landmarks, self._columns)

    def forecast(self, cohort: Sequence[Member]) -> Forecast:
        """Return the costs of drawing landmarks and of the solver."""
        return Forecast(1) + self.span_forecast(cohort, self._columns)

    def plan(self, clients: int, seed: int) -> Plan:
        """Return the request for the draw, and the solver's requests."""
        step, rows, k = self._step(self.kernel), self.most_landmarks, self.most_components
        draw = once(DrawUniformly, samples=AtMost(rows))
        if self.solver == "disLR":
            return draw, *self._low_rank_plan(step)
        return draw, step.plan(TakeLandmarks, rows), components_plan(step, rows, k, embed=self.embed)

    def protocol(self, run: Run) -> Protocol[LandmarkPCA]:
        """Draw rows at the clients, and find the components by the solver."""
        step, allotment = self._step(self.kernel.settled(run.columns)), self.allotment(run.members)
        drawn = yield from draw_uniformly(allotment, step.kernel, run.rng("uniform"))
        if self.solver == "disLR":
            model = yield from self._low_rank(run, step, drawn.rows, drawn.handed(step))
            return dataclasses.replace(model, findings_=(*allotment.findings, *model.findings_))
        rows, k = drawn.rows.shape[0], self.most_components
        if self.n_components == "auto":
            model = kernel_pca(drawn.rows, step.kernel, min(k + 1, rows))
            center_gram(K := step.kernel.gram(drawn.rows))
            model = choose_components(model, k, rows, leading_eigenpairs(K, min(k + 1, rows)).values)
        else:
            model = kernel_pca(drawn.rows, step.kernel, k)
        yield from to_each({client: TakeLandmarks(**own) for client, own in drawn.handed(step).items()})
        yield from to_all(step.components(model.coefficients_, embed=self.embed))
        return dataclasses.replace(model, findings_=(*allotment.findings, *model.findings_))
