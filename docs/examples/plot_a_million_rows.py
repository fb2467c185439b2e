"""
Kernel PCA of a million rows
============================

scikit-learn's ``KernelPCA`` takes a kernel matrix of all rows, which for a million of them has 8 TB. On one machine
`fedkernel.sklearn.LandmarkKernelPCA` looks for the components in the span of some k-means centres, a block of rows at a
time: its time grows with the number of rows, and its memory hardly.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import KernelPCA

from fedkernel.sklearn import LandmarkKernelPCA

rng = np.random.default_rng(0)
centers = rng.uniform(-10, 10, (5, 10)).astype("float32")
X = centers[rng.integers(5, size=1_000_000)] + rng.standard_normal((1_000_000, 10), dtype="float32")
landmarks = LandmarkKernelPCA(n_components=2, gamma=0.002, n_landmarks=50, random_state=0)
exact = KernelPCA(n_components=2, kernel="rbf", gamma=0.002)


def seconds(estimator, rows):
    """Return the processor's time for a fit of the first rows."""
    began = time.process_time()
    estimator.fit(X[:rows])
    return time.process_time() - began


many, few = [10_000, 100_000, 1_000_000], [1000, 2000, 3000]
times = [seconds(landmarks, rows) for rows in many]
exact_times = [seconds(exact, rows) for rows in few]

# %%
# The components of all rows beside the exact ones of 3000 rows: the cosines of the angles between both planes of
# coordinates, 1 where they are the same.

sample = X[:3000]
planes = [np.linalg.qr(estimator.transform(sample))[0] for estimator in (landmarks, exact)]
cosines = np.linalg.svd(planes[0].T @ planes[1])[1]
print("cosines:", cosines.round(4))

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
left.loglog(many, times, "o-", label="LandmarkKernelPCA, 50 landmarks")
left.loglog(few, exact_times, "s--", label="KernelPCA of scikit-learn")
left.set(xlabel="rows", ylabel="processor seconds for a fit")
left.legend()
right.hexbin(*landmarks.transform(X[::10]).T, gridsize=50, bins="log", cmap="gray_r", linewidths=0.1)
right.set(xlabel="first component", ylabel="second component", title="Every tenth row (darker: more rows)")
plt.show()

# %%
# With 300 landmarks and 30 columns, beside Nystroem's method: :doc:`/how-to/estimators`.
