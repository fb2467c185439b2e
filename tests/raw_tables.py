"""Raw tables of three sites, and pairs of few rounds to try them on."""

import numpy as np
import pandas as pd
from sklearn.datasets import load_wine

from fedkernel import RBF, Linear, Prepare, RFKKMeans, UniformKPCA

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

UNITS = {"age": (60.0, 12.0), "crp": (1.1, 1.3)}
STATED_OPTIONS = {
    "scale": UNITS,
    "missing": "center",
    "log": ("crp",),
    "clip": {"crp": (0.1, 500.0)},
    "categories": {"sex": ("f", "*")},
    "drift": "ignore",
}
STATED = Prepare(**STATED_OPTIONS)
"""A preparation that takes nothing from the rows of `patients`, and refuses none of them."""


def patients(seed=0, rows=150, holes=0.1):
    """Three sites with empty cells, numbers without a logarithm, rare levels, and columns in orders of their own."""
    rng, sites = np.random.default_rng(seed), []
    for _ in range(3):
        columns = {"age": rng.normal(60, 12, rows), "crp": np.exp(rng.normal(1.1, 1.3, rows)) - 0.5}
        frame = pd.DataFrame(columns | {"sex": rng.choice(["f", "m", "x"], rows, p=[0.6, 0.3, 0.1]).astype(object)})
        sites.append(frame.mask(rng.random(frame.shape) < holes)[rng.permutation(frame.columns)])
    return sites
