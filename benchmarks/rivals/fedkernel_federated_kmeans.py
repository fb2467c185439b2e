"""fedkernel's pairs for kernel k-means of divided rows, on its local engine, with its ledger's floats and rounds.

The kernel is RBF of the job's width, for CentroidKMeans also linear, which makes it k-means.
"""

from typing import Any

import numpy as np
from serve import Answer, Job, program, serve

from fedkernel import RBF, Linear
from fedkernel.strategies import CentroidKMeans, DisKPCA, FKKMeans, RFKKMeans, SpectralKMeans


def k_means(name: str, pair: Any, settings: list[dict[str, Any]], **always: Any) -> None:
    @program("federated k-means", f"fedkernel {name}", settings=settings)
    def run(job: Job) -> Answer:
        kernel = {} if pair is SpectralKMeans else {"kernel": RBF(gamma=job["gamma"])}
        options = {**kernel, **always, **job["setting"]}
        if pair is SpectralKMeans:
            components = {"kernel": RBF(gamma=job["gamma"]), "share_rows": True, **options.pop("components", {})}
            options["components"] = DisKPCA(job["k"], **components)
        result = pair(job["k"], **options).fit(np.split(job["X"], job["cuts"][1:-1]), seed=job["seed"])
        totals = result.ledger.totals()
        counts = {"floats": totals["floats_up"], "floats_down": totals["floats_down"], "rounds": totals["rounds"]}
        labels = np.concatenate([output["labels"] for output in result.outputs.values()])
        return {"labels": labels, **counts, "rows": totals["rows_up"]}


CENTRES = [{}, *({"n_landmarks": number} for number in (20, 50, 100))]
k_means("CentroidKMeans", CentroidKMeans, CENTRES)
k_means("CentroidKMeans, linear", CentroidKMeans, CENTRES, kernel=Linear())
k_means("CentroidKMeans, local centres", CentroidKMeans, CENTRES, centroids="local")
k_means("CentroidKMeans, local centres, linear", CentroidKMeans, CENTRES, centroids="local", kernel=Linear())
k_means("FKKMeans", FKKMeans, [{}, {"clusters": "lloyd"}])
k_means("RFKKMeans", RFKKMeans, [{}, {"clusters": "lloyd"}, {"n_features": 50}])
k_means("SpectralKMeans", SpectralKMeans, [{}, {"clusters": "lloyd"}])

if __name__ == "__main__":
    serve()
