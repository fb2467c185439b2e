"""State of an ADMM node between rounds, and the penalty, the Lagrangian and the angle computed from it.

Source: the paper of `fedkernel.strategies.admm_kpca`, equation 8, assumption 2.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from fedkernel.ground import FloatArray, ProtocolError
from fedkernel.protocol import State


@dataclass(frozen=True)
class Cell(State):
    """Cell O_j: the node and its p neighbours. Client numbers, ascending, and numbers of rows, both (p + 1,)."""

    members: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]

    @cached_property
    def row_slices(self) -> Mapping[int, slice]:
        """Slice of each member's rows in the cell's concatenated rows, by member, in `members`' order."""
        bounds = pairwise([0, *np.cumsum(self.rows).tolist()])
        return {member: slice(*ends) for member, ends in zip(self.members.tolist(), bounds, strict=True)}

    def concatenated(self, vectors: Mapping[int, FloatArray]) -> FloatArray:
        """Concatenate the members' vectors. Each has one entry per row of the member."""
        for member, part in self.row_slices.items():
            if (size := len(vectors[member])) != (rows := part.stop - part.start):
                raise ProtocolError(f"client {member} sent a vector of {size} entries, but has {rows} rows")
        return np.concatenate([vectors[member] for member in self.row_slices])


@dataclass(frozen=True)
class KernelBlocks(State):
    """Kernel blocks K_lm between all members l and m of the cell, (N_j, N_j). Components found before are removed."""

    K: FloatArray


@dataclass(frozen=True)
class Spectrum(State):
    """Eigenvalues (r,), the largest first, and eigenvectors (n_j, r) of the node's own deflated block K_j."""

    values: FloatArray
    vectors: FloatArray


class FirstSpectrum(Spectrum):
    """Spectrum of the node's kernel block before the first component is removed."""


@dataclass(frozen=True)
class Direction(State):
    """Variables of the node's iterations: its direction, and the multipliers of its constraints.

    `a` (n_j,): its direction phi(X_j) a. `G` (n_j, p + 1): phi(X_j)^T eta, the multipliers of its constraints on the z
    of each in the cell. `own_multiplier` (n_j,): K_j^-1 g of the one on its own z.
    """

    a: FloatArray
    G: FloatArray
    own_multiplier: FloatArray


@dataclass(frozen=True)
class OwnProjection(State):
    """Projection of the node's last z on its own rows, (n_j,)."""

    values: FloatArray


@dataclass(frozen=True)
class Starts(State):
    """Starting directions of all members of the cell, (N_j,)."""

    a: FloatArray


@dataclass(frozen=True)
class Components(State):
    """Components found so far, and the directions removed from the kernel blocks.

    `alpha` (n_j, k): the components, as combinations of the node's rows, of unit length. `directions` (n_j, k):
    projections on the node's rows of the directions that were taken off.
    """

    alpha: FloatArray
    directions: FloatArray


@dataclass(frozen=True)
class Iterates(State):
    """Directions of all iterations, (t, n_j), if they are recorded."""

    a: FloatArray


@dataclass(frozen=True)
class NoisyRows(State):
    """The node's rows with noise, which is drawn once per run."""

    rows: FloatArray


class NoisyFeatures(NoisyRows):
    """Random features of the node's rows with noise."""


def penalty_bound(eigenvalues: FloatArray, degree: int) -> float:
    """Return assumption 2's least penalty rho for eigenvalues (r,) of a node's kernel matrix; `degree` is |O_j|."""
    first, cubes = float(eigenvalues[0]), float((eigenvalues**3).sum())
    return (first**2 + float(np.sqrt(first**4 + 8 * degree * first * cubes))) / (degree * first)


def lagrangian(spectrum: Spectrum, b: FloatArray, G: FloatArray, Z: FloatArray, rho: FloatArray) -> float:
    """Return a node's part of the augmented Lagrangian, before its direction is updated (equation 8).

    It may rise, for theorem 2 is false as stated: docs/explanation/theorems.md.
    """
    values, V = spectrum.values, spectrum.vectors
    R = b[:, None] - (V.T @ Z) / values[:, None]  # a - K^-1 phi(X)^T z_q
    penalties = 0.5 * rho * (R**2 * values[:, None]).sum(axis=0)
    return float(-np.square(values * b).sum() + ((V.T @ G) * R).sum() + penalties.sum())


def angle(x: FloatArray, y: FloatArray) -> float:
    """Return the angle between the lines along two vectors, or 0 if a vector is zero."""
    lengths = float(np.linalg.norm(x) * np.linalg.norm(y))
    return float(np.arccos(min(abs(float(x @ y)) / lengths, 1.0))) if lengths else 0.0
