# /// script
# dependencies = ["numpy==2.4.6", "scikit-learn==1.9.1"]
# ///
"""scikit-learn: kernel k-means by k-means of Nystroem's features, and spectral clustering.

It has no kernel k-means of its own. Spectral clustering makes another objective small, the normalised cut of the same
kernel matrix. Landmarks and starts are searched, and how spectral clustering finds labels.
"""

from typing import Any

from serve import Answer, Job, program, serve
from sklearn.cluster import KMeans, MiniBatchKMeans, SpectralClustering
from sklearn.kernel_approximation import Nystroem

SIZES = [{"n_components": m, "n_init": starts} for m, starts in ((100, 1), (300, 1), (300, 10), (1000, 1))]


def nystroem(job: Job, kind: Any) -> Answer:
    number, starts = job["setting"]["n_components"], job["setting"]["n_init"]
    features = Nystroem(gamma=job["gamma"], n_components=number, random_state=job["seed"]).fit_transform(job["X"])
    return {"labels": kind(job["k"], n_init=starts, random_state=job["seed"]).fit_predict(features)}


@program("kernel k-means", "scikit-learn Nystroem + KMeans", settings=SIZES)
def k_means(job: Job) -> Answer:
    return nystroem(job, KMeans)


@program("kernel k-means", "scikit-learn Nystroem + MiniBatchKMeans", settings=SIZES)
def mini_batches(job: Job) -> Answer:
    return nystroem(job, MiniBatchKMeans)


@program(
    "kernel k-means",
    "scikit-learn SpectralClustering",
    settings=[{"assign_labels": way} for way in ("kmeans", "cluster_qr", "discretize")],
)
def spectral(job: Job) -> Answer:
    model = SpectralClustering(job["k"], gamma=job["gamma"], random_state=job["seed"], **job["setting"])
    return {"labels": model.fit_predict(job["X"])}


if __name__ == "__main__":
    serve()
