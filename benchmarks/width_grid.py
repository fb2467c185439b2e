"""What a grid of widths costs: its widths share the rows that may be sampled, and so agree less with the digits.

``python benchmarks/width_grid.py``: a line for each grid and seed, with what a run at the chosen width alone comes to;
then the seconds that a site takes to embed rows at all widths at once, and one by one.
"""

import time

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import normalized_mutual_info_score

from fedkernel import RBF
from fedkernel.numerics import RandomFeatures
from strategies import RFKKMeans

GRIDS = ((0.25, 1, 2), (0.25, 0.5, 1, 2, 4))


def main() -> None:
    """Print agreement of grids and of runs at the width that each has chosen, and what sharing a product saves."""
    X, digits = load_digits(return_X_y=True)
    shards = np.array_split(X, 5)

    def run(factors: tuple[float, ...], seed: int) -> tuple[float, float]:
        result = RFKKMeans(n_clusters=10, width_factors=factors).fit(shards, seed=seed)
        labels = np.concatenate([result.outputs[client]["labels"] for client in range(len(shards))])
        return result.metrics.get("width_factor", factors[0]), normalized_mutual_info_score(digits, labels)

    for grid in GRIDS:
        for seed in range(3):
            chosen, agreement = run(grid, seed)
            alone = run((chosen,), seed)[1]
            print(f"{len(grid)} widths {grid}, seed {seed}: {chosen:g}, agreement {agreement:.3f}, alone {alone:.3f}")
    factors = GRIDS[-1]
    for columns in (20, 200, 2000):
        rows = np.random.default_rng(0).standard_normal((5000, columns))
        features = RandomFeatures(RBF(gamma=1 / columns), 200)
        began = time.perf_counter()
        features.at_widths(rows, factors)
        shared = time.perf_counter() - began
        began = time.perf_counter()
        for factor in factors:
            features.at_width(factor).map(columns)(rows)
        apart = time.perf_counter() - began
        print(f"{len(factors)} widths of 5000 x {columns}: {shared:.3f} s, one by one {apart:.3f} s")


if __name__ == "__main__":
    main()
