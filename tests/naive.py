"""Slow, obvious implementations of the papers, written from their formulas alone: the oracles of the tests.

Nothing here shares code with the project, and nothing is clever: full decompositions, explicit matrices, loops.
"""

import dataclasses
import itertools
import zlib

import numpy as np


def kernel_matrix(X, Y, type, gamma=None, degree=3, coef0=1.0):
    """Every entry by its definition."""
    entry = {
        "linear": lambda x, y: x @ y,
        "rbf": lambda x, y: np.exp(-gamma * np.sum((x - y) ** 2)),
        "laplacian": lambda x, y: np.exp(-gamma * np.sum(np.abs(x - y))),
        "polynomial": lambda x, y: (gamma * (x @ y) + coef0) ** degree,
        "sigmoid": lambda x, y: np.tanh(gamma * (x @ y) + coef0),
    }[type]
    return np.array([[entry(x, y) for y in Y] for x in X])


def top(K, D):
    """Leading eigenpairs by a full decomposition."""
    values, vectors = np.linalg.eigh((K + K.T) / 2)
    return values[::-1][:D], vectors[:, ::-1][:, :D]


def centred(K):
    J = np.eye(len(K)) - np.ones_like(K) / len(K)
    return J @ K @ J


def sin_theta(V, W):
    return V.shape[1] - np.linalg.norm(V.T @ W) ** 2


def truncated(K, local, most):
    """The leading D_m eigenpairs of a matrix, put together again, and D_m: ``local`` or ("adaptive", epsilon)."""
    values, vectors = top(K, len(K))
    if isinstance(local, tuple):
        D_m = next((d for d in range(1, len(K)) if values[d] <= local[1] * values[0]), len(K))
    else:
        D_m = min(local, most)
    return sum(values[d] * np.outer(vectors[:, d], vectors[:, d]) for d in range(D_m)), D_m


def dkpca(shards, kernel, D, local, center=False):
    """Algorithm 1 of the letter. Returns values, vectors, floats sent."""
    inner = kernel["type"] in ("linear", "polynomial", "sigmoid")
    N, sent = len(shards[0]), 0
    total = np.zeros((N, N)) if inner else np.ones((N, N))
    for X in shards:
        K = kernel_matrix(X, X, "linear") if inner else kernel_matrix(X, X, **kernel)
        part, D_m = truncated(K, local, X.shape[1] if inner else N)
        sent += D_m * (N + 1)
        total = total + part if inner else total * part
    if kernel["type"] == "polynomial":
        total = (kernel["gamma"] * total + kernel["coef0"]) ** kernel["degree"]
    if kernel["type"] == "sigmoid":
        total = np.tanh(kernel["gamma"] * total + kernel["coef0"])
    values, vectors = top(centred(total) if center else total, D)
    return values, vectors, sent


def dkpca_of_distances(shards, gamma, D, local, center=False):
    """The same for an RBF kernel, ||x - y||^2 = <x, x> + <y, y> - 2 <x, y> of the clients' truncated inner products."""
    sent, N = 0, len(shards[0])
    total = np.zeros((N, N))
    for X in shards:
        part, D_m = truncated(centred(kernel_matrix(X, X, "linear")), local, X.shape[1])
        total += part
        sent += D_m * (N + 1)
    K = np.array([[np.exp(-gamma * (total[i, i] + total[j, j] - 2 * total[i, j])) for j in range(N)] for i in range(N)])
    values, vectors = top(centred(K) if center else K, D)
    return values, vectors, sent


def generator(purpose, *words):
    """The project's rule for random numbers: one generator per seed (and client), and purpose."""
    return np.random.default_rng(np.random.SeedSequence([*words, zlib.crc32(purpose.encode())]))


def start_vector(seed, client, N):
    return generator("start", seed, client).standard_normal((N, 1))[:, 0]


def vfedpca(shards, seed, rounds, iterations, update="inplace", weights="eigenvalue", scaling=False, warm=False):
    """Algorithms 2 to 4 on column-centred tables. Returns the merged vector of every round and the clients' tables."""
    originals = [X - X.mean(axis=0) for X in shards]
    tables = [X.copy() for X in originals]
    merged = []
    for _ in range(rounds):
        alphas, vectors = [], []
        for client in range(len(shards)):
            if merged:
                X = tables[client] if update == "inplace" else originals[client]
                M = (X.T @ merged[-1])[:, None]
                tables[client] = X @ (M @ M.T) / np.linalg.norm(M @ M.T)
            X = tables[client]
            A = X @ X.T / X.shape[1]
            a = merged[-1] if warm and merged else start_vector(seed, client, len(X))
            for _ in range(iterations):
                a = A @ a / np.linalg.norm(A @ a)
            alphas.append(a @ A @ a)
            vectors.append(a)
        w = np.array(alphas) / np.sum(alphas) if weights == "eigenvalue" else np.ones(len(shards)) / len(shards)
        if scaling:
            order, eta = np.argsort(alphas)[::-1], np.sum(w) / len(w)
            for place, client in enumerate(order):
                w[client] *= 1 + eta if place < np.ceil(len(w) / 2) else 1 - eta
        best = vectors[int(np.argmax(alphas))]
        vectors = [a if a @ best >= 0 else -a for a in vectors]
        u = sum(weight * a for weight, a in zip(w, vectors, strict=True))
        merged.append(u / np.linalg.norm(u))
    return merged, tables


def vfedakpca(shards, kernel, seed, rounds, iterations):
    """The same on centred kernel matrices. Equation 14, X <- X M M^T / ||M M^T|| with M = X^T u, in K = X X^T alone."""
    kernels = [centred(kernel_matrix(X, X, **kernel)) for X in shards]
    merged = None
    for _ in range(rounds):
        alphas, vectors = [], []
        for client in range(len(shards)):
            if merged is not None:
                Ku = kernels[client] @ merged
                kernels[client] = np.outer(Ku, Ku) / (merged @ Ku)
            a = start_vector(seed, client, len(merged if merged is not None else shards[0]))
            for _ in range(iterations):
                a = kernels[client] @ a / np.linalg.norm(kernels[client] @ a)
            alphas.append(a @ kernels[client] @ a)
            vectors.append(a)
        best = vectors[int(np.argmax(alphas))]
        u = sum(alpha * (a if a @ best >= 0 else -a) for alpha, a in zip(alphas, vectors, strict=True))
        merged = u / np.linalg.norm(u)
    return merged


def peer_vfedpca(shards, cells, rounds):
    """Algorithm 5 by full decompositions: each client merges the leading vectors in its cell, then equation 14."""
    tables = [X - X.mean(axis=0) for X in shards]
    merged = []
    for _ in range(rounds):
        leading = []
        for X in tables:
            values, V = np.linalg.eigh(X @ X.T / X.shape[1])
            leading.append((values[-1], V[:, -1]))
        merged = []
        for cell in cells:
            values = np.array([leading[q][0] for q in cell])
            first = leading[cell[int(np.argmax(values))]][1]
            u = sum(w * v * np.sign(v @ first) for w, v in zip(values, [leading[q][1] for q in cell], strict=True))
            merged.append(u / np.linalg.norm(u))
        for client, u in enumerate(merged):
            M = tables[client].T @ u
            tables[client] = tables[client] @ np.outer(M, M) / (M @ M)
    return merged


def forwarded(cells):
    """Whose vectors each client has once neighbours have forwarded them for long enough, and after how many rounds."""
    reached, rounds = [set(cell) for cell in cells], 1
    while any(len(known) < len(cells) for known in reached):
        reached, rounds = [set().union(*(reached[q] for q in cell)) for cell in cells], rounds + 1
    return [sorted(known) for known in reached], rounds


def up_to_sign(u, v):
    """Distance of two unit vectors whose signs mean nothing."""
    return min(np.linalg.norm(u - v), np.linalg.norm(u + v))


def dspgd(features, T, s, penalty=None, accuracy=0.0):
    """Algorithm 1 of the federated kernel k-means paper on (N, N) matrices: Z_t itself, no factor W_t, no clients.

    ``features(t)``: A_t. ``s``: how many eigenvalues, or the least and the most of them, of which it is after how many
    the first iteration's fall by the largest factor. The penalty is that iteration's (s + 2)-th, for s = k the paper's.
    Returns the estimates K_1, ..., K_T, and the last one's eigenvalues.

    Z_{t+1} as a mean of t estimates of variance V moves by V / (t (t - 1)) in square, and is off by V / t: iterations
    end once that is ``accuracy`` of K_t's square, all norms being those of the matrices.
    """
    Z, estimates, variances = None, [], []
    for t in range(1, T + 1):
        A, eta = features(t), 1 / t
        xi = A @ A.T / A.shape[1]
        R = xi if Z is None else (1 - eta) * Z + eta * xi
        values, vectors = top(R, len(R))
        if isinstance(s, tuple):
            s = max(range(s[0], s[1] + 1), key=lambda s: values[s - 1] / values[s])
        if penalty is None:
            penalty = values[s + 1]
        above = values > eta * penalty
        before = Z
        Z = sum((x - eta * penalty) * np.outer(u, u) for x, u in zip(values[above], vectors[:, above].T, strict=True))
        count = min(s, above.sum())
        restored = values[:count] + (1 - eta) * penalty
        estimates.append(sum(x * np.outer(u, u) for x, u in zip(restored, vectors.T, strict=False)))
        if t > 1:
            variances.append(t * (t - 1) * np.linalg.norm(Z - before) ** 2)
            if accuracy > 0 and np.mean(variances) / t <= accuracy * np.linalg.norm(estimates[-1]) ** 2:
                break
    return estimates, restored


def cosines(X, gamma, count, seed, pairs=False):
    """Random Fourier features: cosines of independent frequencies, or cosines and sines of half as many, orthogonal."""
    rng = generator("random features", seed, 1, X.shape[1])
    w = rng.standard_normal((X.shape[1], count // 2 if pairs else count)) * np.sqrt(2 * gamma)
    if pairs:
        w = orthogonal_in_blocks(w)
        return np.sqrt(2) * np.hstack([np.cos(X @ w), np.sin(X @ w)])
    return np.sqrt(2) * np.cos(X @ w + rng.uniform(0, 2 * np.pi, count))


def orthogonal_in_blocks(G):
    """Gram and Schmidt on blocks of as many columns as rows; lengths stay."""
    turned, d = G.copy(), len(G)
    for j in range(G.shape[1]):
        for before in turned[:, j - j % d : j].T:
            turned[:, j] -= before * (before @ turned[:, j]) / (before @ before)
    return turned * np.linalg.norm(G, axis=0) / np.linalg.norm(turned, axis=0)


def structured(rng, d, count):
    """H D1 H D2 H D3 of Yu et al. (2016), section 4, block by block, times lengths of normal vectors: (d, count)."""
    p, H = 1, np.ones((1, 1))
    while p < d:
        p, H = 2 * p, np.block([[H, H], [H, -H]]) / np.sqrt(2)
    signs = 2.0 * rng.integers(0, 2, (-(-count // p), 3, p), dtype=np.int8) - 1
    blocks = [H @ np.diag(D1) @ H @ np.diag(D2) @ H @ np.diag(D3) for D3, D2, D1 in signs]
    return (np.sqrt(rng.chisquare(p, count))[:, None] * np.vstack(blocks)[:count, :d]).T


def paper_width(X):
    """The gamma of the federated kernel k-means paper: N^2 / (2 sum_ij ||x_i - x_j||^2)."""
    return len(X) ** 2 / (2 * sum(np.sum((x - y) ** 2) for x in X for y in X))


def coreset_weights(points, centers, drawn):
    """Balcan, Ehrlich, Liang (2013), algorithm 1: what the drawn points weigh, by position, and then the centres.

    A point q of cost m_q weighs sum(m) / (C m_q), and a centre the number of its points less what they weigh. Where the
    algorithm has that negative, the points share the number, and the centre weighs 0.
    """
    squared = [[sum((x - c) ** 2) for c in centers] for x in points]
    nearest, costs = [int(np.argmin(row)) for row in squared], [min(row) for row in squared]
    weights, left = [sum(costs) / (len(drawn) * costs[q]) for q in drawn], []
    for b in range(len(centers)):
        number, own = nearest.count(b), [i for i, q in enumerate(drawn) if nearest[q] == b]
        mass = sum(weights[i] for i in own)
        if mass > number:
            for i in own:
                weights[i] *= number / mass
        left.append(max(number - mass, 0))
    return weights + left


def silhouette(points, weights, labels):
    """The mean of (b - a) / max(a, b) by weight, a and b weighted means over other points: a pair at a time."""
    there = [i for i in range(len(points)) if weights[i] > 0]
    total = 0.0
    for i in there:
        means = {}
        for label in {labels[j] for j in there}:
            others = [j for j in there if labels[j] == label and j != i]
            if others:
                distances = [np.linalg.norm(points[i] - points[j]) for j in others]
                means[label] = np.average(distances, weights=[weights[j] for j in others])
        if (own := means.pop(labels[i], None)) is not None:
            nearest = min(means.values())
            total += weights[i] * (nearest - own) / max(nearest, own)
    return total / sum(weights[i] for i in there)


def simplified_silhouette(points, centers):
    """The mean of (b - a) / b, a and b the distances to the nearest and the next centre."""
    ordered = [sorted(np.linalg.norm(point - center) for center in centers)[:2] for point in points]
    return sum((b - a) / b for a, b in ordered) / len(points)


def clustering_objective(K, labels):
    """Equation 1 of the federated kernel k-means paper: Tr(K) - Tr(L^1/2 Y^T K Y L^1/2), of every cluster with rows."""
    Y = np.array([[float(label == cluster) for cluster in sorted(set(labels))] for label in labels])
    L = np.diag(1 / np.sqrt(Y.sum(axis=0)))
    return np.trace(K) - np.trace(L @ Y.T @ K @ Y @ L)


def best_clusters(H, k, rows=None):
    """k-means from every k rows as a start, the best: for each pair of rows, or of others, if they are together."""
    best, together = np.inf, None
    rows, distinct = H if rows is None else rows, np.unique(H, axis=0, return_index=True)[1]
    for start in itertools.combinations(sorted(distinct), k):
        centers, before = H[list(start)], None
        while before is None or not np.array_equal(before, centers):
            squared = ((H[:, None] - centers[None]) ** 2).sum(axis=2)
            labels, before = squared.argmin(axis=1), centers
            members = [H[labels == j] for j in range(k)]
            centers = np.array([m.mean(axis=0) if len(m) else c for m, c in zip(members, centers, strict=True)])
        if (cost := squared.min(axis=1).sum()) < best - 1e-9:
            labels = ((rows[:, None] - centers[None]) ** 2).sum(axis=2).argmin(axis=1)
            best, together = cost, labels[:, None] == labels[None, :]
    return together


def coordinates_in_span(K, landmarks, k):
    """disLR of the disKPCA paper: all rows' coordinates on the leading components within the landmarks' span."""
    values, V = top(K[np.ix_(landmarks, landmarks)], len(landmarks))
    Q = V[:, values > 1e-8 * values[0]] / np.sqrt(values[values > 1e-8 * values[0]])
    projected = K[:, landmarks] @ Q
    return projected @ top(projected.T @ projected, k)[1]


def diskpca(shards, gamma, k, draws, embedding, seed):
    """Algorithm 4 of the disKPCA paper, RBF kernel, without sketches of points. ``embedding``: t and m.

    Rows are drawn one after the other, without replacement; no client is asked for more than it has. Returns the
    landmarks' positions among all rows, as they are drawn, and the rows' coordinates.
    """
    X, ends = np.vstack(shards), np.cumsum([0, *(len(shard) for shard in shards)])
    t, m = embedding
    E = cosines(X, gamma, m, seed).reshape(len(X), t, m // t).sum(axis=2) / np.sqrt(m)
    U, s, _ = np.linalg.svd(E, full_matrices=False)
    leverages = (U[:, s > 1e-6 * s[0]] ** 2).sum(axis=1)
    K, rng = kernel_matrix(X, X, "rbf", gamma), generator("draws", seed)

    def drawn(weights, samples, name):
        parts = np.split(weights, ends[1:-1])
        totals = np.array([part.sum() for part in parts])
        positions = []
        for client, count in enumerate(rng.multinomial(samples, totals / totals.sum())):
            own, left, chosen = generator(f"draw by {name}", seed, client), parts[client].copy(), set()
            while len(chosen) < count:  # again and again, until so many are different
                again = own.choice(len(left), count - len(chosen), p=left / left.sum())
                chosen |= set(again)
                left[again] = 0
            positions += [int(ends[client] + row) for row in sorted(chosen)]
        return positions

    P = drawn(leverages, draws[0], "leverages")
    distances = np.array([1 - K[i, P] @ np.linalg.pinv(K[np.ix_(P, P)]) @ K[P, i] for i in range(len(X))])
    distances[P] = 0
    landmarks = P + drawn(distances, draws[1], "distances")
    return landmarks, coordinates_in_span(K, landmarks, k)


def uniform_kpca(shards, gamma, k, samples, seed):
    """Landmarks drawn from all rows alike, without replacement, and disLR."""
    X, sizes = np.vstack(shards), np.array([len(shard) for shard in shards])
    counts = generator("uniform", seed).multivariate_hypergeometric(sizes, samples, method="marginals")
    landmarks = []
    for client, count in enumerate(counts):
        chosen = generator("uniform", seed, client).choice(sizes[client], count, replace=False)
        landmarks += [int(sizes[:client].sum() + row) for row in sorted(chosen)]
    return landmarks, coordinates_in_span(kernel_matrix(X, X, "rbf", gamma), landmarks, k)


def centroids(shards, number, rounds, seed):
    """Lloyd's algorithm over all rows from normal draws: the centres with rows, and these. An empty centre is put
    beside the one of the cell with most squared distances for each of its centres, a tenth of its deviation away."""
    X, rng = np.vstack(shards), generator("centroids", seed)
    centers = X.mean(axis=0) + X.std(axis=0) * rng.standard_normal((number, X.shape[1]))
    for t in range(rounds):
        labels = np.array([np.argmin([np.sum((x - c) ** 2) for c in centers]) for x in X])
        counts = [np.sum(labels == c) for c in range(number)]
        centers = np.array([X[labels == c].mean(axis=0) if counts[c] else centers[c] for c in range(number)])
        there, empty = np.flatnonzero(counts), np.flatnonzero(np.equal(counts, 0))
        if t < rounds - 1:
            costs = [np.sum((X[labels == c] - centers[c]) ** 2) for c in range(number)]
            sharing, moved = [1] * number, centers.copy()
            for draw, c in zip(rng.standard_normal((len(empty), X.shape[1])), empty, strict=True):
                large = int(np.argmax([cost / n for cost, n in zip(costs, sharing, strict=True)]))
                sharing[large] += 1
                beside = 0.1 * np.sqrt(costs[large] / counts[large] / X.shape[1]) * draw
                moved[c] += centers[large] - centers[c] + beside
            centers = moved
    return centers[there], np.array(counts)[there]


def centroid_span(shards, gamma, Y):
    """All rows' coordinates, and those of the centres Y, on an orthonormal basis of the centres' span."""
    K = kernel_matrix(np.vstack([*shards, Y]), Y, "rbf", gamma)
    values, V = top(K[-len(Y) :], len(Y))
    H = K @ V[:, values > 1e-8 * values[0]] / np.sqrt(values[values > 1e-8 * values[0]])
    return H[: -len(Y)], H[-len(Y) :]


def centroid_kpca(shards, gamma, k, number, rounds, seed):
    """disLR in the span of the centres."""
    Y, _ = centroids(shards, number, rounds, seed)
    projected, _ = centroid_span(shards, gamma, Y)
    return Y, projected @ top(projected.T @ projected, k)[1]


def centroid_kmeans(shards, gamma, k, number, rounds, seed):
    """Of the centres, each as often as it has rows, the best clusters; rows are in that of the nearest cluster mean."""
    Y, counts = centroids(shards, number, rounds, seed)
    rows, points = centroid_span(shards, gamma, Y)
    V = top(points.T @ np.diag(counts) @ points, points.shape[1])[1]
    rows, points = rows @ V, points @ V
    return rows, best_clusters(np.repeat(points, counts, axis=0), k, rows)


def aligned(vectors, cells):
    """Signs that agree along the tree of the most similar neighbours: grown from node 0, the nearest node first."""
    vectors, inside = list(vectors), [0]
    while len(inside) < len(vectors):
        edges = [(j, q) for j in inside for q in cells[j] if q not in inside]
        j, q = max(edges, key=lambda edge: abs(vectors[edge[0]] @ vectors[edge[1]]))
        if vectors[j] @ vectors[q] < 0:
            vectors[q] = -vectors[q]
        inside.append(q)
    return vectors


@dataclasses.dataclass
class ADMM:
    """Equations 8 to 13 of the ADMM paper with phi(x) = x / ||x||, all as explicit vectors.

    Directions w_j = phi_j a_j, estimates z_q, multipliers eta. ``phi``: arrays (d, n_j); ``cells``: a node's neighbours
    and itself.
    """

    phi: list
    cells: list
    rho: float

    def __post_init__(self):
        self.w = aligned([np.linalg.eigh(P @ P.T)[1][:, -1] for P in self.phi], self.cells)
        self.span = [P @ np.linalg.pinv(P, rcond=1e-9) for P in self.phi]
        self.eta = {(j, q): np.zeros(len(self.w[0])) for j, cell in enumerate(self.cells) for q in cell}
        self.z = None

    def update_z(self):
        self.z = []
        for q, cell in enumerate(self.cells):
            estimate = sum(self.rho * self.w[j] + self.eta[j, q] for j in cell) / (self.rho * len(cell))
            self.z.append(estimate / max(1.0, np.linalg.norm(estimate)))

    def update_w(self):
        for j, cell in enumerate(self.cells):
            right = self.span[j] @ sum(self.rho * self.z[q] - self.eta[j, q] for q in cell)
            system = self.rho * len(cell) * self.span[j] - 2 * self.phi[j] @ self.phi[j].T
            self.w[j] = np.linalg.pinv(system, rcond=1e-9, hermitian=True) @ right

    def update_eta(self):
        for j, q in self.eta:
            self.eta[j, q] = self.eta[j, q] + self.rho * self.residual(j, q)

    def residual(self, j, q):
        return self.w[j] - self.span[j] @ self.z[q]

    def lagrangian(self):
        parts = [eta @ (r := self.residual(*edge)) + self.rho / 2 * r @ r for edge, eta in self.eta.items()]
        return sum(parts) - sum(np.square(P.T @ w).sum() for P, w in zip(self.phi, self.w, strict=True))

    def relaxed(self):
        """U of problem 9, which the z-step minimises: w_j is to be z_q, not only what of z_q is in the node's span."""
        outside = sum(np.square(self.z[q] - self.span[j] @ self.z[q]).sum() for j, q in self.eta)
        return self.lagrangian() + self.rho / 2 * outside
