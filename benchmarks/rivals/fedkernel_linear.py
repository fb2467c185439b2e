"""fedkernel: PCA and k-means of 8 simulated sites in this process, by columns and by rows.

Counted are all rounds, their messages written and checked, and each site's part of the answer; not the division of the
table. PCA by rows is kernel PCA with a linear kernel, which is not centred: the columns are standardised.
"""

from typing import Any

import numpy as np
from serve import Answer, Job, program, serve

from fedkernel import DKPCA, RBF, CentroidKMeans, CentroidKPCA, Linear, VFedPCA

SITES = 8
CENTERS = [{"linear": linear, "each": each} for linear, each in ((True, 5), (True, 20), (True, 50), (False, 20))]


def by_columns(job: Job) -> list[Any]:
    return np.array_split(job["X"], min(SITES, job["X"].shape[1]), axis=1)


def by_rows(job: Job) -> list[Any]:
    return np.array_split(job["X"], SITES)


def of_columns(job: Job, strategy: Any) -> Answer:
    U = strategy.fit(job["prepared"], seed=job["seed"]).model.eigenvectors_
    V = np.vstack([site.T @ U for site in job["prepared"]])  # each site has the part of its own columns
    return {"components": (V / np.linalg.norm(V, axis=0)).T}


@program("PCA", "fedkernel VFedPCA, exact", prepare=by_columns)
def vfedpca(job: Job) -> Answer:
    return of_columns(job, VFedPCA(job["k"], merge="exact"))


@program("PCA", "fedkernel DKPCA, linear", prepare=by_columns, settings=[{"times": number} for number in (1, 3, 10)])
def dkpca(job: Job) -> Answer:
    local = min(job["setting"]["times"] * job["k"], len(job["X"]))
    return of_columns(job, DKPCA(job["k"], Linear(), local_components=local, center=True))


@program("PCA", "fedkernel CentroidKPCA, linear, axes", prepare=by_rows)
def of_rows(job: Job) -> Answer:
    landmarks = max(job["X"].shape[1], job["k"] + 1)
    strategy = CentroidKPCA(job["k"], Linear(), n_landmarks=landmarks, centroids="axes", embed=False)
    model = strategy.fit(job["prepared"], seed=job["seed"]).model
    return {"components": (model.landmarks_.T @ model.coefficients_).T}


@program("k-means", "fedkernel CentroidKMeans", prepare=by_rows, settings=CENTERS)
def k_means(job: Job) -> Answer:
    own = job["setting"]
    strategy = CentroidKMeans(job["k"], Linear() if own["linear"] else RBF(), n_landmarks=own["each"] * job["k"])
    result = strategy.fit(job["prepared"], seed=job["seed"])
    return {"labels": np.concatenate([result.outputs[site]["labels"] for site in range(SITES)])}


if __name__ == "__main__":
    serve()
