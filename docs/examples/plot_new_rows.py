"""
New rows: labels and coordinates
================================

A federation has ended, and next week's rows arrive. Where rows are divided, the model labels them, and no message is
needed. Where columns are divided, a new row is divided, too: one more round projects it.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits, load_wine
from sklearn.metrics import normalized_mutual_info_score

from fedkernel import DKPCA, RBF, FKKMeans

# %%
# Divided rows
# ------------
#
# Five sites find ten clusters of 1500 digits. Whoever has the model labels the other 297; ``strategy.predict`` sends it
# to the sites that hold new rows, whose labels stay there.

X, digits = load_digits(return_X_y=True)
sites, new = np.array_split(X[:1500], 5), X[1500:]
strategy = FKKMeans(n_clusters=10)
result = strategy.fit(sites, seed=0)
labels = result.model.predict(new)
at_sites = np.concatenate(strategy.predict(result.model, sites, np.array_split(new, 5)))
print("the same labels at the sites:", np.array_equal(labels, at_sites))
print(f"agreement with the digits: {normalized_mutual_info_score(digits[1500:], labels):.2f}")

# %%
# Divided columns
# ---------------
#
# Three laboratories have measured 138 wines, and now 40 new ones. Each sends its part of the kernel between new and
# old wines; the coordinator multiplies the parts. Means and spreads are of the old wines.

wine = load_wine()
old = np.random.default_rng(0).permutation(178) < 138
Z = (wine.data - wine.data[old].mean(axis=0)) / wine.data[old].std(axis=0)
laboratories, new_wines = np.array_split(Z[old], 3, axis=1), np.array_split(Z[~old], 3, axis=1)
strategy = DKPCA(n_components=2, kernel=RBF(gamma=0.05), local_components=20)
model = strategy.fit(laboratories, seed=0).model
coordinates = strategy.transform(model, laboratories, new_wines)

figure, axes = plt.subplots(figsize=(6, 4.2), layout="constrained")
for cultivar, marker in enumerate("osD"):
    look = {"marker": marker, "ls": "", "color": f"C{cultivar}", "ms": 5}
    axes.plot(*model.embedding()[wine.target[old] == cultivar].T, **look, mfc="none", alpha=0.6)
    axes.plot(*coordinates[wine.target[~old] == cultivar].T, **look, label=f"new, cultivar {cultivar}")
axes.set(xlabel="first component", ylabel="second component", title="Hollow: fitted wines. Filled: new ones")
axes.legend()
plt.show()

# %%
# On separate machines ``fedkernel serve --project`` and ``fedkernel join`` do the same: :doc:`/reference/commands`.
