# /// script
# dependencies = ["numpy==2.4.6", "scikit-learn==1.9.1"]
# ///
"""PCA and k-means in one place: the bounds for every divided method, of all rows in one array.

NumPy decomposes the product of the centred columns, the fastest exact way where rows are many. The number of k-means'
starts is a setting, since more of them give a lower cost for more time.
"""

from typing import Any

import numpy as np
from serve import Answer, Job, program, serve
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.decomposition import PCA

STARTS = [{"n_init": 1}, {"n_init": 3}, {"n_init": 10}]


@program("PCA", "NumPy eigh of the covariance")
def covariance(job: Job) -> Answer:
    X = job["X"] - job["X"].mean(axis=0)
    return {"components": np.linalg.eigh(X.T @ X)[1][:, : -job["k"] - 1 : -1].T}


@program(
    "PCA",
    "scikit-learn PCA",
    settings=[{"svd_solver": solver} for solver in ("auto", "covariance_eigh", "arpack", "randomized")],
)
def pca(job: Job) -> Answer:
    return {"components": PCA(job["k"], random_state=job["seed"], **job["setting"]).fit(job["X"]).components_}


def labels(kind: Any, job: Job, **options: Any) -> Answer:
    return {"labels": kind(job["k"], random_state=job["seed"], **options, **job["setting"]).fit_predict(job["X"])}


@program("k-means", "scikit-learn KMeans, lloyd", settings=STARTS)
def lloyd(job: Job) -> Answer:
    return labels(KMeans, job)


@program("k-means", "scikit-learn KMeans, elkan", settings=STARTS)
def elkan(job: Job) -> Answer:
    return labels(KMeans, job, algorithm="elkan")


@program("k-means", "scikit-learn MiniBatchKMeans", settings=STARTS)
def batches(job: Job) -> Answer:
    return labels(MiniBatchKMeans, job)


if __name__ == "__main__":
    serve()
