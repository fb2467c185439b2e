# /// script
# dependencies = ["numpy==2.4.6", "opendp==0.16.0", "scikit-learn==1.9.1", "randomgen==2.5.1"]
# ///
"""OpenDP: PCA of all rows in one place, whose owner adds the noise; delta is 0.

Columns are standardised, so that the origin is known and no budget goes to the mean; a setting divides it between
eigenvalues and eigenvectors. These are drawn by rejection, which takes from seconds to many minutes.

Neighbours: a changed row, which is an addition and a removal, has twice the epsilon, as with fedkernel. A central owner
favours OpenDP, a delta of 0 others. By its code, the eigenvectors' sampler is diffprivlib's, narrower than its proof's.
"""

import numpy as np
import opendp.prelude as dp
from opendp.extras.sklearn.decomposition import PCAEpsilons, make_private_pca
from serve import Answer, Job, program, serve

dp.enable_features("contrib", "honest-but-curious", "idealized-numerics")


@program("private PCA", "OpenDP PCA", settings=[{"values": 0.5}, {"values": 0.1}])
def pca(job: Job) -> Answer:
    rows, columns = job["X"].shape
    domain = dp.numpy.array2_domain(
        num_columns=columns, size=rows, T=float, norm=job["radius"], p=2, origin=np.zeros(columns)
    )
    values, vectors = job["setting"]["values"], min(job["k"], columns - 1)
    each = 2 * job["epsilon"] * (1 - values) / vectors
    spent = PCAEpsilons(eigvals=2 * job["epsilon"] * values, eigvecs=[each] * vectors, mean=None)
    measurement = make_private_pca(domain, dp.symmetric_distance(), spent, num_components=job["k"])
    lengths = np.linalg.norm(job["X"], axis=1, keepdims=True)
    short = job["X"] * np.minimum(1, job["radius"] / np.maximum(lengths, 1e-300))
    return {"components": measurement(short).Vt, "epsilon": measurement.map(2) / 2}


if __name__ == "__main__":
    serve()
