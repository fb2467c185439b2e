# /// script
# dependencies = ["numpy==2.4.6", "scikit-learn==1.9.1", "nvflare==2.9.0"]
# ///
"""NVFlare k-means: KMeansFedAvgRecipe with the client of its scikit-learn example, in its simulator.

A round sends k centres of d numbers and k counts from each site, the first one k-means++ centres alone. Writing tables
is not counted, starting the simulator is. The assembler divides by a cluster's rows: if no site has any, the job ends
with NaN, and is run again, its first centres drawn anew, thrice at most.
"""

import tempfile
from contextlib import suppress
from pathlib import Path

import joblib
import numpy as np
from nvflare.app_opt.sklearn import KMeansFedAvgRecipe
from nvflare.recipe import SimEnv
from scipy.spatial.distance import cdist
from serve import Answer, Job, program, serve

CLIENT = """
import sys, numpy as np, nvflare.client as flare
from nvflare.app_common.abstract.fl_model import FLModel
from sklearn.cluster import MiniBatchKMeans, kmeans_plusplus

folder, seed = sys.argv[1], int(sys.argv[2])
flare.init()
X = np.load(folder + "/" + flare.get_site_name() + ".npy")
while flare.is_running():
    model = flare.receive()
    if model.current_round == 0:
        params = {"center": kmeans_plusplus(X, model.params["n_clusters"], random_state=seed)[0], "count": None}
    else:
        own = {"init": model.params["center"], "n_init": 1, "max_iter": 1, "reassignment_ratio": 0}
        local = MiniBatchKMeans(len(own["init"]), batch_size=len(X), **own)
        params = {"center": local.fit(X).cluster_centers_, "count": local._counts}
    flare.send(FLModel(params=params, metrics={"metrics": 0.0}))
"""


def write(job: Job) -> Path:
    folder = Path(tempfile.mkdtemp())
    (folder / "client.py").write_text(CLIENT)
    for number, rows in enumerate(np.split(job["X"], job["cuts"][1:-1]), start=1):
        np.save(folder / f"site-{number}.npy", rows)
    return folder


@program("federated k-means", "NVFlare k-means", prepare=write, settings=[{"rounds": r} for r in (6, 11)])
def k_means(job: Job) -> Answer:
    folder, rounds, k, sites = job["prepared"], job["setting"]["rounds"], job["k"], len(job["cuts"]) - 1
    for attempt in range(3):
        script = {"train_script": str(folder / "client.py"), "train_args": f"{folder} {3 * job['seed'] + attempt}"}
        recipe = KMeansFedAvgRecipe(name="bench", min_clients=sites, num_rounds=rounds, n_clusters=k, **script)
        work = folder / f"work-{attempt}"
        with suppress(RuntimeError):
            recipe.execute(SimEnv(num_clients=sites, num_threads=sites, workspace_root=str(work))).get_result()
            break
    centers = joblib.load(next(work.rglob("*.joblib")))["center"]
    down, labels = (rounds - 1) * sites * centers.size, cdist(job["X"], centers).argmin(axis=1)
    floats = down + sites * centers.size + (rounds - 1) * sites * k
    return {"labels": labels, "floats": floats, "floats_down": down, "rounds": rounds, "rows": 0}


if __name__ == "__main__":
    serve()
