"""How far honest runs single rows out: the largest leverage that `fedkernel.protocol.guards` sees of their vectors.

``python benchmarks/leverages.py`` runs VFedPCA with 4 clients that share the columns, and FK k-means without CEM with
1 and 3 clients that share the rows, and prints dimension and leverage of the span of all vectors that a client gets;
at last how long a check takes of each of 40 single vectors, with the memory in Flower's context.
"""

import contextlib
import io
import logging
import time

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.preprocessing import StandardScaler

from fedkernel.protocol import Guards, KernelClient
from fedkernel.protocol.guards import Probed
from fedkernel.site.context_state import Memory
from fedkernel.strategies import FKKMeans, VFedAKPCA, VFedPCA
from fedkernel.wire import flower_internals

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


def show_time(rows):
    vectors = np.linalg.qr(np.random.default_rng(0).standard_normal((rows, 40)))[0]
    memory, seconds = Memory.begin(flower_internals.new_context(1, {}, {}), "run"), []
    for vector in vectors.T:
        began = time.perf_counter()
        Guards().check_probes("block", np.ascontiguousarray(vector[:, None]), memory)
        seconds.append(time.perf_counter() - began)
    print(f"{rows:,} rows: {1e3 * np.median(seconds):.1f} ms for one of 40 vectors, {1e3 * seconds[-1]:.1f} the last")


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
                strategy = FKKMeans(k, k, cem=False, iterations=5)
                for clients in (1, 3):
                    if len(X) >= 100 * clients:
                        show(f"{name}{scale}: FK k-means, k = {k}", strategy, np.array_split(table, clients))
    for rows in (128, 1000, 100_000):
        show_time(rows)


if __name__ == "__main__":
    main()
