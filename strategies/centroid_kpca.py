"""Centroid kernel PCA: kernel PCA of horizontally partitioned data in the span of k-means centres.

Source: Zhang, Kwok: Clustered Nystroem method for large scale manifold learning and dimension reduction, IEEE
Transactions on Neural Networks 2010 (ICML 2008: Improved Nystroem low-rank approximation and error analysis), with the
last step of disKPCA (Balcan et al., KDD 2016, algorithm 3) in place of the Nystroem extension, whose components are the
best in the span.
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedkernel.clients.cell_sums import LEAST_ROWS, Least
from fedkernel.clients.centroid_kpca import CentroidKPCAClient
from fedkernel.ground import InputError, Precision, value_object
from fedkernel.models import LandmarkPCA
from fedkernel.numerics import RBF, AnyKernel, Linear
from fedkernel.protocol import Forecast, Member, Plan, Privacy, Protocol, Run
from fedkernel.strategies.centroid_landmarks import CentroidLandmarks, Sizes
from fedkernel.strategies.component_count import MostComponents, NumberOfComponents
from fedkernel.strategies.landmark_base import LANDMARKS_PER_COMPONENT, LandmarkStrategy
from fedkernel.strategy import Tags


@value_object()
class CentroidKPCA(CentroidLandmarks, LandmarkStrategy):
    """Kernel PCA, not centred, in the span of k-means centres of all clients' rows, by sums alone.

    No row leaves. To find the centres a site takes part with means of groups of at least ``least`` of its rows, which
    depend on its table alone. The products of kernel values at the end are sums over single rows.

    Parameters
    ----------
    n_components : int or "auto"
        k; "auto": of 1 to ``max_components``, as for `DisKPCA`.
    kernel : Linear, RBF, Laplacian, Polynomial, Sigmoid or ArcCosine
    n_landmarks : int, optional
        |Y|, the most centres; those without rows are left out. By default 10 k, but no more than keep the numbers that
        leave a site at half of its table's entries; at least k + 1. If there are fewer than 10 k, the result's
        ``findings`` say so.
    centroids : {"shared", "local", "axes"}
        "shared": of all rows, by sums over all clients. "local": each client finds its own, by its share of the rows,
        and sends them in one round. "axes", with a linear kernel: the d unit vectors in place of centres, d <= |Y|.
        They span all rows, so that the components are exactly those of all rows; no round finds centres, and all that
        leaves are second moments of columns.
    rounds : int, optional
        T, of Lloyd's algorithm for shared centres; by default 3, or 2 if the entries do not allow 2 k centres.
    least : int
        Fewest rows of a group; a client's guards may ask for more.
    dtype, tol, embed
        As for `DisKPCA`.

    Notes
    -----
    Costs, with M clients and rows of d floats: T + 3 rounds, with local centres 3, with axes 2. Floats: up M (2 d +
    T |Y| (d + 2)), with local centres |Y| d, with axes none, and M |Y| (|Y| + 1) / 2; down M (T + 1) |Y| d and M |Y| k.
    No cost grows with the number of rows.

    Time: a client puts its rows into groups once, some 200 n_m d multiplications, and compares a group with |Y| centres
    T times; then as `DisKPCA` without draws. Memory: a client its groups' means, some n_m d / 7 floats, and a block's
    kernel values; the coordinator |Y|^2 floats.
    """

    n_components: NumberOfComponents = 10
    kernel: AnyKernel = RBF()
    n_landmarks: Annotated[int, Field(ge=1)] | None = None
    centroids: Literal["shared", "local", "axes"] = "shared"
    rounds: Annotated[int, Field(ge=1)] | None = None
    least: Least = LEAST_ROWS
    dtype: Precision = "float64"
    tol: Annotated[float, Field(gt=0, lt=1)] | None = None
    embed: bool = True
    max_components: MostComponents = None

    client: ClassVar = CentroidKPCAClient
    tags: ClassVar = Tags("embedding", pooled=False)

    def __post_init__(self) -> None:
        self.check_components(self.most_landmarks, "the number of landmarks, n_landmarks = ")
        self.check_centroids()
        if self.centroids == "axes" and not isinstance(self.kernel, Linear):
            raise InputError(f'centroids = "axes", but kernel = {self.kernel!r}; allowed with axes: Linear()')

    @property
    def wanted(self) -> tuple[int, str]:
        """Number of components."""
        return self.most_components, "components"

    @property
    def landmarks_for_each(self) -> int:
        """Usual number of landmarks for each component."""
        return LANDMARKS_PER_COMPONENT

    def other_floats(self, cohort: Sequence[Member], landmarks: int) -> int:
        """Return the uploaded floats of products of kernel values."""
        return self.values_floats(cohort, landmarks, "exact")

    def check_cohort(self, cohort: Sequence[Member]) -> None:
        """Check also that the rows suffice for the components."""
        super().check_cohort(cohort)
        self.check_components(sum(member.rows for member in cohort))
        if self.centroids == "axes" and (d := cohort[0].columns) > self.most_landmarks:
            text = f'n_landmarks = {self.most_landmarks}, but centroids = "axes" takes one for each of {d} columns'
            raise InputError(f'{text}; allowed: at least {d}, or centroids = "shared"')

    def sizes(self, cohort: Sequence[Member], privacy: Privacy | None = None) -> Sizes:
        """Return the numbers of landmarks and rounds. With axes as centres, these are d and 0."""
        return Sizes(cohort[0].columns, 0) if self.centroids == "axes" else super().sizes(cohort, privacy)

    def forecast(self, cohort: Sequence[Member]) -> Forecast:
        """Return the costs of finding the centres, and the components in their span. Fewer centres may be found."""
        Y, T, *_ = self.sizes(cohort)
        landmarks_down = Forecast(0, 0, len(cohort) * Y * cohort[0].columns)
        centers = Forecast(0) if self.centroids == "axes" else self._centers_forecast(cohort, Y, T)
        return centers + landmarks_down + self.components_forecast(cohort, Y, "exact")

    def plan(self, clients: int, seed: int) -> Plan:
        """Return the requests for the centres, and those of the low-rank step."""
        centers = () if self.centroids == "axes" else self._centers_plan()
        return *centers, *self._low_rank_plan(self._step(self.kernel))

    def protocol(self, run: Run) -> Protocol[LandmarkPCA]:
        """Find the centres, then the components in their span."""
        step, sizes = self._step(self.kernel.settled(run.columns)), self.sizes(run.members, run.privacy)
        if self.centroids == "axes":
            centers, left_out = np.eye(run.columns), tuple[str, ...]()
        else:
            centers, _, left_out = yield from self._find_centers(run, step.kernel, sizes)
        model = yield from self._low_rank(run, step, centers, dict.fromkeys(run.clients, step.handed(centers)))
        return dataclasses.replace(model, findings_=(*sizes.findings, *left_out, *model.findings_))
