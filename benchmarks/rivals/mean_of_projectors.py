# /// script
# dependencies = ["numpy==2.4.6"]
# ///
"""Distributed PCA in one round, from two papers: a mean of projectors, and a sum of the sites' leading parts.

Fan, Wang, Wang, Zhu: Distributed Estimation of Principal Eigenspaces, Annals of Statistics 2019, algorithm 1: sites
send their k leading eigenvectors, the coordinator takes those of the mean of the projectors. Liang, Balcan,
Kanchanapally, Woodruff: Improved Distributed Principal Component Analysis, NeurIPS 2014, algorithm 1 (disPCA): sites
send t leading directions times their singular values, t from k on. Both take rows whose mean is zero, as the harness's
are.
"""

import numpy as np
from serve import Answer, Job, program, serve


def of_sites(job: Job, vectors: int, scaled: bool) -> Answer:
    k, tables = job["k"], np.split(job["X"], job["cuts"][1:-1])
    sent = []
    for table in tables:
        values, directions = np.linalg.eigh(table.T @ table)
        directions = directions[:, ::-1][:, :vectors]
        sent.append(directions * np.sqrt(np.maximum(values[::-1][:vectors], 0)) if scaled else directions)
    total = sum(part @ part.T for part in sent)
    components = np.linalg.eigh(total)[1][:, ::-1][:, :k].T
    floats = sum(part.size for part in sent)
    return {
        "components": components,
        "floats": floats,
        "floats_down": len(tables) * components.size,
        "rounds": 1,
        "rows": 0,
    }


@program("federated PCA, rows", "mean of projectors (Fan et al.)")
def projectors(job: Job) -> Answer:
    return of_sites(job, job["k"], scaled=False)


@program("federated PCA, rows", "disPCA (Liang et al.)", settings=[{"more": 1.0}, {"more": 1.5}])
def leading_parts(job: Job) -> Answer:
    return of_sites(job, int(job["setting"]["more"] * job["k"]), scaled=True)


@program("federated kernel PCA", "random features + disPCA", settings=[{"features": D} for D in (50, 200, 400)])
def random_features(job: Job) -> Answer:
    """Rahimi and Recht's features by a common seed, centred by their sums, which are a round more."""
    half, sites = job["setting"]["features"] // 2, len(job["cuts"]) - 1
    W = np.sqrt(2 * job["gamma"]) * np.random.default_rng(job["seed"]).standard_normal((job["X"].shape[1], half))
    Z = np.hstack([np.cos(job["X"] @ W), np.sin(job["X"] @ W)])
    answer = of_sites({**job, "X": (Z := Z - Z.mean(axis=0))}, int(1.5 * job["k"]), scaled=True)
    more = {"floats": answer["floats"] + sites * Z.shape[1], "rounds": 2}
    return {"coordinates": Z @ answer.pop("components").T, **answer, **more}


if __name__ == "__main__":
    serve()
