"""Raw tables of three sites, and pairs of few rounds to try them on."""

import numpy as np
from sklearn.datasets import load_wine

from fedkernel import RBF, Linear
from fedkernel.strategies import RFKKMeans, UniformKPCA

PCA = UniformKPCA(2, Linear(), n_samples=9, share_rows=True)
CLUSTERS = RFKKMeans(2, n_features=8, coreset_size=9, kernel=RBF(gamma=0.1))


def frames():
    """Three sites with other orders of columns, empty cells, and text."""
    wine = load_wine(as_frame=True).data.iloc[:, :5]
    rng = np.random.default_rng(0)
    wine = wine.assign(region=rng.choice(["north", "south"], len(wine)).astype(object))
    wine.iloc[3, 1], wine.iloc[70, 5] = np.nan, None
    wine = wine.sample(frac=1, random_state=1)
    sites = [wine.iloc[part].reset_index(drop=True) for part in np.array_split(np.arange(len(wine)), 3)]
    return [sites[0], sites[1].iloc[:, ::-1], sites[2]]


CATEGORIES = {"region": ["north", "south"]}
