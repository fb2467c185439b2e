"""
A width that is wrong, and how it is told
=========================================

An RBF kernel has a width. If it is too narrow, no row is like another; if it is too wide, all rows are alike.
``RBF()`` takes the data's own, the mean distance of rows, which sites find by sums. Here it is multiplied by factors.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits, make_circles
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import normalized_mutual_info_score
from sklearn.model_selection import cross_val_score

from fedkernel import RBF, CentroidKMeans, CentroidKPCA

rng = np.random.default_rng(0)
X, digits = load_digits(return_X_y=True)
points, ring = make_circles(900, factor=0.4, noise=0.06, random_state=0)
rings = points @ np.linalg.qr(rng.normal(size=(20, 2)))[0].T + 0.05 * rng.normal(size=(900, 20))


def clusters_of_digits(kernel):
    """Return the result of k-means, and how far clusters and digits agree."""
    result = CentroidKMeans(10, kernel=kernel, centroids="local").fit(np.array_split(X, 5), seed=0)
    labels = np.concatenate([result.outputs[site]["labels"] for site in range(5)])
    return result, normalized_mutual_info_score(digits, labels)


def components_of_rings(kernel):
    """Return the result of kernel PCA, and the share of rows that a line between both components tells apart."""
    result = CentroidKPCA(2, kernel=kernel).fit(np.array_split(rings, 3), seed=0)
    coordinates = np.concatenate([result.outputs[site]["embedding"] for site in range(3)])
    coordinates /= coordinates.std(axis=0)
    return result, cross_val_score(LogisticRegression(), coordinates, ring).mean()


factors = [0.02, 0.1, 0.3, 1, 3, 10, 50]
runs = {
    "digits: agreement of clusters": ("o-", [clusters_of_digits(RBF(factor=factor)) for factor in factors]),
    "rings: share told apart": ("s--", [components_of_rings(RBF(factor=factor)) for factor in factors]),
}

# %%
# Filled marks have no finding about the width, hollow ones have one.

figure, axes = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
for name, (line, pairs) in runs.items():
    (drawn,) = axes.semilogx(factors, [value for _, value in pairs], line, mfc="white", ms=6, label=name)
    for factor, (result, value) in zip(factors, pairs, strict=True):
        if result.model.width_warning() is None:
            axes.plot(factor, value, line[0], color=drawn.get_color(), ms=6)
axes.set(xlabel="factor of the data's own width", ylabel="quality", ylim=(-0.05, 1.05))
axes.legend(loc="lower right")
plt.show()

# %%
# A narrow kernel finds nothing. A wide one finds what a linear kernel would: that is enough for the clusters of digits,
# and at last no better than a guess for the rings. The finding comes before the rings are lost, and names the remedy:

for factor, (result, _) in zip(factors, runs["rings: share told apart"][1], strict=True):
    print(f"factor {factor}:", *result.findings)

# %%
# Rules for widths: :doc:`/how-to/kernels`.
