# /// script
# dependencies = ["numpy==2.4.6", "dask-ml==2025.1.0", "dask==2026.8.0", "distributed==2026.8.0", "scikit-learn==1.9.1"]
# ///
"""dask-ml: PCA and k-means of an array of 8 blocks in memory, by a pool of two threads.

The blocks are persisted before the clock starts, and threads share them. Of k-means there is one start, by k-means|| or
at random rows: k-means++ fails, as dask-ml calls a private function of scikit-learn that has changed.
"""

from typing import Any

import dask
import dask.array as da
from dask_ml.cluster import KMeans
from dask_ml.decomposition import PCA
from serve import Answer, Job, program, serve

dask.config.set(scheduler="threads", num_workers=2)


def blocks(job: Job) -> Any:
    rows, columns = job["X"].shape
    return da.from_array(job["X"], chunks=(-(-rows // 8), columns)).persist()


@program(
    "PCA",
    "dask-ml PCA",
    prepare=blocks,
    settings=[{"svd_solver": "tsqr"}, *({"svd_solver": "randomized", "iterated_power": n} for n in (0, 2, 5))],
)
def pca(job: Job) -> Answer:
    model = PCA(job["k"], random_state=job["seed"], **job["setting"]).fit(job["prepared"])
    return {"components": model.components_}


@program(
    "k-means",
    "dask-ml KMeans",
    prepare=blocks,
    settings=[{"oversampling_factor": 2}, {"oversampling_factor": 10}, {"init": "random"}],
)
def k_means(job: Job) -> Answer:
    model = KMeans(job["k"], random_state=job["seed"], **job["setting"]).fit(job["prepared"])
    return {"labels": model.labels_.compute()}


if __name__ == "__main__":
    serve()
