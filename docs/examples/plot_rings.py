"""
Rings that PCA does not see
===========================

Three sites hold 300 rows each, of 20 columns. The rows lie on two rings, one within the other, turned in some direction
of the 20-dimensional space. PCA finds the plane of the rings, and no line in it separates them. The first component of
kernel PCA does. The same pair finds both, `fedkernel.strategies.CentroidKPCA`, by two kernels; no row leaves.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_circles
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from fedkernel import RBF, CentroidKPCA, Linear

rng = np.random.default_rng(0)
points, ring = make_circles(900, factor=0.4, noise=0.06, random_state=0)
plane = np.linalg.qr(rng.normal(size=(20, 2)))[0]
X = points @ plane.T + 0.05 * rng.normal(size=(900, 20))
sites = np.array_split(X, 3)

# %%
# ``RBF()`` takes the width of the data, which the sites settle by sums before the method begins. A linear classifier
# of the two coordinates says how much of the rings is seen: half of the rows right is a guess.

figure, panels = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for axes, kernel in zip(panels, [Linear(), RBF()], strict=True):
    result = CentroidKPCA(n_components=2, kernel=kernel).fit(sites, seed=0)
    coordinates = np.concatenate([result.outputs[site]["embedding"] for site in range(3)])
    right = cross_val_score(LogisticRegression(), coordinates / coordinates.std(axis=0), ring).mean()
    print(result.model.kernel, f"{right:.0%} right;", result)
    for value, look in [(0, "o"), (1, "^")]:
        axes.plot(*coordinates[ring == value].T, look, ms=3.5, label=["outer ring", "inner ring"][value])
    name = type(kernel).__name__
    axes.set(title=f"{name} kernel: {right:.0%} right", xlabel="first component", ylabel="second component")
panels[1].legend()
plt.show()

# %%
# A width that is too narrow or too wide loses the rings: :doc:`plot_widths`. If columns are divided among the sites and
# not rows, :doc:`plot_columns_at_three_sites` has the same.
