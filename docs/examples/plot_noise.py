"""
Noise with a stated epsilon, and its cost
=========================================

Sums over rows tell something about each row. With ``privacy=Privacy(epsilon, radius)`` each site adds noise to them, so
that a table with one row more or less gives the coordinator nearly the same numbers: differential privacy. A small
epsilon is a strong promise and much noise. The same noise matters less in sums over more rows.
"""

import importlib.util

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs
from sklearn.metrics import normalized_mutual_info_score

from fedkernel import RBF, CentroidKMeans, Privacy

# %%
# Four sites hold rows of five columns in four clusters. Nothing may be computed from the rows without noise: the
# kernel's width and the radius, to which longer rows are shortened, follow from the number of columns.

epsilons = [0.25, 0.5, 1, 2, 4]
if importlib.util.find_spec("dp_accounting") is None:
    print("no noise below, since it needs more packages: pip install 'fedkernel[privacy]'")
    epsilons = []
strategy = CentroidKMeans(n_clusters=4, kernel=RBF(width="columns"))


def agreement(rows, epsilon):
    """Return how well the clusters agree with the true ones, and the result."""
    X, classes = make_blobs(rows, 5, centers=4, cluster_std=0.6, center_box=(-2, 2), random_state=1)
    sites = np.array_split((X - X.mean(axis=0)) / X.std(axis=0), 4)
    privacy = None if epsilon is None else Privacy(epsilon=epsilon, radius=5**0.5)
    result = strategy.fit(sites, seed=0, sums="masked", privacy=privacy)
    labels = np.concatenate([result.outputs[site]["labels"] for site in range(4)])
    return normalized_mutual_info_score(classes, labels), result


figure, axes = plt.subplots(figsize=(6, 3.8), layout="constrained")
for rows, line in [(6000, "s--"), (600, "o-")]:
    runs = [agreement(rows, epsilon) for epsilon in epsilons]
    (drawn,) = axes.semilogx(epsilons, [value for value, _ in runs], line, label=f"{rows:,} rows")
    axes.axhline(agreement(rows, None)[0], color=drawn.get_color(), ls=":")
axes.set(xlabel="epsilon", ylabel="agreement of clusters (dotted: no noise)", ylim=(0, 1))
axes.set_xticks(epsilons, [str(epsilon) for epsilon in epsilons])
axes.minorticks_off()
axes.legend(loc="lower right")
plt.show()

# %%
# The findings say what was promised, and what the noise costs, here for 600 rows:

for _, result in runs[::2]:
    print(*result.findings, sep="\n")

# %%
# What the promise covers and what it does not: :doc:`/explanation/privacy`. In a file of an experiment, and in a site's
# policy: :doc:`/tutorials/only-sums`.
