"""Slow, obvious implementations of the papers, written from their formulas alone: the oracles of the tests.

Nothing here shares code with the project, and nothing is clever: full decompositions, explicit matrices, loops.
"""

import zlib

import numpy as np


def kernel_matrix(X, Y, type, gamma=None, degree=3, coef0=1.0):
    """Every entry by its definition."""
    K = np.empty((len(X), len(Y)))
    for i, x in enumerate(X):
        for j, y in enumerate(Y):
            if type == "linear":
                K[i, j] = x @ y
            elif type == "rbf":
                K[i, j] = np.exp(-gamma * np.sum((x - y) ** 2))
            elif type == "laplacian":
                K[i, j] = np.exp(-gamma * np.sum(np.abs(x - y)))
            elif type == "polynomial":
                K[i, j] = (gamma * (x @ y) + coef0) ** degree
            elif type == "sigmoid":
                K[i, j] = np.tanh(gamma * (x @ y) + coef0)
    return K


def top(K, D):
    """Leading eigenpairs by a full decomposition."""
    values, vectors = np.linalg.eigh((K + K.T) / 2)
    return values[::-1][:D], vectors[:, ::-1][:, :D]


def centred(K):
    J = np.eye(len(K)) - np.ones_like(K) / len(K)
    return J @ K @ J


def sin_theta(V, W):
    return V.shape[1] - np.linalg.norm(V.T @ W) ** 2


def dkpca(shards, kernel, D, local, center=False):
    """Algorithm 1 of the letter. ``local``: D_m, or ("adaptive", epsilon). Returns values, vectors, floats sent."""
    inner = kernel["type"] in ("linear", "polynomial", "sigmoid")
    total, sent = None, 0
    for X in shards:
        K = kernel_matrix(X, X, "linear") if inner else kernel_matrix(X, X, **kernel)
        values, vectors = top(K, len(K))
        if isinstance(local, tuple):
            D_m = next((d for d in range(1, len(K)) if values[d] <= local[1] * values[0]), len(K))
        else:
            D_m = min(local, X.shape[1]) if inner else local
        part = sum(values[d] * np.outer(vectors[:, d], vectors[:, d]) for d in range(D_m))
        sent += D_m * (len(K) + 1)
        if total is None:
            total = part
        else:
            total = total + part if inner else total * part
    if kernel["type"] == "polynomial":
        total = (kernel["gamma"] * total + kernel["coef0"]) ** kernel["degree"]
    if kernel["type"] == "sigmoid":
        total = np.tanh(kernel["gamma"] * total + kernel["coef0"])
    values, vectors = top(centred(total) if center else total, D)
    return values, vectors, sent


def start_vector(seed, client, N):
    """The project's rule for random numbers: one generator per seed, client and purpose."""
    words = [seed, client, zlib.crc32(b"start")]
    return np.random.default_rng(np.random.SeedSequence(words)).standard_normal((N, 1))[:, 0]


def vfedpca(
    shards, seed, rounds, iterations, update="inplace", weights="eigenvalue", scaling=False, warm=False, align=True
):
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
        if align:
            best = vectors[int(np.argmax(alphas))]
            vectors = [a if a @ best >= 0 else -a for a in vectors]
        u = sum(weight * a for weight, a in zip(w, vectors, strict=True))
        merged.append(u / np.linalg.norm(u))
    return merged, tables


def up_to_sign(u, v):
    """Distance of two unit vectors whose signs mean nothing."""
    return min(np.linalg.norm(u - v), np.linalg.norm(u + v))


def dspgd(features, T, k, s, penalty=None):
    """Algorithm 1 of the federated kernel k-means paper on (N, N) matrices: Z_t itself, no factor W_t, no clients.

    ``features(t)``: A_t. Returns the estimates K_1, ..., K_T, and the last one's eigenvalues.
    """
    Z, estimates = None, []
    for t in range(1, T + 1):
        A, eta = features(t), 1 / t
        xi = A @ A.T / A.shape[1]
        R = xi if Z is None else (1 - eta) * Z + eta * xi
        values, vectors = top(R, len(R))
        if penalty is None:
            penalty = values[k + 1]
        above = values > eta * penalty
        Z = sum((x - eta * penalty) * np.outer(u, u) for x, u in zip(values[above], vectors[:, above].T, strict=True))
        count = min(s, above.sum())
        restored = values[:count] + (1 - eta) * penalty
        estimates.append(sum(x * np.outer(u, u) for x, u in zip(restored, vectors.T, strict=False)))
    return estimates, restored
