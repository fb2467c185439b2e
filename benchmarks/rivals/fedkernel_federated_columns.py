"""fedkernel's pairs for PCA of divided columns, on its local engine, with its ledger's floats and rounds.

Floats of peers are of their letters, up to the coordinator and down. Answers are left singular vectors.
"""

from typing import Any

import numpy as np
from serve import Answer, Job, program, serve

from fedkernel import Linear
from fedkernel.strategies import DKPCA, PeerVFedPCA, VFedPCA


def of_columns(name: str, pair: Any, settings: list[dict[str, Any]], **always: Any) -> None:
    def run(job: Job) -> Answer:
        tables = np.split(job["X"], job["cuts"][1:-1], axis=1)
        result = pair(job["k"], **always, **job["setting"]).fit(tables, seed=job["seed"])
        counts = {{"floats_up": "floats"}.get(name, name): total for name, total in result.ledger.totals().items()}
        vectors = result.model.eigenvectors_ if pair is DKPCA else result.outputs[0]["eigenvectors"]
        return {"coordinates": vectors, **counts}

    program("federated PCA, columns", f"fedkernel {name}", settings=settings)(run)


of_columns("DKPCA, linear", DKPCA, [{}], kernel=Linear(), center=True)
of_columns("VFedPCA, exact", VFedPCA, [{}, {"tol": 0.1}])
of_columns("VFedPCA, paper's merge", VFedPCA, [{"rounds": 2}, {"rounds": 10}], merge="eigenvalue", warm_start=True)
of_columns("PeerVFedPCA, exact", PeerVFedPCA, [{}, {"tol": 0.1}])

if __name__ == "__main__":
    serve()
