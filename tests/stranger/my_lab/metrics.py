"""A metric: what it is, and the function that computes it."""

import numpy as np

from fedkernel.models import Metric


def distance_of_the_mean(model, shards):
    return float(np.linalg.norm(model.point - np.vstack(shards).mean(axis=0)))


eccentricity = Metric(
    "eccentricity",
    "distance of the centre from the rows' plain mean",
    better="higher",
    unit="metres",
    digits=(".3f", ".3f"),
    function=distance_of_the_mean,
)
