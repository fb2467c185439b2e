"""
Clusters of digits at five hospitals
====================================

Five hospitals hold 1797 scanned digits, none of which may leave, and each sees some digits more often than others. They
want ten clusters of all rows. Two pairs find them by different messages: `fedkernel.strategies.CentroidKMeans` sends
centres of groups of rows, `fedkernel.strategies.FKKMeans` sums over rows of products of random features.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import normalized_mutual_info_score

from fedkernel import CentroidKMeans, FKKMeans

X, digits = load_digits(return_X_y=True)
by_digit = np.argsort(digits + 8 * np.random.default_rng(0).random(len(digits)))
own_rows = np.array_split(by_digit, 5)
hospitals = [X[own] for own in own_rows]
for own in own_rows:
    print("rows of each digit:", np.bincount(digits[own], minlength=10))

# %%
# Each hospital keeps the labels of its rows. Here, where all are simulated, they can be compared with the digits: the
# normalised mutual information is 1 where clusters and digits are the same, and 0 where they have nothing in common.


def compare(strategy):
    """Return the floats that all hospitals sent and the agreement of labels and digits, means of two seeds."""
    figures = []
    for seed in range(2):
        result = strategy.fit(hospitals, seed=seed)
        labels = np.concatenate([result.outputs[client]["labels"] for client in range(5)])
        agreement = normalized_mutual_info_score(digits[by_digit], labels)
        figures.append((result.ledger.floats_up, agreement))
    return np.mean(figures, axis=0)


local = [compare(CentroidKMeans(10, centroids="local", n_landmarks=number)) for number in (20, 50, 150)]
shared = [compare(CentroidKMeans(10, n_landmarks=number)) for number in (20, 50)]
features = [compare(FKKMeans(10, iterations=number)) for number in (1, 2, 4)]

# %%
# Centres of each hospital need by far the fewest floats for the same agreement, whose differences above 0.7 are chance:
# they change with the seed. Shared centres need sums over all hospitals and nothing else, of which ``sums="masked"``
# hides each hospital's part. To the right of the dotted line, the table's own size, pooling the rows is cheaper.

strategy = CentroidKMeans(10, centroids="local")
result = strategy.fit(hospitals, seed=0)
labels = np.concatenate([result.outputs[client]["labels"] for client in range(5)])
means = [np.pad(X[by_digit][labels == label].mean(axis=0).reshape(8, 8), 1) for label in range(10)]

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained", width_ratios=[3, 2])
for points, line, name in [
    (local, "o-", "centres of each hospital"),
    (shared, "s--", "shared centres"),
    (features, "D:", "FK k-means"),
]:
    left.semilogx(*np.transpose(points), line, label=name)
left.axvline(X.size, color="0.4", ls=":")
left.set(xlabel="floats that all hospitals sent", ylabel="agreement of clusters and digits")
figure.legend(loc="outside upper left", ncols=3)
right.imshow(np.vstack([np.hstack(means[:5]), np.hstack(means[5:])]), cmap="gray_r")
right.set(title="Mean of the rows of each cluster")
right.axis("off")
plt.show()

# %%
# All pairs on more data sets, with what each message reveals: :doc:`/how-to/which-method`.
print(result)
