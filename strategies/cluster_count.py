"""Automatic choice of the number of clusters by the mean silhouette of weighted points."""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from fedkernel.ground import FloatArray
from fedkernel.models import RESTARTS, Choice, Embedding, KernelKMeans, training_coordinates
from fedkernel.numerics import Silhouette, WeightedPoints, k_means, score

AUTO_CLUSTERS = 10
"""Default upper limit of a chosen number of clusters."""

WEAK_SILHOUETTE = 0.25
"""Mean silhouette below which Kaufman and Rousseeuw see no structure (Finding Groups in Data, 1990)."""

NumberOfClusters = Annotated[int, Field(ge=1)] | Literal["auto"]
MostClusters = Annotated[int, Field(ge=2)] | None


class Clustering(NamedTuple):
    """Centres (k, s), the weighted points that they come from, the choice of k if there was one, and findings."""

    centers: FloatArray
    coreset: WeightedPoints
    choice: Choice | None = None
    findings: tuple[str, ...] = ()

    def model(
        self, embedding: Embedding, values: FloatArray | None = None, findings: tuple[str, ...] = (), **more: Any
    ) -> KernelKMeans:
        """Return the k-means model of the clusters in an embedding, with the embedding's eigenvalues if any."""
        own: dict[str, Any] = {"coreset_": self.coreset, "choice_": self.choice}
        own["findings_"] = (*self.findings, *findings)
        return KernelKMeans(self.centers, embedding, values, **own, **more)


def best_division(
    coreset: WeightedPoints, most: int, rng: Callable[[], np.random.Generator], name: str = "the coreset"
) -> Clustering:
    """Divide weighted points into 2, 3, ..., `most` clusters, and return the best division.

    It is the one of the fewest clusters whose mean silhouette is the largest, or less by no more than its standard
    error: of few points more clusters look better by chance (one-standard-error rule, Breiman et al., Classification
    and Regression Trees, 1984). The choice reports a silhouette below `WEAK_SILHOUETTE`, and a number that is the
    limit. ``rng`` returns the generator that k-means starts with: the same for every number of clusters. ``name``: of
    the points, for the text.
    """
    divisions = [
        score(coreset, k_means(coreset.points, k, rng(), weights=coreset.weights, restarts=RESTARTS))
        for k in range(min(2, most), most + 1)  # central rows may be one point
    ]
    silhouettes = {len(division.centers): division.silhouette for division in divisions[::-1] if division.silhouette}
    largest = max(silhouettes.values(), default=Silhouette(-1.0, 0.0))
    enough = largest.mean - largest.error
    sufficient = [division for division in divisions if division.silhouette and division.silhouette.mean >= enough]
    best = (sufficient or divisions)[0]
    k, value = len(best.centers), best.silhouette
    listed = ", ".join(f"{number}: {silhouettes[number].mean:.3f}" for number in sorted(silhouettes))
    near = "the largest mean silhouette"
    if value != largest:
        near = f"a mean silhouette within a standard error, {largest.error:.3f}, of the largest"
    why = f"n_clusters = {k} has {near} on {name} among 2 to {most} clusters ({listed})"
    if k == most:
        why = f"{why}; that is the limit (max_clusters)"
    if value is None or value.mean < WEAK_SILHOUETTE:
        why = f"{why}; below {WEAK_SILHOUETTE} there may be no clusters"
    return Clustering(best.centers, coreset, Choice("n_clusters", k, why))


def choose_central_clusters(model: KernelKMeans, n_clusters: int | Literal["auto"]) -> KernelKMeans:
    """Return the central model, with the best number of clusters for the training rows if n_clusters is "auto"."""
    if n_clusters != "auto":
        return model
    rows = training_coordinates(model)
    points = WeightedPoints(rows, np.ones(len(rows)))
    division = best_division(points, len(model.centers_), lambda: np.random.default_rng(0))
    return dataclasses.replace(model, centers_=division.centers, choice_=division.choice)
