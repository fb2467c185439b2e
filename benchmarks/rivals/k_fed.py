# /// script
# dependencies = ["numpy==2.4.6", "scikit-learn==1.9.1", "threadpoolctl==3.6.0"]
# ///
"""k-FED: k-means of the sites' own k-means centres in one round, written from the paper.

Dennis, Li, Smith: Heterogeneity for the Win: One-Shot Federated Clustering, ICML 2021, algorithms 1 and 2. A site
finds k' centres after Awasthi and Sheffet: k-means of its rows' projections, centres of rows that are well inside,
Lloyd from there. The coordinator takes the farthest centre k times, then one step of Lloyd on the centres. The paper's
k' is a site's own number of clusters, at most sqrt(k); where sites have rows of all clusters it is k.
"""

import numpy as np
from scipy.spatial.distance import cdist
from serve import Answer, Job, program, serve
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits


def local_centers(rows: np.ndarray, k: int, seed: int) -> np.ndarray:
    directions = np.linalg.svd(rows, full_matrices=False)[2][:k]
    projected = rows @ directions.T @ directions
    rough = KMeans(k, n_init=4, random_state=seed).fit(projected).cluster_centers_
    distances = np.sort(cdist(projected, rough), axis=1)
    inside = distances[:, 0] <= distances[:, 1] / 3 if k > 1 else np.ones(len(rows), dtype=bool)
    nearest = cdist(projected, rough).argmin(axis=1)
    found = [rows[inside & (nearest == c)] for c in range(k)]
    start = np.array([own.mean(axis=0) if len(own) else rough[c] for c, own in enumerate(found)])
    return KMeans(k, init=start, n_init=1).fit(rows).cluster_centers_


SETTINGS = [{"share": share} for share in ("sqrt", "half", "all")]


@program("federated k-means", "k-FED", settings=SETTINGS)
def k_fed(job: Job) -> Answer:
    X, k = job["X"], job["k"]
    own = {"sqrt": int(np.ceil(np.sqrt(k))), "half": -(-k // 2), "all": k}[job["setting"]["share"]]
    with threadpool_limits(1):  # tables are small, and two threads take longer
        sent = [local_centers(rows, own, job["seed"]) for rows in np.split(X, job["cuts"][1:-1])]
    pooled = np.vstack(sent)
    chosen = list(range(own))  # the first site's, then the farthest of all
    while len(chosen) < k:
        chosen.append(int(cdist(pooled, pooled[chosen]).min(axis=1).argmax()))
    nearest = cdist(pooled, pooled[chosen]).argmin(axis=1)
    centers = np.array([pooled[nearest == c].mean(axis=0) for c in range(k)])
    labels = cdist(X, centers).argmin(axis=1)
    return {"labels": labels, "floats": pooled.size, "floats_down": len(sent) * centers.size, "rounds": 1, "rows": 0}


if __name__ == "__main__":
    serve()
