# /// script
# dependencies = ["numpy==2.4.6", "faiss-cpu==1.15.1"]
# ///
"""FAISS: PCA and k-means of one machine in single precision, as its vector indexes use them.

By default PCA trains on at most 1000 rows for each column, here on all. k-means does on 256 for each cluster from
random rows, or here on all rows by k-means++. The conversion to float32 is not counted, labels are.
"""

from typing import Any

import faiss
import numpy as np
from serve import Answer, Job, program, serve

TRIALS = [{"niter": 25, "nredo": 1}, {"niter": 50, "nredo": 3}, {"niter": 50, "nredo": 10}]


def single(job: Job) -> Any:
    return np.ascontiguousarray(job["X"], dtype=np.float32)


@program("PCA", "FAISS PCAMatrix", prepare=single)
def pca(job: Job) -> Answer:
    X = job["prepared"]
    rotation = faiss.PCAMatrix(X.shape[1], job["k"])
    rotation.max_points_per_d = len(X)
    rotation.train(X)
    return {"components": faiss.vector_to_array(rotation.A).reshape(job["k"], X.shape[1]).astype(np.float64)}


def k_means(job: Job, most: int, **options: Any) -> Answer:
    X = job["prepared"]
    model = faiss.Kmeans(
        X.shape[1], job["k"], seed=job["seed"] + 1, max_points_per_centroid=most, **options, **job["setting"]
    )
    model.train(X)
    return {"labels": model.index.search(X, 1)[1][:, 0]}


@program("k-means", "FAISS Kmeans, all rows", prepare=single, settings=TRIALS)
def all_rows(job: Job) -> Answer:
    return k_means(job, len(job["X"]), init_method=faiss.ClusteringInitMethod_KMEANS_PLUS_PLUS)


@program("k-means", "FAISS Kmeans, a sample", prepare=single, settings=TRIALS)
def sample(job: Job) -> Answer:
    return k_means(job, 256)


if __name__ == "__main__":
    serve()
