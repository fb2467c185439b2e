"""What a node does, and all that can leave it, in decentralised kernel PCA by ADMM.

Source: He, Yang, Shi, Huang: A Decentralized Framework for Kernel PCA with Projection Consensus Constraints, 2022:
algorithm 1, equations 10 to 13, assumption 2.

A node's cell O_j are its neighbours and itself. It holds what they have sent, their rows or random features of these,
and the kernel blocks K_lm of all l and m in the cell. In an iteration a node l and its neighbour j exchange three
vectors, of as many numbers as l has rows: a_l and K_l^-1 g_{l->j} one way, phi(X_l)^T z_j back. Letters are sealed: the
coordinator sees how long they are, and the figures that replies carry beside them.
"""

import itertools
from typing import Annotated, Generic

import numpy as np
from pydantic import Field

from fedkernel.arrays import FloatArray
from fedkernel.directions import center_blocks
from fedkernel.errors import InputError, ProtocolError
from fedkernel.kernels import Kernel, Linear, normalised_gram
from fedkernel.letters import CarriesLetters, Letter
from fedkernel.linalg import leading_eigenpairs
from fedkernel.messages import Done, Reply, ReplyT, Request, Shape
from fedkernel.noise import system_normal
from fedkernel.peers import PeerClient, PublishKeys, TakeKeys
from fedkernel.sketch import SubspaceEmbedding

CUT = 1e-3
"""Eigenvalues of a node's kernel matrix below this share of the largest count as zero, since it is to be inverted."""

NOTHING = 1e-10
"""What is left of a node's kernel matrix is rounding if its largest eigenvalue is below this share of the first."""


class Rows(Letter):
    """The sender's rows, perhaps with noise: n d floats.

    Reveals the rows, up to the noise: whoever gets the same rows in several runs averages it away.
    """

    rows: Annotated[FloatArray, Shape("n_m", "d")]

    @property
    def disclosed(self) -> int:
        """How many rows it shows; noise does not hide them."""
        return len(self.rows)


class Features(Letter):
    """Random features of the sender's rows, perhaps with noise: n D floats.

    Reveals of each row, since the receiver knows the draw, what so many smooth functions of it tell, which may be all
    of it where they are as many as its entries.
    """

    rows: Annotated[FloatArray, Shape("n_m", "d")]


class Estimate(Letter):
    """The sender's direction a, and, in the iterations, its multipliers for the receiver's z as K^-1 g: n floats each.

    Reveals how the sender's direction is combined of rows that the receiver knows.
    """

    alpha: Annotated[FloatArray, Shape("n_m")]
    multiplier: Annotated[FloatArray | None, Shape("n_m")] = None


class Projection(Letter):
    """What the sender's z is on the receiver's rows, phi(X)^T z: n floats.

    Reveals where the receiver's rows lie along a direction in the span of the rows in the sender's cell.
    """

    values: Annotated[FloatArray, Shape("n_m")]


class Posted(CarriesLetters, Reply):
    """Nothing but letters to the neighbours.

    Attributes
    ----------
    shown : int
        How many of the node's rows the letters hold as they are, each neighbour the same; noise does not hide them.
    """

    shown: Annotated[int, Field(ge=0)] = 0

    @property
    def disclosed(self) -> int:
        """How many rows the node shows."""
        return self.shown


class Started(CarriesLetters, Reply):
    """The least penalty that assumption 2 allows the node, 1 float, and letters to the neighbours.

    Reveals one number made of the eigenvalues of the node's kernel matrix.
    """

    bound: Annotated[FloatArray, Shape("one")]


class Likeness(Reply):
    """How like the starts of the node's neighbours are to its own: a cosine in feature space for each, in order.

    Reveals just these, between -1 and 1, one for every edge of the node.
    """

    cosines: Annotated[FloatArray, Shape("p_m", empty=True)]


class Progress(CarriesLetters, Reply):
    """The node's part of the augmented Lagrangian, how far its direction has turned, and letters to the neighbours.

    Reveals these 2 floats, which sum its rows up.
    """

    figures: Annotated[FloatArray, Shape("two")]


class OfOne(Request[ReplyT], Generic[ReplyT]):
    """A request whose reply holds one number."""

    def known_dimensions(self) -> dict[str, int]:
        """Settle that it is one."""
        return {"one": 1}


class Exchange(Request[ReplyT], Generic[ReplyT]):
    """What neighbours hold of each other: rows, or random features of them; with normal noise of some size.

    The noise is drawn from the node's operating system, once in a run, and nobody else can draw it again.
    """

    features: SubspaceEmbedding | None
    noise: Annotated[float, Field(ge=0)]


class ShareRows(Exchange[Posted]):
    """Asks the node to write its rows to its neighbours, or their random features."""


class StartLocally(CarriesLetters, Exchange[Started], OfOne[Started]):
    """Delivers rows; asks for the kernel blocks of the cell, and the local solution as a start."""

    kernel: Kernel
    center: bool
    record: bool


class ShareDirection(CarriesLetters, Request[Posted]):
    """Delivers the last estimates; asks to write to each neighbour what a unit z is on the node's own rows."""


class NextComponent(CarriesLetters, OfOne[Started]):
    """Delivers these directions; asks to go on with what they leave of the kernel blocks."""


class CompareStarts(CarriesLetters, Request[Likeness]):
    """Delivers starts; asks how like they are to the node's own."""


class Penalised(CarriesLetters, Request[ReplyT], Generic[ReplyT]):
    """A step of an iteration: rho of the constraint on a node's own z, and of those on its neighbours'."""

    rho_self: Annotated[float, Field(gt=0)]
    rho_peers: Annotated[float, Field(gt=0)]


class UpdateConsensus(Penalised[Posted]):
    """Delivers estimates; asks for z (equations 10 and 11), and to write to each neighbour what it is on its rows.

    Attributes
    ----------
    signs : ndarray or None
        In the first iteration, which has no estimates but starts: by what each start in the cell is multiplied.
    """

    signs: Annotated[FloatArray | None, Shape("cell_m")] = None


class UpdateDirection(Penalised[Progress]):
    """Delivers projections; asks for a and the multipliers (equations 12 and 13), and to write them to the neighbours.

    Attributes
    ----------
    dual : bool
        Whether there are multipliers; without, they are set to 0 and stay so.
    """

    dual: bool

    def known_dimensions(self) -> dict[str, int]:
        """Settle that the figures are two."""
        return {"two": 2}


class KeepComponents(Request[Done]):
    """Asks the node to keep its components: coefficients of unit length in feature space, (n_j, k)."""


def penalty_bound(eigenvalues: FloatArray, degree: int) -> float:
    """Return assumption 2's least penalty rho for a node.

    Parameters
    ----------
    eigenvalues : ndarray of shape (r,)
        Of the node's kernel matrix, the largest first.
    degree : int
        |O_j|, of its neighbours and itself.
    """
    first, cubes = float(eigenvalues[0]), float((eigenvalues**3).sum())
    return (first**2 + float(np.sqrt(first**4 + 8 * degree * first * cubes))) / (degree * first)


class ADMMKPCAClient(PeerClient):
    """A node of the network.

    Memory between rounds, with N_j rows in the cell O_j: N_j^2 floats of kernel blocks, and the eigenvectors of the
    node's own; vectors of its rows for each of the cell.
    """

    also_answers = PublishKeys, TakeKeys

    def share_rows(self, ask: ShareRows) -> Posted:
        """Write the node's rows, or their features, to its neighbours."""
        rows = self._exchanged(ask)
        letter = Rows(rows=rows) if ask.features is None else Features(rows=rows)
        for peer in self.mail.neighbours:
            self.mail.write(peer, letter)
        return Posted(shown=len(rows) if self.mail.neighbours and ask.features is None else 0)

    def start_locally(self, ask: StartLocally) -> Started:
        """Compute the kernel blocks of the cell, and the local solution."""
        kind: type[Rows] | type[Features] = Rows if ask.features is None else Features
        told = {peer: letter.rows for peer, letter in self.mail.read(ask, kind)}
        told[self.client] = self._exchanged(ask)  # with its noise: what the node computes is to fit what others do
        cell = sorted(told)
        ends = np.cumsum([len(told[member]) for member in cell])
        kernel = Linear() if ask.features else ask.kernel
        K = normalised_gram(kernel, np.vstack([told[member] for member in cell]))
        self.memory["cell"], self.memory["ends"] = np.array(cell), ends
        self.memory["kernel"] = center_blocks(K, ends.tolist()) if ask.center else K
        for name in ("found", "directions"):
            self.memory[name] = np.empty((len(self.X), 0))
        self.memory["record"] = np.empty((int(ask.record), 0, len(self.X)))
        started = self._start()
        self.memory["own values"], self.memory["own vectors"] = self.remembered("values"), self.remembered("vectors")
        return started

    def share_direction(self, ask: ShareDirection) -> Posted:
        """Write the direction that is to be taken off to the neighbours."""
        values, length = self._consensus(self._told(ask), np.ones(len(self._cell())))
        own = values[self._own()] / max(length, float(np.finfo(np.float64).tiny))
        self.memory["direction"] = own
        for peer in self.mail.neighbours:
            self.mail.write(peer, Projection(values=own))
        return Posted()

    def next_component(self, ask: NextComponent) -> Started:
        """Take the component that was found off the kernel blocks, and start again."""
        told = {peer: letter.values for peer, letter in self.mail.read(ask, Projection)}
        told[self.client] = self.remembered("direction")
        self._add_component()
        p = np.concatenate([told[member] for member in self._cell()])
        self._check_length(p)
        self.memory["directions"] = np.column_stack([self.remembered("directions"), told[self.client]])
        self.memory["kernel"] = self.remembered("kernel") - np.outer(p, p)
        return self._start()

    def compare_starts(self, ask: CompareStarts) -> Likeness:
        """Remember the starts of the cell; compare the node's own with each."""
        alphas = {peer: letter.alpha for peer, letter in self.mail.read(ask, Estimate)}
        alphas[self.client] = self.remembered("alpha")
        pooled = np.concatenate([alphas[member] for member in self._cell()])
        self._check_length(pooled)
        self.memory["starts"] = pooled
        own = self.remembered("kernel")[:, self._own()] @ pooled[self._own()]
        parts = [self._part(peer) for peer in self.mail.neighbours]
        return Likeness(cosines=np.array([pooled[part] @ own[part] for part in parts]))

    def update_consensus(self, ask: UpdateConsensus) -> Posted:
        """Compute z, and what it is on the rows of each in the cell."""
        cell = self._cell()
        rho = np.where(np.array(cell) == self.client, ask.rho_self, ask.rho_peers)
        if ask.signs is None:
            told = self._told(ask)
        else:
            starts = self.remembered("starts").copy()
            for sign, part in zip(ask.signs, self._parts(), strict=True):
                starts[part] *= sign
            self.memory["alpha"] = starts[self._own()]
            told = starts, np.zeros_like(starts)
        values, length = self._consensus(told, rho)
        values /= max(1.0, length)
        self.memory["projection"] = values[self._own()]
        for peer in self.mail.neighbours:
            self.mail.write(peer, Projection(values=values[self._part(peer)]))
        return Posted()

    def update_direction(self, ask: UpdateDirection) -> Progress:
        """Compute a, and the multipliers; tell how that went."""
        told = {peer: letter.values for peer, letter in self.mail.read(ask, Projection, n_m=len(self.X))}
        told[self.client] = self.remembered("projection")
        cell = self._cell()
        Z = np.column_stack([told[member] for member in cell])
        rho = np.where(np.array(cell) == self.client, ask.rho_self, ask.rho_peers)
        values, V = self.remembered("values"), self.remembered("vectors")
        if (least := 2 * float(values[0])) >= rho.sum():
            raise InputError(
                f"rho = {ask.rho_self:g} and {ask.rho_peers:g} add up to {rho.sum():g} over the {len(cell)} nodes that "
                f"client {self.client} talks to, itself included, but must exceed {least:g} there"
            )
        a, G = self.remembered("alpha"), self.remembered("multipliers")
        if not ask.dual:
            G = np.zeros_like(G)
        lagrangian = self._lagrangian(a, G, Z, rho)
        b = (V.T @ (Z @ rho - G.sum(axis=1))) / (rho.sum() * values - 2 * values**2)
        new = V @ b
        if ask.dual:
            G += rho * (((V * values) @ b)[:, None] - Z)
        turned = _angle(V.T @ a * np.sqrt(values), b * np.sqrt(values))
        self.memory["alpha"], self.memory["multipliers"] = new, G
        self._record(new)
        M = V @ ((V.T @ G) / values[:, None])
        for peer in self.mail.neighbours:
            self.mail.write(peer, Estimate(alpha=new, multiplier=M[:, cell.index(peer)].copy()))
        self.memory["multiplier"] = M[:, cell.index(self.client)].copy()
        return Progress(figures=np.array([lagrangian, turned]))

    def keep_components(self, ask: KeepComponents) -> Done:
        """Keep the components."""
        self._add_component()
        self.outputs["alpha"] = self.remembered("found")
        if len(self.remembered("record")):
            self.outputs["iterates"] = self.remembered("record")[0]
        return Done()

    def _exchanged(self, ask: Exchange[ReplyT]) -> FloatArray:
        """Return the node's rows as its neighbours get them: the same whenever asked for."""
        known = "noisy rows" if ask.features is None else "noisy features"
        if ask.noise and known in self.memory:
            return self.memory[known]
        rows = self.X if ask.features is None else ask.features.map(self.X.shape[1])(self.X)
        if ask.noise:
            # not from the run's seed, which the coordinator knows; and once, for differences and means would undo it
            rows = self.memory[known] = rows + ask.noise * system_normal(rows.shape)
        return rows

    def _cell(self) -> list[int]:
        cell: list[int] = self.remembered("cell").tolist()
        return cell

    def _parts(self) -> list[slice]:
        """Return where the rows of each in the cell are among those of all."""
        return [slice(first, last) for first, last in itertools.pairwise([0, *self.remembered("ends").tolist()])]

    def _part(self, member: int) -> slice:
        return self._parts()[self._cell().index(member)]

    def _own(self) -> slice:
        return self._part(self.client)

    def _check_length(self, pooled: FloatArray) -> None:
        if len(pooled) != len(self.remembered("kernel")):
            raise ProtocolError(f"client {self.client} was told {len(pooled)} numbers, which do not fit its cell")

    def _start(self) -> Started:
        """Take the local solution as a start, and forget the multipliers."""
        own = self._own()
        K = self.remembered("kernel")[own, own]
        pairs = leading_eigenpairs((K + K.T) / 2, len(K))
        first = self.memory["own values"][0] if "own values" in self.memory else 1.0  # k(x, x) = 1, if it was so before
        if pairs.values[0] <= NOTHING * first:
            raise InputError(f"the rows of client {self.client} have no component left: they differ in too few ways")
        kept = pairs.values > CUT * pairs.values[0]
        values, V = pairs.values[kept], pairs.vectors[:, kept]
        a = V[:, 0] / np.sqrt(values[0])
        self.memory["values"], self.memory["vectors"] = values, V
        self.memory["alpha"] = a
        self.memory["multipliers"] = np.zeros((len(a), len(self._cell())))
        self.memory["multiplier"] = np.zeros(len(a))
        for peer in self.mail.neighbours:
            self.mail.write(peer, Estimate(alpha=a))
        return Started(bound=np.array([penalty_bound(values, len(self._cell()))]))

    def _told(self, ask: CarriesLetters) -> tuple[FloatArray, FloatArray]:
        """Return the directions a_l of all in the cell, and their multipliers K_l^-1 g for this node's z."""
        told = {self.client: (self.remembered("alpha"), self.remembered("multiplier"))}
        for peer, letter in self.mail.read(ask, Estimate):
            if letter.multiplier is None:
                raise ProtocolError(f"client {peer} wrote no multipliers to client {self.client}")
            told[peer] = letter.alpha, letter.multiplier
        alphas, multipliers = (np.concatenate([told[member][part] for member in self._cell()]) for part in (0, 1))
        self._check_length(alphas)
        return alphas, multipliers

    def _consensus(self, told: tuple[FloatArray, FloatArray], rho: FloatArray) -> tuple[FloatArray, float]:
        """Return what z, not scaled yet, is on all rows of the cell, and its length (equation 10)."""
        alphas, multipliers = told
        c = multipliers.copy()
        for weight, part in zip(rho, self._parts(), strict=True):
            c[part] += weight * alphas[part]
        c /= rho.sum()
        values = self.remembered("kernel") @ c
        return values, max(float(c @ values), 0.0) ** 0.5

    def _lagrangian(self, a: FloatArray, G: FloatArray, Z: FloatArray, rho: FloatArray) -> float:
        """Return the node's part of the augmented Lagrangian, before a is updated (equation 8)."""
        values, V = self.remembered("values"), self.remembered("vectors")
        b = V.T @ a
        R = b[:, None] - (V.T @ Z) / values[:, None]  # a - K^-1 phi(X)^T z_q
        penalties = 0.5 * rho * (R**2 * values[:, None]).sum(axis=0)
        return float(-np.square(values * b).sum() + ((V.T @ G) * R).sum() + penalties.sum())

    def _record(self, a: FloatArray) -> None:
        record = self.remembered("record")
        if len(record):
            self.memory["record"] = np.concatenate([record, a[None, None]], axis=1)

    def _add_component(self) -> None:
        """Add a, as a combination of the rows themselves and of unit length, to the components found."""
        values, V = self.remembered("own values"), self.remembered("own vectors")
        a, P = self.remembered("alpha"), self.remembered("directions")
        # of the rows the directions u found before were taken off: phi(X) a - u p^T a, where p = phi(X)^T u, and of u
        # the node has the projection phi(X) K^-1 p
        a = a - V @ ((V.T @ P) / values[:, None]) @ (P.T @ a)
        length = max(float(np.linalg.norm(np.sqrt(values) * (V.T @ a))), float(np.finfo(np.float64).tiny))
        self.memory["found"] = np.column_stack([self.remembered("found"), a / length])


def _angle(x: FloatArray, y: FloatArray) -> float:
    """Return the angle between two vectors, whichever way each points; 0 where one is zero."""
    lengths = float(np.linalg.norm(x) * np.linalg.norm(y))
    return float(np.arccos(min(abs(float(x @ y)) / lengths, 1.0))) if lengths else 0.0
