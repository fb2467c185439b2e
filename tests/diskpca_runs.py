"""Tables, kernels and runs that the tests of disKPCA share."""

import numpy as np
from scipy import sparse
from scipy.spatial.distance import pdist
from sklearn.datasets import load_digits

from fedkernel import RBF, ArcCosine, Laplacian, Linear, Polynomial
from fedkernel.data import DataSpec, load
from fedkernel.strategies import DisKPCA

DIGITS = load_digits().data
RARE = load(DataSpec("rare-clusters")).X
WIDE = RBF(sigma=3 * float(np.median(pdist(RARE))))
SMALL = load(DataSpec("rare-clusters", options={"n_blob": 120, "n_clusters": 5, "cluster_size": 4, "d": 8})).X
KERNELS = [
    RBF(gamma=0.02),
    Laplacian(gamma=0.05),
    Polynomial(3, 0.05),
    Polynomial(2, 0.1, 0.0),
    ArcCosine(0),
    ArcCosine(1),
    ArcCosine(2),
    Linear(),
]
K = 5


def shards_of(X, clients=3):
    """Cut a table in parts of different sizes."""
    return np.split(X, [len(X) * part * (part + 1) // (clients * (clients + 1)) for part in range(1, clients)])


SKETCHED = {"point_sketch_size": 250, "projection_size": "landmarks"}
"""The paper's sketches."""


def strategy(kernel=KERNELS[0], **fields):
    return DisKPCA(K, kernel, **{"n_adaptive": 20, "share_rows": True} | SKETCHED | fields)


def as_csr(shards):
    return [sparse.csr_array(shard) for shard in shards]


def dense(rows):
    return rows.toarray() if sparse.issparse(rows) else rows
