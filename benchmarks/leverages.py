"""How far honest runs single rows out: the largest leverage that `fedkernel.protocol.guards` sees of their vectors.

``python benchmarks/leverages.py`` runs VFedPCA with 4 clients that share the columns, and FK k-means without CEM with
1 and 3 clients that share the rows, and prints dimension and leverage of the span of all vectors that a client gets.
"""

import contextlib
import io
import logging

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.preprocessing import StandardScaler

from fedkernel.protocol import Guards, KernelClient
from fedkernel.protocol.guards import Probed
from strategies import FKKMeans, VFedAKPCA, VFedPCA

SEEN: list[tuple[float, int]] = []
ALL = Guards(probed_share=1.0, leverage=1.0)


def watched(self, answer, request, config):
    """Answer as the class does, and note what its guard would see."""
    for field in request.probes:
        if (vectors := getattr(request, field)) is not None:
            with contextlib.suppress(ValueError):  # a rounded 1.0 is more than 1
                ALL.check_probes(field, vectors, self.memory, request.draw)
            basis = Probed.load(self.memory).basis
            SEEN.append((float(np.square(basis).sum(axis=1).max()), basis.shape[1]))
    return answer(request)


def show(what, strategy, shards):
    SEEN.clear()
    with contextlib.redirect_stderr(io.StringIO()):
        strategy.fit(shards, seed=0)
    leverage, dimension = max(SEEN)
    print(f"{what:60s} n = {len(shards[0]):4d}  dimension {dimension:3d}  leverage {leverage:.2f}", flush=True)


def main():
    logging.disable()
    KernelClient._respond = watched
    for name, load in (("wine", load_wine), ("breast cancer", load_breast_cancer), ("digits", load_digits)):
        X = load().data[np.random.default_rng(0).permutation(len(load().data))]
        for scale, table in (("", X), (", standardised", StandardScaler().fit_transform(X))):
            for k in (1, 3, 5):
                columns = np.array_split(table, 4, axis=1)
                for merge in ("exact", "eigenvalue"):
                    show(f"{name}{scale}: VFedPCA {merge}, k = {k}", VFedPCA(k, merge=merge), columns)
                if len(X) < 1000:
                    show(f"{name}{scale}: VFedAKPCA exact, k = {k}", VFedAKPCA(k, merge="exact"), columns)
            for k in (3, 10):
                strategy = FKKMeans(k, cem=False, iterations=5)
                for clients in (1, 3):
                    if len(X) >= 100 * clients:
                        show(f"{name}{scale}: FK k-means, k = {k}", strategy, np.array_split(table, clients))


if __name__ == "__main__":
    main()
