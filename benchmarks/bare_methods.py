"""The arithmetic of the pairs in plain NumPy and SciPy, as fast as that goes: what `bare.py` measures pairs against.

Written from the papers' formulas alone. Of the project it has what is no arithmetic: the generators of the runs' random
numbers, so that results can be compared, and the limit of BLAS' threads. Clients are worked on as the local engine has
them, on as many threads as there are cores, each with one BLAS thread; the coordinator's steps use all cores.
"""

import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree
from scipy.sparse.linalg import eigsh
from sklearn.cluster import KMeans

from fedkernel.ground import blas_threads, generator, openmp_threads

Array = np.ndarray
Apply = Callable[[Array], Array]
BLOCK = 1024
"""Rows that a product works on at a time: they stay in a core's cache."""


def at_clients(work: Callable[..., Any], *parts: Iterable[Any]) -> list[Any]:
    """Do the clients' work side by side."""
    with blas_threads(1), ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(work, *parts))


def blocks(rows: int) -> list[slice]:
    """Cut rows into blocks."""
    return [slice(first, first + BLOCK) for first in range(0, rows, BLOCK)]


def rbf(X: Array, Y: Array, gamma: float) -> Array:
    """Return exp(-gamma ||x - y||^2)."""
    K = X @ Y.T
    K *= -2
    K += np.einsum("ij,ij->i", X, X)[:, None]
    K += np.einsum("ij,ij->i", Y, Y)
    np.maximum(K, 0, out=K)
    K *= -gamma
    return np.exp(K, out=K)


def centre(K: Array) -> Array:
    """Centre a kernel matrix in place."""
    means = K.mean(axis=1)
    K -= means
    K += (means.mean() - means)[:, None]
    return K


def dkpca(shards: Sequence[Array], gamma: float, k: int, local: int) -> tuple[Array, Array]:
    """Multiply the clients' truncated RBF kernel matrices entry by entry; ARPACK at clients and coordinator."""

    def spectrum(X: Array) -> tuple[Array, Array]:
        return eigsh(rbf(X, X, gamma), local, which="LA")

    K = None
    for values, V in at_clients(spectrum, shards):
        part = (V * values) @ V.T
        K = part if K is None else np.multiply(K, part, out=K)
    values, V = eigsh(K, k, which="LA")
    return values[::-1], V[:, ::-1]


def times_transposed(X: Array, V: Array) -> Array:
    """Return X^T V: of a tall X NumPy's own product takes six times as long."""
    total = np.zeros((X.shape[1], V.shape[1]))
    for rows in blocks(len(X)):
        total += X[rows].T @ V[rows]
    return total


def of_table(X: Array) -> Apply:
    """Return the product with X X^T of the centred columns."""
    Z = X - X.mean(axis=0)
    return lambda V: Z @ times_transposed(Z, V)


def of_kernel(X: Array) -> Apply:
    """Return the product with the centred RBF kernel matrix of width 1 / d_m."""
    K = centre(rbf(X, X, 1 / X.shape[1]))
    return lambda V: K @ V


def power(apply: Apply, V: Array, iterations: int) -> tuple[Array, Array]:
    """Iterate, and rotate to the eigenvectors of what the span has."""
    for step in range(iterations + 1):
        Q = np.linalg.qr(V)[0]
        V = apply(Q)
        if step == iterations:
            T = Q.T @ V
            values, S = np.linalg.eigh((T + T.T) / 2)
    return values[::-1], Q @ S[:, ::-1]


def merge(pairs: Sequence[tuple[Array, Array]]) -> Array:
    """Return as many leading eigenvectors of the sum of all V diag(values) V^T as each client has."""
    factor = np.hstack([V * np.sqrt(values) for values, V in pairs])
    return scipy.linalg.svd(factor, full_matrices=False, overwrite_a=True, check_finite=False)[0][:, : len(pairs[0][0])]


def updated(apply: Apply, U: Array) -> Apply:
    """Return the product with (A U) (U^T A U)^-1 (A U)^T: equation 14."""
    AU = apply(U)
    P = scipy.linalg.solve_triangular(np.linalg.cholesky(U.T @ AU), AU.T, lower=True).T
    return lambda V: P @ (P.T @ V)


@dataclass
class Site:
    """A client of VFedPCA: its matrix, the factor that makes its values those of X X^T / d_m, and where it starts."""

    apply: Apply
    scale: float
    start: Array

    def iterate(self, U: Array | None, iterations: int) -> tuple[Array, Array]:
        """Update by the merged vectors, and iterate."""
        if U is not None:
            self.apply = updated(self.apply, U)
        values, V = power(self.apply, self.start, iterations)
        return values * self.scale, V


def sites(shards: Sequence[Array], k: int, kernel: bool) -> list[Site]:
    """Return the clients of a run with seed 0."""

    def site(client: int, X: Array) -> Site:
        start = generator("start", 0, client).standard_normal((len(X), k))
        return Site(of_kernel(X), 1.0, start) if kernel else Site(of_table(X), 1 / X.shape[1], start)

    return at_clients(site, range(len(shards)), shards)


def vfedpca(
    shards: Sequence[Array],
    k: int,
    iterations: int,
    rounds: int,
    *,
    kernel: bool = False,
    cells: Sequence[Sequence[int]] | None = None,
) -> list[Array]:
    """Return what each merge ends with: of all clients (one), or of the clients in each cell of a graph."""
    nodes, cells = sites(shards, k, kernel), cells or [range(len(shards))]
    merged: list[Any] = [None]
    for _ in range(rounds):
        at_each = merged * len(nodes) if len(merged) == 1 else merged
        pairs = at_clients(lambda node, U: node.iterate(U, iterations), nodes, at_each)
        merged = [merge([pairs[client] for client in cell]) for cell in cells]
    return merged


def vfedpca_exact(shards: Sequence[Array], k: int, iterations: int, tol: float) -> tuple[Array, Array]:
    """Merge once, then block Lanczos on the sum of the clients' matrices."""
    nodes = sites(shards, k, kernel=False)
    Q = merge(at_clients(lambda node: node.iterate(None, iterations), nodes))
    basis, products, T = np.empty((len(Q), 0)), np.empty((len(Q), 0)), np.empty((0, 0))
    while True:
        block = sum(at_clients(lambda node, Q: node.apply(Q), nodes, [Q] * len(nodes)))
        basis, products = np.hstack([basis, Q]), np.hstack([products, block])
        border = times_transposed(basis, block)
        T = np.block([[T, border[: len(T)]], [border[: len(T)].T, border[len(T) :]]])
        values, S = np.linalg.eigh((T + T.T) / 2)
        values, S = values[: -k - 2 : -1], S[:, : -k - 2 : -1]
        V = basis @ S
        residual = products @ S - V * values
        if len(values) > k:
            gap = values[k - 1] - values[k] - np.linalg.norm(residual[:, k])
            if 0 <= np.linalg.norm(residual[:, :k]) <= tol * gap:
                return values[:k], V[:, :k]
        Q = block
        for _ in range(2):
            Q = np.linalg.qr(Q - basis @ times_transposed(basis, Q))[0]


@dataclass
class Node:
    """A node of the ADMM: its cell's kernel blocks, its own spectrum, and what its iterations change."""

    K: Array
    own: slice
    parts: list[slice]
    values: Array
    V: Array
    a: Array
    G: Array
    M: Array


def admm(tables: Sequence[Array], cells: Sequence[Sequence[int]], gamma: float, iterations: int) -> list[Array]:
    """Equations 10 to 13 with the penalty of assumption 2; return each node's direction, of unit length."""

    def begin(j: int, cell: Sequence[int]) -> Node:
        ends = np.cumsum([0, *(len(tables[q]) for q in cell)])
        parts = [slice(*pair) for pair in itertools.pairwise(ends)]
        pooled = np.vstack([tables[q] for q in cell])
        K = rbf(pooled, pooled, gamma)
        for rows in parts:
            for columns in parts:
                B = K[rows, columns]
                means = B.mean(axis=1, keepdims=True)
                B -= B.mean(axis=0) + (means - means.mean())
        own = parts[cell.index(j)]
        values, V = scipy.linalg.eigh(K[own, own], driver="evd", check_finite=False)
        above = values > 1e-3 * values[-1]
        values, V = values[above], V[:, above]
        zeros = np.zeros((len(V), len(cell)))
        return Node(K, own, parts, values, V, V[:, -1] / np.sqrt(values[-1]), zeros, zeros)

    def bound(node: Node) -> float:
        first, cubes, p = node.values[-1], (node.values**3).sum(), len(node.parts)
        return (first**2 + np.sqrt(first**4 + 8 * p * first * cubes)) / (p * first)

    def likeness(cell: Sequence[int], node: Node) -> Array:
        products = node.K[:, node.own] @ node.a
        return np.array([nodes[q].a @ products[part] for q, part in zip(cell, node.parts, strict=True)])

    nodes = at_clients(begin, range(len(cells)), cells)
    rho = max(map(bound, nodes))
    cosines = np.zeros((len(cells), len(cells)))
    for j, (cell, row) in enumerate(zip(cells, at_clients(likeness, cells, nodes), strict=True)):
        cosines[j, list(cell)] = row
    # starts agree in sign along the tree of the most alike
    costs = np.where(cosines, 2 - np.abs(cosines), 0)
    np.fill_diagonal(costs, 0)
    order, parents = breadth_first_order(minimum_spanning_tree(costs), 0, directed=False)
    signs = np.ones(len(cells))
    for j in order[1:]:
        signs[j] = signs[parents[j]] * np.sign(cosines[parents[j], j])
    for node, sign in zip(nodes, signs, strict=True):
        node.a *= sign

    def consensus(j: int, cell: Sequence[int]) -> list[Array]:
        c = [nodes[q].M[:, cells[q].index(j)] + rho * nodes[q].a for q in cell]
        c = np.concatenate(c) / (rho * len(cell))
        z = nodes[j].K @ c
        z /= max(1.0, np.sqrt(max(c @ z, 0.0)))
        return [z[part] for part in nodes[j].parts]

    def direction(j: int, cell: Sequence[int]) -> None:
        node = nodes[j]
        Z = np.column_stack([z[q][cells[q].index(j)] for q in cell])
        values, V = node.values, node.V
        b = (V.T @ (rho * Z.sum(axis=1) - node.G.sum(axis=1))) / (rho * len(cell) * values - 2 * values**2)
        node.a = V @ b
        node.G = node.G + rho * ((V @ (values * b))[:, None] - Z)
        node.M = V @ ((V.T @ node.G) / values[:, None])

    with blas_threads(1), ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for _ in range(iterations):
            z = list(pool.map(consensus, range(len(cells)), cells))
            list(pool.map(direction, range(len(cells)), cells))
    return [node.a / np.linalg.norm(np.sqrt(node.values) * (node.V.T @ node.a)) for node in nodes]


def lanczos(apply: Apply, size: int, wanted: Callable[[Array], int], tol: float = 1e-10) -> tuple[Array, Array]:
    """Return the leading eigenpairs, of which `wanted` says by the Ritz values how many: one vector a step."""
    Q, T = np.empty((size, size)), np.zeros((size, size))
    q = np.random.default_rng(0).standard_normal(size)
    for m in range(1, size + 1):
        Q[:, m - 1] = q / np.linalg.norm(q)
        basis = Q[:, :m]
        product = apply(Q[:, m - 1])
        q = product - basis @ (basis.T @ product)
        q -= basis @ (basis.T @ q)
        T[:m, m - 1] = T[m - 1, :m] = basis.T @ product
        values, S = np.linalg.eigh(T[:m, :m])
        values, S = values[::-1], S[:, ::-1]
        count, left = wanted(values), np.linalg.norm(q)
        # one pair more tells that nothing above is still to come
        if m == size or (count < m and left * np.abs(S[-1, : count + 1]).max() <= tol * values[0]):
            return values[:count], basis @ S[:, :count]
    raise AssertionError("all vectors are a basis")


def fk_kmeans(
    shards: Sequence[Array], k: int, D: int, rounds: int, samples: int, *, by_lanczos: bool = False
) -> tuple[list[Array], list[Array]]:
    """Embed rows by algorithm 1, cluster them, and return both, by client.

    The eigenproblem is that of the summed products of columns, or Lanczos' algorithm asks for a product at a time.
    """
    rows, mean = sum(map(len, shards)), sum(at_clients(lambda X: X.sum(axis=0), shards))
    mean /= rows

    def scatter(X: Array) -> float:
        return sum(float(np.square(X[part] - mean).sum()) for part in blocks(len(X)))

    gamma = rows / (4 * sum(at_clients(scatter, shards)))
    # the columns [A_t, B_t] of every client are kept from one iteration to the next
    held = [np.empty((len(X), 0)) for X in shards]
    M = np.empty((0, 0))
    penalty = 0.0

    def advance(client: int, X: Array, frequencies: Array, M: Array) -> Array:
        r = M.shape[1]
        W, G = np.empty((len(X), D + r)), np.zeros((D + r, D + r))
        for part in blocks(len(X)):
            angles = X[part] @ frequencies
            np.cos(angles, out=W[part, : D // 2])
            np.sin(angles, out=W[part, D // 2 : D])
            W[part, :D] *= np.sqrt(2)
            np.matmul(held[client][part], M, out=W[part, D:])
            if not by_lanczos:
                G += W[part].T @ W[part]
        held[client] = W
        return G

    def pairs_of(G: Array, w: Array, wanted: Callable[[Array], int]) -> tuple[Array, Array]:
        if by_lanczos:

            def apply(v: Array) -> Array:
                return w * sum(W.T @ (W @ (w * v)) for W in held)

            with blas_threads(1):
                return lanczos(apply, len(w), wanted)
        values, V = np.linalg.eigh(w[:, None] * G * w)
        values, V = values[::-1], V[:, ::-1]
        return values[: (count := wanted(values))], V[:, :count]

    for t in range(1, rounds + 1):
        eta, d = 1 / t, shards[0].shape[1]
        drawn = generator("random features", 0, t, d).standard_normal((d, D // 2))
        frequencies = np.hstack([turned(drawn[:, first : first + d]) for first in range(0, D // 2, d)])
        frequencies *= np.sqrt(2 * gamma)
        moved = M if t > 1 else np.empty((0, 0))
        G = sum(at_clients(partial(advance, frequencies=frequencies, M=moved), range(len(shards)), shards))
        w = np.concatenate([np.full(D, np.sqrt(eta / D)), np.full(len(G) - D, np.sqrt(1 - eta))])
        if not penalty:
            values, V = pairs_of(G, w, lambda values: k + 2)
            penalty = values[k + 1]
        else:
            values, V = pairs_of(G, w, lambda values: int((values > eta * penalty).sum()))  # noqa: B023 - used at once
        above = values > eta * penalty
        values, V = values[above], V[:, above]
        shrunk = values - eta * penalty
        M = w[:, None] * V * np.sqrt(shrunk / values)
    last = M[:, :k] * np.sqrt((values[:k] + (1 - eta) * penalty) / shrunk[:k])
    H = at_clients(lambda W: W @ last, held)
    return H, clusters(H, k, samples)


def turned(G: Array) -> Array:
    """Return orthogonal columns as long as those of a normal array of 1024 rows at most (Yu et al., 2016)."""
    if len(G) > 1024:
        return G
    Q, R = np.linalg.qr(G)
    return Q * np.copysign(np.linalg.norm(G, axis=0), np.diagonal(R))


def clusters(H: Sequence[Array], k: int, samples: int) -> list[Array]:
    """Divide rows by distributed k-means (Balcan, Ehrlich, Liang); return their labels, by client."""

    def lloyd(points: Array, rng: np.random.Generator, restarts: int, weights: Array | None = None) -> KMeans:
        with openmp_threads(1):
            return KMeans(k, n_init=restarts, random_state=int(rng.integers(2**31))).fit(points, sample_weight=weights)

    def distances(points: Array, centers: Array) -> tuple[Array, Array]:
        squares = np.square(points).sum(axis=1)[:, None] - 2 * points @ centers.T + np.square(centers).sum(axis=1)
        return squares.argmin(axis=1), np.maximum(squares.min(axis=1), 0)

    def solve(client: int, points: Array) -> tuple[Array, Array, Array]:
        centers = lloyd(points, generator("local k-means", 0, client), 1).cluster_centers_
        return centers, *distances(points, centers)

    solved = at_clients(solve, range(len(H)), H)
    totals = np.array([costs.sum() for *_, costs in solved])
    exact = samples * (totals / totals.sum())
    counts = np.floor(exact).astype(int)
    counts[np.argsort(counts - exact, kind="stable")[: samples - counts.sum()]] += 1
    points, weights = [], []
    for client, (centers, labels, costs) in enumerate(solved):
        total = totals[client]
        drawn = generator("coreset", 0, client).choice(len(costs), size=counts[client], p=costs / total)
        own, near, sizes = total / (counts[client] * costs[drawn]), labels[drawn], np.bincount(labels, minlength=k)
        mass = np.bincount(near, weights=own, minlength=k)
        points += [H[client][drawn], centers]
        weights += [own * np.minimum(1.0, sizes[near] / mass[near]), np.maximum(sizes - mass, 0.0)]
    weights = np.concatenate(weights)
    there = weights > 0
    common = lloyd(np.vstack(points)[there], generator("k-means", 0), 10, weights[there]).cluster_centers_
    return at_clients(lambda points: distances(points, common)[0], H)


def diskpca(
    read: Callable[[int, int], Array], clients: int, block_count: int, gamma: float, k: int, *, drawn: tuple[int, int]
) -> Array:
    """Return the eigenvalues of rows that are read block by block, float32, in the span of some of them."""
    m, t = 500, 50
    rng = np.random.default_rng(0)
    d = read(0, 0).shape[1]
    W = (rng.standard_normal((d, m)) * np.sqrt(2 * gamma)).astype(np.float32)
    b = rng.uniform(0, 2 * np.pi, m).astype(np.float32)
    ones = np.ones(m // t, np.float32)

    def passing(work: Callable[[Array], Array]) -> list[list[Array]]:
        def at_client(client: int) -> list[Array]:
            return [work(read(client, number)) for number in range(block_count)]

        return at_clients(at_client, range(clients))

    embedded: dict[int, Array] = {}

    def embed(client: int) -> Array:
        own, total = [], np.zeros((t, t))
        for number in range(block_count):
            X = read(client, number)
            angles = X @ W
            angles += b
            E = (np.cos(angles, out=angles).reshape(-1, m // t) @ ones).reshape(len(X), t)
            own.append(E)
            total += E.T @ E
        embedded[client] = np.vstack(own)
        return total

    values, V = np.linalg.eigh(sum(at_clients(embed, range(clients))))
    R = (V / np.sqrt(values)).astype(np.float32)[:, values > 1e-6 * values[-1]]
    scores = at_clients(lambda client: np.square(embedded[client] @ R).sum(axis=1), range(clients))
    landmarks = pick(read, scores, drawn[0], rng)

    def span(Y: Array) -> Array:
        values, V = np.linalg.eigh(rbf(Y, Y, gamma).astype(np.float64))
        return (V / np.sqrt(np.maximum(values, 1e-300)))[:, values > 3e-4 * values[-1]].astype(np.float32)

    Q = span(landmarks)
    rest = passing(lambda X: np.maximum(1 - np.square(rbf(X, landmarks, gamma) @ Q).sum(axis=1), 0))
    landmarks = np.vstack([landmarks, pick(read, [np.concatenate(own) for own in rest], drawn[1], rng)])
    Q = span(landmarks)

    def products(client: int) -> Array:
        total = np.zeros((len(landmarks), len(landmarks)))
        for number in range(block_count):
            K = rbf(read(client, number), landmarks, gamma)
            total += K.T @ K
        return total

    values, V = np.linalg.eigh(Q.T @ sum(at_clients(products, range(clients))) @ Q)
    C = (Q @ V[:, : -k - 1 : -1]).astype(np.float32)
    passing(lambda X: rbf(X, landmarks, gamma) @ C)
    return values[: -k - 1 : -1]


def pick(read: Callable[[int, int], Array], weights: Sequence[Array], count: int, rng: np.random.Generator) -> Array:
    """Draw different rows in proportion to their weights."""
    sums = np.array([own.sum(dtype=np.float64) for own in weights])
    rows = []
    for client, number in enumerate(rng.multinomial(count, sums / sums.sum())):
        own = weights[client].astype(np.float64)
        size = len(read(client, 0))
        for place in rng.choice(len(own), number, replace=False, p=own / own.sum()):
            rows.append(read(client, int(place) // size)[int(place) % size])
    return np.array(rows)
