"""fedkernel: kernel k-means in the span of k-means centres in one place, and of 8 sites in this process.

Numbers of landmarks are searched; for FKKMeans how the embedded rows are clustered.
"""

import numpy as np
from serve import Answer, Job, program, serve

from fedkernel import RBF, CentroidKMeans, FKKMeans
from fedkernel.sklearn import LandmarkKernelKMeans

SITES = 8


def federation(job: Job, kind: type[CentroidKMeans | FKKMeans]) -> Answer:
    strategy = kind(job["k"], kernel=RBF(job["gamma"]), **job["setting"])
    result = strategy.fit(np.array_split(job["X"], SITES), seed=job["seed"])
    return {"labels": np.concatenate([result.outputs[site]["labels"] for site in range(SITES)])}


@program("kernel k-means", "fedkernel LandmarkKernelKMeans, one start", settings=[{"n_landmarks": 50, "n_init": 1}])
@program(
    "kernel k-means", "fedkernel LandmarkKernelKMeans", settings=[{"n_landmarks": number} for number in (100, 300)]
)
def landmarks(job: Job) -> Answer:
    model = LandmarkKernelKMeans(job["k"], gamma=job["gamma"], random_state=job["seed"], **job["setting"])
    return {"labels": model.fit(job["X"]).labels_}


@program("kernel k-means", "fedkernel CentroidKMeans, 8 sites", settings=[{}, {"n_landmarks": 300}])
def centroids(job: Job) -> Answer:
    return federation(job, CentroidKMeans)


@program("kernel k-means", "fedkernel FKKMeans, 8 sites", settings=[{}, {"clusters": "lloyd"}])
def random_features(job: Job) -> Answer:
    return federation(job, FKKMeans)


if __name__ == "__main__":
    serve()
