"""fedkernel: kernel PCA in the span of k-means centres in one place, and of 8 sites in this process.

Numbers of landmarks are searched. Few are as good as a hundred random rows. The federation's components are not
centred, so that it finds one more, and NumPy's PCA of the coordinates gives the k that the others find. DisKPCA sends
its landmarks, which are rows.
"""

from typing import Any

import numpy as np
from serve import Answer, Job, program, serve

from fedkernel import RBF, CentroidKPCA, DisKPCA
from fedkernel.sklearn import LandmarkKernelPCA

SITES = 8


def federation(job: Job, kind: Any, **options: Any) -> Answer:
    strategy = kind(job["k"] + 1, kernel=RBF(job["gamma"]), **options)
    result = strategy.fit(np.array_split(job["X"], SITES), seed=job["seed"])
    Z = np.concatenate([result.outputs[site]["embedding"] for site in range(SITES)])
    Z = Z - Z.mean(axis=0)
    _, vectors = np.linalg.eigh(Z.T @ Z)
    return {"coordinates": Z @ vectors[:, :0:-1]}


@program("kernel PCA", "fedkernel LandmarkKernelPCA, few landmarks", settings=[{"n_landmarks": 40}])
@program("kernel PCA", "fedkernel LandmarkKernelPCA", settings=[{"n_landmarks": number} for number in (100, 300)])
def landmarks(job: Job) -> Answer:
    model = LandmarkKernelPCA(job["k"], gamma=job["gamma"], random_state=job["seed"], **job["setting"])
    return {"coordinates": model.fit_transform(job["X"])}


@program("kernel PCA", "fedkernel CentroidKPCA, 8 sites", settings=[{}, {"n_landmarks": 300}])
def centroids(job: Job) -> Answer:
    return federation(job, CentroidKPCA, **job["setting"])


@program("kernel PCA", "fedkernel DisKPCA, 8 sites", settings=[{}, {"n_adaptive": 270, "n_leverage": 30}])
def drawn(job: Job) -> Answer:
    return federation(job, DisKPCA, share_rows=True, **job["setting"])


if __name__ == "__main__":
    serve()
