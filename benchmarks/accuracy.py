"""How good FK k-means' estimate is where its iterations end, beside what was asked: ``python benchmarks/accuracy.py``.

A row for each data set, accuracy and number of features, over three seeds: the squared error beside that asked for,
which no coordinator can measure, and t D accuracy, which the forecast takes to be 1. Runs that end by their T are left
out.
"""

import itertools

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.preprocessing import StandardScaler

from fedkernel.models import recover_error
from fedkernel.strategies import FKKMeans

SEEDS = range(3)
SETS = {"digits": (load_digits, 10), "wine": (load_wine, 3), "breast cancer": (load_breast_cancer, 2)}


def main() -> None:
    """Print the table, and its least and most."""
    figures = []
    print(f"{'':14}{'D':>4}{'accuracy':>10}{'error / accuracy':>20}{'t D accuracy':>18}")
    for (name, (load, k)), D, accuracy in itertools.product(SETS.items(), (20, 50, 100), (0.01, 0.002, 0.001)):
        shards = np.array_split(StandardScaler().fit_transform(load().data), 5)
        strategy = FKKMeans(k, k, n_features=D, iterations=200, accuracy=accuracy, solver="gram", coreset_size=20)
        E = strategy.central(shards).training_
        ended = []
        for seed in SEEDS:
            result = strategy.fit(shards, seed=seed)
            if (t := len(result.model.embedding.maps)) < strategy.iterations:
                H = np.vstack([result.outputs[client]["embedding"] for client in range(len(shards))])
                error = recover_error(H, E) * len(H) ** 2 / np.linalg.norm(H.T @ H) ** 2
                ended.append((error / accuracy, t * D * accuracy))
        if ended:
            errors, times = zip(*ended, strict=True)
            spans = f"{min(errors):11.2f} to {max(errors):.2f}", f"{min(times):10.2f} to {max(times):.2f}"
            print(f"{name:14}{D:4}{accuracy:10}{spans[0]:>20}{spans[1]:>18}")
            figures += ended
    errors, times = zip(*figures, strict=True)
    print(f"in all, {min(errors):.2f} to {max(errors):.2f} and {min(times):.2f} to {max(times):.2f}")


if __name__ == "__main__":
    main()
