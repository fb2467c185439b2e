"""
A pipeline and a grid search of scikit-learn
============================================

`fedkernel.sklearn` has the pairs as estimators. They deal a table to simulated sites, run a federation, and fit into
pipelines and searches: a rehearsal that finds the parameters before real sites meet.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fedkernel.sklearn import FederatedKernelKMeans

X = load_wine().data
pipeline = make_pipeline(StandardScaler(), FederatedKernelKMeans(sites=3, random_state=0))
grid = {"federatedkernelkmeans__n_clusters": [2, 3, 4, 5]}
folds = KFold(3, shuffle=True, random_state=0)
search = GridSearchCV(pipeline, grid, cv=folds).fit(X)
print(search.best_params_)

# %%
# The score is the mean simplified silhouette of the rows that were left out, so that it needs no classes.

means, spreads = search.cv_results_["mean_test_score"], search.cv_results_["std_test_score"]
figure, axes = plt.subplots(figsize=(5, 3.4), layout="constrained")
axes.errorbar(grid["federatedkernelkmeans__n_clusters"], means, spreads, fmt="o-", capsize=3)
axes.set(xlabel="number of clusters", ylabel="silhouette of rows left out", xticks=range(2, 6))
plt.show()

# %%
# ``result_`` is the run's own result, with all that was sent:

result = search.best_estimator_[-1].result_
result

# %%
# Its figure has the rows, the clusters and the eigenvalues. A script saves it: ``result.plot().savefig("wine.png")``.

result.plot()

# %%
# More estimators, sites that are named row by row, and a million rows on one machine: :doc:`/how-to/estimators`.
