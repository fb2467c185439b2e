"""Numbers of features and iterations of FK k-means, from the tables' sizes, and forecasts of its costs."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, Self

import numpy as np

from fedkernel.clients.fk_kmeans import MOST_CACHED_BYTES
from fedkernel.ground import BLOCK_ROWS, FloatArray, Precision
from fedkernel.models import FeatureChain, KernelKMeans, finds_structure, recover_error, training_coordinates
from fedkernel.numerics import mean_error
from fedkernel.protocol import FLOAT, TABLE_SHARE, Forecast, Member, Privacy, allowed_numbers
from fedkernel.run import Result
from fedkernel.strategies.kmeans_base import CORESET_SHARE, CORESET_SIZE, KMeansStrategy
from fedkernel.strategies.shared_centroids import MOST_ROUNDS, agreement_lost, embedded_floats

MOST_ITERATIONS = 20
"""Default of T, the largest number of iterations."""

FEW_FEATURES = 4
"""Random features in all for each dimension of the embedding, below which a finding reports few."""


def few_features(drawn: int, members: Sequence[Member]) -> str:
    """Return the finding that a run has few random features in all, with the reason."""
    smallest = min(members, key=lambda member: member.entries)
    why = f"{smallest.label} has {smallest.entries:,} entries, and at most {TABLE_SHARE:g} numbers per entry are sent"
    return f"only {drawn} random features in all, so clusters are rough: {why}; set n_features and iterations for more"


class FKKMeansBase(KMeansStrategy):
    """Base of `FKKMeans`: numbers of features and iterations, cost forecasts, and errors by iteration."""

    n_features: int | None
    iterations: int | None
    penalty: float | None
    solver: Literal["gram", "lanczos"]
    cem: bool
    features: Literal["pairs", "cosine"]
    accuracy: float
    dtype: Precision

    @property
    def dimensions(self) -> int:
        """Dimensions s of the embedding."""
        k = self.most_clusters
        if self.n_components is not None or self.n_features is None or self.penalty is not None:
            return self.n_components or 2 * k
        return max(k, min(2 * k, self.n_features - 2))

    @property
    def _penalty_number(self) -> int:
        """Position, from 1, of the first iteration's eigenvalue that serves as the penalty."""
        return self.dimensions + 2

    @property
    def _features_per_draw(self) -> int:
        return max(50, 2 * math.ceil(1.25 * self.dimensions)) if self.n_features is None else self.n_features

    @property
    def _most_features_per_draw(self) -> int:
        """Largest number of features in an iteration. A small table has a single, larger draw."""
        usual = self._features_per_draw
        return usual if self._has_set_sizes else max(usual, 6 * (self.dimensions + 1))

    @property
    def _most_iterations(self) -> int:
        return MOST_ITERATIONS if self.iterations is None else self.iterations

    @property
    def _has_set_sizes(self) -> bool:
        """True if n_features or iterations are set, not derived from the tables."""
        return self.n_features is not None or self.iterations is not None or not self.cem

    @property
    def _typical_costs(self) -> tuple[int, int]:
        """Typical rank r_t and number of Lanczos iterations Q in past runs; see `forecast`."""
        r = min(self._features_per_draw, 3 * (self.dimensions + 1) // 2)
        return r, 2 * r + 5

    def _floats_per_iteration(self, p: int) -> int:
        """Return the floats that a site sends in an iteration with p columns. For Lanczos this is an estimate."""
        return p * (p + 1) // 2 if self.solver == "gram" else p * min(p, self._typical_costs[1])

    def _fitted_to_tables(self, cohort: Sequence[Member]) -> tuple[Self, list[Member], float]:
        """Return the strategy with D and T set, members with sample sizes, and a site's float budget for iterations.

        Of half as many numbers as the smallest table has entries, width, centres and measurement are taken off first;
        the coreset has at most a quarter of the rest, and centres by sums a third.
        """
        if self._has_set_sizes:
            return self, list(cohort), math.inf
        k, s, columns = self.most_clusters, self.dimensions, cohort[0].columns
        other_floats = s + k + 6 + k * k + 1 + k * (s + 1)
        members, budgets = list(cohort), []
        for place, member in enumerate(cohort):
            most = allowed_numbers(member.entries) - (member.left or columns + 2) - other_floats
            if self.clusters == "lloyd":
                budgets.append(most)
                continue
            # whatever sites allow, so that D does not depend on it
            sampled = min(member.rows, self.coreset_size or CORESET_SIZE)
            if self.coreset_size is None:
                sampled = max(1, min(int(CORESET_SHARE * member.rows), most // 4 // (s + 1)))
                allowed = sampled if member.sampled is None else min(sampled, member.sampled)
                members[place] = replace(member, sampled=allowed)
            budgets.append(most - min(sampled, CORESET_SIZE) * (s + 1))
        numbers, centers = min(budgets), self.n_centers
        if self.clusters == "lloyd":
            centers = centers or max(k + 1, min(self.most_centers, numbers // 3 // (MOST_ROUNDS * (s + 2))))
            numbers -= embedded_floats(centers, s)[0]
        drawn, iterations = self._most_features(numbers)
        own = replace(self, n_features=drawn, iterations=iterations, n_centers=centers)  # type: ignore[type-var]
        return own, members, numbers

    def _most_features(self, numbers: int) -> tuple[int, int]:
        """Return D and T: the usual numbers, or else those with the largest D sqrt(T) within a budget of floats.

        The largest D T would be many small draws, each with bad eigenpairs.
        """
        r, usual = self._typical_costs[0], self._features_per_draw
        if self._floats_per_iteration(usual) + (MOST_ITERATIONS - 1) * self._floats_per_iteration(usual + r) <= numbers:
            return usual, MOST_ITERATIONS
        step = 2 if self.features == "pairs" else 1
        least = self.most_clusters + 2 if self.n_components is None and self.penalty is None else self._penalty_number
        least += -least % step
        affordable = [
            (D, T)
            for T in range(1, MOST_ITERATIONS + 1)
            for D in range(least, self._most_features_per_draw + 1, step)
            if self._floats_per_iteration(D) + (T - 1) * self._floats_per_iteration(D + r) <= numbers
        ]
        return max(affordable, key=lambda size: size[0] ** 2 * size[1], default=(least, 1))

    def forecast(self, cohort: Sequence[Member]) -> Forecast:
        """Estimate the run's costs for 1 / (D accuracy) iterations.

        The estimate has r_t = 1.5 (s + 1) and Q = 2 r_t + 5. Runs on digits, wine and breast cancer have taken r_t of 1
        to 2 (s + 1), and Q of 15 to 23 for s = 3 and 27 to 42 for s = 10; rows without clusters take up to all T.
        """
        own, members, _ = self._fitted_to_tables(cohort)
        M, n, D, T = len(members), [member.rows for member in members], own._features_per_draw, own._most_iterations
        if self.accuracy:
            T = min(T, max(2, math.ceil(1 / (D * self.accuracy))))
        s, (r, usual), rounds, up, down = own.dimensions, own._typical_costs, 0, 0, 0
        for p, times in ((D, 1), (D + r, T - 1)):
            Q = min(p, usual)
            if self.cem and self.solver == "gram":
                rounds, up = rounds + times, up + times * (M * p * (p + 1) // 2)
            else:
                floats = times * Q * (M * p if self.cem else sum(n) + M * D)
                rounds, up, down = rounds + times * Q * (1 if self.cem else 2), up + floats, down + floats
        last = D + (r if T > 1 else 0)
        down += M * (((T - 2) * (D + r) + D) * r * (T > 1) + last * s) if self.cem else sum(n) * s
        memory = FLOAT * (max(n) * (2 * r + s) + min(max(n), BLOCK_ROWS) * 2 * (D + r) + 2 * (D + r) ** 2)
        memory += max(map(own._cached_bytes, n))
        return Forecast(rounds + 1, up, down, memory, "about") + own.clusters_forecast(members, s)

    def noise_finding(self, cohort: Sequence[Member], privacy: Privacy) -> str:
        """Return a finding: noise moves the features' products by a share, and agreement with classes is lost.

        In the spectral norm, for noise of standard deviation z D sqrt(1/2 + 1/D) in each entry about 2 sqrt(D) times
        that; beside N D / k, of a cluster of N / k rows that are alike.
        """
        share = privacy.multiplier * math.sqrt(2 * self._features_per_draw + 4) * self.most_clusters
        rows = sum(member.rows for member in cohort)
        return agreement_lost("the features' products", share / rows, "a cluster's own")

    def _cached_bytes(self, rows: int) -> int:
        """Return the bytes of a client's features that are cached between iterations."""
        drawn = np.dtype(self.dtype).itemsize * rows * self._features_per_draw
        return drawn if drawn <= MOST_CACHED_BYTES else 0

    def _most_columns(self) -> list[int]:
        most = [self._most_features_per_draw]
        for t in range(2, self._most_iterations + 1):
            most.append(most[0] + (self._penalty_number - 1 if t == 2 and self.penalty is None else most[-1]))
        return most

    def _is_accurate(self, moves: Sequence[float], restored: FloatArray) -> bool:
        return bool(self.accuracy and moves and mean_error(moves) <= self.accuracy * float(restored @ restored))

    def judge_steps(
        self, result: Result[KernelKMeans], shards: Sequence[FloatArray], reference: KernelKMeans
    ) -> dict[str, list[float]]:
        """Return the recover error after each iteration. All features are computed once more."""
        chain = result.model.embedding
        if not isinstance(chain, FeatureChain) or not finds_structure(reference):
            return {}
        E = training_coordinates(reference)
        return {"recover_error": [recover_error(H, E) for H in chain.estimates(np.vstack(list(shards)))]}
