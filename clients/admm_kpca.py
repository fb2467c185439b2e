"""Client of decentralised kernel PCA by ADMM, with all requests to a node, its replies, and letters to neighbours.

Source: the paper of `fedkernel.strategies.admm_kpca`, algorithm 1, equations 10 to 13, assumption 2.

A node's cell O_j is its neighbours and itself. The node holds their rows or random features of these, and the kernel
blocks K_lm of all l and m in the cell. In an iteration a node l and its neighbour j exchange three vectors, with a
number for each row of l: a_l and K_l^-1 g_{l->j} one way, phi(X_l)^T z_j back. Letters are sealed: the coordinator sees
their lengths, and the figures in the replies that carry them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Generic, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from fedkernel.clients.admm_state import (
    Cell,
    Components,
    Direction,
    FirstSpectrum,
    Iterates,
    KernelBlocks,
    NoisyFeatures,
    NoisyRows,
    OwnProjection,
    Spectrum,
    Starts,
    angle,
    lagrangian,
    penalty_bound,
)
from fedkernel.ground import FloatArray, ProtocolError, ShareableError, noise_on, read_only
from fedkernel.models import center_blocks
from fedkernel.numerics import (
    Kernel,
    Linear,
    SubspaceEmbedding,
    is_bounded,
    leading_eigenpairs,
    mean_value,
    normalised_gram,
    orthonormal_basis,
    power_iteration,
)
from fedkernel.peers import CarriesLetters, Letter, Letters, PeerClient, PublishKeys, TakeKeys
from fedkernel.protocol import (
    MAX_ENTRY,
    MAX_ENTRY_RATIO,
    ROUNDING,
    Done,
    Reply,
    ReplyT,
    Request,
    Shape,
    Summed,
    Within,
    check_share,
    lost_to_rounding,
)

INVERSE_CUTOFF = 1e-3
"""Share of the largest eigenvalue of a node's kernel matrix below which others count as zero, for its inverse."""

RESIDUAL_CUTOFF = 1e-10
"""Share of the first eigenvalue below which the rest of a node's kernel matrix is rounding."""

MOST_PROJECTION = 1e6
"""Largest projection on a row; a direction of length 1 has none above 2 on a row of length 2."""


class OwnRows(Letter):
    """Sender's rows, perhaps with noise: n d floats.

    Reveals the rows, up to the noise, which runs with noise of other sizes or on other rows average away.
    """

    rows: Annotated[FloatArray, Shape("n_m", "d")]

    @property
    def disclosed(self) -> int:
        """Number of rows that the letter reveals; noise does not hide them."""
        return len(self.rows)


class Features(Letter):
    """Random features of the sender's rows, perhaps with noise: n D floats.

    Reveals each row, if there are no fewer features than it has entries, since the receiver knows the draw and can
    invert it; of a linear kernel, they are the rows. Noise leaves its part, as in `OwnRows`.
    """

    rows: Annotated[FloatArray, Shape("n_m", "d")]


class Estimate(Letter):
    """Coefficients of the sender's direction, n floats. In iterations also n multipliers for the receiver's vector z.

    Reveals the coefficients of the sender's direction, a combination of rows that the receiver knows.
    """

    alpha: Annotated[FloatArray, Shape("n_m"), Within(-MAX_ENTRY, MAX_ENTRY)]
    multiplier: Annotated[FloatArray | None, Shape("n_m"), Within(-MAX_ENTRY, MAX_ENTRY)] = None


class Projection(Letter):
    """Projection of the sender's consensus vector z on the receiver's rows, phi(X)^T z: n floats.

    Reveals where the receiver's rows lie along a direction in the span of the rows in the sender's cell.
    """

    values: Annotated[FloatArray, Shape("n_m"), Within(-MOST_PROJECTION, MOST_PROJECTION)]


class RowLetters(Letters):
    """Letters with the node's rows, or with features of them. Reveals the letters' receivers and lengths.

    `shown`: number of the node's rows in the letters, the same for each neighbour; noise does not hide them.
    """

    shown: Annotated[int, Field(ge=0, lt=2**63)] = 0

    @property
    def disclosed(self) -> int:
        """Number of rows that the node reveals."""
        return self.shown


class PenaltyBound(CarriesLetters, Reply):
    """Least penalty that the paper's assumption 2 allows at the node (1 float), and letters to the neighbours.

    Reveals one number made of the eigenvalues of the node's kernel matrix; with the first component up to 2 floats more
    of the node's and its neighbours' rows together: for RBF and Laplacian kernels the mean kernel value between
    different rows, and if blocks are centred, `between`: the variance between the blocks' means, as a multiple of that
    along the leading component of the centred rows.
    """

    bound: Annotated[float, Shape(), Within()]
    between: Annotated[float | None, Shape(), Within()] = None
    kernel_mean: Annotated[float | None, Shape(), Within(-1 - ROUNDING, 1 + ROUNDING)] = None


class Likeness(Reply):
    """Cosines in feature space between the node's starting direction and each neighbour's, ordered by neighbour.

    Reveals just the cosine of the node's start with each neighbour's, between -1 and 1, one for every edge of the node.
    """

    cosines: Annotated[FloatArray, Shape("p_m", empty=True), Within(-1 - ROUNDING, 1 + ROUNDING)]


class Progress(CarriesLetters, Reply):
    """Node's part of the augmented Lagrangian, the turning angle of the node's direction, and letters.

    Reveals the node's part of the augmented Lagrangian and this angle, 2 floats, which sum its rows up.
    """

    lagrangian: Annotated[float, Shape()]
    turned: Annotated[float, Shape(), Within()]


class NeighbourDataRequest(Request[ReplyT], Generic[ReplyT]):
    """Base of requests about the data that neighbours exchange: rows or random features, perhaps with normal noise.

    The node draws the noise, once in a run, and nobody else can draw it again (`fedkernel.ground.noise`).
    """

    features: SubspaceEmbedding | None
    noise: Annotated[float, Field(ge=0)]

    @model_validator(mode="after")
    def _features_are_none_of_rows_themselves(self) -> Self:
        if self.features is not None and isinstance(self.features.kernel, Linear):
            raise ValueError("features must be unset for a linear kernel: its features are the rows themselves")
        return self


class ShareRows(NeighbourDataRequest[RowLetters]):
    """Request to write the node's rows, or their random features, to its neighbours."""

    posts: ClassVar = (OwnRows, Features)


class StartRequest(CarriesLetters, Request[PenaltyBound]):
    """Base of requests to start at a local solution, and to write it to the neighbours."""

    posts: ClassVar = (Estimate,)

    def check_table(self, reply: PenaltyBound, sizes: Mapping[str, int]) -> None:
        """Check also that the bound is possible for so many rows."""
        super().check_table(reply, sizes)
        rows = sizes["n_m"]
        # By k(x, x) = 1 the kernel matrix's trace is n at most. By lambda_1 <= n and sum lambda^3 <= n lambda_1^2,
        # assumption 2 asks for n (1 + sqrt(1 + 8 p)) / p, and p >= 1.
        if reply.bound > (1 + reply.rounding) * 4 * rows:
            raise ValueError(f"bound = {reply.bound:.6g}, but must be at most {4 * rows} for {rows} rows")


class StartLocally(StartRequest, NeighbourDataRequest[PenaltyBound]):
    """Request to compute the kernel blocks from the delivered rows, and to start at the local solution."""

    kernel: Kernel
    center: bool
    record: bool


class ShareDirection(CarriesLetters, Request[Letters]):
    """Request to project the unit consensus vector on the node's own rows, and write this to each neighbour."""

    posts: ClassVar = (Projection,)


class StartNextComponent(StartRequest):
    """Request to remove the last component from the kernel blocks by the delivered projections, and start again."""


class CompareStarts(CarriesLetters, Request[Likeness]):
    """Request for the cosines between the delivered starts and the node's own."""


class PenalisedRequest(CarriesLetters, Request[ReplyT], Generic[ReplyT]):
    """Base of an iteration's requests, with the penalties rho of constraints on the node's own and neighbours' z."""

    rho_self: Annotated[float, Field(gt=0)]
    rho_peers: Annotated[float, Field(gt=0)]

    def rho(self, members: npt.NDArray[np.int64], node: int) -> FloatArray:
        """Return the penalty rho of the constraint on each cell member's consensus vector z."""
        return np.where(members == node, self.rho_self, self.rho_peers)


class UpdateConsensus(PenalisedRequest[Letters]):
    """Request to compute the consensus vector z (equations 10, 11) and write its projections to the neighbours.

    `signs`: in the first iteration, which has no estimates but starts: the factor of each start in the cell.
    """

    posts: ClassVar = (Projection,)
    signs: Annotated[FloatArray | None, Shape("cell_m")] = None


class UpdateDirection(PenalisedRequest[Progress]):
    """Request to update the direction and, with `dual`, the multipliers (equations 12, 13), and write both."""

    posts: ClassVar = (Estimate,)
    dual: bool


class KeepComponents(Request[Done]):
    """Request to store the components at the node: coefficients of unit length in feature space, (n_j, k)."""


class NodeVariance(Summed):
    """Squared length of the node's rows and of their projections on its components: 2 floats.

    Reveals the total squared length of the node's rows in feature space, and of their projections.
    """

    captured: Annotated[float, Shape(), Within()]
    total: Annotated[float, Shape(), Within()]


class MeasureNodeVariance(Request[NodeVariance]):
    """Request for the squared length of the node's own rows that its components keep."""

    once: ClassVar = True

    def check_reply(self, reply: NodeVariance) -> None:
        """Check also that captured <= total."""
        super().check_reply(reply)
        check_share(np.array([reply.captured]), reply.total, reply.rounding)

    def check_table(self, reply: NodeVariance, sizes: Mapping[str, int]) -> None:
        """Check also that the total is at most the number of rows."""
        super().check_table(reply, sizes)
        if reply.total > (1 + reply.rounding) * sizes["n_m"]:
            raise ValueError(f"total = {reply.total:.6g}, but must be at most the {sizes['n_m']} rows of unit length")


class ADMMKPCAClient(PeerClient):
    """Client of ADMMKPCA: a node of the network.

    Memory between rounds, with N_j rows in the cell O_j: N_j^2 floats of kernel blocks, and the eigenvectors of the
    node's own; vectors of its rows for each of the cell.
    """

    answers = (
        *(PublishKeys, TakeKeys, ShareRows, StartLocally, ShareDirection, StartNextComponent),
        *(CompareStarts, UpdateConsensus, UpdateDirection, KeepComponents, MeasureNodeVariance),
    )

    def share_rows(self, ask: ShareRows) -> RowLetters:
        """Write the node's rows, or their features, to its neighbours."""
        rows = self._exchanged_rows(ask)
        self.mail.write_to_all(OwnRows(rows=rows) if ask.features is None else Features(rows=rows))
        return RowLetters(shown=len(rows) if self.mail.neighbours and ask.features is None else 0)

    def start_locally(self, ask: StartLocally) -> PenaltyBound:
        """Compute the cell's kernel blocks from the delivered rows, and the local solution as a start."""
        kind: type[OwnRows] | type[Features] = OwnRows if ask.features is None else Features
        own = self._exchanged_rows(ask)  # with its noise, so that the node's results fit the others'
        tables = {peer: letter.rows for peer, letter in self.mail.read(ask, kind, d=own.shape[1])} | {self.client: own}
        members = sorted(tables)
        cell = Cell(np.array(members), np.array([len(tables[member]) for member in members])).save(self.memory)
        kernel = Linear() if ask.features else ask.kernel
        largest = float(np.abs(own).max())
        for peer in self.mail.neighbours:
            if lost_to_rounding(kernel, float(np.abs(tables[peer]).max()), largest):
                more = f"it has an entry more than {MAX_ENTRY_RATIO:g} times as large as each of client {self.client}"
                raise self.mail.refusal(peer, f"{more}, which would be lost to rounding")
            if not (kernel.diag(tables[peer]) > 0).all():
                raise self.mail.refusal(peer, "it has a row with k(x, x) = 0, which cannot be normalised")
        K = normalised_gram(kernel, cell.concatenated(tables))
        kernel_mean = mean_value(float(K.sum()), len(K), len(K)) if is_bounded(ask.kernel) else None
        between = None
        if ask.center:
            variance = float(K.trace() / len(K) - K.mean())  # about the mean of the cell's rows
            center_blocks(K, np.cumsum(cell.rows).tolist())
            between = max(variance - float(K.trace()) / len(K), 0.0) / _leading_variance(K)
        KernelBlocks(read_only(K)).save(self.memory)
        Components(np.empty((n := len(self.X), 0)), np.empty((n, 0))).save(self.memory)
        if ask.record:
            Iterates(np.empty((0, n))).save(self.memory)
        started = self._start(largest=1.0)  # k(x, x) = 1, if it was so before
        spectrum = Spectrum.load(self.memory)
        FirstSpectrum(spectrum.values, spectrum.vectors).save(self.memory)
        return started.model_copy(update={"kernel_mean": kernel_mean, "between": between})

    def share_direction(self, ask: ShareDirection) -> Letters:
        """Write the neighbours the projection of the direction that is to be removed."""
        cell = Cell.load(self.memory)
        rho = np.ones(len(cell.rows))
        directions, _ = self._directions_and_multipliers(ask, cell)
        # multipliers add up to zero once directions agree; before, they could outweigh these. K without earlier
        # components may have negative eigenvalues: the mean is as long at least as one direction's share in it
        values, length = self._consensus(cell, directions, np.zeros_like(directions), rho)
        own = values[cell.row_slices[self.client]] / max(length, 1 / len(rho))
        OwnProjection(own).save(self.memory)
        self.mail.write_to_all(Projection(values=own))
        return Letters()

    def start_next_component(self, ask: StartNextComponent) -> PenaltyBound:
        """Remove the last component from the kernel blocks, and start again."""
        projections = {peer: letter.values for peer, letter in self.mail.read(ask, Projection)}
        own = projections[self.client] = OwnProjection.load(self.memory).values
        p = Cell.load(self.memory).concatenated(projections)
        self._add_component()
        components = Components.load(self.memory)
        replace(components, directions=np.column_stack([components.directions, own])).save(self.memory)
        KernelBlocks(read_only(KernelBlocks.load(self.memory).K - np.outer(p, p))).save(self.memory)
        return self._start(largest=FirstSpectrum.load(self.memory).values[0])

    def compare_starts(self, ask: CompareStarts) -> Likeness:
        """Store the starts of the cell; compute the cosine of the node's own with each neighbour's."""
        cell = Cell.load(self.memory)
        directions = {peer: letter.alpha for peer, letter in self.mail.read(ask, Estimate)}
        directions[self.client] = Direction.load(self.memory).a
        starts, own = Starts(cell.concatenated(directions)).save(self.memory).a, cell.row_slices[self.client]
        products = KernelBlocks.load(self.memory).K[:, own] @ starts[own]
        parts = [cell.row_slices[peer] for peer in self.mail.neighbours]
        # a neighbour's start that is not of unit length has no cosine
        cosines = np.clip([starts[part] @ products[part] for part in parts], -1 - ROUNDING, 1 + ROUNDING)
        return Likeness(cosines=cosines)

    def update_consensus(self, ask: UpdateConsensus) -> Letters:
        """Compute the consensus vector z, and its projections on the rows of each cell member."""
        cell = Cell.load(self.memory)
        if ask.signs is None:
            directions, multipliers = self._directions_and_multipliers(ask, cell)
        else:
            directions = np.repeat(ask.signs, cell.rows) * Starts.load(self.memory).a
            multipliers = np.zeros_like(directions)
            own = directions[cell.row_slices[self.client]]
            replace(Direction.load(self.memory), a=own).save(self.memory)
        values, length = self._consensus(cell, directions, multipliers, ask.rho(cell.members, self.client))
        values /= max(1.0, length)
        OwnProjection(values[cell.row_slices[self.client]]).save(self.memory)
        for peer in self.mail.neighbours:
            self.mail.write(peer, Projection(values=values[cell.row_slices[peer]]))
        return Letters()

    def update_direction(self, ask: UpdateDirection) -> Progress:
        """Update the direction and the multipliers; reply with the Lagrangian and the turn's angle."""
        cell, spectrum, last = Cell.load(self.memory), Spectrum.load(self.memory), Direction.load(self.memory)
        projections = {peer: letter.values for peer, letter in self.mail.read(ask, Projection, n_m=len(self.X))}
        projections[self.client] = OwnProjection.load(self.memory).values
        Z = np.column_stack([projections[member] for member in cell.row_slices])
        values, V, rho = spectrum.values, spectrum.vectors, ask.rho(cell.members, self.client)
        if (least := 2 * float(values[0])) >= rho.sum():
            raise ShareableError(
                f"rho = {ask.rho_self:g} and {ask.rho_peers:g} sum to {rho.sum():g} over client {self.client} "
                f"and its {len(rho) - 1} neighbours, but must exceed {least:g} there"
            )
        G = last.G.copy() if ask.dual else np.zeros_like(last.G)
        # Equation 12, in the eigenvectors of K_j: a = V b
        b = (V.T @ (Z @ rho - G.sum(axis=1))) / (rho.sum() * values - 2 * values**2)
        a, before, lengths = V @ b, V.T @ last.a, np.sqrt(values)
        turned = angle(before * lengths, b * lengths)
        progress = Progress(lagrangian=lagrangian(spectrum, before, G, Z, rho), turned=turned)
        # Equation 13
        if ask.dual:
            G += rho * (((V * values) @ b)[:, None] - Z)
        M = V @ ((V.T @ G) / values[:, None])
        multipliers = dict(zip(cell.row_slices, M.T.copy(), strict=True))
        Direction(a, G, multipliers[self.client]).save(self.memory)
        if Iterates.known(self.memory):
            Iterates(np.concatenate([Iterates.load(self.memory).a, a[None]])).save(self.memory)
        for peer in self.mail.neighbours:
            self.mail.write(peer, Estimate(alpha=a, multiplier=multipliers[peer]))
        return progress

    def keep_components(self, ask: KeepComponents) -> Done:
        """Store the components at the node."""
        self._add_component()
        self.outputs["alpha"] = Components.load(self.memory).alpha
        if Iterates.known(self.memory):
            self.outputs["iterates"] = Iterates.load(self.memory).a
        return Done()

    def measure_node_variance(self, ask: MeasureNodeVariance) -> NodeVariance:
        """Project the node's original rows on the span of its components."""
        spectrum, alpha = FirstSpectrum.load(self.memory), Components.load(self.memory).alpha
        # phi(X) = U diag(sqrt(values)) V^T for some orthonormal U, in whose coordinates the components are these
        basis = orthonormal_basis(np.sqrt(spectrum.values)[:, None] * (spectrum.vectors.T @ alpha))
        captured = float((np.square(basis) * spectrum.values[:, None]).sum())
        return NodeVariance(captured=captured, total=float(spectrum.values.sum()))

    def _exchanged_rows(self, ask: NeighbourDataRequest[ReplyT]) -> FloatArray:
        """Return the node's rows or features as its neighbours receive them, the same at every call."""
        noisy = NoisyRows if ask.features is None else NoisyFeatures
        if ask.noise and noisy.known(self.memory):
            return noisy.load(self.memory).rows
        rows: FloatArray = self.X if ask.features is None else ask.features.map(self.X.shape[1])(self.X)
        if ask.noise:
            # not from the run's seed, which the coordinator knows; once, since differences and means would undo it
            rows = noisy(rows + noise_on(rows, ask.noise, self.noise_key)).save(self.memory).rows
        return rows

    def _start(self, largest: float) -> PenaltyBound:
        """Start from the local solution with zero multipliers. `largest`: scale of K_j before any removal."""
        cell = Cell.load(self.memory)
        own = cell.row_slices[self.client]
        K = KernelBlocks.load(self.memory).K[own, own]
        pairs = leading_eigenpairs((K + K.T) / 2, len(K))
        if pairs.values[0] <= RESIDUAL_CUTOFF * largest:
            raise ShareableError(f"client {self.client} has no further component: its rows span too few dimensions")
        above = pairs.values > INVERSE_CUTOFF * pairs.values[0]
        spectrum = Spectrum(pairs.values[above], pairs.vectors[:, above]).save(self.memory)
        a = spectrum.vectors[:, 0] / np.sqrt(spectrum.values[0])
        Direction(a, np.zeros((len(a), len(cell.rows))), np.zeros(len(a))).save(self.memory)
        self.mail.write_to_all(Estimate(alpha=a))
        return PenaltyBound(bound=penalty_bound(spectrum.values, len(cell.rows)))

    def _directions_and_multipliers(self, ask: CarriesLetters, cell: Cell) -> tuple[FloatArray, FloatArray]:
        """Return the directions a_l of all cell members, and their multipliers K_l^-1 g for this node's z."""
        own = Direction.load(self.memory)
        directions, multipliers = {self.client: own.a}, {self.client: own.own_multiplier}
        for peer, letter in self.mail.read(ask, Estimate):
            if letter.multiplier is None:
                raise ProtocolError(f"client {peer} wrote no multipliers to client {self.client}")
            directions[peer], multipliers[peer] = letter.alpha, letter.multiplier
        return cell.concatenated(directions), cell.concatenated(multipliers)

    def _consensus(
        self, cell: Cell, directions: FloatArray, multipliers: FloatArray, rho: FloatArray
    ) -> tuple[FloatArray, float]:
        """Return the projection of the unscaled z on all rows of the cell, and the length of z (equation 10)."""
        c = (multipliers + np.repeat(rho, cell.rows) * directions) / rho.sum()
        values = KernelBlocks.load(self.memory).K @ c
        return values, max(float(c @ values), 0.0) ** 0.5

    def _add_component(self) -> None:
        """Add the direction, as a unit combination of the original rows, to the components found so far."""
        spectrum, components = FirstSpectrum.load(self.memory), Components.load(self.memory)
        values, V, P = spectrum.values, spectrum.vectors, components.directions
        # earlier directions u were taken off the rows: phi(X) a - u p^T a, p = phi(X)^T u; the node's part of u is
        # the projection phi(X) K^-1 p
        a = Direction.load(self.memory).a
        a = a - V @ ((V.T @ P) / values[:, None]) @ (P.T @ a)
        length = max(float(np.linalg.norm(np.sqrt(values) * (V.T @ a))), float(np.finfo(np.float64).tiny))
        replace(components, alpha=np.column_stack([components.alpha, a / length])).save(self.memory)


def _leading_variance(K: FloatArray) -> float:
    """Estimate the variance along the leading component of centred rows from their kernel matrix (N, N)."""
    start = K[:, [int(np.argmax(K.diagonal()))]]
    largest = power_iteration(K.__matmul__, start, 10).values[0] if start.any() else 0.0
    return max(float(largest), RESIDUAL_CUTOFF) / len(K)
