# /// script
# dependencies = ["numpy==2.4.6"]
# ///
"""FedSVD for PCA, written from the paper: exact singular vectors of a matrix that a trusted party's masks hide.

Chai et al.: Practical Lossless Federated SVD over Billion-Scale Data, KDD 2022, section 3. A trusted party hands out
an orthogonal P, by its seed, and to each site its rows of a block-diagonal Q (blocks of 100; larger ones hide more).
Site i adds P X_i Q_i, as large as the whole matrix, to a secure sum, whose k leading left vectors sites unmask by P.
X_i are columns, or rows transposed, of zero mean. Masks of the secure sum are not counted.
"""

from itertools import pairwise

import numpy as np
from serve import Answer, Job, program, serve

BLOCK = 100


def orthogonal(size: int, rng: np.random.Generator) -> list[np.ndarray]:
    sizes = [min(BLOCK, size - start) for start in range(0, size, BLOCK)]
    return [np.linalg.qr(rng.standard_normal((own, own)))[0] for own in sizes]


def masked_rows(P: list[np.ndarray], A: np.ndarray) -> np.ndarray:
    return np.vstack([block @ A[number * BLOCK :][: len(block)] for number, block in enumerate(P)])


def left_vectors(A: np.ndarray, cuts: np.ndarray, k: int, seed: int) -> tuple[np.ndarray, Answer]:
    rng = np.random.default_rng(seed)
    P, Q = orthogonal(len(A), rng), orthogonal(A.shape[1], rng)
    total, floats_down = np.zeros(A.shape), 0
    for first, last in pairwise(cuts):
        masked = np.zeros(A.shape)  # of the site's rows of Q only those in its blocks are not zero
        for number, block in enumerate(Q):
            start = number * BLOCK
            own = slice(max(first, start), min(last, start + len(block)))
            if own.start < own.stop:
                rows_of_block = block[own.start - start : own.stop - start]
                masked[:, start : start + len(block)] += A[:, own] @ rows_of_block
                floats_down += rows_of_block.size
        total += masked_rows(P, masked)
    U = np.linalg.svd(total, full_matrices=False)[0][:, :k]
    U = masked_rows([block.T for block in P], U)
    floats, floats_down = (len(cuts) - 1) * A.size, floats_down + (len(cuts) - 1) * U.size
    return U, {"floats": floats, "floats_down": floats_down, "rounds": 3, "rows": 0}


@program("federated PCA, rows", "FedSVD")
def rows(job: Job) -> Answer:
    vectors, counts = left_vectors(job["X"].T, job["cuts"], job["k"], job["seed"])
    return {"components": vectors.T, **counts}


@program("federated PCA, columns", "FedSVD")
def columns(job: Job) -> Answer:
    vectors, counts = left_vectors(job["X"], job["cuts"], job["k"], job["seed"])
    return {"coordinates": vectors, **counts}


if __name__ == "__main__":
    serve()
