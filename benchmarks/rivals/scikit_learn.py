# /// script
# dependencies = ["numpy==2.4.6", "scikit-learn==1.9.1"]
# ///
"""scikit-learn: kernel PCA of the whole kernel matrix, of Nystroem's method, and of random features.

Accuracy of the eigenpairs and numbers of landmarks and features are searched.
"""

from typing import Any

from serve import Answer, Job, program, serve
from sklearn.decomposition import PCA, KernelPCA
from sklearn.kernel_approximation import Nystroem, RBFSampler

LANDMARKS = [{"n_components": number} for number in (100, 300, 1000)]


def kernel_pca(job: Job, **options: Any) -> Answer:
    model = KernelPCA(job["k"], kernel="rbf", gamma=job["gamma"], random_state=job["seed"], copy_X=False, **options)
    return {"coordinates": model.fit_transform(job["X"])}


@program("kernel PCA", "scikit-learn KernelPCA, dense")
def dense(job: Job) -> Answer:
    return kernel_pca(job, eigen_solver="dense")


@program("kernel PCA", "scikit-learn KernelPCA, arpack", settings=[{"tol": 0}, {"tol": 1e-4}])
def arpack(job: Job) -> Answer:
    return kernel_pca(job, eigen_solver="arpack", **job["setting"])


@program("kernel PCA", "scikit-learn KernelPCA, randomized", settings=[{"iterated_power": p} for p in ("auto", 1, 2)])
def randomized(job: Job) -> Answer:
    return kernel_pca(job, eigen_solver="randomized", **job["setting"])


@program("kernel PCA", "scikit-learn Nystroem + PCA", settings=LANDMARKS)
def nystroem(job: Job) -> Answer:
    features = Nystroem(gamma=job["gamma"], random_state=job["seed"], **job["setting"]).fit_transform(job["X"])
    return {"coordinates": PCA(job["k"], random_state=job["seed"]).fit_transform(features)}


@program("kernel PCA", "scikit-learn RBFSampler + PCA", settings=LANDMARKS)
def sampler(job: Job) -> Answer:
    features = RBFSampler(gamma=job["gamma"], random_state=job["seed"], **job["setting"]).fit_transform(job["X"])
    return {"coordinates": PCA(job["k"], random_state=job["seed"]).fit_transform(features)}


if __name__ == "__main__":
    serve()
