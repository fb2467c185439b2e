"""Tables for the nodes of a network, and what the tests of decentralised kernel PCA ask of a run."""

import numpy as np
from sklearn.datasets import load_digits

from fedkernel.strategies import ADMMKPCA


def deal(X, y, rows, nodes, classes=(0, 3, 5, 8)):
    """Return tables of so many rows for every node, each with as many of every class."""
    rng = np.random.default_rng(0)
    share = rows // len(classes)
    order = [rng.permutation(np.flatnonzero(y == label)) for label in classes]
    return [X[np.concatenate([own[j * share : (j + 1) * share] for own in order])] for j in range(nodes)]


def digits(rows=40, nodes=10):
    return deal(*load_digits(return_X_y=True), rows, nodes)


def unbalanced_digits(seed, rows, nodes):
    """So many rows at each node, whatever their class."""
    X, y = load_digits(return_X_y=True)
    chosen = np.random.default_rng(seed).permutation(np.flatnonzero(np.isin(y, (0, 3, 5, 8))))[: rows * nodes]
    return list(X[chosen].reshape(nodes, rows, -1))


def spread(nodes, rows=30, seed=0, lengths=(5.0, 3.0, 1.8, 0.5, 0.5, 0.5)):
    """Normal rows whose leading directions are well apart."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((rows, len(lengths))) * lengths for _ in range(nodes)]


def judged(strategy, shards, **options):
    """Return the result, its metrics and the similarity after each iteration."""
    reference = strategy.central(shards)
    result = strategy.fit(shards, **options)
    return result, strategy.judge(result, shards, reference), strategy.judge_steps(result, shards, reference)


def admm(**fields):
    return ADMMKPCA(**{"share_rows": True, "record": True, "iterations": 8, "tol": 0.0} | fields)
