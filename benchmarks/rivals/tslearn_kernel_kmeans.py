# /// script
# dependencies = ["numpy==2.4.6", "tslearn==0.10.0"]
# ///
"""tslearn: kernel k-means of the whole kernel matrix, from random labels; a row is a series of one time.

Starts and iterations are searched; its defaults are one start and 50 iterations.
"""

from serve import Answer, Job, program, serve
from tslearn.clustering import KernelKMeans

SETTINGS = [{"n_init": starts, "max_iter": most} for starts, most in ((1, 50), (1, 300), (10, 300))]


@program("kernel k-means", "tslearn KernelKMeans", settings=SETTINGS)
def kernel_k_means(job: Job) -> Answer:
    parameters = {"gamma": job["gamma"]}
    model = KernelKMeans(job["k"], kernel="rbf", kernel_params=parameters, random_state=job["seed"], **job["setting"])
    return {"labels": model.fit_predict(job["X"][:, None, :])}


if __name__ == "__main__":
    serve()
