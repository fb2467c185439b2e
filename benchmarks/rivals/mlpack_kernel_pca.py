# /// script
# dependencies = ["numpy==2.4.6", "mlpack==4.8.0"]
# ///
"""mlpack: kernel PCA of the whole kernel matrix, and of Nystroem's method.

Nystroem's method takes as many landmarks as it returns coordinates, and no more than the data have columns. Columns of
zeros, which change no distance, allow more landmarks; the first k coordinates are kept. It takes the eigenvectors of
products that are centred on one side only, so that the first k are not the best: NumPy's PCA of all of them mends that.
Numbers of landmarks are searched, and whether they are rows or k-means centres. Copying data into mlpack counts.
"""

from typing import Any

import mlpack
import numpy as np
from serve import Answer, Job, program, serve

LANDMARKS = [
    {"landmarks": number, "sampling": way} for number, way in ((100, "kmeans"), (300, "kmeans"), (300, "random"))
]


def coordinates(job: Job, number: int, **options: Any) -> Any:
    X = np.pad(job["X"], ((0, 0), (0, max(0, number - job["X"].shape[1]))))
    width = float(1 / np.sqrt(2 * job["gamma"]))
    return mlpack.kernel_pca(X, kernel="gaussian", bandwidth=width, new_dimensionality=number, **options)["output"]


def nystroem(job: Job) -> Any:
    number = job["setting"]["landmarks"] or job["k"]
    return coordinates(job, number, nystroem_method=True, sampling=job["setting"]["sampling"])


@program("kernel PCA", "mlpack KernelPCA, dense")
def dense(job: Job) -> Answer:
    return {"coordinates": coordinates(job, job["k"])}


@program("kernel PCA", "mlpack KernelPCA, Nystroem", settings=[{"landmarks": None, "sampling": "kmeans"}, *LANDMARKS])
def first(job: Job) -> Answer:
    return {"coordinates": nystroem(job)[:, : job["k"]]}


@program("kernel PCA", "mlpack KernelPCA, Nystroem + NumPy PCA", settings=LANDMARKS)
def principal(job: Job) -> Answer:
    features = nystroem(job)
    features = features - features.mean(axis=0)
    _, vectors = np.linalg.eigh(features.T @ features)
    return {"coordinates": features @ vectors[:, : -job["k"] - 1 : -1]}


if __name__ == "__main__":
    serve()
