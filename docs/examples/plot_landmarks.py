"""
Landmarks: error against floats
===============================

Kernel PCA of many rows is found in the span of a few landmarks. `fedkernel.strategies.DisKPCA` and
`fedkernel.strategies.UniformKPCA` take rows as landmarks, and send them as they are. The landmarks of
`fedkernel.strategies.CentroidKPCA` are k-means centres, and no row leaves. Five sites hold 1797 digits.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from fedkernel import RBF, CentroidKPCA, DisKPCA, UniformKPCA

X = load_digits().data
sites = np.array_split(X, 5)
common = {"n_components": 10, "kernel": RBF(gamma=0.0005)}
central = CentroidKPCA(**common).central(sites)

# %%
# The error ratio is the reconstruction error in feature space, in multiples of the least that ten components can have,
# those of kernel PCA of all rows in one place: 1 is the optimum.

numbers = [20, 50, 100]
strategies = {
    "centres of each site": [CentroidKPCA(**common, centroids="local", n_landmarks=number) for number in numbers],
    "shared centres": [CentroidKPCA(**common, n_landmarks=number) for number in numbers],
    "rows by leverage and distance": [
        DisKPCA(**common, n_leverage=10, n_adaptive=number - 10, share_rows=True) for number in numbers
    ],
    "rows drawn uniformly": [UniformKPCA(**common, n_samples=number, share_rows=True) for number in numbers],
}
results = {
    name: [strategy.fit(sites, seed=0, reference=central) for strategy in row] for name, row in strategies.items()
}

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for (name, row), line in zip(results.items(), ["o-", "s--", "D:", "^-."], strict=True):
    floats = [result.ledger.floats_up for result in row]
    errors = [result.metrics["error_ratio"] - 1 for result in row]
    axes.loglog(floats, errors, line, label=name)
    print(f"{name}: error ratio {1 + errors[-1]:.3f}, {row[-1].ledger.rows_up} rows sent")
axes.axvline(X.size, color="0.4", ls=":")
axes.set(xlabel="floats that all sites sent (dotted: the table)", ylabel="error ratio - 1")
figure.legend(loc="outside upper left", ncols=2)
plt.show()

# %%
# Landmarks as the coordinator sees them. Those above are the sites' means of at least five rows, those below are
# rows of the table: methods with rows run only with ``share_rows=True``.

figure, (above, below) = plt.subplots(2, 1, figsize=(8, 2.4), layout="constrained")
for axes, name in [(above, "centres of each site"), (below, "rows by leverage and distance")]:
    landmarks = results[name][-1].model.landmarks_[:12].reshape(12, 8, 8)
    axes.imshow(np.hstack(np.pad(landmarks, [(0, 0), (1, 1), (1, 1)])), cmap="gray_r")
    axes.set(title=name)
    axes.axis("off")
plt.show()

# %%
# Centres are the better landmarks here, for as many floats. A mean of few rows tells something about them, too:
# :doc:`/explanation/privacy` says what can be recovered. More sets and numbers: :doc:`/how-to/which-method`.
