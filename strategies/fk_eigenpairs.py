"""Sub-protocols for the eigenpairs in an FK k-means iteration: Lanczos with and without CEM, or the whole matrix.

Source: the paper of `fedkernel.strategies.fk_kmeans`, sections 4.1 and 4.2 and appendix B; theorem 4.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fedkernel.clients.fk_kmeans import CombineFeatures, MultiplyColumns, MultiplyGram, SumFeatures
from fedkernel.ground import FloatArray, Precision
from fedkernel.numerics import (
    Eigenpairs,
    RandomFeatures,
    Search,
    block_krylov,
    block_krylov_above,
    leading_eigenpairs,
    unpack_symmetric,
)
from fedkernel.protocol import AtMost, Protocol, Run, Step, ask, distributed_lanczos, once, repeated, to_all, to_sum

Solver = Literal["gram", "lanczos"]


@dataclass(frozen=True)
class IterationStep:
    """Parameters of iteration t: the weights w_t of the columns [A_t, B_t], the map to B_t, and the wanted eigenpairs.

    ``wanted``: number of the largest, or their threshold; ``tol``: of Lanczos; ``precision``: of the features.
    """

    features: RandomFeatures
    t: int
    weights: FloatArray
    map: FloatArray | None
    wanted: int | float
    tol: float
    precision: Precision

    @property
    def figures(self) -> dict[str, float]:
        """Figures of each round for the run's history: t and rank."""
        return {"t": self.t, "rank": len(self.weights) - self.features.n_features}

    @property
    def feature_fields(self) -> dict[str, Any]:
        """Fields about random features that all requests of the iteration have in common."""
        return {"features": self.features, "t": self.t, "precision": self.precision}

    def rounding(self, values: FloatArray, wire: Precision) -> float:
        """Return the largest eigenvalue that can be a rounding error of 0, from computing or from sending."""
        coarsest = "float32" if "float32" in (self.precision, wire) else "float64"
        return len(self.weights) * float(np.finfo(coarsest).eps) * float(values.max(initial=0.0))


def eigenpairs(
    run: Run, step: IterationStep, B: FloatArray | None, solver: Solver
) -> Protocol[tuple[FloatArray, FloatArray, FloatArray]]:
    """Return eigenvalues l and eigenvectors v of W^T W. With the coordinator's B, add the eigenvectors u of W W^T."""
    if B is not None:
        (values, U), V = yield from by_row_lanczos(run, step, B)
        return values, V, U
    values, V = yield from by_lanczos(run, step) if solver == "lanczos" else by_gram(step)
    return values, V, np.empty((0, len(values)))


def iteration_plan(fields: dict[str, Any], solver: Solver | None, D: int, before: int, p: int) -> Step:
    """Return the plan of an iteration with at most p columns, after one with `before`. No solver: by R_t (no CEM)."""
    if solver is None:
        return repeated(p + 1, ask(SumFeatures, **fields), ask(CombineFeatures, {"D": D}, **fields))
    moved = {"p_before": before, "r": p - D}
    if solver == "gram":
        return once(MultiplyColumns, moved, **fields, columns=AtMost(p))
    return repeated(p, ask(MultiplyGram, {"p": p, **moved}, **fields))


def by_gram(step: IterationStep) -> Protocol[Eigenpairs]:
    """Return the leading eigenpairs of W^T W from the matrix itself: one round."""
    p = len(step.weights)
    ask = MultiplyColumns(**step.feature_fields, map=step.map, columns=p)
    total = yield from to_sum(ask, **step.figures)
    G = unpack_symmetric(total.upper)
    pairs = leading_eigenpairs(step.weights[:, None] * G * step.weights, p)
    wanted = step.wanted if isinstance(step.wanted, int) else int(np.count_nonzero(pairs.values > step.wanted))
    return Eigenpairs(pairs.values[:wanted], pairs.vectors[:, :wanted])


def by_lanczos(run: Run, step: IterationStep) -> Protocol[Eigenpairs]:
    """Return the leading eigenpairs of W^T W by distributed Lanczos (section 4.2)."""

    def multiply(c: FloatArray, number: int) -> Protocol[FloatArray]:
        moves_on = step.map if number == 1 else None
        ask = MultiplyGram(**step.feature_fields, map=moves_on, vector=step.weights * c[:, 0])
        total = yield from to_sum(ask, **step.figures, lanczos_step=number)
        return (step.weights * total.product)[:, None]

    return (yield from distributed_lanczos(_search(run, len(step.weights), step), multiply))


def by_row_lanczos(run: Run, step: IterationStep, B: FloatArray) -> Protocol[tuple[Eigenpairs, FloatArray]]:
    """Return leading eigenpairs (l, u) of R = W W^T by distributed Lanczos (section 4.1), and v of W^T W.

    With weights a of the features and b of B: R c = a^2 A A^T c + b^2 B B^T c, whose second term the coordinator
    computes. v = W^T u / sqrt(l); as each u combines the vectors c, A^T u combines the sums A^T c that have come.
    """
    basis: list[FloatArray] = []
    sums: list[FloatArray] = []

    def multiply(c: FloatArray, number: int) -> Protocol[FloatArray]:
        # Steps 1 to 3: every client sums its features
        parts = enumerate(split_by_client(run, c[:, 0]))
        requests = {client: SumFeatures(**step.feature_fields, vector=part) for client, part in parts}
        total = yield from to_sum(requests, **step.figures, lanczos_step=number)
        basis.append(c)
        sums.append(total.sums)
        # Steps 4 and 5: every client combines them
        ask = CombineFeatures(**step.feature_fields, vector=total.sums)
        combined = yield from to_all(ask, **step.figures, lanczos_step=number)
        AAc = np.concatenate([reply.values for reply in combined])[:, None]
        return np.asarray(step.weights[0] ** 2 * AAc + step.weights[-1] ** 2 * (B @ (B.T @ c)))

    pairs = yield from distributed_lanczos(_search(run, len(B), step), multiply)
    S = np.hstack(basis).T @ pairs.vectors
    WTu = step.weights[:, None] * np.vstack([np.array(sums).T @ S, B.T @ pairs.vectors])
    return pairs, WTu / np.sqrt(np.maximum(pairs.values, np.finfo(float).tiny))


def _search(run: Run, size: int, step: IterationStep) -> Search:
    start = run.rng(f"lanczos {step.t}").standard_normal((size, 1))
    most = min(size, len(step.weights) + 1)  # W's rank, and the start
    if isinstance(step.wanted, int):
        return block_krylov(start, min(step.wanted, size), tol=step.tol, max_steps=most)
    return block_krylov_above(start, step.wanted, tol=step.tol, max_steps=most)


def split_by_client(run: Run, rows: FloatArray) -> list[FloatArray]:
    """Split an array over all rows into the clients' parts."""
    return np.split(rows, np.cumsum([member.rows for member in run.members])[:-1])
