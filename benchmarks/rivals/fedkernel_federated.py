"""fedkernel's pairs for PCA and kernel PCA of divided rows, on its local engine, with its ledger's floats and rounds.

A linear kernel makes the pairs for kernel PCA ones for PCA. Settings are numbers of landmarks or of rounds. Components
of divided rows are not centred: the first of them is for the rows' mean.
"""

from typing import Any

import numpy as np
from serve import Answer, Job, program, serve

from fedkernel import RBF, Linear
from fedkernel.strategies import ADMMKPCA, CentroidKPCA, DisKPCA, UniformKPCA

ROWS, KERNEL = "federated PCA, rows", "federated kernel PCA"
Settings = list[dict[str, Any]]


def fit(job: Job, strategy: Any) -> tuple[Any, Answer]:
    result = strategy.fit(np.split(job["X"], job["cuts"][1:-1]), seed=job["seed"])
    names = {"floats_up": "floats", "rows_up": "rows"}
    return result, {names.get(name, name): total for name, total in result.ledger.totals().items()}


def of_rows(name: str, pair: Any, settings: Settings, **always: Any) -> None:
    def linear(job: Job) -> Answer:
        result, counts = fit(job, pair(job["k"], Linear(), **always, **job["setting"]))
        model = result.model
        return {"components": model.coefficients_.T @ model.landmarks_, **counts}

    def rbf(job: Job) -> Answer:
        result, counts = fit(job, pair(job["k"], RBF(gamma=job["gamma"]), **always, **job["setting"]))
        return {"coordinates": np.vstack([output["embedding"] for output in result.outputs.values()]), **counts}

    program(ROWS, f"fedkernel {name}, linear", settings=settings)(linear)
    program(KERNEL, f"fedkernel {name}", settings=settings)(rbf)


of_rows("CentroidKPCA", CentroidKPCA, [{}, {"n_landmarks": 60}, {"n_landmarks": 200}])
of_rows("CentroidKPCA, local centres", CentroidKPCA, [{}, {"n_landmarks": 20}, {"n_landmarks": 60}], centroids="local")
of_rows("DisKPCA", DisKPCA, [{}, {"n_adaptive": 20}, {"n_adaptive": 60}], share_rows=True)
of_rows("UniformKPCA", UniformKPCA, [{}, {"n_samples": 20}, {"n_samples": 200}], share_rows=True)


@program(ROWS, "fedkernel CentroidKPCA, linear, axes")
def axes(job: Job) -> Answer:
    d = job["X"].shape[1]
    strategy = CentroidKPCA(job["k"], Linear(), n_landmarks=max(d, job["k"] + 1), centroids="axes", embed=False)
    result, counts = fit(job, strategy)
    return {"components": result.model.coefficients_.T @ result.model.landmarks_, **counts}


@program(KERNEL, "fedkernel ADMMKPCA", settings=[{"iterations": 5}, {"iterations": 20}])
def admm(job: Job) -> Answer:
    strategy = ADMMKPCA(job["k"], RBF(gamma=job["gamma"]), share_rows=True, **job["setting"])
    result, counts = fit(job, strategy)
    tables = enumerate(np.split(job["X"], job["cuts"][1:-1]))
    own = [strategy.at_node(rows, result.outputs[j]["alpha"]).transform(rows) for j, rows in tables]
    return {"coordinates": np.vstack(own), **counts}


if __name__ == "__main__":
    serve()
