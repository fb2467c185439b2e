"""fedkernel: k-means and PCA of simulated sites in this process, with noise of the sites' own below masks.

Neighbours differ by one row, added or removed at one site; of a replaced row epsilon is twice as much. It holds against
the coordinator and one site together: of five sites noise is larger by the root of 5 / 4. Rows are shortened to the
radius. An RBF kernel's width is that of standardised columns, as the given gamma may come from the rows. Counted are
all rounds with their masks; simulated sites draw noise from NumPy's generator, real ones by opendp.
"""

from typing import Any

import numpy as np
from serve import Answer, Job, program, serve

from fedkernel import RBF, CentroidKMeans, CentroidKPCA, FKKMeans, Linear, Privacy

WIDTH = RBF(width="columns")


def by_rows(job: Job) -> list[Any]:
    return np.split(job["X"], job["cuts"][1:-1])


def run(job: Job, strategy: Any) -> tuple[Any, Answer]:
    privacy = Privacy(epsilon=job["epsilon"], delta=job["delta"], radius=job["radius"])
    result = strategy.fit(job["prepared"], seed=job["seed"], sums="masked", privacy=privacy)
    totals = result.ledger.totals()  # epsilon is that of all sums in the plan, which the run's receipts have, too
    counted = {"floats": totals["floats_up"], "floats_down": totals["floats_down"], "rounds": totals["rounds"]}
    return result, {"epsilon": job["epsilon"], **counted}


def clusters(job: Job, strategy: Any) -> Answer:
    result, counted = run(job, strategy)
    labels = [result.outputs[site]["labels"] for site in range(len(job["prepared"]))]
    return {"labels": np.concatenate(labels), **counted}


@program("private k-means", "fedkernel CentroidKMeans", prepare=by_rows, settings=[{"linear": 1}, {"linear": 0}])
def centroids(job: Job) -> Answer:
    return clusters(job, CentroidKMeans(job["k"], Linear() if job["setting"]["linear"] else WIDTH))


@program("private k-means", "fedkernel FKKMeans", prepare=by_rows, settings=[{"n_features": n} for n in (100, 200)])
def features(job: Job) -> Answer:
    return clusters(job, FKKMeans(job["k"], kernel=WIDTH, iterations=1, clusters="lloyd", **job["setting"]))


@program("private PCA", "fedkernel CentroidKPCA, linear, axes", prepare=by_rows)
def pca(job: Job) -> Answer:
    landmarks = max(job["X"].shape[1], job["k"] + 1)
    strategy = CentroidKPCA(job["k"], Linear(), n_landmarks=landmarks, centroids="axes", embed=False)
    result, counted = run(job, strategy)
    return {"components": (result.model.landmarks_.T @ result.model.coefficients_).T, **counted}


if __name__ == "__main__":
    serve()
